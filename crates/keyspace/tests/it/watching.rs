//! Keys that are watched: from when on, how often, and what is no change of them.

use super::harness::{PLACEMENT, START_MS, small_options, store};
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace_base::ManualClock;
use terrace_cluster::{DbKey, Direction, Epoch, MoveId, ShardId};
use terrace_keyspace::{ExpireIf, Keyspace, Mode, PutOptions, Watch};

fn watch<'k>(
    space: &Arc<Keyspace>,
    before: Option<&Arc<Watch>>,
    keys: impl Iterator<Item = (u8, &'k [u8])>,
) -> Arc<Watch> {
    space.watch_keys(before, keys, usize::MAX).unwrap()
}

fn put(space: &Arc<Keyspace>, key: &[u8]) {
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, std::iter::once(key)).unwrap();
    turn.put(0, key, b"v", &PutOptions::default()).unwrap();
    turn.commit().unwrap();
}

fn add(space: &Arc<Keyspace>, key: &[u8], lifetime_ms: Option<u64>) {
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, std::iter::once(key)).unwrap();
    turn.set_add(0, key, std::iter::once(&b"member"[..])).unwrap();
    if let Some(lifetime_ms) = lifetime_ms {
        let at_ms = turn.now_ms() + lifetime_ms;
        assert!(turn.expire(0, key, at_ms, ExpireIf::default()).unwrap());
    }
    turn.commit().unwrap();
}

/// Also if it is watched again after it was written.
#[test]
fn a_key_is_watched_once_and_from_its_first_watch_on() {
    let (space, _vfs, _clock) = store();
    let one = |key: &'static [u8]| std::iter::once((0, key));
    let watched = watch(&space, None, one(b"early"));
    for _ in 0..1000 {
        let again = watch(&space, Some(&watched), one(b"early").chain(one(b"early")));
        assert!(Arc::ptr_eq(&watched, &again));
    }
    assert_eq!(watched.keys().len(), 1);
    put(&space, b"late");
    watch(&space, Some(&watched), one(b"late"));
    assert_eq!(watched.keys().len(), 2);
    assert!(watched.is_unchanged(space.db()).unwrap());
    put(&space, b"early");
    watch(&space, Some(&watched), one(b"early").chain(one(b"other")));
    assert!(!watched.is_unchanged(space.db()).unwrap());
    let late = watch(&space, None, one(b"late"));
    assert!(late.is_unchanged(space.db()).unwrap());
    put(&space, b"late");
    assert!(!late.is_unchanged(space.db()).unwrap());
}

#[test]
fn the_sweep_of_what_has_expired_is_no_change() {
    let (space, _vfs, clock) = store();
    add(&space, b"gone", Some(10));
    add(&space, b"stays", None);
    let keys = || [(0, &b"gone"[..]), (0, &b"stays"[..])].into_iter();
    let (unchanged, changed) = (watch(&space, None, keys()), watch(&space, None, keys()));
    clock.advance(10);
    // Of a third one a key was written before.
    let written = watch(&space, None, keys());
    put(&space, b"other");
    let other = watch(&space, Some(&written), [(0, &b"other"[..])].into_iter());
    put(&space, b"other");
    assert_eq!(space.expire_due().unwrap().collections, 1);
    assert!(unchanged.is_unchanged(space.db()).unwrap());
    assert!(!other.is_unchanged(space.db()).unwrap());
    add(&space, b"gone", None);
    assert!(!changed.is_unchanged(space.db()).unwrap());
    // What is swept as somebody else's writes it is written.
    let again = watch(&space, None, keys());
    add(&space, b"stays", Some(5));
    clock.advance(5);
    assert_eq!(space.expire_due().unwrap().collections, 1);
    assert!(!again.is_unchanged(space.db()).unwrap());
}

/// An empty store whose monotonic clock stands, too.
fn store_with_turned_clock() -> (Arc<Keyspace>, ManualClock) {
    let clock = ManualClock::at(START_MS);
    let options = small_options(&SimVfs::new(1), &clock);
    (Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap(), clock)
}

fn delete(space: &Arc<Keyspace>, key: &[u8]) {
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, std::iter::once(key)).unwrap();
    assert_eq!(turn.delete(0, std::iter::once(key)).unwrap(), 1);
    turn.commit().unwrap();
}

/// Entries in the SSTs of strings, tombstones included.
fn stored_entries(space: &Arc<Keyspace>) -> u64 {
    let shape = space.db().shape();
    let strings = shape.families.iter().find(|family| family.name == space.strings().name());
    strings.unwrap().levels.iter().flatten().map(|file| file.entry_count).sum()
}

