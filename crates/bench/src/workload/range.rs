//! `seekrandom` and `scan`.
//!
//! `seekrandom`: an operation is a seek to a random stored key and 10 `next` (`--set seek_nexts=`).
//! The store does not change meanwhile, so each thread keeps one cursor, whatever the engine.
//! `scan`: an operation is one `next` of a walk through all entries in order, begun anew at the
//! end (db_bench's `readseq`).

use super::{Bench, Bound, point_read::READ_SECONDS, touch};
use crate::store::Cursor;
use anyhow::{Result, bail, ensure};
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
    bench.measure("scan", phase, keys, |_| {
        Ok(Scanner { cursor: bench.store.cursor()?, tally: Tally::default() })
    })
}

/// A thread that seeks to stored keys and goes on from there.
pub struct Seeker<'a> {
    cursor: Box<dyn Cursor + 'a>,
    keys: KeySpace,
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
        self.keys.present(self.sampler.item(&mut self.rng), &mut self.key);
        self.cursor.seek(&self.key)?;
        let Some((key, value)) = self.cursor.entry() else {
            bail!("wrong answer: a seek to the stored key {:02x?} found the end", self.key)
        };
        ensure!(key == self.key, "wrong answer: a seek to {:02x?} found {key:02x?}", self.key);
        touch(value);
        for _ in 0..self.nexts {
            self.cursor.next()?;
            let Some((key, value)) = self.cursor.entry() else { break };
            touch(key);
            touch(value);
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
    tally: Tally,
}

impl Worker for Scanner<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        if self.cursor.entry().is_none() {
            self.cursor.seek(b"")?;
        } else {
            self.cursor.next()?;
        }
        if let Some((key, value)) = self.cursor.entry() {
            touch(key);
            touch(value);
            self.tally.found += 1;
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
