//! Many range deletes that overlap: what reads see of them, in memory, in files and after a reopening,
//! and that they take memory in proportion to their number. With fragments that list every tombstone
//! these tests need tens of gigabytes.

use crate::harness::eventually;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{Db, Options, ReadOptions, Snapshot, WriteBatch};
use terrace_base::{Rng, SplitMix64};

/// Range deletes of the large tests.
const MANY: u64 = 100_000;

/// Bytes that a range delete with keys of 11 bytes may take in a memtable.
const MAX_BYTES: u64 = 250;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

fn options(vfs: &SimVfs) -> Options {
    let mut options = Options { memory_budget: 64 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(vfs.clone());
    options.advanced.reserve_bytes = 0;
    options
}

fn open(vfs: &SimVfs, options: &Options) -> Db {
    let mut options = options.clone();
    options.advanced.vfs = Arc::new(vfs.clone());
    Db::open("/db", options).unwrap()
}

/// Range tombstones in the files of the store.
fn stored_tombstones(db: &Db) -> u64 {
    let levels = &db.shape().families[0].levels;
    levels.iter().flatten().map(|file| file.range_tombstone_count).sum()
}

/// The keys an iterator shows, which must be the same in both directions.
fn shown(db: &Db, options: &ReadOptions) -> Vec<Vec<u8>> {
    let mut iter = db.iter_with(options).unwrap();
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    iter.seek_to_first().unwrap();
    while iter.valid() {
        forward.push(iter.key().to_vec());
        iter.next().unwrap();
    }
    iter.seek_to_last().unwrap();
    while iter.valid() {
        backward.push(iter.key().to_vec());
        iter.prev().unwrap();
    }
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}

#[test]
fn a_batch_of_nested_range_deletes_is_read_reopened_and_flushed_in_linear_memory() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs, &options(&vfs));
    let (left, middle, right) = (key(5), key(3 * MANY / 2), key(4 * MANY));
    for key in [&left, &middle, &right] {
        db.put(key, b"old").unwrap();
    }
    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    for n in 10..MANY {
        batch.delete_range(key(n), key(3 * MANY - n));
    }
    db.write(batch).unwrap();
    let at_snapshot = ReadOptions { snapshot: Some(before.clone()), ..ReadOptions::default() };
    let check = |db: &Db| {
        assert!(db.get(&middle).unwrap().is_none());
        assert_eq!(shown(db, &ReadOptions::default()), [left.clone(), right.clone()]);
    };
    check(&db);
    assert_eq!(db.get_with(&middle, &at_snapshot).unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(shown(&db, &at_snapshot).len(), 3);
    let taken = db.metrics().memtable_bytes;
    assert!(taken < MAX_BYTES * MANY, "{taken} bytes in memtables");

    // What a killed process leaves is all of it in the log.
    let image = vfs.kill_image();
    let recovered = open(&image, &options(&image));
    check(&recovered);
    recovered.put(&middle, b"new").unwrap();
    assert_eq!(recovered.get(&middle).unwrap().as_deref(), Some(&b"new"[..]));
    recovered.close().unwrap();

    db.flush().unwrap();
    check(&db);
    assert_eq!(shown(&db, &at_snapshot).len(), 3);
    // All are newer than the snapshot: of each fragment the newest is left.
    assert!(stored_tombstones(&db) < 2 * MANY);
    assert!(db.metrics().pinned_bytes < 120 * 2 * MANY, "{}", db.metrics().pinned_bytes);
    drop((at_snapshot, before));
    db.compact_range::<&[u8]>(..).unwrap();
    check(&db);
    assert_eq!(stored_tombstones(&db), 0, "nothing lies below them");
    db.close().unwrap();
}

