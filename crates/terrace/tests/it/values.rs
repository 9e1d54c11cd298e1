//! Values in the log: written once, read back, moved between states of the store.

use crate::basics::copy_without_lock;
use crate::harness::{eventually, stopped_clock};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{Compression, Db, Options, ReadOptions, WriteBatch};
use terrace_base::ManualClock;
use terrace_vfs::{BeforeCalls, Call};

const SMALL: usize = 100;

fn options() -> Options {
    let mut options = Options { memory_budget: 8 << 20, ..Options::default() };
    options.advanced.memtable_bytes = 64 << 10;
    options.advanced.level_base_bytes = 256 << 10;
    options.advanced.target_file_bytes = 64 << 10;
    options.advanced.segment_bytes = 256 << 10;
    options
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

/// Every third value is small, the others are 1 to 5 KiB.
fn value(n: u64, round: u64) -> Vec<u8> {
    let len = match n % 3 {
        0 => SMALL,
        _ => 1024 + (n as usize * 37) % 4096,
    };
    let mut state = n * 1_000_003 + round;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect()
}

fn check(db: &Db, count: u64, round: u64) {
    for n in 0..count {
        let found = db.get(key(n)).unwrap();
        assert!(found.as_deref() == Some(&value(n, round)[..]), "key {n} of round {round}");
    }
    let keys: Vec<Vec<u8>> = (0..count).step_by(5).map(key).collect();
    for (n, found) in (0..count).step_by(5).zip(db.multi_get(&keys).unwrap()) {
        assert!(found.as_deref() == Some(&value(n, round)[..]), "multi_get of key {n}");
    }
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    for n in 0..count {
        assert!(iter.valid());
        assert_eq!(iter.key(), key(n));
        assert!(iter.value() == value(n, round), "scan at key {n}");
        iter.next().unwrap();
    }
    assert!(!iter.valid());
}

#[test]
fn large_values_are_written_once_and_read_in_every_state_of_the_store() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options();
        options.default_family.value_compression = compression;
        let count = 3000;
        let mut user_bytes = 0;
        let db = Db::open(dir.path(), options.clone()).unwrap();
        for n in 0..count {
            let n = n * 1013 % count;
            let value = value(n, 0);
            user_bytes += (value.len() + key(n).len()) as u64;
            db.put(key(n), value).unwrap();
        }
        check(&db, count, 0);
        db.flush().unwrap();
        check(&db, count, 0);
        db.wait_idle().unwrap();
        check(&db, count, 0);
        db.compact_range::<&[u8]>(..).unwrap();
        check(&db, count, 0);
        let m = db.metrics();
        assert_eq!(m.values_separated, count - count / 3);
        assert!(m.value_segments > 10, "{m}");
        assert!(m.write_amplification() < 1.3, "{m}");
        let stored: u64 = m.levels.iter().map(|level| level.size_bytes).sum();
        assert!(stored < user_bytes / 8, "{m}");
        assert!(db.verify().unwrap() >= 1);
        db.close().unwrap();
        let db = Db::open(dir.path(), options.clone()).unwrap();
        check(&db, count, 0);
        let read_only = Db::open_read_only(dir.path(), options).unwrap();
        check(&read_only, count, 0);
    }
}

#[test]
fn values_of_a_log_that_was_not_flushed_come_back_from_it() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Db::open(dir.path(), Options::default()).unwrap();
        let mut batch = WriteBatch::new();
        for n in 0..100 {
            batch.put(key(n), value(n, 1));
        }
        batch.put_with_ttl(b"expiring", vec![7; 2000], Duration::from_secs(1000));
        db.write(batch).unwrap();
        std::mem::forget(db);
    }
    let copy = copy_without_lock(dir.path());
    let read_only = Db::open_read_only(copy.path(), Options::default()).unwrap();
    assert_eq!(read_only.get(b"expiring").unwrap().as_deref(), Some(&[7; 2000][..]));
    drop(read_only);
    for _ in 0..3 {
        let db = Db::open(copy.path(), Options::default()).unwrap();
        for n in 0..100 {
            assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n, 1)[..]));
        }
        assert_eq!(db.get(b"expiring").unwrap().as_deref(), Some(&[7; 2000][..]));
        assert_eq!(db.metrics().value_segments, 1);
        db.close().unwrap();
    }
}

