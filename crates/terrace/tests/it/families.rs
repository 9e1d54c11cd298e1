//! Column families: apart in keys, together in batches, gone when dropped.

use crate::harness::{DIR, at_step, eventually, small_options, stopped_clock};
use crate::model::FAMILIES;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::vfs::{Fault, FaultKind, SimVfs};
use terrace::{CfOptions, Db, Error, Options, SyncMode, WriteBatch, WriteOptions};
use terrace_base::{Rng, SplitMix64};

#[test]
fn families_keep_their_keys_apart_and_batches_span_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let users = db.create_column_family("users", CfOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"default");
    batch.put_cf(&users, b"k", b"users");
    db.write(batch).unwrap();
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"default"[..]));
    assert_eq!(users.get(b"k").unwrap().as_deref(), Some(&b"users"[..]));
    assert!(matches!(
        db.create_column_family("users", CfOptions::default()),
        Err(Error::InvalidArgument(_))
    ));
    drop(users);
    db.close().unwrap();

    let db = Db::open(dir.path(), Options::default()).unwrap();
    assert_eq!(db.column_families(), ["default", "users"]);
    let users = db.column_family("users").unwrap();
    assert_eq!(users.get(b"k").unwrap().as_deref(), Some(&b"users"[..]));
    assert!(db.drop_column_family("default").is_err());
    db.drop_column_family("users").unwrap();
    assert!(matches!(users.put(b"k", b"v"), Err(Error::NoSuchFamily(_))));
    assert!(db.column_family("users").is_none());
    let mut batch = WriteBatch::new();
    batch.put_cf(&users, b"k", b"late");
    assert!(matches!(db.write(batch), Err(Error::NoSuchFamily(_))));
    drop(users);
    db.close().unwrap();

    let db = Db::open(dir.path(), Options::default()).unwrap();
    assert_eq!(db.column_families(), ["default"]);
    assert_eq!(db.get(b"k").unwrap().as_deref(), Some(&b"default"[..]));
}

#[test]
fn a_family_that_is_seldom_written_does_not_keep_the_log_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    options.advanced.memtable_bytes = 64 << 10;
    let db = Db::open(dir.path(), options).unwrap();
    let rare = db.create_column_family("rare", CfOptions::default()).unwrap();
    rare.put(b"once", b"value").unwrap();
    let bound = 4 * (1 << 20) + (2 << 20);
    for n in 0..120_000u32 {
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    eventually("the log is bounded", || db.metrics().live_log_bytes <= bound);
    assert_eq!(rare.get(b"once").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_family_dropped_while_it_is_flushed_and_compacted_takes_nothing_else_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options { memory_budget: 8 << 20, ..Options::default() };
    options.advanced.memtable_bytes = 32 << 10;
    options.advanced.segment_bytes = 64 << 10;
    let db = Db::open(dir.path(), options).unwrap();
    for round in 0..40u64 {
        let name = format!("family {round}");
        let family = db.create_column_family(&name, CfOptions::default()).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 0..400u64 {
                    let value = vec![n as u8; 100 + (n % 4) as usize * 800];
                    if family.put(n.to_be_bytes(), value).is_err() {
                        break;
                    }
                }
                let _ = family.compact_range::<&[u8]>(..);
            });
            std::thread::sleep(std::time::Duration::from_micros(500 * round));
            db.drop_column_family(&name).unwrap();
            writer.join().unwrap();
        });
        db.put(round.to_be_bytes(), vec![1; 2000]).unwrap();
    }
    db.wait_idle().unwrap();
    let m = db.metrics();
    assert!(!m.poisoned, "{m}");
    for round in 0..40u64 {
        assert_eq!(db.get(round.to_be_bytes()).unwrap().as_deref(), Some(&[1; 2000][..]));
    }
    db.verify().unwrap();
}

/// Runs of operations for one family after another, long enough to enter the memtable together:
/// repeated keys, deletes, ranges, and values that stay in the log.
#[test]
fn long_batches_of_mixed_operations_hold_in_memory_and_after_replay() {
    const NAMES: [&str; 3] = ["default", "a", "b"];
    let dir = tempfile::tempdir().unwrap();
    let mut rng = SplitMix64::new(3);
    let mut models: [BTreeMap<[u8; 2], Vec<u8>>; 3] = Default::default();
    let key_of = |n: u64| (n as u16).to_be_bytes();
    for round in 0..6 {
        let db = Db::open(dir.path(), Options::default()).unwrap();
        let families = NAMES.map(|name| match round {
            0 if name != "default" => db.create_column_family(name, CfOptions::default()).unwrap(),
            _ => db.column_family(name).unwrap(),
        });
        let check = |models: &[BTreeMap<[u8; 2], Vec<u8>>; 3]| {
            for (family, model) in families.iter().zip(models) {
                for key in (0..300).map(key_of) {
                    let found = family.get(key).unwrap();
                    assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "{key:?}");
                }
            }
        };
        check(&models);
        let mut batch = WriteBatch::new();
        for run in 0..30u8 {
            let at = rng.below(3) as usize;
            let (family, model) = (&families[at], &mut models[at]);
            for n in 0..rng.below(90) as u8 {
                let key = key_of(rng.below(300));
                match rng.below(20) {
                    0 => {
                        let end = key_of(rng.below(300));
                        if key < end {
                            batch.delete_range_cf(family, key, end);
                            model.retain(|k, _| *k < key || *k >= end);
                        }
                    }
                    1..4 => {
                        batch.delete_cf(family, key);
                        model.remove(&key);
                    }
                    kind => {
                        let value = vec![run ^ n; if kind < 7 { 2_000 } else { 5 }];
                        batch.put_cf(family, key, &value);
                        model.insert(key, value);
                    }
                }
            }
        }
        db.write(batch).unwrap();
        check(&models);
        drop(families);
        db.close().unwrap();
    }
}

