//! Stores with a tree that lost some of their files, or records of the tree.

use super::repair;
use crate::order::Order;
use crate::store::Store;
use crate::tree::{FAMILY, META};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Db, MAX_KEY_BYTES, Options, ReadOptions, WriteOptions};
use terrace_binding::{Code, Outcome};

const DIR: &str = "db";

fn backwards() -> Order {
    Order::custom(b"backwards", |a, b| b.cmp(a))
}

fn options(sim: &SimVfs) -> Options {
    let mut options = Options { memory_budget: 32 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.reserve_bytes = 0;
    options.advanced.compact_when_idle = false;
    // Nodes are separated values: the smallest blocks have the places of a few of them, larger ones those of all.
    options.advanced.block_size = 128;
    options
}

/// A closed store of one SST.
fn flushed(sim: &SimVfs, options: Options, keys: usize) {
    let store = Store::open(Db::open(DIR, options).unwrap(), backwards()).unwrap();
    write(&store, 0..keys, 0);
    store.db.flush().unwrap();
    store.db.close().unwrap();
    assert_eq!(files(sim, ".sst").len(), 1);
}

fn open(sim: &SimVfs, order: Order) -> Outcome<Store> {
    Store::open(Db::open(DIR, options(sim))?, order)
}

fn repaired(sim: &SimVfs, order: Order) -> Store {
    repair(Path::new(DIR), options(sim), &order).unwrap();
    open(sim, order).unwrap()
}

fn key(at: usize) -> Vec<u8> {
    format!("{at:06}").into_bytes()
}

fn value(at: usize, round: usize) -> Vec<u8> {
    format!("{at} {round}").repeat(10).into_bytes()
}

/// One batch.
fn write(store: &Store, keys: impl Iterator<Item = usize>, round: usize) {
    let entries: Vec<_> = keys.map(|at| (key(at), value(at, round))).collect();
    let ops = entries.iter().map(|(key, value)| (&key[..], Some(&value[..])));
    store.write(ops, &WriteOptions::default()).unwrap();
}

fn put(store: &Store, key: &[u8], value: &[u8]) {
    store.write(std::iter::once((key, Some(value))), &WriteOptions::default()).unwrap();
}

fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key, &ReadOptions::default()).unwrap().map(|value| value.to_vec())
}

/// The keys of the store in its order.
fn keys(store: &Store) -> Vec<Vec<u8>> {
    let mut cursor = store.cursor(&ReadOptions::default()).unwrap();
    cursor.seek_to_first().unwrap();
    let mut keys = Vec::new();
    while cursor.valid() {
        keys.push(cursor.key().to_vec());
        cursor.next().unwrap();
    }
    keys
}

fn record(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    let family = store.db.column_family(FAMILY).unwrap();
    family.get(key).unwrap().map(|value| value.to_vec())
}

fn files(sim: &SimVfs, part: &str) -> Vec<PathBuf> {
    let files = sim.files().into_iter().map(|(path, _)| path);
    let is = |path: &PathBuf| {
        path.parent() == Some(Path::new(DIR)) && path.to_string_lossy().contains(part)
    };
    files.filter(is).collect()
}

#[test]
fn a_tree_without_the_record_of_its_root_is_no_empty_store_and_is_mended() {
    let sim = SimVfs::new(1);
    let store = open(&sim, backwards()).unwrap();
    write(&store, 0..2000, 0);
    store.db.column_family(FAMILY).unwrap().delete(META).unwrap();
    store.db.close().unwrap();
    for order in [backwards(), Order::bytes()] {
        assert_eq!(open(&sim, order).map(drop).unwrap_err().code, Code::Corruption);
    }
    let store = repaired(&sim, backwards());
    assert_eq!(keys(&store), (0..2000).rev().map(key).collect::<Vec<_>>());
    // New keys get ids that no value has.
    write(&store, 2000..4000, 1);
    for at in 0..4000 {
        assert_eq!(get(&store, &key(at)), Some(value(at, at / 2000)));
    }
    // What is whole stays as it is.
    let before = record(&store, META);
    store.db.close().unwrap();
    assert_eq!(record(&repaired(&sim, backwards()), META), before);
}

/// The record is the first of its SST; what is found instead of it is that of an older file.
#[test]
fn an_older_record_of_the_root_hides_no_keys() {
    let sim = SimVfs::new(2);
    let store = open(&sim, backwards()).unwrap();
    write(&store, (0..300).step_by(2), 0);
    let old = record(&store, META).unwrap();
    write(&store, (1..300).step_by(2), 0);
    write(&store, 300..1000, 0);
    store.db.column_family(FAMILY).unwrap().put(META, old).unwrap();
    store.db.close().unwrap();
    let store = repaired(&sim, backwards());
    assert_eq!(keys(&store), (0..1000).rev().map(key).collect::<Vec<_>>());
    write(&store, 1000..1500, 0);
    for at in 0..1500 {
        assert_eq!(get(&store, &key(at)), Some(value(at, 0)));
    }
}

