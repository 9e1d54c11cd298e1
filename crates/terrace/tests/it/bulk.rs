//! The bulk loader: the store gets what was given, the last one of each key, as a whole or not at all, and
//! nothing of a load stays behind.

use crate::harness::{DIR, eventually, small_options, stopped_clock};
use crate::left_over::left_over;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{Fault, FaultKind, SimVfs, Vfs};
use terrace::{BulkOptions, CfOptions, Db, Error, IngestPosition, Options, builtin_merge_operator};
use terrace_base::rng::{Rng, SplitMix64};

const MEMORY: usize = 1 << 20;

fn options(sim: &SimVfs) -> Options {
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.column_families.clear();
    options.memory_budget = 16 << 20;
    options.advanced.memtable_bytes = 1 << 20;
    options.advanced.target_file_bytes = 64 << 10;
    options
}

fn small() -> BulkOptions {
    BulkOptions { memory_bytes: MEMORY, ..BulkOptions::default() }
}

fn contents(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entries = db.iter().unwrap().entries().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn temp_files(sim: &SimVfs) -> usize {
    let names = sim.list(Path::new(DIR)).unwrap();
    names.iter().filter(|name| name.ends_with(".tmp")).count()
}

/// Compactions have temporary files, too, for a while.
fn nothing_is_left(sim: &SimVfs) {
    eventually("no temporary file is left", || temp_files(sim) == 0);
}

/// What there is, and a load of about `bytes` on top of it.
fn load(db: &Db, seed: u64, bytes: usize) -> terrace::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut want = contents(db);
    let mut rng = SplitMix64::new(seed);
    let mut loader = db.bulk_loader(&small())?;
    let mut given = 0;
    while given < bytes {
        let key = format!("{:06}", rng.below(30_000)).into_bytes();
        let value = vec![rng.next_u64() as u8; rng.below(300) as usize];
        given += key.len() + value.len() + 32;
        match rng.below(10) {
            0 => {
                loader.delete(&key)?;
                want.remove(&key);
            }
            1 => {
                loader.put_until(&key, &value, 9_000_000)?;
                want.insert(key, value);
            }
            2 => {
                loader.put_until(&key, &value, 10)?;
                want.remove(&key);
            }
            _ => {
                loader.put(&key, &value)?;
                want.insert(key, value);
            }
        }
    }
    assert!(loader.peak_memory_bytes() <= MEMORY);
    loader.finish()?;
    Ok(want)
}

#[test]
fn what_was_given_last_is_there() {
    for seed in 0..4 {
        let sim = SimVfs::new(seed);
        let db = Db::open(DIR, options(&sim)).unwrap();
        for n in 0..500 {
            db.put(format!("{:06}", n * 60), "before").unwrap();
        }
        // Within the memory, and beyond it.
        for (round, bytes) in [MEMORY / 2, 5 * MEMORY].into_iter().enumerate() {
            let want = load(&db, seed * 10 + round as u64, bytes).unwrap();
            assert!(contents(&db) == want, "seed {seed}");
            nothing_is_left(&sim);
        }
        db.verify().unwrap();
        let want = contents(&db);
        let db = Db::open(DIR, options(&sim.crash_image(seed))).unwrap();
        assert!(contents(&db) == want, "it is durable");
    }
}

