//! Keys that a store has from before it was in a cluster, and that nobody would find there.

use super::harness::{PLACEMENT, small_options, stopped_clock};
use super::moves::{id, keys, values, with_locks};
use terrace::vfs::SimVfs;
use terrace_cluster::{DbKey, KeyRange, slot_of};
use terrace_keyspace::{ExpireIf, Keyspace, Placement, PutOptions};

/// The part of the key space that has this key and, with placement `range`, no other.
fn part_of(key: &str) -> KeyRange {
    let slot = slot_of(key.as_bytes()).number();
    match PLACEMENT {
        Placement::Slots => KeyRange::Slots(slot, slot),
        Placement::Range => {
            KeyRange::Keys { start: key.into(), end: Some([key.as_bytes(), &[0]].concat()) }
        }
    }
}

/// A server that was in no cluster becomes a node of one, with its keys.
#[test]
fn keys_that_a_cluster_would_not_find_are_told_from_those_that_were_brought() {
    let clock = stopped_clock();
    let options = small_options(&SimVfs::new(1), &clock);
    let space = Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap();
    let stray = |parts: &[&str]| {
        let parts: Vec<_> = parts.iter().map(|key| part_of(key)).collect();
        space.stray_key(&parts).unwrap()
    };
    assert_eq!(stray(&[]), None);
    with_locks(&space, |batch| {
        batch.put(0, b"a", b"v", &PutOptions::default())?;
        batch.put(0, b"b", b"v", &PutOptions::default())?;
        batch.hash_set(0, b"c", std::iter::once((&b"f"[..], &b"v"[..])))?;
        batch.set_add(0, b"d", std::iter::once(&b"m"[..]))?;
        let later = batch.now_ms() + 100;
        batch.expire(0, b"d", later, ExpireIf::default()).map(drop)
    });
    for (own, wanted) in [
        (&["a", "b", "c", "d"][..], None),
        (&["a", "c", "d"][..], Some("b")),
        (&["a", "b", "d"][..], Some("c")),
        (&["d", "b", "a"][..], Some("c")),
        (&["a", "b", "c"][..], Some("d")),
    ] {
        assert_eq!(stray(own), wanted.map(|key| DbKey::new(0, key)), "{own:?}");
    }
    clock.advance(100);
    assert_eq!(stray(&["a", "b", "c"]), None, "it has expired");
    assert_eq!(space.import_keys(id(1), &keys(), &values()).unwrap(), Ok(()));
    assert_eq!(stray(&["a", "b", "c"]), None, "a move has brought them");
    // Of a database that a cluster has not.
    with_locks(&space, |batch| batch.put(1, b"a", b"v", &PutOptions::default()).map(drop));
    assert_eq!(stray(&["a", "b", "c"]), Some(DbKey::new(1, "a")));
}
