//! What every embedder does first: write, read, scan, reopen, on the real file system.

use crate::harness::eventually;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use terrace::{Db, Options, ReadOptions, WriteBatch};
use terrace_base::rng::{Rng, SplitMix64};

fn small() -> Options {
    let mut options = Options { memory_budget: 8 << 20, ..Options::default() };
    options.advanced.memtable_bytes = 64 << 10;
    options.advanced.level_base_bytes = 256 << 10;
    options.advanced.target_file_bytes = 64 << 10;
    options
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    format!("value-{n}-").repeat(4).into_bytes()
}

#[test]
fn what_is_written_is_read_before_and_after_flush_compaction_and_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let count = 20_000u64;
    for n in 0..count {
        db.put(key(n * 7919 % count), value(n * 7919 % count)).unwrap();
    }
    let check = |db: &Db| {
        for n in (0..count).step_by(37) {
            assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]), "key {n}");
            assert!(db.get(format!("key{n:08}x")).unwrap().is_none());
        }
        let mut seen = 0;
        let mut iter = db.iter().unwrap();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            assert_eq!(iter.key(), key(seen));
            assert_eq!(iter.value(), value(seen));
            seen += 1;
            iter.next().unwrap();
        }
        assert_eq!(seen, count);
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.wait_idle().unwrap();
    check(&db);
    db.compact_range::<&[u8]>(..).unwrap();
    check(&db);
    let files: Vec<u64> = db.metrics().levels.iter().map(|level| level.file_count).collect();
    assert_eq!(files[..6].iter().sum::<u64>(), 0, "all of it lies in the last level: {files:?}");
    assert!(db.verify().unwrap() > 1);
    db.close().unwrap();
    assert!(matches!(db.get(b"x"), Err(terrace::Error::Closed)));
    let db = Db::open(dir.path(), small()).unwrap();
    check(&db);
}

#[test]
fn a_file_in_the_place_of_a_directory_is_called_one_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let there = Options { create_if_missing: false, ..small() };
    let opened =
        [Db::open(&file, small()), Db::open(&file, there), Db::open_read_only(&file, small())];
    for opened in opened {
        let said = opened.err().unwrap().to_string();
        assert!(said.contains("is no directory"), "{said}");
        assert!(said.contains(&file.display().to_string()), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

/// A copy of a store whose handle was forgotten, and with it still holds this process's lock.
pub fn copy_without_lock(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "LOCK" {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    copy
}

#[test]
fn writes_survive_a_drop_without_close_and_come_back_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Db::open(dir.path(), Options::default()).unwrap();
        db.put(b"a", b"1").unwrap();
        db.delete(b"b").unwrap();
        std::mem::forget(db);
    }
    let copy = copy_without_lock(dir.path());
    let db = Db::open(copy.path(), Options::default()).unwrap();
    assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn snapshots_batches_and_range_deletes_read_as_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    for n in 0..1000 {
        db.put(key(n), value(n)).unwrap();
    }
    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    batch.delete_range(key(100), key(900));
    batch.put(key(500), b"back");
    db.write(batch).unwrap();
    let check = |db: &Db| {
        assert!(db.get(key(100)).unwrap().is_none());
        assert!(db.get(key(899)).unwrap().is_none());
        assert_eq!(db.get(key(900)).unwrap().as_deref(), Some(&value(900)[..]));
        assert_eq!(db.get(key(500)).unwrap().as_deref(), Some(&b"back"[..]));
        let old = ReadOptions { snapshot: Some(before.clone()), ..ReadOptions::default() };
        assert_eq!(db.get_with(key(500), &old).unwrap().as_deref(), Some(&value(500)[..]));
        let keys: Vec<_> = db.iter_with(&old).unwrap().entries().map(|e| e.unwrap().0).collect();
        assert_eq!(keys.len(), 1000);
        let keys: Vec<_> = db.iter().unwrap().entries().map(|e| e.unwrap().0).collect();
        assert_eq!(keys.len(), 201);
        let many: Vec<Vec<u8>> = (0..1000).map(key).collect();
        let found = db.multi_get(&many).unwrap();
        assert_eq!(found.iter().flatten().count(), 201);
        assert_eq!(db.multi_get_with(&many, &old).unwrap().iter().flatten().count(), 1000);
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.compact_range::<&[u8]>(..).unwrap();
    check(&db);
    drop(before);
}

#[test]
fn a_value_with_a_ttl_goes_away_and_frees_its_disk_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    for n in 0..5000 {
        db.put_with_ttl(key(n), vec![b'x'; 200], Duration::from_millis(400)).unwrap();
    }
    db.put_with_ttl(b"long", b"kept", Duration::from_secs(3600)).unwrap();
    db.flush().unwrap();
    assert!(db.get(b"long").unwrap().is_some());
    std::thread::sleep(Duration::from_millis(500));
    assert!(db.get(key(7)).unwrap().is_none());
    assert_eq!(db.iter().unwrap().entries().count(), 1);
    eventually("entries leave the disk", || {
        let entries: u64 = db.metrics().levels.iter().map(|level| level.entry_count).sum();
        entries <= 100
    });
    assert_eq!(db.get(b"long").unwrap().as_deref(), Some(&b"kept"[..]));
}

#[test]
fn a_checkpoint_opens_as_the_store_was_and_a_read_only_store_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("store"), small()).unwrap();
    for n in 0..3000 {
        db.put(key(n), value(n)).unwrap();
    }
    let target = dir.path().join("checkpoint");
    db.checkpoint(&target).unwrap();
    assert!(matches!(db.checkpoint(&target), Err(terrace::Error::InvalidArgument(_))));
    db.delete(key(5)).unwrap();
    let before: Vec<_> =
        std::fs::read_dir(&target).unwrap().map(|e| e.unwrap().file_name()).collect();
    let frozen = Db::open_read_only(&target, small()).unwrap();
    for n in 0..3000 {
        assert_eq!(frozen.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]));
    }
    assert!(matches!(frozen.put(b"k", b"v"), Err(terrace::Error::ReadOnly(_))));
    drop(frozen);
    let after: Vec<_> =
        std::fs::read_dir(&target).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(before, after);
    let copy = Db::open(&target, small()).unwrap();
    assert!(copy.get(key(5)).unwrap().is_some());
    copy.put(b"only here", b"1").unwrap();
    assert!(db.get(b"only here").unwrap().is_none());
}

