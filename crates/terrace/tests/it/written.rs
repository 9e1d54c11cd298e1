//! Which keys are written most: counted when segments of the log are retired, for every way that a segment
//! may go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace::vfs::{SimVfs, Vfs};
use terrace::{CfOptions, Db, Options, WriteBatch, WriteTracking};
use terrace_base::ManualClock;

const DIR: &str = "/db";

fn options(vfs: &SimVfs, clock: &ManualClock, keys: usize) -> Options {
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    let a = &mut options.advanced;
    a.vfs = Arc::new(vfs.clone()) as Arc<dyn Vfs>;
    a.clock = Arc::new(clock.clone());
    a.memtable_bytes = 32 << 10;
    a.write_tracking = WriteTracking {
        keys,
        except_families: vec!["uncounted".into()],
        halved_every: Duration::from_secs(60),
    };
    options
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

/// Waits until `writes` writes are counted: the segments are retired in the background.
fn wait_for(db: &Db, writes: u64) {
    let start = Instant::now();
    while db.top_written(0).writes < writes {
        assert!(start.elapsed() < Duration::from_secs(600), "segments are not counted");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Key n is written 100 / n times, in an order that mixes them.
fn write_all(db: &Db, value: &[u8]) -> BTreeMap<Vec<u8>, u64> {
    let mut times = BTreeMap::new();
    for round in 1..=100 {
        for number in 1..=100 {
            if round * number <= 100 {
                db.put(key(number), value).unwrap();
                *times.entry(key(number)).or_insert(0) += 1;
            }
        }
    }
    times
}

fn counts(db: &Db, n: usize) -> BTreeMap<Vec<u8>, u64> {
    let top = db.top_written(n);
    top.keys.into_iter().map(|key| (key.key, key.count)).collect()
}

#[test]
fn every_write_of_a_retired_segment_is_counted_once() {
    // Small values, and such that stay in the log, so that its segments become value segments.
    for value in [vec![7; 100], vec![7; 2_000]] {
        let (vfs, clock) = (SimVfs::new(1), ManualClock::at(1));
        let mut options = options(&vfs, &clock, 1_000);
        options.default_family.value_separation_threshold = 1_000;
        let db = Db::open(DIR, options).unwrap();
        let mut times = write_all(&db, &value);
        db.delete(key(1)).unwrap();
        *times.get_mut(&key(1)).unwrap() += 1;
        db.delete_range(key(1), key(5)).unwrap();
        let all = times.values().sum::<u64>();
        db.flush().unwrap();
        wait_for(&db, all);
        let top = db.top_written(1_000);
        assert_eq!(top.writes, all);
        assert_eq!((&top.keys[0].key[..], top.keys[0].error), (&key(1)[..], 0));
        assert_eq!(&*top.keys[0].family, "default");
        assert!(top.write_bytes >= (all - 1) * 100, "{}", top.write_bytes);
        assert_eq!(counts(&db, 1_000), times);
        assert_eq!(counts(&db, 3), times.into_iter().filter(|(_, n)| *n >= 33).collect());
    }
}

#[test]
fn families_are_told_apart_or_left_out_and_counts_fade() {
    let (vfs, clock) = (SimVfs::new(1), ManualClock::at(1));
    let db = Db::open(DIR, options(&vfs, &clock, 10)).unwrap();
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    let uncounted = db.create_column_family("uncounted", CfOptions::default()).unwrap();
    for _ in 0..64 {
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v");
        batch.put_cf(&other, b"k", b"v");
        batch.put_cf(&other, b"k", b"w");
        batch.put_cf(&uncounted, b"k", b"v");
        db.write(batch).unwrap();
    }
    db.flush().unwrap();
    wait_for(&db, 3 * 64);
    let shown = |db: &Db| -> Vec<(String, u64)> {
        db.top_written(9).keys.into_iter().map(|key| (key.family, key.count)).collect()
    };
    assert_eq!(shown(&db), [("other".into(), 128), ("default".into(), 64)]);
    // Two intervals later: they are halved before the next segment is counted.
    clock.advance(130_000);
    db.put(b"k", b"v").unwrap();
    db.flush().unwrap();
    let start = Instant::now();
    while db.top_written(0).writes != 3 * 64 / 4 + 1 {
        assert!(start.elapsed() < Duration::from_secs(600), "nothing fades");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(shown(&db), [("other".into(), 32), ("default".into(), 17)]);
    db.drop_column_family("other").unwrap();
    assert_eq!(shown(&db), [("default".into(), 17)]);
}

/// Who asks does not wait until a segment leaves the log, and nothing is counted again when it does.
#[test]
fn what_is_in_the_log_is_counted_when_it_is_asked_for() {
    let (vfs, clock) = (SimVfs::new(1), ManualClock::at(1));
    let mut options = options(&vfs, &clock, 1_000);
    options.advanced.memtable_bytes = 1 << 20;
    let db = Db::open(DIR, options).unwrap();
    let times = write_all(&db, b"v");
    let writes: u64 = times.values().sum();
    for _ in 0..2 {
        db.count_written().unwrap();
        assert_eq!((counts(&db, 1_000), db.top_written(0).writes), (times.clone(), writes));
    }
    assert_eq!(db.metrics().flushes, 0);
    let more = write_all(&db, b"w");
    db.flush().unwrap();
    // Segments leave the log in their order: those from before are gone, too.
    wait_for(&db, 2 * writes);
    let twice: BTreeMap<_, _> = times.iter().map(|(key, n)| (key.clone(), n + more[key])).collect();
    assert_eq!((counts(&db, 1_000), db.top_written(0).writes), (twice, 2 * writes));
    db.close().unwrap();
}

#[test]
fn nothing_is_counted_unless_it_is_wanted() {
    let (vfs, clock) = (SimVfs::new(1), ManualClock::at(1));
    let db = Db::open(DIR, options(&vfs, &clock, 0)).unwrap();
    write_all(&db, b"v");
    db.flush().unwrap();
    assert_eq!(db.top_written(10), Default::default());
}
