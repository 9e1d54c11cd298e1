//! Values in the log under everything else that goes on: dropped families, scans and batched reads
//! while segments come and go, devices that fail, read-only opens.

use crate::harness::{DIR, Store, effort, eventually, key, small_options, stopped_clock};
use crate::stop_on_drop::StopOnDrop;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace::vfs::{Fault, FaultKind, OpClass, SimVfs};
use terrace::{CfOptions, Compression, Db, Error, Options, ReadOptions, WriteBatch};
use terrace_base::rng::{Rng, SplitMix64};
use terrace_vfs::{Call, Interposed};

/// Every value of 16 bytes and more is in the log, in segments of 4 KiB.
fn options(sim: &SimVfs) -> Options {
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.default_family.value_separation_threshold = 16;
    for (_, family) in &mut options.column_families {
        family.value_separation_threshold = 16;
    }
    options.advanced.segment_bytes = 4 << 10;
    options
}

fn value(number: u64, round: u64) -> Vec<u8> {
    format!("{round:06} {number:06} {}", "v".repeat((number as usize * 37) % 300)).into_bytes()
}

/// Segments of either kind that lie in the directory.
fn segments(sim: &SimVfs) -> Vec<PathBuf> {
    let paths = sim.files().into_iter().map(|(path, _)| path);
    let is_segment = |path: &PathBuf| {
        path.starts_with(DIR) && path.extension().is_some_and(|e| e == "log" || e == "vlog")
    };
    paths.filter(is_segment).collect()
}

#[test]
fn a_dropped_family_frees_its_segments_but_not_under_an_iterator() {
    let sim = SimVfs::new(1);
    let store = Store::open(options(&sim)).unwrap();
    let db = &store.db;
    let gone = db.create_column_family("gone", options(&sim).default_family).unwrap();
    db.put(b"stays", value(1, 1)).unwrap();
    for n in 0..200 {
        gone.put(key(n), value(n, 0)).unwrap();
    }
    db.flush().unwrap();
    eventually("the log is sealed", || db.metrics().value_segments > 4);
    let before = segments(&sim).len();
    let mut iter = gone.iter().unwrap();
    iter.seek_to_first().unwrap();
    db.drop_column_family("gone").unwrap();
    eventually("no segment refers to the family", || db.metrics().value_segments <= 1);
    // The handle may still be there, but it shows no wrong value.
    assert!(matches!(gone.iter(), Err(Error::NoSuchFamily(_))));
    for n in 0..200 {
        match gone.get(key(n)) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value(n, 0)[..])),
            Err(Error::NoSuchFamily(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    let mut seen = BTreeMap::new();
    while iter.valid() {
        seen.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next().unwrap();
    }
    assert_eq!(seen, (0..200).map(|n| (key(n), value(n, 0))).collect());
    drop((iter, gone));
    eventually("the files are deleted", || segments(&sim).len() < before - 4);
    assert_eq!(db.get(b"stays").unwrap().as_deref(), Some(&value(1, 1)[..]));
    db.verify().unwrap();
    db.close().unwrap();
    assert!(segments(&sim).len() <= 2, "{:?}", segments(&sim));
}

/// A file system on which a read of an SST takes a while, so that what it is for may be gone by the
/// time it is over.
#[derive(Clone)]
struct SlowSsts(SimVfs);

impl Interposed for SlowSsts {
    type Files = SimVfs;

    fn files(&self) -> &SimVfs {
        &self.0
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        _: &Path,
        work: impl FnOnce() -> terrace_base::Result<T>,
    ) -> terrace_base::Result<T> {
        if matches!(call, Call::Read(..)) {
            std::thread::sleep(Duration::from_micros(500));
        }
        work()
    }

    fn sees_reads(&self, path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending == "sst")
    }
}