/// What others delete goes, though somebody has watched since before.
#[test]
fn a_watch_of_long_ago_keeps_nothing_of_then() {
    const KEYS: u64 = 1000;
    const MINUTE_MS: u64 = 60_000;
    let left_after = |is_renewed: bool| {
        let (space, clock) = store_with_turned_clock();
        let key = |at: u64| format!("key{at}").into_bytes();
        (0..KEYS).for_each(|at| put(&space, &key(at)));
        let watched = watch(&space, None, [(0, &b"watched"[..])].into_iter());
        (0..KEYS).for_each(|at| delete(&space, &key(at)));
        clock.advance(if is_renewed { MINUTE_MS } else { 5000 });
        space.renew_watches();
        assert!(watched.is_unchanged(space.db()).unwrap());
        space.db().flush().unwrap();
        space.strings().compact_range::<&[u8]>(..).unwrap();
        let left = stored_entries(&space);
        // It still notices what comes.
        put(&space, b"watched");
        assert!(!watched.is_unchanged(space.db()).unwrap());
        left
    };
    assert!(left_after(false) >= KEYS, "the test shows nothing");
    assert!(left_after(true) < KEYS / 10);
}

#[test]
fn a_watch_whose_key_was_written_keeps_only_that() {
    let (space, clock) = store_with_turned_clock();
    let snapshots = || space.db().metrics().snapshots;
    let keys = || [(0, &b"a"[..]), (0, &b"b"[..])].into_iter();
    let written = watch(&space, None, keys().take(1));
    put(&space, b"between");
    let other = watch(&space, None, keys().skip(1));
    put(&space, b"a");
    clock.advance(60_000);
    assert_eq!(snapshots(), 2);
    space.renew_watches();
    assert_eq!(snapshots(), 1);
    // For good, also for what it watches later.
    let written = watch(&space, Some(&written), keys());
    assert!(!written.is_unchanged(space.db()).unwrap());
    for round in 0..10 {
        clock.advance(60_000);
        space.renew_watches();
        assert!(other.is_unchanged(space.db()).unwrap(), "{round}");
    }
    assert!(!written.is_unchanged(space.db()).unwrap());
    put(&space, b"b");
    assert!(!other.is_unchanged(space.db()).unwrap());
    drop((written, other));
    assert_eq!(snapshots(), 0);
}

#[test]
fn what_is_watched_has_a_bound() {
    let (space, _vfs, _clock) = store();
    let names: Vec<Vec<u8>> = (0..100).map(|at| format!("key{at}").into_bytes()).collect();
    let keys = || names.iter().map(|name| (0, &name[..]));
    assert!(space.watch_keys(None, keys(), 10_000).is_none());
    let watched = space.watch_keys(None, keys().take(20), 10_000).unwrap();
    let held = watched.held_bytes();
    assert!((20 * 100..10_000).contains(&held), "{held}");
    // Nothing is added of what does not fit, and what is there already takes nothing.
    assert!(space.watch_keys(Some(&watched), keys(), 10_000).is_none());
    assert!(space.watch_keys(Some(&watched), keys().take(20), 10_000).is_some());
    assert_eq!((watched.keys().len(), watched.held_bytes()), (20, held));
    put(&space, &names[50]);
    assert!(watched.is_unchanged(space.db()).unwrap());
}

/// A transaction may have been let in by the routes of before, and takes the lock of the watched key after the commit.
#[test]
fn a_key_that_leaves_is_changed_by_that_also_if_it_does_not_exist() {
    let (space, _vfs, _clock) = store();
    put(&space, b"text");
    add(&space, b"set", None);
    let (here, there) = (ShardId(1), ShardId(2));
    for (number, name) in (1..).zip([&b"text"[..], b"set", b"nothing"]) {
        let (keys, id) = ([DbKey::new(0, name)], MoveId { epoch: Epoch(1), number });
        let (watched, other) = (
            watch(&space, None, std::iter::once((0, name))),
            watch(&space, None, std::iter::once((0, &b"other"[..]))),
        );
        let begun = space.begin_move(here, id, Direction::Out, there, &keys).unwrap();
        assert_eq!(begun, [Ok(())]);
        assert!(space.export_home(id, &keys, 1 << 20).unwrap().is_ok());
        assert!(watched.is_unchanged(space.db()).unwrap(), "it is still here");
        assert_eq!(space.commit_move(id, &keys, &[]).unwrap(), Ok(()));
        assert!(!watched.is_unchanged(space.db()).unwrap(), "{}", name.escape_ascii());
        assert!(other.is_unchanged(space.db()).unwrap());
    }
}
