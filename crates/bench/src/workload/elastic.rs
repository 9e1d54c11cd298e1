//! `elastic` and `elastic-shift`: the setting of ElasticBF (Li et al., "ElasticBF: Elastic Bloom
//! Filter with Hotness Awareness for Boosting Read Performance in Large Key-Value Stores", 2019).
//!
//! More than 8 GB of 1 KB values, direct I/O, nothing of the data in any cache, and filter memory for
//! [`AVERAGE_BITS`](crate::catalog::elastic::AVERAGE_BITS) bits per key on average. Half of the lookups are for absent keys (`--missing`),
//! each between two neighbours that are stored and as popular as they are. One thread.
//!
//! | variant | filters on disk | in memory |
//! |---|---|---|
//! | (none) | Terrace's default: a ribbon by columns | the columns that save most reads, within the budget |
//! | `budget-bloom:4x6` | six Bloom units of 4 bits | the units that save most reads |
//! | `mq-bloom:4x6` | the same | units as ElasticBF's queues hand them out |
//! | `uniform-bloom:4` | one Bloom filter of 4 bits | all of it |
//! | `uniform-ribbon:4` | a ribbon of 4 columns | all of it |
//!
//! RocksDB and Speedb (variant: none) have their Bloom filter of 4 bits, all of it in memory; an
//! engine without direct I/O is left out. The budget is exactly [`AVERAGE_BITS`](crate::catalog::elastic::AVERAGE_BITS) a key
//! (`--set average_bits=`); the uniform variants may take [`UNIFORM_SLACK`](crate::catalog::elastic::UNIFORM_SLACK) times 4 bits and something
//! for each file, so that all of their filters are resident, which is checked.
//!
//! - **Load**: every key once in random order, in [`FLUSHES`](crate::catalog::elastic::FLUSHES) pieces, each flushed and the compactions
//!   that are due waited for, so that the shape of the store follows from the data and not from how
//!   fast this went: all variants have the same levels. Four files of level 0 start a merge, in
//!   every engine, and two are left at the end; below, sizes follow the data (the first level takes
//!   four pieces), so that a small store has as many runs as a large one. No more is merged than
//!   what is due: Terrace's merging when idle is off. The column `runs` says what there is.
//! - **Indexes** are in memory: peers hold them in their readers; Terrace's are in a cache that has
//!   room for all of them and takes no data (`fill_cache = false`), and one stored key in every
//!   `WARM_UP_STRIDE` is looked up first to bring them there.
//! - `elastic-uniform`, `elastic-zipf-0.99`, `elastic-zipf-1.1`: keys are drawn by this law; in the
//!   Zipf laws the popular ones are neighbours ([`terrace_workload::hot_range`]). Before each, a
//!   sixteenth as many lookups as there are keys (500,000 at full size, at most a minute) let the
//!   allocators settle. 30 seconds each, less with few keys, or as `--duration` and `--ops` say.
//! - `elastic-shift` is in `elastic/shift`.
//!
//! `wasted_reads_per_op` is the kernel's count of read calls during the lookups, less one for each
//! key that was found, over the lookups. The engine's own count stands beside it, with Terrace's
//! reads of indexes and its loads of filter units, which go through `io_uring` and are not among
//! those calls unless the kernel has none. `filter_bytes` are those in memory afterwards. A store
//! that finds keys without reading is an error: something cached data.

pub mod series;
mod shift;

use super::fill;
use super::point_read::PointReader;
use super::{Bench, touch};
use crate::catalog::Workload;
use crate::catalog::elastic::{Variant, pieces};
use crate::job::{Event, Job, Observer};
use crate::report::Row;
use crate::report::figures::{ElasticFigures, ShiftFigures};
use crate::store::FilterCounts;
use anyhow::{Result, ensure};
use std::fmt;
use std::time::Duration;
use terrace_workload::distribution::{Distribution, Sampler};
use terrace_workload::hot_range::HotRange;
use terrace_workload::phase::{Outcome, Phase, Tally, Worker};
use terrace_workload::usage::Usage;

/// Of the stored keys, one in this many is looked up to bring indexes into memory.
const WARM_UP_STRIDE: u64 = 64;
/// Share of absent keys.
const MISSING: f64 = 0.5;
/// Longest measurement and longest warm-up under one law.
const LAW_SECONDS: u64 = 30;
const WARM_UP_SECONDS: u64 = 60;
const MIN_WARM_UP_OPS: u64 = 20_000;
const MAX_WARM_UP_OPS: u64 = 500_000;
/// A law is not measured for longer than a quarter of the keys takes, unless they are this few.
const MIN_LAW_OPS: u64 = 50_000;
/// The hottest position, as a part of the key space: not at an end.
const HOT_PART: u64 = 3;
/// If fewer than this share of the found keys needed a read, data came from some cache.
const MIN_READS_PER_FOUND: f64 = 0.95;

/// How keys are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Law {
    Uniform,
    /// Zipf's law over neighbours, with this exponent.
    Zipf(f64),
}

const LAWS: [Law; 3] = [Law::Uniform, Law::Zipf(0.99), Law::Zipf(1.1)];

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Zipf(exponent) => write!(f, "zipf-{exponent}"),
        }
    }
}

/// The hot range of a Zipf law before any jump.
fn hot_range(exponent: f64, keys: u64) -> HotRange {
    HotRange::new(exponent, keys, keys / HOT_PART)
}