#[test]
fn a_queue_that_forgets_what_is_below_a_watermark_leaves_one_tombstone() {
    let vfs = SimVfs::new(2);
    let db = open(&vfs, &options(&vfs));
    const TRIMS: u64 = 30_000;
    for n in 0..TRIMS {
        db.put(key(n), b"message").unwrap();
        db.delete_range(b"key", key(n)).unwrap();
        if n % 1_000 == 0 {
            assert!(db.get(key(n)).unwrap().is_some());
            assert!(n == 0 || db.get(key(n - 1)).unwrap().is_none());
        }
    }
    assert_eq!(shown(&db, &ReadOptions::default()), [key(TRIMS - 1)]);
    db.flush().unwrap();
    assert_eq!(shown(&db, &ReadOptions::default()), [key(TRIMS - 1)]);
    // One for every memtable that was flushed; the last flush may be counted a little later.
    eventually("no more tombstones than flushes", || {
        stored_tombstones(&db) <= db.metrics().flushes
    });
    db.close().unwrap();
}

#[test]
fn a_memtable_is_full_of_range_deletes_alone() {
    let vfs = SimVfs::new(3);
    let mut small = options(&vfs);
    small.advanced.memtable_bytes = 64 << 10;
    let db = open(&vfs, &small);
    const COUNT: u64 = 5_000;
    let mut most = 0;
    for n in 0..COUNT {
        db.delete_range(key(n), key(3 * COUNT - n)).unwrap();
        let family = &db.shape().families[0];
        // Those that wait for their flush are counted with it.
        most = most.max(family.memtable_bytes / (1 + family.immutable_memtables));
    }
    // Each takes at least its keys and the bounds of an entry; the last one may go over the limit by
    // what the list grows by.
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(db.metrics().flushes >= COUNT * 22 / (64 << 10), "{} flushes", db.metrics().flushes);
    assert!(most < 256 << 10, "{most} bytes in one memtable");
    db.close().unwrap();

    // The same from a log: replay gives memory back on the way.
    let vfs = SimVfs::new(4);
    let db = open(&vfs, &options(&vfs));
    for n in 0..4 * COUNT {
        db.delete_range(key(n), key(12 * COUNT - n)).unwrap();
    }
    let image = vfs.kill_image();
    small.memory_budget = 4 << 20;
    small.advanced.l0_compaction_trigger = 20;
    let recovered = open(&image, &small);
    assert!(recovered.shape().families[0].levels[0].len() > 1);
    assert!(recovered.get(key(COUNT)).unwrap().is_none());
    recovered.close().unwrap();
    db.close().unwrap();
}

/// A snapshot and what it shows.
type Held = (Snapshot, BTreeMap<Vec<u8>, Vec<u8>>);

fn assert_shows(db: &Db, snapshot: Option<&Snapshot>, contents: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let options = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    assert!(shown(db, &options).iter().eq(contents.keys()));
    for n in 0..KEYS {
        let found = db.get_with(key(n), &options).unwrap();
        assert_eq!(found.as_deref(), contents.get(&key(n)).map(Vec::as_slice), "key {n}");
    }
}

const KEYS: u64 = 300;

#[test]
fn random_overlapping_range_deletes_agree_with_a_map_at_every_snapshot() {
    for seed in 0..4 {
        let mut rng = SplitMix64::new(seed);
        let mut vfs = SimVfs::new(seed);
        let mut small = options(&vfs);
        small.advanced.memtable_bytes = 32 << 10;
        small.advanced.level_base_bytes = 32 << 10;
        small.advanced.target_file_bytes = 16 << 10;
        let mut db = open(&vfs, &small);
        let mut contents: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut held: Vec<Held> = Vec::new();
        for step in 0..3_000u64 {
            match rng.below(100) {
                0..50 => {
                    let (start, len) = (rng.below(KEYS), 1 + rng.below(KEYS / 3));
                    db.delete_range(key(start), key(start + len)).unwrap();
                    contents.retain(|at, _| *at < key(start) || *at >= key(start + len));
                }
                50..97 => {
                    let (at, value) = (key(rng.below(KEYS)), step.to_be_bytes().to_vec());
                    db.put(&at, &value).unwrap();
                    contents.insert(at, value);
                }
                97 => held.push((db.snapshot(), contents.clone())),
                98 if !held.is_empty() => {
                    drop(held.swap_remove(rng.below(held.len() as u64) as usize))
                }
                _ => {
                    for (snapshot, contents) in &held {
                        assert_shows(&db, Some(snapshot), contents);
                    }
                    assert_shows(&db, None, &contents);
                    match rng.below(8) {
                        0..3 => db.flush().unwrap(),
                        3 => db.compact_range::<&[u8]>(..).unwrap(),
                        4 => {
                            held.clear();
                            vfs = vfs.kill_image();
                            db = open(&vfs, &small);
                        }
                        _ => {}
                    }
                }
            }
        }
        held.iter().for_each(|(snapshot, contents)| assert_shows(&db, Some(snapshot), contents));
        assert_shows(&db, None, &contents);
        held.clear();
        assert!(db.verify().unwrap() > 0);
        db.close().unwrap();
    }
}

