//! Many keys in one call against each of them alone: the same answers, whatever lies where.

use crate::harness::{DIR, START_MS, effort, over_seeds, small_options, stopped_clock};
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{
    AppendOperator, Compression, Db, Error, MemoryShares, Options, ReadOptions, Slice, WriteBatch,
};
use terrace_base::rng::{Rng, SplitMix64};

/// Numbers of keys; every other one is never written.
const NUMBERS: u64 = 6000;
/// The most milliseconds after which a key expires.
const MOST_MS: u64 = 1000;
/// A key that is written once and never deleted.
const LASTING: &[u8] = b"lasting";

fn key(number: u64) -> Vec<u8> {
    format!("{number:012}").into_bytes()
}

fn written(rng: &mut SplitMix64) -> Vec<u8> {
    key(rng.below(NUMBERS / 2) * 2)
}

fn options(vfs: &SimVfs, rng: &mut SplitMix64) -> Options {
    let mut options = small_options(std::sync::Arc::new(vfs.clone()), &stopped_clock());
    options.memory_budget = 4 << 20;
    // All in memory, or about a half.
    let cache = [0.05, 0.5][rng.below(2) as usize];
    options.advanced.memory_shares = MemoryShares { memtables: 0.95 - cache, cache, filters: 0.05 };
    options.column_families.clear();
    options.default_family.compression = vec![Compression::None];
    options.default_family.value_separation_threshold = 300;
    options.default_family.merge_operator = Some(std::sync::Arc::new(AppendOperator::new(",")));
    options.advanced.target_file_bytes = 64 << 10;
    options.advanced.level_base_bytes = 128 << 10;
    options.advanced.memtable_bytes = 128 << 10;
    options
}

/// Some writes of every kind; those that delete or merge are few.
fn write_some(db: &Db, rng: &mut SplitMix64, count: u64) {
    let mut batch = WriteBatch::new();
    for n in 0..count {
        let key = written(rng);
        let value = vec![n as u8; [20, 90, 400][rng.below(20).saturating_sub(17) as usize]];
        match rng.below(40) {
            0 => batch.delete(key),
            1 => batch.merge(key, b"operand"),
            2 | 3 => {
                let ttl = Duration::from_millis(1 + rng.below(MOST_MS));
                batch.put_with_ttl(key, value, ttl);
            }
            4 if rng.one_in(10) => {
                let start = rng.below(NUMBERS);
                batch.delete_range(self::key(start), self::key(start + rng.below(60)));
            }
            _ => batch.put(key, value),
        }
    }
    db.write(batch).unwrap();
}

/// Keys for one call, with repetitions, absent ones, and ones outside of all files.
fn chosen(rng: &mut SplitMix64) -> Vec<Vec<u8>> {
    let count = [0, 1, 2, 31, 32, 33, 200][rng.below(7) as usize];
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let one_absent_in = [2, 30][rng.below(2) as usize];
    for _ in 0..count {
        let again = keys.get(rng.below(keys.len() as u64 * 20 + 1) as usize).cloned();
        keys.push(match again {
            Some(key) => key,
            None if rng.one_in(50) => [&b""[..], b"z"][rng.below(2) as usize].to_vec(),
            None if rng.one_in(one_absent_in) => key(rng.below(NUMBERS)),
            None => written(rng),
        });
    }
    keys
}

fn bytes(found: Option<Slice>) -> Option<Vec<u8>> {
    found.map(|value| value.to_vec())
}

/// One call for `keys` against gets of each of them, which may read: first if `alone_first`. How many were found; `None`
/// if the call may not read and is refused.
fn compare(db: &Db, keys: &[Vec<u8>], reading: &ReadOptions, alone_first: bool) -> Option<usize> {
    let plain = ReadOptions { in_memory: false, ..reading.clone() };
    let alone = || -> Vec<Option<Vec<u8>>> {
        keys.iter().map(|key| bytes(db.get_with(key, &plain).unwrap())).collect()
    };
    // What is read first finds the other's partitions in memory.
    let before = alone_first.then(alone);
    let many = db.multi_get_with(keys, reading);
    let want = before.unwrap_or_else(alone);
    match many {
        Ok(many) => {
            assert_eq!(many.len(), keys.len());
            for ((many, want), key) in many.into_iter().zip(&want).zip(keys) {
                assert_eq!(bytes(many), *want, "{} {reading:?}", key.escape_ascii());
            }
            Some(want.iter().flatten().count())
        }
        Err(Error::NotInMemory) if reading.in_memory => None,
        Err(error) => panic!("{error}, {reading:?}"),
    }
}

