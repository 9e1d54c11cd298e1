//! Room in memtables: whatever shape a group of writes has, however many families share a budget
//! however small, the memtables take what the log has taken.

use crate::harness::{effort, over_seeds};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{CfOptions, ColumnFamily, Db, Error, Options, SyncMode, WriteBatch};
use terrace_base::rng::{Rng, SplitMix64};

/// The least budget there may be.
fn tight_options() -> Options {
    let mut options = Options { memory_budget: terrace::MIN_MEMORY_BUDGET, ..Options::default() };
    options.advanced.vfs = Arc::new(SimVfs::new(1));
    options
}

fn with_families(db: &Db, count: usize) -> Vec<ColumnFamily> {
    let more =
        (1..count).map(|n| db.create_column_family(&format!("{n}"), CfOptions::default()).unwrap());
    std::iter::once(db.default_family()).chain(more).collect()
}

fn batch_of(family: &ColumnFamily, keys: std::ops::Range<u32>, value_len: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for key in keys {
        batch.put_cf(family, key.to_be_bytes(), vec![key as u8; value_len]);
    }
    batch
}

/// A group is found to fit into a memtable that an earlier one enlarged; then the bound over all
/// memtables rotates that very memtable, and the next one must be as large.
#[test]
fn a_group_has_room_though_the_bound_over_all_memtables_rotates_the_one_it_fits_into() {
    let mut options = tight_options();
    options.advanced.memtable_bytes = 400 << 10;
    let db = Db::open("/db", options).unwrap();
    let other = &with_families(&db, 2)[1];
    db.write(batch_of(other, 0..300, 800)).unwrap();
    // Tiny entries need much less than their bound: the memtable is large and nearly empty.
    db.write(batch_of(&db.default_family(), 0..5000, 1)).unwrap();
    let held = db.metrics().memtable_bytes;
    assert!(held > db.options().memory_budget as u64 / 8, "{held}: nothing is over the bound");
    db.write(batch_of(&db.default_family(), 5000..5600, 800)).unwrap();
    assert!(!db.metrics().poisoned);
    assert_eq!(db.get(5599u32.to_be_bytes()).unwrap().unwrap().len(), 800);
    assert_eq!(db.get(0u32.to_be_bytes()).unwrap().unwrap().len(), 1);
}

