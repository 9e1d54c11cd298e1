//! `overwrite`: as many puts as there are keys, each over a stored key drawn with replacement.

use super::{Bench, Bound};
use crate::store::Store;
use anyhow::Result;
use terrace_base::SplitMix64;
use terrace_workload::distribution::{Distribution, Sampler};
use terrace_workload::keys::KeySpace;
use terrace_workload::phase::{Tally, Worker};
use terrace_workload::values::Values;

/// Puts over stored keys, measured to settled.
pub fn overwrite(bench: &Bench<'_>) -> Result<()> {
    let keys = bench.shape().keys;
    let live = keys * bench.item_bytes();
    let sampler = bench.sampler(&Distribution::Uniform, keys)?;
    let phase = bench.phase(Bound::ops(keys), 1);
    bench.measure_to_settled(
        "overwrite",
        phase,
        keys,
        |_| live,
        |thread| Ok(Overwriter::new(bench, "overwrite", thread, sampler.clone())),
    )
}

/// A thread that puts new values under stored keys.
pub struct Overwriter<'a> {
    store: &'a dyn Store,
    keys: KeySpace,
    sampler: Sampler,
    values: Values,
    rng: SplitMix64,
    key: Vec<u8>,
    tally: Tally,
}

impl<'a> Overwriter<'a> {
    /// A writer over keys drawn by `sampler`.
    pub fn new(bench: &'a Bench<'_>, name: &str, thread: usize, sampler: Sampler) -> Self {
        let seed = bench.job.settings.seed ^ (0x0e4 + thread as u64);
        Self {
            store: &*bench.store,
            keys: bench.keys,
            sampler,
            values: Values::new(bench.shape().value_size, seed),
            rng: bench.rng(name, thread),
            key: Vec::new(),
            tally: Tally::default(),
        }
    }
}

impl Worker for Overwriter<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        self.keys.present(self.sampler.item(&mut self.rng), &mut self.key);
        let value = self.values.next_value();
        self.store.put(&self.key, value)?;
        self.tally.user_bytes += (self.key.len() + value.len()) as u64;
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