#[test]
fn threads_write_and_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let db = db.clone();
            scope.spawn(move || {
                for n in 0..3000 {
                    let n = thread * 10_000 + n;
                    db.put(key(n), value(n)).unwrap();
                    assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]));
                }
            });
        }
    });
    assert_eq!(db.iter().unwrap().entries().count(), 12_000);
    let metrics = db.metrics();
    assert_eq!(metrics.ops_written, 12_000);
    assert!(metrics.groups <= metrics.batches);
}

/// What a map has between two bounds, from a key on or from the end, forwards and backwards.
#[test]
fn entries_go_both_ways() {
    let mut rng = SplitMix64::new(7);
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let mut model = BTreeMap::new();
    for round in 0..6 {
        for _ in 0..80 {
            let key = rng.below(200).to_be_bytes().to_vec();
            if rng.below(3) == 0 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = vec![round; rng.below(300) as usize];
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        if round % 2 == 0 {
            db.flush().unwrap();
        }
        for _ in 0..30 {
            let (low, at) = (rng.below(220), rng.below(220));
            let high = low + rng.below(220 - low.min(219));
            let [low, at, high] = [low, at, high].map(|n| n.to_be_bytes().to_vec());
            let backward = |from: Option<&Vec<u8>>| {
                let inside = model.range(low.clone()..high.clone()).rev();
                let inside = inside.map(|(key, value)| (key.clone(), value.clone()));
                inside.filter(|(key, _)| from.is_none_or(|from| key <= from)).collect::<Vec<_>>()
            };
            let open = || db.range(low.clone()..high.clone()).unwrap();
            let mut forward: Vec<_> = open().entries().map(Result::unwrap).collect();
            forward.reverse();
            assert_eq!(forward, backward(None));
            let got: Vec<_> = open().entries_backward().map(Result::unwrap).collect();
            assert_eq!(got, backward(None));
            let mut iter = open();
            iter.seek_for_prev(&at).unwrap();
            let got: Vec<_> = iter.entries_backward().map(Result::unwrap).collect();
            assert_eq!(got, backward(Some(&at)));
        }
    }
}