/// A block of the newest SST is damaged: the first one has records of keys, which leaves name too, and one in the
/// middle has values.
#[test]
fn a_damaged_block_costs_what_it_has_and_no_more() {
    for (flushes, has_values) in [(1, false), (1, true), (2, false), (2, true)] {
        let sim = SimVfs::new(3);
        let store = open(&sim, backwards()).unwrap();
        for flush in 0..flushes {
            write(&store, (flush..4000).step_by(flushes), flush);
            store.db.flush().unwrap();
        }
        let all = keys(&store).len();
        store.db.close().unwrap();
        let sst = files(&sim, ".sst").pop().unwrap();
        let place = if has_values { sim.len(&sst).unwrap() / 2 } else { 100 };
        assert!(sim.corrupt(&sst, place, 0x55));
        let store = repaired(&sim, backwards());
        let found = keys(&store);
        assert_eq!(found.len() < all, has_values, "{} of {all}", found.len());
        assert!(found.len() > all / 2, "{} of {all}", found.len());
        assert!(found.is_sorted_by(|a, b| a > b));
        for key in &found {
            let at: usize = std::str::from_utf8(key).unwrap().parse().unwrap();
            assert_eq!(get(&store, key), Some(value(at, at % flushes)));
        }
        // Every key can be written again.
        write(&store, 0..4000, 9);
        assert_eq!(keys(&store).len(), 4000);
        assert!((0..4000).all(|at| get(&store, &key(at)) == Some(value(at, 9))));
    }
}

/// What is left of a store that has lost its manifest before the first flush is writes of families without a name.
#[test]
fn the_family_of_the_tree_is_known_by_its_records() {
    for order in [backwards(), Order::bytes()] {
        let sim = SimVfs::new(4);
        let store = open(&sim, order.clone()).unwrap();
        let long = vec![b'l'; MAX_KEY_BYTES + 1];
        let batch: [(&[u8], Option<&[u8]>); 2] = [(b"short", Some(b"1")), (&long, Some(b"2"))];
        store.write(batch.into_iter(), &WriteOptions::default()).unwrap();
        store.db.sync().unwrap();
        let image = sim.kill_image();
        for part in ["MANIFEST", "CURRENT", "SYNCED"] {
            files(&image, part).iter().for_each(|path| image.remove(path).unwrap());
        }
        let store = repaired(&image, order);
        assert_eq!(store.db.column_families().len(), 2);
        assert_eq!(get(&store, b"short").as_deref(), Some(&b"1"[..]));
        assert_eq!(get(&store, &long).as_deref(), Some(&b"2"[..]));
    }
}

/// A batch that split a leaf is lost, and a later one is not.
#[test]
fn a_gap_in_the_log_hides_no_keys_of_later_batches() {
    const KEYS: usize = 100;
    const PLACES: u64 = 12;
    // So long that a leaf has a dozen of them.
    let long = |at: usize| [vec![b'k'; 300], key(at)].concat();
    let mut lost = 0;
    for place in 1..PLACES {
        let sim = SimVfs::new(place);
        let store = open(&sim, backwards()).unwrap();
        for at in (0..KEYS).map(|at| at * 37 % KEYS) {
            put(&store, &long(at), &value(at, 0));
        }
        store.db.sync().unwrap();
        let image = sim.kill_image();
        let log = files(&image, ".log").pop().unwrap();
        assert!(image.corrupt(&log, image.len(&log).unwrap() * place / PLACES, 0x55));
        let store = repaired(&image, backwards());
        let found = keys(&store);
        assert!(found.is_sorted_by(|a, b| a > b));
        for at in 0..KEYS {
            match get(&store, &long(at)) {
                Some(found) => assert_eq!(found, value(at, 0)),
                None => lost += 1,
            }
        }
        // Every key can be written again.
        for at in 0..KEYS {
            put(&store, &long(at), &value(at, 1));
        }
        assert_eq!(keys(&store).len(), KEYS);
    }
    // A lost batch costs its key, and the half of the leaf that it split, if nothing was written to that again.
    assert!(lost <= 10 * PLACES, "{lost} keys");
}