#[test]
fn segments_that_nothing_refers_to_are_deleted_but_not_under_a_snapshot_or_an_iterator() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    let count = 600;
    for n in 0..count {
        db.put(key(n), value(n, 0)).unwrap();
    }
    let snapshot = db.snapshot();
    let mut iter = db.iter().unwrap();
    iter.seek_to_first().unwrap();
    for n in 0..count {
        db.put(key(n), value(n, 1)).unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    let read = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
    for n in 0..count {
        let old = db.get_with(key(n), &read).unwrap();
        assert!(old.as_deref() == Some(&value(n, 0)[..]), "key {n} at the snapshot");
        assert!(iter.value() == value(n, 0), "key {n} of the iterator");
        iter.next().unwrap();
    }
    let with_both = db.metrics().value_segment_bytes;
    drop((snapshot, read, iter));
    for n in 0..count {
        db.put(key(n), value(n, 2)).unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    eventually("what the readers held is gone", || {
        db.metrics().value_segment_bytes < with_both * 3 / 4
    });
    check(&db, count, 2);
}

#[test]
fn the_threshold_changes_while_the_store_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    let family = db.default_family();
    for (threshold, direct, both) in
        [(50, 1, 2), (usize::MAX, 2, 2), (SMALL, 3, 4), (SMALL + 1, 4, 4)]
    {
        family.set_value_separation_threshold(threshold).unwrap();
        db.put(format!("direct {threshold}"), vec![1; SMALL]).unwrap();
        assert_eq!(db.metrics().values_separated, direct);
        let mut batch = WriteBatch::new();
        batch.put(format!("batch {threshold}"), vec![2; SMALL]);
        db.write(batch).unwrap();
        assert_eq!(db.metrics().values_separated, both);
    }
    db.flush().unwrap();
    let lens = db.iter().unwrap().entries().map(|entry| entry.unwrap().1.len());
    assert_eq!(lens.collect::<Vec<_>>(), [SMALL; 8]);
}

#[test]
fn a_value_that_cannot_be_read_stops_neither_compaction_nor_the_collection_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    let count = 300;
    for n in 0..count {
        db.put(key(n), value(n, 0)).unwrap();
    }
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    // One byte of one value, found by its content, is changed on the device.
    let victim = value(100, 0);
    let mut damaged = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        // Files come and go in the background.
        let Ok(mut bytes) = std::fs::read(&path) else { continue };
        let found = bytes.windows(victim.len()).position(|part| part == victim);
        if let Some(at) = found.filter(|_| path.extension().is_some_and(|e| e == "log")) {
            bytes[at + 7] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    let is_damage = |error: terrace::Error| matches!(error, terrace::Error::Corruption(_));
    assert!(is_damage(db.collect_garbage(0.0).unwrap_err()));
    db.compact_range::<&[u8]>(..).unwrap();
    // Also once it is known.
    assert!(is_damage(db.collect_garbage(0.0).unwrap_err()));
    assert_eq!(db.metrics().gc_excluded_segments, 1);
    db.put(key(0), value(0, 0)).unwrap();
    for n in 0..count {
        match db.get(key(n)) {
            Err(error) => assert!(n == 100 && is_damage(error)),
            Ok(found) => assert!(n != 100 && found.as_deref() == Some(&value(n, 0)[..])),
        }
    }
    db.put(key(100), value(100, 1)).unwrap();
    assert_eq!(db.get(key(100)).unwrap().as_deref(), Some(&value(100, 1)[..]));
    assert!(!db.metrics().poisoned);
    // Nothing refers to it any more.
    db.compact_range::<&[u8]>(..).unwrap();
    db.collect_garbage(0.0).unwrap();
    assert_eq!(db.metrics().gc_excluded_segments, 0);
}