/// All keys are always there and of one round: reads of any kind see them so, while their segments
/// come and go.
#[test]
fn reads_are_whole_while_segments_come_and_go() {
    const KEYS: u64 = 60;
    let rounds = effort(250);
    let sim = SimVfs::new(3);
    let mut options = options(&sim);
    options.advanced.gc_garbage_ratio = 0.05;
    options.advanced.vfs = Arc::new(SlowSsts(sim.clone()));
    options.background_jobs = 2;
    let store = Store::open(options).unwrap();
    let db = &store.db;
    let write = |round: u64| {
        let mut batch = WriteBatch::new();
        (0..KEYS).for_each(|n| batch.put(key(n), value(n, round)));
        db.write(batch).unwrap();
    };
    write(0);
    let round_of =
        |value: &[u8]| -> u64 { std::str::from_utf8(&value[..6]).unwrap().parse().unwrap() };
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let one_round = |found: &[(Vec<u8>, Vec<u8>)], how: &str| {
        assert_eq!(found.len() as u64, KEYS, "{how} misses keys");
        let round = round_of(&found[0].1);
        let mut want: Vec<_> = (0..KEYS).map(|n| (key(n), value(n, round))).collect();
        want.sort();
        let mut found = found.to_vec();
        found.sort();
        assert!(found == want, "{how} mixes rounds");
        reads.fetch_add(1, Ordering::Relaxed);
        round
    };
    let read_on = |reader: u64| {
        let mut rng = SplitMix64::new(reader);
        let mut last = 0;
        while !done.load(Ordering::SeqCst) {
            // Every lookup takes its time.
            let read = ReadOptions { fill_cache: false, ..ReadOptions::default() };
            let found = db.multi_get_with(&keys, &read).unwrap().into_iter();
            let found: Vec<_> =
                keys.iter().cloned().zip(found.map(|v| v.map_or(vec![], |v| v.to_vec()))).collect();
            let round = one_round(&found, "multi_get");
            assert!(round >= last, "time ran backward");
            last = round;
            let n = rng.below(KEYS);
            let one = db.get(key(n)).unwrap().expect("it is always there");
            assert!(round_of(&one) >= last && *one == value(n, round_of(&one))[..], "get");
            let snapshot = db.snapshot();
            let read = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
            let mut iter = db.iter_with(&read).unwrap();
            let backward = rng.one_in(2);
            if backward { iter.seek_to_last() } else { iter.seek_to_first() }.unwrap();
            let mut found = Vec::new();
            while iter.valid() {
                found.push((iter.key().to_vec(), iter.value().to_vec()));
                if rng.one_in(30) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                if backward { iter.prev() } else { iter.next() }.unwrap();
            }
            let round = one_round(&found, "a scan");
            let again = db.get_with(key(n), &read).unwrap().expect("it is in the snapshot");
            assert_eq!(round_of(&again), round, "a snapshot moved");
        }
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|n| scope.spawn(move || read_on(n))).collect();
        let _done = StopOnDrop(&done);
        for round in 1..=rounds {
            write(round);
            if round % 3 == 0 {
                db.flush().unwrap();
            }
            if round % 7 == 0 {
                db.compact_range::<&[u8]>(..).unwrap();
            }
            if round % 4 == 0 {
                db.collect_garbage(0.0).unwrap();
            }
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
        }
    });
    let metrics = db.metrics();
    println!("{} whole reads; {metrics}", reads.load(Ordering::Relaxed));
    assert!(reads.load(Ordering::Relaxed) > 20 && metrics.gc_moved_values > 0, "{metrics}");
    eventually("dead segments are dropped", || db.metrics().value_segment_bytes < 200 << 10);
}

#[test]
fn a_value_that_cannot_be_read_ends_a_scan_that_may_then_be_tried_again() {
    let sim = SimVfs::new(5);
    let store = Store::open(options(&sim)).unwrap();
    let count = 150;
    for n in 0..count {
        store.db.put(key(n), value(n, 0)).unwrap();
    }
    store.db.flush().unwrap();
    store.db.wait_idle().unwrap();
    let want: BTreeMap<Vec<u8>, Vec<u8>> = (0..count).map(|n| (key(n), value(n, 0))).collect();
    let mut errors = 0;
    for after in 0..40 {
        let mut iter = store.db.iter().unwrap();
        let at_op = sim.op_count() + after;
        let (kind, filter) = (FaultKind::Eio, Some(OpClass::Read));
        sim.set_fault(Some(Fault { at_op, kind, forever: false, filter }));
        let mut seen = BTreeMap::new();
        let mut moved = iter.seek_to_first();
        loop {
            match moved {
                Ok(()) if !iter.valid() => break,
                Ok(()) => {
                    let last = iter.key().to_vec();
                    seen.insert(last.clone(), iter.value().to_vec());
                    moved = iter.next();
                    if moved.is_err() {
                        assert!(!iter.valid());
                        errors += 1;
                        iter.seek(&last).unwrap();
                        assert_eq!(iter.value(), seen[&last]);
                        moved = iter.next();
                    }
                }
                Err(_) => {
                    errors += 1;
                    moved = iter.seek_to_first();
                }
            }
        }
        assert!(seen == want, "fault at {after}");
    }
    sim.set_fault(None);
    // Windows of 1, 2, 4 and so on entries, each read at once.
    assert!(errors >= 8, "{errors} reads failed");
}

#[test]
fn a_seek_reads_one_value_and_a_scan_of_keys_none() {
    let sim = SimVfs::new(5);
    let store = Store::open(options(&sim)).unwrap();
    for n in 0..200 {
        store.db.put(key(n), value(n, 0)).unwrap();
    }
    store.db.flush().unwrap();
    let reads = || store.db.metrics().value_reads;
    let before = reads();
    let mut iter = store.db.iter().unwrap();
    iter.seek(&key(7)).unwrap();
    assert_eq!(iter.value(), value(7, 0));
    assert_eq!(reads() - before, 1);
    let options = ReadOptions { keys_only: true, ..ReadOptions::default() };
    let before = reads();
    let keys = store.db.iter_with(&options).unwrap().entries().map(|e| e.unwrap());
    assert_eq!(keys.filter(|(_, value)| value.is_empty()).count(), 200);
    assert_eq!(reads(), before);
}