fn in_memory() -> ReadOptions {
    ReadOptions { in_memory: true, ..ReadOptions::default() }
}

#[test]
fn many_keys_are_found_as_each_of_them_alone() {
    let (mut by_model, mut by_index, mut in_memtables) = (0, 0, 0);
    let calls = effort(1500);
    over_seeds("many gets", calls, |seed, wanted| {
        let mut rng = SplitMix64::new(seed);
        let vfs = SimVfs::new(seed);
        let options = options(&vfs, &mut rng);
        let db = Db::open(DIR, options.clone()).unwrap();
        let lasting = [LASTING.to_vec(), key(1)];
        db.put(LASTING, b"value").unwrap();
        let found = compare(&db, &lasting, &in_memory(), false);
        assert_eq!(found, Some(1), "all that there is lies in the memtable");
        let mut snapshots = Vec::new();
        let calls = wanted.min(300);
        for n in 0..calls {
            if n % 30 == 0 {
                write_some(&db, &mut rng, 2000);
                match rng.below(4) {
                    0 => db.compact_range::<&[u8]>(..).unwrap(),
                    1 => db.flush().unwrap(),
                    2 => snapshots.push(db.snapshot()),
                    _ => drop(snapshots.pop()),
                }
                // Until the thread expects to find what it looks for, and blocks are in their slots.
                for _ in 0..3 * rng.below(NUMBERS) {
                    db.get(written(&mut rng)).unwrap();
                }
            }
            let keys = chosen(&mut rng);
            let snapshot = snapshots.get(rng.below(snapshots.len() as u64 * 2 + 1) as usize);
            let reading = ReadOptions {
                snapshot: snapshot.cloned(),
                now_ms: rng.one_in(2).then(|| START_MS + rng.below(MOST_MS)),
                fill_cache: !rng.one_in(4),
                in_memory: rng.one_in(3),
                ..ReadOptions::default()
            };
            compare(&db, &keys, &reading, rng.one_in(2));
        }
        let metrics = db.metrics();
        by_model += metrics.reads.lookups_by_model;
        by_index += metrics.reads.lookups_by_index;
        in_memtables += metrics.gets_in_memtable;
        drop(snapshots);
        db.flush().unwrap();
        db.close().unwrap();
        let db = Db::open(DIR, options).unwrap();
        let refused = compare(&db, &lasting, &in_memory(), false);
        assert_eq!(refused, None, "nothing of a store that was just opened is in memory");
        calls
    });
    assert!(by_model > calls && by_index > calls && in_memtables > calls);
}

/// In files and a memtable, with and without separated values, and more than the answers that keep their blocks.
#[test]
fn keys_that_were_read_are_found_in_memory() {
    let vfs = SimVfs::new(1);
    let mut options = small_options(std::sync::Arc::new(vfs), &stopped_clock());
    options.memory_budget = 64 << 20;
    options.column_families.clear();
    options.default_family.value_separation_threshold = 300;
    let db = Db::open(DIR, options).unwrap();
    let put = |number: u64| {
        let value = vec![number as u8; [20, 90, 400][number as usize % 3]];
        db.put(key(number), value).unwrap();
    };
    (0..600).step_by(2).for_each(put);
    db.compact_range::<&[u8]>(..).unwrap();
    (0..600).step_by(10).for_each(put);
    db.flush().unwrap();
    (0..600).step_by(50).for_each(put);
    db.wait_idle().unwrap();
    let keys: Vec<Vec<u8>> = (0..600).map(key).collect();
    let found = compare(&db, &keys, &ReadOptions::default(), true);
    assert_eq!(found, Some(300));
    assert_eq!(compare(&db, &keys, &in_memory(), false), Some(300));
}