#[test]
fn many_writers_to_many_families_under_the_least_budget_never_fail() {
    let (threads, batches) = (16u32, effort(40) as u32);
    let dir = tempfile::tempdir().unwrap();
    let mut options = tight_options();
    options.advanced.vfs = Options::default().advanced.vfs;
    // While the leader waits for the device, the others become a large group.
    options.sync = SyncMode::Batch;
    let db = Db::open(dir.path(), options).unwrap();
    let families = with_families(&db, 4);
    let written: u64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let (db, families) = (&db, &families);
                scope.spawn(move || {
                    let mut rng = SplitMix64::new(u64::from(thread));
                    let mut written = 0;
                    for _ in 0..batches {
                        let family = &families[rng.below(4) as usize];
                        let count = 1 + rng.below(100) as u32;
                        let from = rng.below(1 << 20) as u32;
                        db.write(batch_of(family, from..from + count, 800)).unwrap();
                        written += u64::from(count);
                    }
                    written
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let m = db.metrics();
    assert!(!m.poisoned, "{m}");
    assert_eq!(m.ops_written, written);
    db.flush().unwrap();
    db.verify().unwrap();
}

/// There are more of them than are looked through one by one, and each operation is for another one than that before it.
#[test]
fn batches_to_many_families_find_each_of_them_and_room_in_it() {
    const FAMILIES: usize = 40;
    let db = Db::open("/db", tight_options()).unwrap();
    let families = with_families(&db, FAMILIES);
    let key = |round: u8, n: u8| [round, n];
    for round in 0..12 {
        let mut batch = WriteBatch::new();
        for n in 0..4 {
            for (at, family) in families.iter().enumerate() {
                let value = [&[at as u8, round, n][..], &[7; 800]].concat();
                batch.put_cf(family, key(round, n), value);
            }
        }
        db.write(batch).unwrap();
    }
    let m = db.metrics();
    assert!(!m.poisoned, "{m}");
    let has_all = |at: usize, family: &ColumnFamily| {
        (0..12).all(|round| {
            (0..4).all(|n| {
                let value = family.get(key(round, n)).unwrap();
                value.is_some_and(|value| value.starts_with(&[at as u8, round, n]))
            })
        })
    };
    assert!(families.iter().enumerate().all(|(at, family)| has_all(at, family)));
    // Of a batch to one that is gone nothing is written.
    db.drop_column_family("20").unwrap();
    let mut batch = WriteBatch::new();
    families.iter().for_each(|family| batch.put_cf(family, b"late", b"v"));
    assert!(matches!(db.write(batch), Err(Error::NoSuchFamily(_))));
    let mut batch = WriteBatch::new();
    let left = families.iter().filter(|family| family.name() != "20");
    left.clone().for_each(|family| batch.put_cf(family, b"later", b"v"));
    db.write(batch).unwrap();
    for family in left {
        let found = (family.get(b"late").unwrap(), family.get(b"later").unwrap());
        assert!(found.0.is_none() && found.1.is_some(), "{}", family.name());
    }
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Which runs of operations a store gets: their shapes, and the most operations of one.
struct Runs {
    shapes: &'static [u64],
    most: &'static [u64],
}

/// A few of everything; and many entries that are much smaller or much larger than others, since the
/// room of an entry is bounded by the tallest tower it may get.
const RUNS: [Runs; 2] = [
    Runs { shapes: &[0, 1, 2, 3, 4, 5, 6, 7, 8], most: &[1, 10, 100, 1000] },
    Runs { shapes: &[1, 8], most: &[1000, 4000] },
];

/// Adds a run of one shape to a batch and to the model.
fn add_run(
    runs: &Runs,
    batch: &mut WriteBatch,
    (family, model): (&ColumnFamily, &mut Contents),
    rng: &mut SplitMix64,
) {
    let shape = runs.shapes[rng.below(runs.shapes.len() as u64) as usize];
    let most = runs.most[rng.below(runs.most.len() as u64) as usize];
    let count = 1 + rng.below(most);
    let room = [1u64, 64, 4096][rng.below(3) as usize];
    for n in 0..count {
        let mut key = rng.below(room * 16).to_be_bytes()[5..].to_vec();
        let mut value = vec![n as u8; rng.below(3) as usize];
        match shape {
            0 => key.resize(3 + rng.below(600) as usize, 7),
            1 => value.resize(700 + rng.below(324) as usize, 1),
            // Stays in the log: the memtable takes a handle.
            2 => value.resize(1024 + rng.below(900) as usize, 2),
            3 if n == 0 => value.resize(300_000 + rng.below(900_000) as usize, 3),
            4 => {
                batch.delete_cf(family, &key);
                model.remove(&key);
                continue;
            }
            5 if n < 5 => {
                let end = [&key[..], &[9]].concat();
                batch.delete_range_cf(family, &key, &end);
                model.retain(|other, _| *other < key || *other >= end);
                continue;
            }
            6 => {
                batch.put_with_ttl_cf(family, &key, &value, Duration::from_secs(1 << 30));
                model.insert(key, value);
                continue;
            }
            // One key again and again.
            7 => key = b"one".to_vec(),
            _ => {}
        }
        batch.put_cf(family, &key, &value);
        model.insert(key, value);
    }
}

/// One store under options and writes that `seed` draws: batches of one run to one family, or of many
/// runs to many. Gives how many batches were written.
fn shapes(seed: u64, wanted: u64) -> u64 {
    let mut rng = SplitMix64::new(seed);
    let mut options = tight_options();
    let sim = SimVfs::new(seed);
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.memtable_bytes =
        [0, 16 << 10, 200 << 10, 400 << 10, 1 << 20][rng.below(5) as usize];
    options.advanced.segment_bytes = (4 << 10) << rng.below(8);
    // A separated value needs no room; without separation the same batch needs all of it.
    if rng.one_in(2) {
        options.default_family.value_separation_threshold = usize::MAX;
    }
    let runs = &RUNS[rng.below(2) as usize];
    let count = 1 + rng.below(4) as usize;
    let mut names: Vec<String> = (1..count).map(|n| n.to_string()).collect();
    options.column_families =
        names.iter().map(|n| (n.clone(), options.default_family.clone())).collect();
    let db = Db::open("/db", options.clone()).unwrap();
    names.insert(0, "default".into());
    let families: Vec<_> = names.iter().map(|name| db.column_family(name).unwrap()).collect();
    let mut model = vec![Contents::new(); count];
    let batches = wanted.min(30);
    for _ in 0..batches {
        let mut batch = WriteBatch::new();
        for _ in 0..=rng.below(3) {
            let at = rng.below(count as u64) as usize;
            add_run(runs, &mut batch, (&families[at], &mut model[at]), &mut rng);
        }
        db.write(batch).unwrap();
    }
    let compare = |db: &Db| {
        for (name, model) in names.iter().zip(&model) {
            let iter = db.column_family(name).unwrap().range::<&[u8]>(..).unwrap();
            let found: Contents = iter.entries().map(|entry| entry.unwrap()).collect();
            assert!(found == *model, "{name}: {} keys, not {}", found.len(), model.len());
        }
    };
    compare(&db);
    assert!(!db.metrics().poisoned);
    // Replay must find the same room, from a log that nobody has flushed.
    options.advanced.vfs = Arc::new(sim.kill_image());
    compare(&Db::open("/db", options).unwrap());
    batches
}

#[test]
fn groups_of_every_shape_find_room_under_every_budget() {
    let written = over_seeds("groups_of_every_shape", effort(600), shapes);
    println!("{written} batches");
}
