//! Scans of some length from stored keys.

use crate::store::Cursor;
use crate::workload::Bench;
use crate::workload::range::Due;
use anyhow::{Result, ensure};
use terrace_base::SplitMix64;
use terrace_workload::distribution::Sampler;
use terrace_workload::keys::KeySpace;
use terrace_workload::phase::{Tally, Worker};

/// A thread that seeks to a stored key and walks on; `found` counts entries.
pub struct ScanReader<'a> {
    cursor: Box<dyn Cursor + 'a>,
    keys: KeySpace,
    sampler: Sampler,
    rng: SplitMix64,
    length: u64,
    due: Due,
    key: Vec<u8>,
    tally: Tally,
}

impl<'a> ScanReader<'a> {
    /// A reader of `length` entries from each key that `sampler` draws.
    pub fn new(
        bench: &'a Bench<'_>,
        name: &str,
        thread: usize,
        sampler: Sampler,
        length: u64,
    ) -> Result<Self> {
        Ok(Self {
            cursor: bench.store.cursor()?,
            keys: bench.keys,
            sampler,
            rng: bench.rng(name, thread),
            length,
            due: Due::new(bench),
            key: Vec::new(),
            tally: Tally::default(),
        })
    }
}

impl Worker for ScanReader<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        let item = self.sampler.item(&mut self.rng);
        self.keys.present(item, &mut self.key);
        self.cursor.seek(&self.key)?;
        for entry in 0..self.length {
            if entry > 0 {
                self.cursor.next()?;
            }
            let is_entry = self.due.check(item + entry, self.cursor.entry())?;
            ensure!(is_entry, "wrong answer: a scan from {:02x?} ended too early", self.key);
        }
        self.tally.found += self.length;
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