/// Files come and go by calls alone, however long the device takes in between.
fn without_idle_merges() -> Options {
    let mut options = Options::default();
    options.advanced.compact_when_idle = false;
    options
}

#[test]
fn a_compaction_of_a_family_that_is_dropped_meanwhile_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), without_idle_merges()).unwrap();
    let victims = db.create_column_family("victims", CfOptions::default()).unwrap();
    for round in 0..2u8 {
        victims.put(b"a", [round; 2000]).unwrap();
        victims.put(b"b", [round; 10]).unwrap();
        db.flush().unwrap();
    }
    let other = db.clone();
    at_step("compaction:written", move || other.drop_column_family("victims").unwrap());
    let _ = victims.compact_range::<&[u8]>(..);
    assert!(db.column_family("victims").is_none(), "the compaction did not come to its end");
    drop(victims);
    db.close().unwrap();
    let names = std::fs::read_dir(dir.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let ssts: Vec<String> = names.filter(|name| name.ends_with(".sst")).collect();
    assert!(ssts.is_empty(), "left over: {ssts:?}");
}

#[test]
fn what_a_dropped_family_had_goes_although_somebody_keeps_the_family() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), without_idle_merges()).unwrap();
    let mut kept = Vec::new();
    let ssts = || {
        let names = std::fs::read_dir(dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".sst")).count()
    };
    let before = db.metrics().memtable_bytes;
    for round in 0..20 {
        let family = db.create_column_family("kept", CfOptions::default()).unwrap();
        family.put(b"flushed", [round; 2000]).unwrap();
        db.flush().unwrap();
        family.put(b"in memory", [round; 2000]).unwrap();
        let mut iter = family.iter().unwrap();
        iter.seek_to_first().unwrap();
        assert_eq!(ssts(), 1);
        db.drop_column_family("kept").unwrap();
        assert!(matches!(family.get(b"flushed"), Err(Error::NoSuchFamily(_))));
        assert!(matches!(family.put(b"k", b"v"), Err(Error::NoSuchFamily(_))));
        assert_eq!(ssts(), 1, "an iterator reads it");
        assert_eq!(iter.entries().map(|entry| entry.unwrap().0.len()).sum::<usize>(), 16);
        kept.push(family);
        eventually("the file goes", || ssts() == 0);
    }
    assert_eq!(db.metrics().memtable_bytes, before);
    db.close().unwrap();
}

/// A drop that was refused for want of room must not take effect later, when the family has been written on.
#[test]
fn a_family_whose_drop_was_refused_is_there_with_what_is_written_afterwards() {
    let mut refused = 0;
    for after in 0.. {
        let sim = SimVfs::new(after);
        let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
        let db = Db::open(DIR, options.clone()).unwrap();
        let name = FAMILIES[2];
        let family = db.column_family(name).unwrap();
        family.put(b"before", b"1").unwrap();
        let at_op = sim.op_count() + after;
        let kind = FaultKind::Enospc;
        sim.set_fault(Some(Fault { at_op, kind, forever: false, filter: None }));
        let dropped = db.drop_column_family(name);
        let struck = sim.executed_faults() > 0;
        sim.set_fault(None);
        if !struck {
            dropped.unwrap();
            break;
        }
        if dropped.is_ok() {
            continue;
        }
        let synced = WriteOptions { sync: Some(SyncMode::Batch) };
        let write = || {
            let mut batch = WriteBatch::new();
            batch.put_cf(&family, b"after", b"2");
            db.write_with(batch, &synced)
        };
        let mut written = write();
        eventually("there is room", || {
            if matches!(written, Err(Error::DiskFull(_))) {
                written = write();
            }
            !matches!(written, Err(Error::DiskFull(_)))
        });
        options.advanced.vfs = Arc::new(sim.kill_image());
        match written {
            Ok(()) => {
                let db = Db::open(DIR, options).unwrap();
                let family = db.column_family(name).unwrap();
                for key in [&b"before"[..], b"after"] {
                    assert!(family.get(key).unwrap().is_some(), "call {after}: {key:?}");
                }
                refused += 1;
            }
            // It was dropped, and only what came after that has failed; or a failed sync of the log has ended writes.
            Err(Error::NoSuchFamily(_) | Error::Poisoned(_)) => {}
            Err(error) => panic!("call {after}: {error}"),
        }
    }
    assert!(refused > 1, "{refused} drops were refused, and writes taken");
}

/// The log of a store has the writes of families that are gone; a copy is opened from the log.
#[test]
fn a_copy_gives_a_new_family_nothing_of_one_that_was_dropped() {
    for name in ["first", "second"] {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("store"), Options::default()).unwrap();
        let first = db.create_column_family("first", CfOptions::default()).unwrap();
        first.put(b"k", b"of one that is gone").unwrap();
        db.drop_column_family("first").unwrap();
        let copy = dir.path().join("copy");
        db.checkpoint(&copy).unwrap();
        let column_families = vec![(name.to_string(), CfOptions::default())];
        let copied = Db::open(&copy, Options { column_families, ..Options::default() }).unwrap();
        let family = copied.column_family(name).unwrap();
        assert!(family.get(b"k").unwrap().is_none(), "{name}");
        assert!(family.iter().unwrap().entries().next().is_none(), "{name}");
    }
}

#[test]
fn a_name_that_no_family_can_have_makes_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    for name in [String::new(), "f".repeat(257)] {
        let column_families = vec![(name, CfOptions::default())];
        let options = Options { column_families, ..Options::default() };
        assert!(matches!(Db::open(&path, options), Err(Error::InvalidArgument(_))));
        assert!(!path.exists());
    }
}
