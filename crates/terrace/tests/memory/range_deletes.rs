//! The promise about overlapping range deletes: 100,000 of them, in whatever shape, take no more than
//! [`MOST`] to be written, read, flushed and opened again, the memtables that hold them included. Each shape in a
//! process of its own, as for the whole store.

use crate::resident::peak;
use std::process::Command;
use terrace::{Db, Options, SyncMode, WriteBatch};

const MIB: u64 = 1 << 20;
const BUDGET: usize = 64 << 20;
/// What a process may take beside what it has when its store is open and empty.
const MOST: u64 = 100 * MIB;
const MANY: u64 = 100_000;
/// Says to a process of this binary which shape it writes.
const SHAPE: &str = "TERRACE_RANGE_DELETES_SHAPE";
/// Range deletes between two reads.
const BETWEEN_READS: u64 = 1_000;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

/// Each inside of the one before it, or around it.
fn nested(n: u64, inward: bool) -> (Vec<u8>, Vec<u8>) {
    match inward {
        true => (key(n), key(3 * MANY - n)),
        false => (key(MANY - n), key(2 * MANY + n)),
    }
}

/// Within all that are nested.
fn middle() -> Vec<u8> {
    key(3 * MANY / 2)
}

fn write_nested(db: &Db, inward: bool) {
    db.put(middle(), b"old").unwrap();
    for n in 0..MANY {
        let (start, end) = nested(n, inward);
        db.delete_range(start, end).unwrap();
        if n % BETWEEN_READS == 0 {
            assert!(db.get(middle()).unwrap().is_none());
        }
    }
}

fn write_batch(db: &Db) {
    db.put(middle(), b"old").unwrap();
    let mut batch = WriteBatch::new();
    for n in 0..MANY {
        let (start, end) = nested(n, true);
        batch.delete_range(start, end);
    }
    db.write(batch).unwrap();
}

/// A queue that forgets what lies below its watermark.
fn write_queue(db: &Db) {
    for n in 0..MANY {
        db.put(key(n), b"message").unwrap();
        db.delete_range(b"key", key(n)).unwrap();
        if n % BETWEEN_READS == 0 {
            assert!(db.get(key(n)).unwrap().is_some());
            assert!(n == 0 || db.get(key(n - 1)).unwrap().is_none());
        }
    }
}

/// Fragments in the files of the store.
fn fragments(db: &Db) -> u64 {
    let levels = &db.shape().families[0].levels;
    levels.iter().flatten().map(|file| file.range_tombstone_count).sum()
}

/// What a process of a shape does; in the process that the tests run in it does nothing.
#[test]
fn one_shape() {
    let Ok(shape) = std::env::var(SHAPE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let options = Options { memory_budget: BUDGET, sync: SyncMode::None, ..Options::default() };
    let db = Db::open(dir.path(), options.clone()).unwrap();
    let before = peak();
    match shape.as_str() {
        "inward" => write_nested(&db, true),
        "outward" => write_nested(&db, false),
        "batch" => write_batch(&db),
        "queue" => write_queue(&db),
        other => panic!("there is no shape {other}"),
    }
    println!("written: {} MiB more", (peak() - before) / MIB);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let (found, flushes) = (fragments(&db), db.metrics().flushes);
    println!("flushed: {} MiB more, {found} fragments", (peak() - before) / MIB);
    assert!(flushes > 0);
    match shape.as_str() {
        // Nobody reads an older state: of ranges around all older ones, or with the same start, one is left.
        "outward" | "queue" => assert!(found <= flushes, "{found} fragments of {flushes} flushes"),
        _ => assert!(found < 2 * MANY, "{found} fragments"),
    }
    let check = |db: &Db| {
        let last = (shape == "queue").then(|| key(MANY - 1));
        assert!(db.get(middle()).unwrap().is_none());
        assert!(last.is_none_or(|last| db.get(last).unwrap().is_some()));
    };
    check(&db);
    db.close().unwrap();
    let db = Db::open(dir.path(), options).unwrap();
    check(&db);
    db.close().unwrap();
    let taken = peak() - before;
    println!("opened again: {} MiB more", taken / MIB);
    assert!(taken <= MOST, "{} MiB of {}", taken / MIB, MOST / MIB);
}

fn check(shape: &str) {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "range_deletes::one_shape", "--nocapture"]).env(SHAPE, shape);
    let out = process.output().unwrap();
    let (said, why) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    println!("{shape}:\n{said}\n{why}");
    assert!(out.status.success() && said.contains("opened again"), "{shape}:\n{said}\n{why}");
}

#[test]
fn range_deletes_each_inside_of_the_one_before_it_take_linear_memory() {
    check("inward");
}

#[test]
fn range_deletes_each_around_the_one_before_it_take_linear_memory() {
    check("outward");
}

#[test]
fn nested_range_deletes_of_one_batch_take_linear_memory() {
    check("batch");
}

#[test]
fn a_queue_that_is_trimmed_takes_linear_memory() {
    check("queue");
}