#[test]
fn values_of_any_length_and_compression_come_back() {
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    for (seed, compression) in (0..).zip(compressions) {
        let sim = SimVfs::new(seed);
        let mut options = options(&sim);
        options.memory_budget = 64 << 20;
        options.default_family.value_separation_threshold = 0;
        options.default_family.value_compression = compression;
        let mut want = BTreeMap::new();
        let store = Store::open(options.clone()).unwrap();
        let mut rng = SplitMix64::new(seed);
        let lens = [0, 1, 2, 7, 8, 100, 4095, 4096, 4097, 70_000, 1 << 20, 3 << 20];
        for (n, len) in (0..).zip(lens) {
            let noise = rng.one_in(2);
            let byte = |at: usize| if noise { rng.next_u64() as u8 } else { (at / 100) as u8 };
            let value: Vec<u8> = (0..len).map(byte).collect();
            match n % 3 {
                0 => store.db.put_with_ttl(key(n), &value, Duration::from_secs(9)).unwrap(),
                _ => store.db.put(key(n), &value).unwrap(),
            }
            want.insert(key(n), value);
        }
        let check = |store: &Store, what: &str| {
            for (key, value) in &want {
                let found = store.db.get(key).unwrap().expect(what);
                assert!(*found == value[..], "{what}: a value of {} bytes", value.len());
            }
            for backward in [false, true] {
                let options = ReadOptions::default();
                let seen = crate::harness::scan(&store.families[0], &options, backward).unwrap();
                assert!(seen == want, "{what}: a scan (backward: {backward})");
            }
        };
        check(&store, "in memtables");
        store.db.flush().unwrap();
        check(&store, "in SSTs");
        store.db.checkpoint("/checkpoint").unwrap();
        store.db.close().unwrap();
        check(&Store::open(options.clone()).unwrap(), "after an open");
        check(&Store::open_read_only(options.clone()).unwrap(), "read-only");
        let checkpoint = Store::of(Db::open("/checkpoint", options).unwrap());
        check(&checkpoint, "in a checkpoint");
        checkpoint.db.verify().unwrap();
    }
}

/// A read-only store and a checkpoint have the values of log segments that nothing has flushed yet.
#[test]
fn a_read_only_open_beside_the_writer_reads_values_of_the_log() {
    let sim = SimVfs::new(9);
    let store = Store::open(options(&sim)).unwrap();
    let mut rng = SplitMix64::new(1);
    let mut want = BTreeMap::new();
    for step in 0..40u64 {
        for _ in 0..10 {
            let n = rng.below(80);
            let value = value(n, step);
            store.db.put(key(n), &value).unwrap();
            want.insert(key(n), value);
        }
        if rng.one_in(4) {
            store.db.flush().unwrap();
        }
        // What a read-only open looks at must not change while it looks.
        let mut options = options(&sim);
        options.advanced.vfs = Arc::new(sim.kill_image());
        let beside = Store::open_read_only(options).unwrap();
        let contents = beside.contents().unwrap();
        assert!(contents[0] == want, "step {step}");
        let keys: Vec<Vec<u8>> = want.keys().cloned().collect();
        beside.compare(&contents, &keys).unwrap().unwrap();
    }
}

#[test]
fn families_differ_in_what_they_separate() {
    let sim = SimVfs::new(11);
    let mut options = options(&sim);
    options.column_families.clear();
    let db = Db::open(DIR, options).unwrap();
    let all = CfOptions { value_separation_threshold: 0, ..CfOptions::default() };
    let none = CfOptions { value_separation_threshold: usize::MAX, ..CfOptions::default() };
    let all = db.create_column_family("all", all).unwrap();
    let none = db.create_column_family("none", none).unwrap();
    let mut batch = WriteBatch::new();
    for family in [&db.default_family(), &all, &none] {
        batch.put_cf(family, b"short", b"v");
        batch.put_cf(family, b"long", vec![1; 5000]);
        batch.put_with_ttl_cf(family, b"expires", vec![2; 5000], Duration::from_secs(9));
    }
    db.write(batch).unwrap();
    assert_eq!(db.metrics().values_separated, 2 + 3);
    db.flush().unwrap();
    for family in [&db.default_family(), &all, &none] {
        let entries: Vec<_> = family.iter().unwrap().entries().map(|e| e.unwrap().1).collect();
        assert_eq!(entries, [vec![2; 5000], vec![1; 5000], b"v".to_vec()]);
    }
}
