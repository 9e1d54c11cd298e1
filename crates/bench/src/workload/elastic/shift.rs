//! `elastic-shift`: the hot range jumps by half of the key space.
//!
//! Zipf 0.99 over neighbours, on the store that `elastic` made. After a warm-up, [`STEPS_BEFORE`]
//! steps are measured, then the hot range jumps and [`STEPS_AFTER`] more are; a step is 10,000
//! lookups, fewer in a store of less than 8 million keys. `series` has the wasted reads per lookup
//! of each step, by the kernel's count of read calls; `recovery_ops` says how many lookups it took
//! until they were back ([`series::recovery_ops`]). One thread; `--ops` and `--duration` do not
//! shorten it.

use super::series::{self, Sample};
use super::{Elastic, hot_range};
use crate::report::figures::ShiftFigures;
use crate::workload::point_read::PointReader;
use anyhow::{Result, anyhow};
use std::sync::Mutex;
use terrace_workload::distribution::Sampler;
use terrace_workload::hot_range::HotRange;
use terrace_workload::phase::{Phase, Tally, Worker};
use terrace_workload::usage::{Totals, Window};

const NAME: &str = "elastic-shift";
const EXPONENT: f64 = 0.99;
/// Steps that show the steady state.
const STEPS_BEFORE: u64 = 20;
/// Steps after the jump.
const STEPS_AFTER: u64 = 60;
/// Keys per lookup of a step, within bounds.
const KEYS_PER_STEP_OP: u64 = 800;
const MIN_STEP_OPS: u64 = 1_000;
const MAX_STEP_OPS: u64 = 10_000;

pub(super) fn run(elastic: &Elastic<'_>) -> Result<()> {
    let keys = elastic.keys();
    let range = hot_range(EXPONENT, keys);
    let sampler = Sampler::contiguous(range.clone(), keys);
    elastic.settle_allocators(&sampler)?;
    let least = MIN_STEP_OPS.min(keys.div_ceil(10));
    let step_ops = (keys / KEYS_PER_STEP_OP).clamp(least, MAX_STEP_OPS);
    let phase = Phase {
        threads: 1,
        ops: (STEPS_BEFORE + STEPS_AFTER) * step_ops,
        duration: None,
        time_every: 1,
    };
    let samples = Mutex::new(Vec::new());
    let before = elastic.bench.store.filter_counts()?;
    let overhead = sampling_reads()?;
    let window = Window::open()?;
    let outcome = elastic.bench.run_phase(NAME, phase, |thread| {
        Ok(Shifter {
            reader: elastic.reader(NAME, thread, &sampler),
            range: range.clone(),
            half: keys / 2,
            step_ops,
            samples: &samples,
        })
    })?;
    let mut usage = window.usage()?;
    let samples = samples.into_inner().map_err(|_| anyhow!("a benchmark thread panicked"))?;
    usage.read_calls = usage.read_calls.saturating_sub(overhead * samples.len() as u64);
    let series = series::wasted_per_lookup(&samples, overhead);
    let figures = ShiftFigures {
        steady_wasted_reads: series::steady(&series, STEPS_BEFORE as usize),
        recovery_ops: series::recovery_ops(&series, STEPS_BEFORE as usize, step_ops),
        series,
        series_step_ops: step_ops,
        shift_after_ops: STEPS_BEFORE * step_ops,
    };
    let law = format!("zipf-{EXPONENT}");
    elastic.report(NAME, &law, phase, &outcome, usage, before, Some(figures))
}

/// Read calls that taking a sample makes itself.
fn sampling_reads() -> Result<u64> {
    let (first, second) = (Totals::now()?, Totals::now()?);
    Ok(second.read_calls - first.read_calls)
}

/// A reader that samples the kernel's counters at every step, and lets the range jump.
struct Shifter<'a> {
    reader: PointReader<'a>,
    range: HotRange,
    half: u64,
    step_ops: u64,
    samples: &'a Mutex<Vec<Sample>>,
}

impl Shifter<'_> {
    fn sample(&self, lookups: u64) -> Result<()> {
        let sample =
            Sample { lookups, found: self.reader.tally().found, reads: Totals::now()?.read_calls };
        let mut samples =
            self.samples.lock().map_err(|_| anyhow!("a benchmark thread panicked"))?;
        samples.push(sample);
        Ok(())
    }
}

impl Worker for Shifter<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        if sequence == 0 {
            self.sample(0)?;
        }
        if sequence == STEPS_BEFORE * self.step_ops {
            self.range.move_by(self.half);
        }
        self.reader.step(sequence)?;
        if (sequence + 1).is_multiple_of(self.step_ops) {
            self.sample(sequence + 1)?;
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.reader.tally()
    }
}