#[test]
fn a_segment_that_is_lost_stops_neither_compaction_nor_the_collection_of_others() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = Db::open(dir.path(), options()).unwrap();
    let count = 300;
    for n in 0..count {
        db.put(key(n), value(n, 0)).unwrap();
    }
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    let in_it = value(100, 0);
    let has_it = |path: &PathBuf| {
        // Files come and go in the background.
        let bytes = std::fs::read(path).unwrap_or_default();
        let is_log = path.extension().is_some_and(|ending| ending == "log");
        is_log && bytes.windows(in_it.len()).any(|part| part == in_it)
    };
    let mut paths = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let segment = paths.find(has_it).unwrap();
    let lost = elsewhere.path().join("lost");
    std::fs::rename(&segment, &lost).unwrap();
    let error = db.collect_garbage(0.0).unwrap_err();
    assert!(matches!(error, terrace::Error::Io(_)), "{error}");
    let metrics = db.metrics();
    assert!(metrics.gc_excluded_segments == 1 && metrics.gc_moved_values > 0, "{metrics}");
    db.put(key(0), value(0, 0)).unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    assert!(db.quarantined_files().is_empty());
    // It comes back.
    std::fs::rename(&lost, &segment).unwrap();
    db.collect_garbage(0.0).unwrap();
    assert_eq!(db.metrics().gc_excluded_segments, 0);
    for n in 0..count {
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n, 0)[..]), "{n}");
    }
}

/// A store of which most values are garbage, all in segments that cannot be read for now.
fn with_unreadable_garbage(clock: &ManualClock, gc_garbage_ratio: f64) -> (Db, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(true));
    let of_device = fails.clone();
    // Log segments are not given, as long as that says so.
    let vfs = BeforeCalls::new(SimVfs::new(1), move |call, path| {
        let is_log = path.extension().is_some_and(|ending| ending == "log");
        match call {
            Call::Open if is_log && of_device.load(Ordering::SeqCst) => {
                let unreadable = std::io::Error::from_raw_os_error(terrace_vfs::EIO);
                Err(terrace_base::Error::io("open", path, unreadable))
            }
            _ => Ok(()),
        }
    });
    let mut options = options();
    let a = &mut options.advanced;
    a.vfs = Arc::new(vfs);
    a.clock = Arc::new(clock.clone());
    a.gc_garbage_ratio = gc_garbage_ratio;
    let db = Db::open("/db", options).unwrap();
    for round in 0..3 {
        for n in 0..200 {
            // The same keys keep a value of the first round in every segment.
            if round == 0 || n % 10 > 0 {
                db.put(key(n), value(n, round)).unwrap();
            }
        }
        db.flush().unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
    }
    (db, fails)
}

fn check_unreadable_garbage(db: &Db) {
    for n in 0..200 {
        let round = if n % 10 > 0 { 2 } else { 0 };
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n, round)[..]), "{n}");
    }
}

#[test]
fn segments_that_the_device_did_not_give_are_collected_when_they_are_asked_for_again() {
    let (db, fails) = with_unreadable_garbage(&stopped_clock(), 1.0);
    for _ in 0..2 {
        let error = db.collect_garbage(0.0).unwrap_err();
        assert!(matches!(error, terrace::Error::Io(_)), "{error}");
    }
    let metrics = db.metrics();
    assert!(metrics.gc_excluded_segments > 0 && metrics.gc_moved_values == 0, "{metrics}");
    fails.store(false, Ordering::SeqCst);
    db.collect_garbage(0.0).unwrap();
    let metrics = db.metrics();
    assert!(metrics.gc_excluded_segments == 0 && metrics.gc_moved_values > 0, "{metrics}");
    check_unreadable_garbage(&db);
}

#[test]
fn segments_that_the_device_did_not_give_are_collected_by_themselves_after_a_pause() {
    let clock = ManualClock::at(1_000_000);
    let (db, fails) = with_unreadable_garbage(&clock, 0.1);
    eventually("a segment cannot be collected", || {
        clock.advance(1000);
        db.metrics().gc_excluded_segments > 0
    });
    assert_eq!(db.metrics().gc_moved_values, 0);
    fails.store(false, Ordering::SeqCst);
    eventually("values are moved", || {
        clock.advance(1000);
        db.metrics().gc_moved_values > 0
    });
    check_unreadable_garbage(&db);
}