#[test]
fn a_load_that_is_dropped_or_empty_leaves_nothing() {
    let sim = SimVfs::new(1);
    let db = Db::open(DIR, options(&sim)).unwrap();
    let done = db.bulk_loader(&small()).unwrap().finish().unwrap();
    assert_eq!((done.entry_count, done.files.len()), (0, 0));
    let mut loader = db.bulk_loader(&small()).unwrap();
    for n in 0..20_000 {
        loader.put(format!("{:06}", n * 7919 % 20_000), [1; 100]).unwrap();
    }
    assert!(temp_files(&sim) > 0, "it has spilled");
    // A killed process leaves them, and the next open removes them.
    let image = sim.kill_image();
    assert!(temp_files(&image) > 0);
    let after = Db::open(DIR, options(&image)).unwrap();
    assert_eq!((temp_files(&image), contents(&after).len()), (0, 0));
    drop(loader);
    assert_eq!((temp_files(&sim), contents(&db).len()), (0, 0));
    let error = db.bulk_loader(&BulkOptions { memory_bytes: 1000, ..small() }).err().unwrap();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    let mut loader = db.bulk_loader(&small()).unwrap();
    assert!(matches!(loader.put(vec![0; 70_000], "x"), Err(Error::InvalidArgument(_))));
    loader.put("key", "after a refusal").unwrap();
    assert_eq!(loader.finish().unwrap().entry_count, 1);
    db.close().unwrap();
    assert!(matches!(db.bulk_loader(&small()), Err(Error::Closed)));
    assert_eq!(left_over(&sim, Path::new(DIR)).unwrap(), [""; 0]);
}

#[test]
fn a_load_goes_below_existing_data_if_asked() {
    let sim = SimVfs::new(1);
    let db = Db::open(DIR, options(&sim)).unwrap();
    db.put("b", "existing").unwrap();
    let below = BulkOptions { position: IngestPosition::Below, ..small() };
    let mut loader = db.bulk_loader(&below).unwrap();
    for key in ["c", "a", "b"] {
        loader.put(key, "loaded").unwrap();
    }
    loader.finish().unwrap();
    let seen: Vec<_> = contents(&db).into_values().collect();
    assert_eq!(seen, [&b"loaded"[..], b"existing", b"loaded"]);
    // Where that is never possible it is known before anything is given.
    let merge_operator = builtin_merge_operator("counter");
    let merging = CfOptions { merge_operator, ..CfOptions::default() };
    let merging = db.create_column_family("merging", merging).unwrap();
    assert!(matches!(merging.bulk_loader(&below), Err(Error::InvalidArgument(_))));
}

/// Every file-system call of a load fails in turn.
#[test]
fn a_failure_changes_nothing_and_leaves_nothing() {
    let start = || {
        let sim = SimVfs::new(3);
        let db = Db::open(DIR, options(&sim)).unwrap();
        db.put("000000", "before").unwrap();
        db.flush().unwrap();
        db.wait_idle().unwrap();
        (sim, db)
    };
    let run = |db: &Db| load(db, 5, 3 * MEMORY);
    let (sim, db) = start();
    let before = sim.op_count();
    run(&db).unwrap();
    let ops = sim.op_count() - before;
    drop(db);
    assert!(ops > 50, "{ops}");
    let mut failed = 0;
    for step in (1..=ops).step_by((ops / 40).max(1) as usize) {
        let (sim, db) = start();
        let at_op = sim.op_count() + step;
        sim.set_fault(Some(Fault { at_op, kind: FaultKind::Enospc, forever: false, filter: None }));
        let loaded = run(&db);
        sim.set_fault(None);
        let seen = contents(&db);
        match loaded {
            Ok(want) => assert!(seen == want, "step {step}"),
            Err(error) => {
                failed += 1;
                assert!(seen.len() == 1 || seen.len() > 1000, "step {step}: part of it: {error}");
                if !matches!(error, Error::Poisoned(_)) && seen.len() == 1 {
                    nothing_is_left(&sim);
                }
            }
        }
    }
    assert!(failed > 10, "{failed} of the calls mattered");
}

#[test]
fn a_full_disk_ends_a_load_and_gets_its_room_back() {
    let sim = SimVfs::new(1);
    let db = Db::open(DIR, options(&sim)).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let used: u64 = sim.files().iter().map(|(_, len)| len).sum();
    sim.set_capacity_bytes(Some(used + (2 << 20)));
    let error = load(&db, 1, 5 * MEMORY).unwrap_err();
    assert!(matches!(error, Error::DiskFull(_)), "{error}");
    assert_eq!(contents(&db).len(), 1);
    nothing_is_left(&sim);
    db.put("another", "there is room").unwrap();
}
