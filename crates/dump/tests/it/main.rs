//! Dumps from outside: full circles, damage in every byte, what is no dump.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod circle;
mod damage;

use std::path::Path;
use tempfile::TempDir;
use terrace::{Db, Options};
use terrace_dump::{Counts, Error, RecordReader};

/// The clock of tests stands far before this.
const NEXT_CENTURY: u64 = 4_102_444_800_000;

fn open(dir: &Path) -> Db {
    Db::open(dir, Options { memory_budget: 8 << 20, ..Options::default() }).unwrap()
}

fn dump(db: &Db) -> (Vec<u8>, Counts) {
    terrace_dump::dump(db, Vec::new(), &mut |_| {}).unwrap()
}

/// A new store with what the dump holds.
fn restore(dump: &[u8]) -> Result<(TempDir, Db, Counts), Error> {
    let dir = tempfile::tempdir().unwrap();
    let mut records = RecordReader::start(dump)?;
    let db = open(dir.path());
    let counts = terrace_dump::restore(&mut records, &db, &mut |_| {})?;
    Ok((dir, db, counts))
}

/// Reads a dump to its end.
fn read(dump: &[u8]) -> Result<Counts, Error> {
    let mut records = RecordReader::start(dump)?;
    while records.next()?.is_some() {}
    // It stays at its end.
    assert!(records.next()?.is_none());
    Ok(records.counts())
}
