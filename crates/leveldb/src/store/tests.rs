//! A store in the order of bytes with keys on both sides of the engine's limit, against a map; orders that a store
//! refuses.

use super::{FAMILY, Store};
use crate::order::Order;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{Db, MAX_KEY_BYTES, MIN_MEMORY_BUDGET, Options, ReadOptions, WriteOptions};
use terrace_base::Rng;
use terrace_base::rng::SplitMix64;
use terrace_binding::Outcome;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(sim: &SimVfs, order: Order) -> Outcome<Store> {
    let mut options = Options { memory_budget: MIN_MEMORY_BUDGET, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.reserve_bytes = 0;
    Store::open(Db::open("db", options)?, order)
}

fn below(rng: &mut SplitMix64, end: usize) -> usize {
    (rng.next_u64() % end as u64) as usize
}

/// Keys that start alike, of lengths around the limit and far from it.
fn key(rng: &mut SplitMix64) -> Vec<u8> {
    let len = match below(rng, 4) {
        0 => below(rng, 3),
        _ => MAX_KEY_BYTES - 2 + below(rng, 6),
    };
    let mut key = vec![b'l'; len];
    for _ in 0..below(rng, 3) {
        let at = len.saturating_sub(1 + below(rng, 4));
        if let Some(byte) = key.get_mut(at) {
            *byte = b"klm"[below(rng, 3)];
        }
    }
    key
}

fn write(store: &Store, key: &[u8], value: Option<&[u8]>) {
    store.write([(key, value)].into_iter(), &WriteOptions::default()).unwrap();
}

/// A walk of a cursor by random steps shows what the model does.
fn check_walk(store: &Store, reading: &ReadOptions, model: &Model, rng: &mut SplitMix64) {
    let mut cursor = store.cursor(reading).unwrap();
    let mut at: Option<Vec<u8>> = None;
    for _ in 0..60 {
        let next = |key: &Vec<u8>| {
            let after = (std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded);
            model.range::<Vec<u8>, _>(after).next()
        };
        let found = match (below(rng, 12), &at) {
            (0, _) => {
                cursor.seek_to_first().unwrap();
                model.iter().next()
            }
            (1, _) => {
                cursor.seek_to_last().unwrap();
                model.iter().next_back()
            }
            (2..4, _) | (_, None) => {
                let target = self::key(rng);
                cursor.seek(&target).unwrap();
                model.range(target..).next()
            }
            (4..8, Some(key)) => {
                cursor.next().unwrap();
                next(key)
            }
            (_, Some(key)) => {
                cursor.prev().unwrap();
                model.range(..key.clone()).next_back()
            }
        };
        assert_eq!(cursor.valid(), found.is_some());
        let shown = (cursor.key(), cursor.value());
        let expected = found.map_or((&[][..], &[][..]), |(key, value)| (key, value));
        assert!(shown == expected, "{} and {} bytes", shown.0.len(), expected.0.len());
        at = found.map(|(key, _)| key.clone());
    }
}

#[test]
fn keys_on_both_sides_of_the_limit_are_in_one_order() {
    let mut both = 0;
    for seed in 0..6 {
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let mut store = open(&sim, Order::bytes()).unwrap();
        let mut model = Model::new();
        let mut before = None;
        for step in 0..60 {
            let key = key(&mut rng);
            let value = (below(&mut rng, 4) > 0).then(|| rng.next_u64().to_le_bytes().to_vec());
            write(&store, &key, value.as_deref());
            match value {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
            if step == 30 {
                let snapshot = Some(store.db.snapshot());
                before = Some((ReadOptions { snapshot, ..ReadOptions::default() }, model.clone()));
            }
            if step == 45 {
                let (reading, model) = before.take().unwrap();
                check_walk(&store, &reading, &model, &mut rng);
                drop(reading);
                store.db.close().unwrap();
                store = open(&sim, Order::bytes()).unwrap();
            }
        }
        check_walk(&store, &ReadOptions::default(), &model, &mut rng);
        for _ in 0..50 {
            let key = key(&mut rng);
            let got = store.get(&key, &ReadOptions::default()).unwrap();
            assert_eq!(got.as_deref(), model.get(&key).map(|value| &value[..]));
        }
        let long = model.keys().filter(|key| key.len() > MAX_KEY_BYTES).count();
        both += usize::from(long > 0 && long < model.len());
    }
    assert_eq!(both, 6);
}

/// An iterator that was made before the first long key does not show it, and a snapshot neither.
#[test]
fn the_first_long_key_is_not_in_a_snapshot_from_before() {
    let sim = SimVfs::new(1);
    let store = open(&sim, Order::bytes()).unwrap();
    write(&store, b"k", Some(b"1"));
    let long = vec![b'l'; MAX_KEY_BYTES + 1];
    let reading = ReadOptions { snapshot: Some(store.db.snapshot()), ..ReadOptions::default() };
    write(&store, &long, Some(b"2"));
    let count = |reading: &ReadOptions| {
        let mut cursor = store.cursor(reading).unwrap();
        cursor.seek_to_first().unwrap();
        let mut count = 0;
        while cursor.valid() {
            count += 1;
            cursor.next().unwrap();
        }
        count
    };
    assert_eq!(count(&reading), 1);
    assert!(store.get(&long, &reading).unwrap().is_none());
    assert_eq!(count(&ReadOptions::default()), 2);
}

fn backwards() -> Order {
    Order::custom(b"backwards", |a, b| b.cmp(a))
}

#[test]
fn a_store_keeps_its_order() {
    for first in [Order::bytes(), backwards()] {
        let sim = SimVfs::new(1);
        let store = open(&sim, first.clone()).unwrap();
        write(&store, b"k", Some(b"1"));
        store.db.close().unwrap();
        for order in [Order::bytes(), backwards(), Order::custom(b"other", |a, b| b.cmp(a))] {
            let opened = open(&sim, order.clone());
            assert_eq!(opened.is_ok(), order.name() == first.name(), "{first:?} as {order:?}");
            if let Ok(store) = opened {
                let got = store.get(b"k", &ReadOptions::default()).unwrap();
                assert_eq!(got.as_deref(), Some(&b"1"[..]));
                store.db.close().unwrap();
            }
        }
    }
}

#[test]
fn a_store_keeps_its_order_when_all_keys_are_deleted() {
    for first in [Order::bytes(), backwards()] {
        let sim = SimVfs::new(1);
        let store = open(&sim, first.clone()).unwrap();
        write(&store, b"k", Some(b"1"));
        write(&store, b"k", None);
        store.db.flush().unwrap();
        store.compact(None, None).unwrap();
        store.db.close().unwrap();
        for order in [backwards(), Order::bytes(), Order::custom(b"other", |a, b| b.cmp(a))] {
            let opened = open(&sim, order.clone());
            assert_eq!(opened.is_ok(), order.name() == first.name(), "{first:?} as {order:?}");
            if let Ok(store) = opened {
                store.db.close().unwrap();
            }
        }
    }
}

/// A crash after the family was created and before anything was written to it.
#[test]
fn a_family_without_a_tree_is_taken_for_a_new_store() {
    for order in [Order::bytes(), backwards()] {
        let sim = SimVfs::new(1);
        let store = open(&sim, Order::bytes()).unwrap();
        store.db.create_column_family(FAMILY, terrace::CfOptions::default()).unwrap();
        store.db.close().unwrap();
        let store = open(&sim, order).unwrap();
        for key in [vec![b'l'; MAX_KEY_BYTES + 1], vec![b'k']] {
            write(&store, &key, Some(b"1"));
            assert!(store.get(&key, &ReadOptions::default()).unwrap().is_some());
        }
    }
}

/// A reader sees whole batches while they are written, whatever becomes of the nodes meanwhile.
#[test]
fn readers_see_whole_batches_beside_a_writer() {
    const KEYS: usize = 60;
    const BATCHES: usize = 100;
    let sim = SimVfs::new(1);
    let store = open(&sim, backwards()).unwrap();
    // Every other batch has the keys of one half, and removes those of the other.
    let key = |half: usize, at: usize| [vec![b'k'; 300], format!("{half}{at:03}").into()].concat();
    let keys: Vec<Vec<Vec<u8>>> =
        (0..2).map(|half| (0..KEYS).map(|at| key(half, at)).collect()).collect();
    let switch = |to: usize| {
        let puts = keys[to].iter().map(|key| (&key[..], Some(&b"1"[..])));
        let deletes = keys[1 - to].iter().map(|key| (&key[..], None));
        store.write(puts.chain(deletes), &WriteOptions::default()).unwrap();
    };
    switch(0);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let walks = std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..BATCHES).for_each(|at| switch(1 - at % 2));
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut walks = 0;
        while !is_done.load(std::sync::atomic::Ordering::Relaxed) || walks == 0 {
            let mut cursor = store.cursor(&ReadOptions::default()).unwrap();
            cursor.seek_to_first().unwrap();
            let mut count = 0;
            while cursor.valid() {
                count += 1;
                cursor.next().unwrap();
            }
            assert_eq!(count, KEYS);
            // Never absent by mistake, and never an error: in one of both halves.
            store.get(&keys[0][walks % KEYS], &ReadOptions::default()).unwrap();
            walks += 1;
        }
        walks
    });
    assert!(walks > 0);
}

/// The tree comes into being, with a batch that has keys on both sides of the limit, between the moment in which a
/// reader finds no tree and that of its cursor over the engine's keys.
#[test]
fn a_cursor_shows_all_of_the_batch_that_makes_the_tree() {
    let store = open(&SimVfs::new(11), Order::bytes()).unwrap();
    let reading = ReadOptions::default();
    assert!(store.tree.get().is_none());
    let long = vec![b'l'; MAX_KEY_BYTES + 1];
    let batch: [(&[u8], Option<&[u8]>); 2] = [(b"short", Some(b"1")), (&long, Some(b"2"))];
    store.write(batch.into_iter(), &WriteOptions::default()).unwrap();
    let plain = store.db.iter_with(&reading).unwrap();
    let mut cursor = store.cursor_after(plain, &reading).unwrap();
    let mut shown = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        shown.push(cursor.value().to_vec());
        cursor.next().unwrap();
    }
    assert_eq!(shown, [b"2", b"1"]);
}
