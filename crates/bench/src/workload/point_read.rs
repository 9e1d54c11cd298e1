//! `readrandom` and `readmissing`: one lookup an operation.
//!
//! Keys are drawn with replacement. `readrandom` looks up stored keys, or with `--missing P` absent
//! ones in a share `P` of the lookups; `readmissing` looks up absent keys only, each right behind a
//! stored one and of the same length (db_bench instead lengthens a stored key by a byte).
//! `--set multi_get=N` looks N keys up per call; the rate still counts keys, latencies are those
//! of whole calls, and rows carry the variant `multi_get-N`.

use super::{Bench, Bound, TIME_EVERY_POINT_READ, ValueCheck};
use crate::report::Row;
use crate::store::Store;
use anyhow::{Result, ensure};
use terrace_base::{Rng, SplitMix64};
use terrace_workload::distribution::{Distribution, Sampler};
use terrace_workload::keys::KeySpace;
use terrace_workload::phase::{Phase, Tally, Worker};

/// Lookups of [`check`].
const CHECKED_KEYS: u64 = 10_000;
/// Seconds of reading unless the user says otherwise.
pub const READ_SECONDS: u64 = 15;

/// Stored keys, except for what `--missing` says.
pub fn readrandom(bench: &Bench<'_>) -> Result<()> {
    read(bench, "readrandom", bench.job.missing.unwrap_or(0.0))
}

/// Absent keys.
pub fn readmissing(bench: &Bench<'_>) -> Result<()> {
    read(bench, "readmissing", 1.0)
}

fn read(bench: &Bench<'_>, name: &str, missing: f64) -> Result<()> {
    let keys = bench.shape().keys;
    let sampler = bench.sampler(&Distribution::Uniform, keys)?;
    let batch = bench.job.settings.multi_get.max(1);
    let phase = bench.phase(
        Bound::ops_or_seconds(keys.div_ceil(batch as u64), READ_SECONDS),
        if batch == 1 { TIME_EVERY_POINT_READ } else { 1 },
    );
    let make = |thread| {
        Ok(PointReader::new(bench, name, thread, sampler.clone(), missing).with_batch(batch))
    };
    bench.warm_up(phase, make)?;
    if batch == 1 {
        return bench.measure(name, phase, keys, make);
    }
    let (mut outcome, usage) = bench.timed(name, phase, make)?;
    outcome.ops *= batch as u64;
    let live_bytes = Some(bench.shape().raw_bytes());
    let row = bench.row(name, phase, &outcome, usage, keys, live_bytes)?;
    bench.tell(Row { variant: format!("multi_get-{batch}"), ..row });
    Ok(())
}

/// Looks some stored and some absent keys up, and insists on the right answers. Measures nothing.
pub fn check(bench: &Bench<'_>) -> Result<()> {
    let keys = bench.shape().keys;
    let sampler = bench.sampler(&Distribution::Uniform, keys)?;
    let phase = Phase { threads: 1, ops: keys.min(CHECKED_KEYS), duration: None, time_every: 1 };
    let make = |thread| Ok(PointReader::new(bench, "checking", thread, sampler.clone(), 0.1));
    bench.run_phase("checking", phase, make).map(drop)
}

/// A thread that looks keys up and insists on the right answer.
pub struct PointReader<'a> {
    store: &'a dyn Store,
    keys: KeySpace,
    sampler: Sampler,
    missing: f64,
    rng: SplitMix64,
    value_size: usize,
    batch: Vec<Vec<u8>>,
    tally: Tally,
}

impl<'a> PointReader<'a> {
    /// A reader of keys drawn by `sampler`, a share `missing` of them absent.
    pub fn new(
        bench: &'a Bench<'_>,
        name: &str,
        thread: usize,
        sampler: Sampler,
        missing: f64,
    ) -> Self {
        Self {
            store: &*bench.store,
            keys: bench.keys,
            sampler,
            missing,
            rng: bench.rng(name, thread),
            value_size: bench.shape().value_size,
            batch: vec![Vec::new()],
            tally: Tally::default(),
        }
    }

    fn with_batch(mut self, keys: usize) -> Self {
        self.batch.resize(keys, Vec::new());
        self
    }

    /// Chooses a key; true if it is a stored one.
    fn choose(&mut self, slot: usize) -> bool {
        let item = self.sampler.item(&mut self.rng);
        let present = self.missing < 1.0 && self.rng.unit() >= self.missing;
        match present {
            true => self.keys.present(item, &mut self.batch[slot]),
            false => self.keys.absent(item, &mut self.batch[slot]),
        }
        present
    }
}

impl Worker for PointReader<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        let mut values = ValueCheck::new(self.value_size);
        if self.batch.len() == 1 {
            let present = self.choose(0);
            let found = self.store.get(&self.batch[0], &mut |value| values.see(value))?;
            ensure!(
                found == present,
                "wrong answer: key {:02x?} is {}, the store says otherwise",
                self.batch[0],
                if present { "stored" } else { "absent" }
            );
            self.tally.found += u64::from(found);
            self.tally.missed += u64::from(!found);
            return values.result();
        }
        let mut expected = 0;
        for slot in 0..self.batch.len() {
            expected += usize::from(self.choose(slot));
        }
        let found = self.store.multi_get(&self.batch, &mut |value| values.see(value))?;
        ensure!(found == expected, "wrong answer: {found} of {expected} stored keys were found");
        self.tally.found += found as u64;
        self.tally.missed += (self.batch.len() - found) as u64;
        values.result()
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
