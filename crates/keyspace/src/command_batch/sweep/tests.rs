//! What the sweep of a key is for those who watch it, whenever they began to.

use super::*;
use crate::command_batch::Mode;
use crate::keys::ExpireIf;
use std::iter::once;
use std::sync::mpsc::channel;
use std::time::Duration;
use terrace::Options;
use terrace::vfs::SimVfs;
use terrace_base::ManualClock;

/// What takes longer hangs.
const HANG_GUARD: Duration = Duration::from_secs(60);

const KEY: &[u8] = b"gone";
const OTHER: &[u8] = b"other";

fn opened() -> (Arc<Keyspace>, ManualClock) {
    let (mut options, clock) = (Options::default(), ManualClock::wall_at(1_000_000));
    options.advanced.vfs = Arc::new(SimVfs::new(1));
    options.advanced.clock = Arc::new(clock.clone());
    (Keyspace::open_without_active_expire("/db", options, None).unwrap(), clock)
}

fn watch(space: &Keyspace, keys: &[&[u8]]) -> Arc<Watch> {
    space.watch_keys(None, keys.iter().map(|key| (0, *key)), usize::MAX).unwrap()
}

fn put(space: &Arc<Keyspace>, key: &[u8], lifetime_ms: u64) {
    let mut batch = space.command_batch(Mode::Device);
    batch.lock(0, once(key)).unwrap();
    batch.set_add(0, key, once(&b"member"[..])).unwrap();
    let at_ms = batch.now_ms() + lifetime_ms;
    assert!(batch.expire(0, key, at_ms, ExpireIf::default()).unwrap());
    batch.commit().unwrap();
}

/// A batch that has removed [`KEY`], which has expired, and is not committed.
fn sweep(space: &Arc<Keyspace>) -> (CommandBatch, Keys) {
    let mut batch = space.command_batch(Mode::Device);
    batch.lock_in(once((0, KEY))).unwrap();
    let meta = batch.stored_meta(0, KEY).unwrap().unwrap();
    assert!(meta.is_expired(batch.now_ms()));
    batch.drop_collection(0, KEY, &meta).unwrap();
    (batch, Keys::from([(0, KEY.to_vec())]))
}

#[test]
fn a_sweep_is_no_change_whenever_one_begins_to_watch() {
    let (space, clock) = opened();
    let is_unchanged = |watch: &Watch| watch.is_unchanged(space.db()).unwrap();
    let earlier = watch(&space, &[KEY]);
    put(&space, KEY, 10);
    let live = watch(&space, &[OTHER, KEY]);
    clock.advance(10);
    let (mut batch, keys) = sweep(&space);
    let locked = watch(&space, &[KEY, OTHER]);
    let written = space.written_of(&keys);
    let looked = watch(&space, &[KEY]);
    batch
        .commit_then(&WriteOptions::default(), |_| {
            let committed = watch(&space, &[KEY]);
            assert!(!is_unchanged(&looked) && is_unchanged(&committed), "the test shows nothing");
            space.watch_swept(&keys, &written);
        })
        .unwrap();
    assert!([&live, &locked, &looked].into_iter().all(|watch| is_unchanged(watch)));
    assert!(!is_unchanged(&earlier), "it was written then");
    put(&space, KEY, 10);
    assert!(![&live, &locked, &looked].into_iter().any(|watch| is_unchanged(watch)));
}

#[test]
fn a_sweep_forgets_no_write_of_a_key_that_it_does_not_remove() {
    let (space, clock) = opened();
    let is_unchanged = |watch: &Watch| watch.is_unchanged(space.db()).unwrap();
    put(&space, KEY, 10);
    clock.advance(10);
    let (both, one) = (watch(&space, &[KEY, OTHER]), watch(&space, &[KEY]));
    let (mut batch, keys) = sweep(&space);
    // Nobody holds its lock.
    put(&space, OTHER, 1000);
    batch.commit_sweep(&keys).unwrap();
    assert!(!is_unchanged(&both) && is_unchanged(&one));
}

/// Others write other keys meanwhile.
#[test]
fn a_sweep_of_a_watched_key_takes_its_lock_alone() {
    let (space, clock) = opened();
    put(&space, KEY, 10);
    let watched = watch(&space, &[KEY]);
    clock.advance(10);
    let mut other = space.command_batch(Mode::Memory);
    other.lock(0, once(OTHER)).unwrap();
    let mut same = space.command_batch(Mode::Memory);
    assert!(same.lock(0, once(KEY)).is_ok(), "both keys have the same lock");
    drop(same);
    let (done, swept) = channel();
    let sweeping = {
        let space = space.clone();
        std::thread::spawn(move || done.send(space.expire_due().unwrap().collections).unwrap())
    };
    let in_time = swept.recv_timeout(HANG_GUARD);
    drop(other);
    sweeping.join().unwrap();
    assert_eq!(in_time, Ok(1), "it waits for the lock of another key");
    assert!(watched.is_unchanged(space.db()).unwrap());
}
