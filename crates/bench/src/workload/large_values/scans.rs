//! Scans of some length from stored keys.

use crate::store::Cursor;
use crate::workload::{Bench, touch};
use anyhow::{Result, bail, ensure};
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
    value_size: usize,
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
            value_size: bench.shape().value_size,
            key: Vec::new(),
            tally: Tally::default(),
        })
    }
}

impl Worker for ScanReader<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        self.keys.present(self.sampler.item(&mut self.rng), &mut self.key);
        self.cursor.seek(&self.key)?;
        for entry in 0..self.length {
            if entry > 0 {
                self.cursor.next()?;
            }
            let Some((key, value)) = self.cursor.entry() else {
                bail!("wrong answer: a scan from {:02x?} ended after {entry} entries", self.key)
            };
            ensure!(
                entry > 0 || key == self.key,
                "wrong answer: a seek to {:02x?} found {key:02x?}",
                self.key
            );
            ensure!(value.len() == self.value_size, "wrong answer: {} bytes", value.len());
            touch(value);
        }
        self.tally.found += self.length;
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
