//! A key that expired as one type and is written as another. What has expired is still stored, and there are batches
//! that began before that time, and wall clocks that are set back: for both it is live.

use super::harness::{START_MS, locked, store};
use std::sync::Arc;
use terrace_base::ManualClock;
use terrace_keyspace::{
    AddRule, CommandBatch, End, ExpireIf, Keyspace, Kind, Lifetime, Mode, PutOptions, Type,
};

const KEY: &[u8] = b"{t}k";
const OTHER: &[u8] = b"{t}other";
const LIFE_MS: u64 = 10;

/// How one of the types is written under the key, where nothing is.
type Write = (&'static str, fn(&mut CommandBatch));

/// [`OTHER`] is a list.
const COLLECTIONS: &[Write] = &[
    ("list", |batch| {
        batch.list_push(0, KEY, End::Back, false, [&b"v"[..]].into_iter()).unwrap();
    }),
    ("hash", |batch| {
        batch.hash_set(0, KEY, [(&b"f"[..], &b"v"[..])].into_iter()).unwrap();
    }),
    ("set", |batch| {
        batch.set_add(0, KEY, [&b"m"[..]].into_iter()).unwrap();
    }),
    ("zset", |batch| {
        let scores = [(1.0, &b"m"[..])];
        batch.sorted_set_add(0, KEY, AddRule::default(), scores.into_iter()).unwrap();
    }),
    ("list", |batch| {
        batch.list_replace(0, KEY, &[b"v".to_vec()]).unwrap();
    }),
    ("set", |batch| {
        batch.set_replace(0, KEY, &[b"m".to_vec()]).unwrap();
    }),
    ("list", |batch| {
        assert!(batch.rename(0, OTHER, KEY, true).unwrap());
    }),
    ("list", |batch| {
        assert!(batch.copy((0, OTHER), (0, KEY), false).unwrap());
    }),
];

const TEXTS: &[Write] = &[
    ("put", |batch| {
        batch.put(0, KEY, b"text", &PutOptions::default()).unwrap();
    }),
    ("put_many", |batch| {
        batch.put_many(0, [(KEY, &b"text"[..])].into_iter()).unwrap();
    }),
    ("append", |batch| {
        batch.append(0, KEY, b"text").unwrap();
    }),
    ("put_range", |batch| {
        batch.put_range(0, KEY, 0, b"text").unwrap();
    }),
    ("take_string", |batch| {
        assert!(batch.take_string(0, KEY).unwrap().is_none());
        batch.put(0, KEY, b"text", &PutOptions::default()).unwrap();
    }),
];

fn put_that_expires(batch: &mut CommandBatch) {
    let lifetime = Lifetime::Until(START_MS + LIFE_MS);
    batch.put(0, KEY, b"text", &PutOptions { lifetime, ..PutOptions::default() }).unwrap();
}

fn store_with_a_list() -> (Arc<Keyspace>, ManualClock) {
    let (space, _vfs, clock) = store();
    let mut batch = locked(&space, &[OTHER]);
    batch.list_push(0, OTHER, End::Back, false, [&b"v"[..]].into_iter()).unwrap();
    batch.commit().unwrap();
    drop(batch);
    (space, clock)
}

/// Whatever time it is, the key is of this type alone.
#[track_caller]
fn is_only(space: &Arc<Keyspace>, clock: &ManualClock, name: &str) {
    for back_ms in [0, 2 * LIFE_MS] {
        clock.advance(0_u64.wrapping_sub(back_ms));
        let mut batch = locked(space, &[KEY]);
        let kind = batch.key_type(0, KEY).unwrap();
        assert_eq!(kind.map(Type::name), Some(name), "{back_ms} ms back");
        let deleted = batch.attempt(|batch| {
            assert_eq!(batch.delete(0, [KEY].into_iter()).unwrap(), 1);
            assert_eq!(batch.key_type(0, KEY).unwrap(), None, "a {name} lay over it");
            Err::<(), ()>(())
        });
        assert!(deleted.is_err());
        clock.advance(back_ms);
    }
}

#[test]
fn a_string_that_has_expired_stays_under_no_collection() {
    for (at, (name, write)) in COLLECTIONS.iter().enumerate() {
        let (space, clock) = store_with_a_list();
        let mut batch = locked(&space, &[KEY]);
        put_that_expires(&mut batch);
        batch.commit().unwrap();
        // It reads the clock once, before the string expires.
        let mut older = space.command_batch(Mode::Memory);
        clock.advance(2 * LIFE_MS);
        let mut batch = locked(&space, &[KEY, OTHER]);
        write(&mut batch);
        batch.commit().unwrap();
        older.lock(0, [KEY].into_iter()).unwrap();
        assert!(!older.persist(0, KEY).unwrap(), "{name} {at}");
        older.commit().unwrap();
        is_only(&space, &clock, name);
    }
}

#[test]
fn a_string_that_expires_in_its_batch_stays_under_no_collection() {
    for (name, write) in COLLECTIONS {
        let (space, clock) = store_with_a_list();
        let mut batch = locked(&space, &[KEY, OTHER]);
        put_that_expires(&mut batch);
        clock.advance(2 * LIFE_MS);
        batch.look_at_the_clock();
        write(&mut batch);
        batch.commit().unwrap();
        is_only(&space, &clock, name);
    }
}

#[test]
fn a_collection_that_has_expired_stays_under_no_string_and_no_other_collection() {
    let texts = TEXTS.iter().map(|(_, write)| ("string", write));
    let others = COLLECTIONS.iter().map(|(name, write)| (*name, write));
    for (name, write) in texts.chain(others) {
        for kind in [Kind::Hash, Kind::List] {
            let (space, clock) = store_with_a_list();
            let mut batch = locked(&space, &[KEY]);
            match kind {
                Kind::Hash => COLLECTIONS[1].1(&mut batch),
                _ => COLLECTIONS[0].1(&mut batch),
            }
            assert!(batch.expire(0, KEY, START_MS + LIFE_MS, ExpireIf::default()).unwrap());
            batch.commit().unwrap();
            let mut older = space.command_batch(Mode::Memory);
            clock.advance(2 * LIFE_MS);
            let mut batch = locked(&space, &[KEY, OTHER]);
            write(&mut batch);
            batch.commit().unwrap();
            older.lock(0, [KEY].into_iter()).unwrap();
            assert!(!older.persist(0, KEY).unwrap(), "{name} over a {kind:?}");
            older.commit().unwrap();
            is_only(&space, &clock, name);
        }
    }
}

/// Results without elements.
fn store_nothing(batch: &mut CommandBatch) {
    assert_eq!(batch.list_replace(0, KEY, &[]).unwrap(), 0);
    assert_eq!(batch.set_replace(0, KEY, &[]).unwrap(), 0);
    assert_eq!(batch.sorted_set_replace(0, KEY, &Vec::new()).unwrap(), 0);
}

/// What only looks, and finds nothing to change, writes nothing: a client that watches the key sees no write.
#[test]
fn an_expired_string_is_left_alone_by_what_makes_no_collection() {
    let (space, clock) = store_with_a_list();
    let mut batch = locked(&space, &[KEY]);
    put_that_expires(&mut batch);
    batch.commit().unwrap();
    clock.advance(2 * LIFE_MS);
    let mut batch = locked(&space, &[KEY]);
    assert_eq!(batch.hash_remove(0, KEY, [&b"f"[..]].into_iter()).unwrap(), 0);
    assert_eq!(batch.set_remove(0, KEY, [&b"m"[..]].into_iter()).unwrap(), 0);
    assert_eq!(batch.list_push(0, KEY, End::Back, true, [&b"v"[..]].into_iter()).unwrap(), 0);
    store_nothing(&mut batch);
    assert!(batch.is_clean());
}

/// A collection as well.
#[test]
fn an_expired_collection_is_left_alone_by_what_makes_none() {
    for (name, write) in COLLECTIONS {
        let (space, clock) = store_with_a_list();
        let mut batch = locked(&space, &[KEY, OTHER]);
        write(&mut batch);
        assert!(batch.expire(0, KEY, START_MS + LIFE_MS, ExpireIf::default()).unwrap());
        batch.commit().unwrap();
        clock.advance(2 * LIFE_MS);
        let watched = space.watch_keys(None, [(0, KEY)].into_iter(), usize::MAX).unwrap();
        let mut batch = locked(&space, &[KEY, OTHER]);
        let (front, back) = ((KEY, End::Front), (OTHER, End::Back));
        assert_eq!(batch.hash_remove(0, KEY, [&b"f"[..]].into_iter()).unwrap(), 0, "{name}");
        assert_eq!(batch.set_remove(0, KEY, [&b"m"[..]].into_iter()).unwrap(), 0, "{name}");
        assert!(!batch.set_move(0, KEY, b"{t}third", b"m").unwrap(), "{name}");
        assert!(batch.set_pop(0, KEY, 1).unwrap().is_empty(), "{name}");
        assert!(batch.list_pop(0, KEY, End::Back, 1).unwrap().is_none(), "{name}");
        assert!(batch.list_move(0, front, back).unwrap().is_none(), "{name}");
        let rule = AddRule { only_existing: true, ..AddRule::default() };
        let scores = [(1.0, &b"m"[..])];
        let added = batch.sorted_set_add(0, KEY, rule, scores.into_iter()).unwrap();
        assert_eq!((added.added, added.changed), (0, 0), "{name}");
        store_nothing(&mut batch);
        assert!(batch.is_clean(), "{name}");
        batch.commit().unwrap();
        assert!(watched.is_unchanged(space.db()).unwrap(), "{name}");
    }
}