/// Loads, warms up and runs what was asked for.
pub fn run(job: &Job, observer: &Observer, variant: Variant) -> Result<()> {
    let bench = Bench::open(job, observer, &job.config)?;
    fill::load_in_pieces(&bench, pieces(job.shape))?;
    let elastic = Elastic { bench, variant };
    elastic.bring_in_indexes()?;
    for workload in &job.workloads {
        match workload {
            Workload::Elastic => LAWS.into_iter().try_for_each(|law| elastic.measure_law(law))?,
            Workload::ElasticShift => shift::run(&elastic)?,
            _ => {}
        }
    }
    elastic.bench.close()
}

/// The loaded store.
struct Elastic<'a> {
    bench: Bench<'a>,
    variant: Variant,
}

impl Elastic<'_> {
    fn keys(&self) -> u64 {
        self.bench.shape().keys
    }

    fn missing(&self) -> f64 {
        self.bench.job.missing.unwrap_or(MISSING)
    }

    /// Lookups that let allocators settle: a sixteenth of the keys, within bounds.
    fn warm_up_ops(&self) -> u64 {
        let keys = self.keys();
        (keys / 16).clamp(keys.min(MIN_WARM_UP_OPS), MAX_WARM_UP_OPS)
    }

    fn bring_in_indexes(&self) -> Result<()> {
        let phase = Phase {
            threads: 1,
            ops: self.keys().div_ceil(WARM_UP_STRIDE),
            duration: None,
            time_every: 1,
        };
        let make = |_| Ok(Strider { bench: &self.bench, key: Vec::new() });
        self.bench.run_phase("reading indexes", phase, make).map(drop)
    }

    /// Lookups by `sampler` that are not measured.
    fn settle_allocators(&self, sampler: &Sampler) -> Result<()> {
        let phase = Phase {
            threads: 1,
            ops: self.warm_up_ops(),
            duration: Some(Duration::from_secs(WARM_UP_SECONDS)),
            time_every: 1,
        };
        self.bench.run_phase("warming up", phase, |thread| {
            Ok(self.reader("warming up", thread, sampler))
        })?;
        Ok(())
    }

    fn reader(&self, name: &str, thread: usize, sampler: &Sampler) -> PointReader<'_> {
        PointReader::new(&self.bench, name, thread, sampler.clone(), self.missing())
    }

    fn measure_law(&self, law: Law) -> Result<()> {
        let keys = self.keys();
        let sampler = match law {
            Law::Uniform => Sampler::new(&Distribution::Uniform, keys, 0)?,
            Law::Zipf(exponent) => Sampler::contiguous(hot_range(exponent, keys), keys),
        };
        self.settle_allocators(&sampler)?;
        let name = format!("elastic-{law}");
        let bound = super::Bound::ops_or_seconds((keys / 4).max(MIN_LAW_OPS), LAW_SECONDS);
        let phase = self.bench.phase(bound, 1);
        let before = self.bench.store.filter_counts()?;
        let (outcome, usage) =
            self.bench.timed(&name, phase, |thread| Ok(self.reader(&name, thread, &sampler)))?;
        self.report(&name, &law.to_string(), phase, &outcome, usage, before, None)
    }

    #[allow(clippy::too_many_arguments, reason = "a row is made of that many things")]
    fn report(
        &self,
        name: &str,
        law: &str,
        phase: Phase,
        outcome: &Outcome,
        usage: Usage,
        before: FilterCounts,
        shift: Option<ShiftFigures>,
    ) -> Result<()> {
        let after = self.bench.store.filter_counts()?;
        let (ops, found) = (outcome.ops as f64, outcome.tally.found as f64);
        let reads = usage.read_calls as f64;
        ensure!(
            reads >= found * MIN_READS_PER_FOUND,
            "{found} keys were found with {reads} reads: data came from a cache, so that these \
             figures would mean nothing"
        );
        let since = |field: fn(&FilterCounts) -> Option<u64>| {
            let (now, then) = (field(&after)?, field(&before)?);
            Some(now.saturating_sub(then) as f64 / ops)
        };
        let live = self.keys() * self.bench.item_bytes();
        let row = self.bench.row(name, phase, outcome, usage, self.keys(), Some(live))?;
        let index_reads_per_op = since(|counts| counts.index_reads);
        let average_bits = self.bench.job.settings.average_bits;
        let figures = ElasticFigures {
            law: law.to_owned(),
            filter_budget_bytes: self.variant.budget_bytes(self.bench.shape(), average_bits) as u64,
            filter_disk_bytes: row.filter_bytes,
            wasted_reads_by_engine: since(|counts| counts.wasted_reads)
                .map(|wasted| wasted + index_reads_per_op.unwrap_or(0.0)),
            index_reads_per_op,
            unit_loads_per_op: since(|counts| counts.unit_loads),
        };
        let resident = after.resident_bytes.zip(figures.filter_disk_bytes);
        ensure!(
            !self.variant.is_uniform() || resident.is_none_or(|(memory, disk)| memory >= disk),
            "of the filters, {resident:?} bytes are in memory and on disk: not all are resident"
        );
        let row = Row {
            wasted_reads_per_op: Some((reads - found) / ops),
            filter_bytes: after.resident_bytes,
            elastic: Some(figures),
            shift,
            ..row
        };
        self.bench.observer.tell(Event::Row(Box::new(row)));
        Ok(())
    }
}

/// Looks every so-manieth stored key up, in key order.
struct Strider<'a> {
    bench: &'a Bench<'a>,
    key: Vec<u8>,
}

impl Worker for Strider<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        self.bench.keys.present(sequence * WARM_UP_STRIDE, &mut self.key);
        let found = self.bench.store.get(&self.key, &mut touch)?;
        ensure!(found, "wrong answer: key {:02x?} is stored, the store says otherwise", self.key);
        Ok(())
    }

    fn tally(&self) -> Tally {
        Tally::default()
    }
}