/// Keys that an iterator shows from its first on and back, with the steps that it took over covered ones.
fn walked(db: &Db, options: &ReadOptions) -> terrace::Result<(Vec<Vec<u8>>, u64)> {
    let mut iter = db.iter_with(options)?;
    let mut keys = Vec::new();
    iter.seek_to_first()?;
    while iter.valid() {
        keys.push(iter.key().to_vec());
        iter.next()?;
    }
    let mut back = Vec::new();
    iter.seek_to_last()?;
    while iter.valid() {
        back.push(iter.key().to_vec());
        iter.prev()?;
    }
    back.reverse();
    assert_eq!(keys, back);
    Ok((keys, iter.covered_steps()))
}

/// One that must not wait does without the device, and without long walks.
#[test]
fn covered_keys_of_a_memtable_are_passed_at_once_but_for_newer_ones() {
    const KEYS: u64 = 20_000;
    let vfs = SimVfs::new(1);
    let db = open(&vfs, &options(&vfs));
    for n in 0..KEYS {
        db.put(key(n), b"v").unwrap();
    }
    let before = db.snapshot();
    db.delete_range(key(1), key(KEYS - 1)).unwrap();
    let in_memory = ReadOptions { in_memory: true, ..ReadOptions::default() };
    let (keys, steps) = walked(&db, &in_memory).unwrap();
    assert_eq!(keys, [key(0), key(KEYS - 1)]);
    assert!(steps <= 10, "{steps} steps");
    let past = ReadOptions { snapshot: Some(before), ..ReadOptions::default() };
    assert_eq!(walked(&db, &past).unwrap(), ((0..KEYS).map(key).collect(), 0));
    // Newer entries in the range, deleted ones among them, and a newer range within it.
    let newer = [7, 8, 5_000, 5_001, KEYS - 2];
    newer.iter().for_each(|n| db.put(key(*n), b"w").unwrap());
    db.delete(key(6_000)).unwrap();
    db.delete_range(key(5_001), key(5_500)).unwrap();
    db.put(key(5_400), b"x").unwrap();
    let wanted = [0, 7, 8, 5_000, 5_400, KEYS - 2, KEYS - 1].map(key);
    let (keys, steps) = walked(&db, &in_memory).unwrap();
    assert_eq!(keys, wanted);
    assert!(steps <= 150, "{steps} steps");
    // Of many newer ones not all are known: all are stepped over, and not by one that must not wait.
    (10_000..10_200).for_each(|n| db.put(key(n), b"y").unwrap());
    let error = walked(&db, &in_memory).unwrap_err();
    assert!(matches!(error, terrace::Error::NotInMemory), "{error}");
    let (keys, steps) = walked(&db, &ReadOptions::default()).unwrap();
    assert_eq!(keys.len(), wanted.len() + 200);
    assert!(steps > KEYS, "{steps} steps");
    // The next range delete is of all.
    db.delete_range(key(0), key(KEYS - 1)).unwrap();
    let (keys, steps) = walked(&db, &in_memory).unwrap();
    assert_eq!(keys, [key(KEYS - 1)]);
    assert!(steps <= 10, "{steps} steps");
}
