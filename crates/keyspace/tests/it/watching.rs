//! Keys that are watched: from when on, how often, and what is no change of them.

use super::harness::store;
use std::sync::Arc;
use terrace_keyspace::{ExpireIf, Keyspace, Mode, PutOptions};

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
    let watch = space.watch_keys(None, one(b"early"));
    for _ in 0..1000 {
        let again = space.watch_keys(Some(&watch), one(b"early").chain(one(b"early")));
        assert!(Arc::ptr_eq(&watch, &again));
    }
    assert_eq!(watch.keys().len(), 1);
    put(&space, b"late");
    space.watch_keys(Some(&watch), one(b"late"));
    assert_eq!(watch.keys().len(), 2);
    assert!(watch.is_unchanged(space.db()).unwrap());
    put(&space, b"early");
    space.watch_keys(Some(&watch), one(b"early").chain(one(b"other")));
    assert!(!watch.is_unchanged(space.db()).unwrap());
    let late = space.watch_keys(None, one(b"late"));
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
    let (unchanged, changed) = (space.watch_keys(None, keys()), space.watch_keys(None, keys()));
    clock.advance(10);
    // Of a third one a key was written before.
    let written = space.watch_keys(None, keys());
    put(&space, b"other");
    let other = space.watch_keys(Some(&written), [(0, &b"other"[..])].into_iter());
    put(&space, b"other");
    assert_eq!(space.expire_due().unwrap().collections, 1);
    assert!(unchanged.is_unchanged(space.db()).unwrap());
    assert!(!other.is_unchanged(space.db()).unwrap());
    add(&space, b"gone", None);
    assert!(!changed.is_unchanged(space.db()).unwrap());
    // What is swept as somebody else's writes it is written.
    let again = space.watch_keys(None, keys());
    add(&space, b"stays", Some(5));
    clock.advance(5);
    assert_eq!(space.expire_due().unwrap().collections, 1);
    assert!(!again.is_unchanged(space.db()).unwrap());
}
