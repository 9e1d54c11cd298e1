//! `seekrandom` and `scan`.
//!
//! `seekrandom`: an operation is a seek to a random stored key and 10 `next` (`--set seek_nexts=`).
//! The store does not change meanwhile, so each thread keeps one cursor, whatever the engine.
//! `scan`: an operation is one `next` of a walk through all entries in order, begun anew at the
//! end (db_bench's `readseq`).
//!
//! Every entry that is seen must be the one that is due, so that a scan which leaves some out or ends early does not
//! count for a fast one.

use super::{Bench, Bound, ValueCheck, point_read::READ_SECONDS};
use crate::store::Cursor;
use anyhow::{Result, ensure};
use terrace_base::SplitMix64;
use terrace_workload::distribution::{Distribution, Sampler};
use terrace_workload::keys::KeySpace;
use terrace_workload::phase::{Tally, Worker};

/// Steps of a scan take tens of nanoseconds, as does reading the clock.
const TIME_EVERY_SCAN_STEP: u64 = 64;

/// A seek and some nexts.
pub fn seekrandom(bench: &Bench<'_>) -> Result<()> {
    let keys = bench.shape().keys;
    let sampler = bench.sampler(&Distribution::Uniform, keys)?;
    let phase = bench.phase(Bound::ops_or_seconds(keys, READ_SECONDS), 1);
    let make = |thread| Seeker::new(bench, "seekrandom", thread, sampler.clone());
    bench.warm_up(phase, make)?;
    bench.measure("seekrandom", phase, keys, make)
}

/// A walk through everything.
pub fn scan(bench: &Bench<'_>) -> Result<()> {
    let keys = bench.shape().keys;
    let phase = bench.phase(Bound::ops_or_seconds(keys, READ_SECONDS), TIME_EVERY_SCAN_STEP);
    bench.measure("scan", phase, keys, |_| Scanner::new(bench))
}

/// The entry that is due: that of one item of a store that has all of them.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    keys: KeySpace,
    /// Items that there are.
    count: u64,
    value_size: usize,
}

impl Due {
    /// For scans of the bench's store, all of whose items are there.
    pub fn new(bench: &Bench<'_>) -> Self {
        let shape = bench.shape();
        Self { keys: bench.keys, count: shape.keys, value_size: shape.value_size }
    }

    /// Insists on the entry of `item`, or on the end behind the last; false at the end.
    #[inline]
    pub fn check(&self, item: u64, entry: Option<(&[u8], &[u8])>) -> Result<bool> {
        let Some((key, value)) = entry else {
            ensure!(
                item >= self.count,
                "wrong answer: a scan of {} entries ended before entry {item}",
                self.count
            );
            return Ok(false);
        };
        ensure!(
            item < self.count && self.keys.is_present(item, key),
            "wrong answer: a scan found {key:02x?} where entry {item} of {} is due",
            self.count
        );
        let mut values = ValueCheck::new(self.value_size);
        values.see(value);
        values.result().map(|()| true)
    }
}

/// A thread that seeks to stored keys and goes on from there.
pub struct Seeker<'a> {
    cursor: Box<dyn Cursor + 'a>,
    keys: KeySpace,
    due: Due,
    sampler: Sampler,
    rng: SplitMix64,
    nexts: u64,
    key: Vec<u8>,
    tally: Tally,
}

impl<'a> Seeker<'a> {
    /// A reader from keys drawn by `sampler` on.
    pub fn new(bench: &'a Bench<'_>, name: &str, thread: usize, sampler: Sampler) -> Result<Self> {
        Ok(Self {
            cursor: bench.store.cursor()?,
            keys: bench.keys,
            due: Due::new(bench),
            sampler,
            rng: bench.rng(name, thread),
            nexts: bench.job.settings.seek_nexts,
            key: Vec::new(),
            tally: Tally::default(),
        })
    }
}

impl Worker for Seeker<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        let item = self.sampler.item(&mut self.rng);
        self.keys.present(item, &mut self.key);
        self.cursor.seek(&self.key)?;
        self.due.check(item, self.cursor.entry())?;
        for further in 1..=self.nexts {
            self.cursor.next()?;
            if !self.due.check(item + further, self.cursor.entry())? {
                break;
            }
        }
        self.tally.found += 1;
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

struct Scanner<'a> {
    cursor: Box<dyn Cursor + 'a>,
    due: Due,
    /// The item whose entry is the next.
    next: u64,
    tally: Tally,
}

impl<'a> Scanner<'a> {
    fn new(bench: &'a Bench<'_>) -> Result<Self> {
        let cursor = bench.store.cursor()?;
        Ok(Self { cursor, due: Due::new(bench), next: 0, tally: Tally::default() })
    }
}

impl Worker for Scanner<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        match self.next {
            0 => self.cursor.seek(b"")?,
            _ => self.cursor.next()?,
        }
        let is_entry = self.due.check(self.next, self.cursor.entry())?;
        self.next = if is_entry { self.next + 1 } else { 0 };
        self.tally.found += u64::from(is_entry);
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