/// One block has the places of all leaves: keys are found by their own records. Wherever the damage is, the rest is there.
#[test]
fn a_block_with_the_places_of_all_leaves_costs_no_keys() {
    const KEYS: usize = 600;
    const BLOCK_BYTES: u64 = 4096;
    /// A value has more than 30 bytes, and the damage may lie in two blocks.
    const MOST_LOST: usize = 2 * BLOCK_BYTES as usize / 30;
    let sim = SimVfs::new(7);
    let usual = |sim: &SimVfs| {
        let mut options = options(sim);
        options.advanced.block_size = BLOCK_BYTES as usize;
        options
    };
    flushed(&sim, usual(&sim), KEYS);
    let sst = files(&sim, ".sst").pop().unwrap();
    // Behind the data are filters and the index.
    let data_bytes = sim.len(&sst).unwrap() * 3 / 4;
    let mut lost = 0;
    for place in (100..data_bytes).step_by(BLOCK_BYTES as usize / 2) {
        let image = sim.kill_image();
        assert!(image.corrupt(&sst, place, 0x55));
        repair(Path::new(DIR), usual(&image), &backwards()).unwrap();
        let store = Store::open(Db::open(DIR, usual(&image)).unwrap(), backwards()).unwrap();
        let found = keys(&store);
        assert!(found.len() + MOST_LOST >= KEYS, "{} at {place}", found.len());
        lost += KEYS - found.len();
        for key in &found {
            let at: usize = std::str::from_utf8(key).unwrap().parse().unwrap();
            assert_eq!(get(&store, key), Some(value(at, 0)));
        }
    }
    assert!(lost > 0, "no damage was met");
}

/// As far as it can be read, the order is looked at before the engine's store is repaired.
#[test]
fn another_order_is_refused_before_anything_is_changed() {
    let sim = SimVfs::new(8);
    flushed(&sim, options(&sim), 2000);
    let sst = files(&sim, ".sst").pop().unwrap();
    // A block of values.
    assert!(sim.corrupt(&sst, sim.len(&sst).unwrap() / 2, 0x55));
    let before = sim.files();
    let forwards = Order::custom(b"forwards", |a, b| a.cmp(b));
    for order in [forwards, Order::bytes()] {
        let refused = repair(Path::new(DIR), options(&sim), &order).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
        assert_eq!(sim.files(), before);
    }
    assert!(!keys(&repaired(&sim, backwards())).is_empty());

    // A comparator for a store in the order of bytes, which has no tree.
    let sim = SimVfs::new(9);
    let store = open(&sim, Order::bytes()).unwrap();
    put(&store, b"key", b"value");
    store.db.close().unwrap();
    let before = sim.files();
    let refused = repair(Path::new(DIR), options(&sim), &backwards()).unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument);
    assert_eq!(sim.files(), before);
}

/// The store still has the numbers of the writes that are lost, which do not tell the order.
#[test]
fn a_store_that_has_lost_everything_opens_with_its_comparator_when_it_is_repaired() {
    let sim = SimVfs::new(10);
    flushed(&sim, options(&sim), 10);
    for part in ["MANIFEST", "CURRENT", ".log", ".vlog", ".sst"] {
        files(&sim, part).iter().for_each(|path| sim.remove(path).unwrap());
    }
    let store = repaired(&sim, backwards());
    assert!(store.db.latest_seqno() > 0 && keys(&store).is_empty());
    write(&store, 0..10, 1);
    assert_eq!(keys(&store), (0..10).rev().map(key).collect::<Vec<_>>());
    store.db.close().unwrap();
    drop(store);
    assert!(open(&sim, Order::bytes()).is_err());
    assert_eq!(keys(&open(&sim, backwards()).unwrap()).len(), 10);
}

#[test]
fn a_tree_is_not_mended_in_another_order() {
    let sim = SimVfs::new(5);
    let store = open(&sim, backwards()).unwrap();
    write(&store, 0..500, 0);
    store.db.column_family(FAMILY).unwrap().delete(META).unwrap();
    store.db.close().unwrap();
    let by_last = Order::custom(b"last", |a, b| a.last().cmp(&b.last()).then(a.cmp(b)));
    for order in [Order::bytes(), by_last] {
        let refused = repair(Path::new(DIR), options(&sim), &order).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
    }
    assert_eq!(keys(&repaired(&sim, backwards())).len(), 500);

    // Nor long keys of a store in the order of bytes.
    let sim = SimVfs::new(6);
    let store = open(&sim, Order::bytes()).unwrap();
    let long = vec![b'l'; MAX_KEY_BYTES + 1];
    let batch: [(&[u8], Option<&[u8]>); 2] = [(b"short", Some(b"1")), (&long, Some(b"2"))];
    store.write(batch.into_iter(), &WriteOptions::default()).unwrap();
    store.db.column_family(FAMILY).unwrap().delete(META).unwrap();
    store.db.close().unwrap();
    let refused = repair(Path::new(DIR), options(&sim), &backwards()).unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument);
    assert_eq!(keys(&repaired(&sim, Order::bytes())).len(), 2);
}
