//! `tiny-cache`: a store of more than 5 GB behind a cache of 8 MiB that also holds indexes and
//! filters, with direct I/O.
//!
//! Rows `tiny-cache-hit` (stored keys), `tiny-cache-miss` (absent keys) and `tiny-cache-mixed` (half of them absent, by Zipf
//! 0.99; the others are uniform unless `--distribution` says otherwise), each with the variant
//! `partitions-on` and `partitions-off`: two stores with the same keys and the same filter bits,
//! one with index and filters cut into partitions of 4 KiB, one without; filters lie in the cache beside blocks.
//! `--memory` is the size of the cache; the memtables' few MiB come on top. Terrace has a third row, without a variant: its default
//! settings, with `--memory` for everything, memtables included. The store is loaded in key order with ample
//! memory, closed, and opened again with the tiny cache, so every engine serves reads from one
//! sorted run or few (the column `runs` says how many; `--set merged=true` makes them one) and the difference is what
//! metadata costs (`--set tiny_load=random` loads in random order instead).

use super::fill::{self, Order};
use super::point_read::{PointReader, READ_SECONDS};
use super::{Bench, Bound};
use terrace_workload::distribution::Distribution;

use crate::job::{Job, Observer};
use crate::report::Row;
use crate::report::figures::BudgetFigures;
use crate::store::EngineConfig;
use anyhow::Result;

/// Skew of the mixed lookups.
const MIXED_THETA: f64 = 0.99;
const LOAD_CACHE_BYTES: usize = 64 << 20;
const LOAD_WRITE_BYTES: usize = 256 << 20;
const LOAD_MEMTABLE_BYTES: usize = 64 << 20;

/// Loads with ample memory, reopens with little, reads.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let merged = load(job, observer)?;
    let mut bench = Bench::open(job, observer, &job.config)?;
    bench.facts.merged = merged;
    read(&bench, ["tiny-cache-hit", "tiny-cache-miss", "tiny-cache-mixed"], None)?;
    bench.close()
}

/// Loads with ample memory and closes the store. Gives whether everything is merged.
pub(super) fn load(job: &Job, observer: &Observer) -> Result<bool> {
    let config = EngineConfig {
        cache_bytes: LOAD_CACHE_BYTES,
        write_bytes: LOAD_WRITE_BYTES,
        memtable_bytes: LOAD_MEMTABLE_BYTES,
        ..job.config.clone()
    };
    let random = job.settings.tiny_cache_random_load;
    let mut bench = Bench::open(job, observer, &config)?;
    fill::load(&bench, if random { Order::Random } else { Order::Sequential })?;
    bench.merge_if_asked()?;
    let merged = bench.facts.merged;
    bench.store.close()?;
    Ok(merged)
}

/// Looks up stored keys, absent ones, and half of both, in rows with these names.
pub(super) fn read(
    bench: &Bench<'_>,
    [hit, miss, mixed]: [&str; 3],
    budget: Option<BudgetFigures>,
) -> Result<()> {
    let keys = bench.shape().keys;
    let uniform = bench.sampler(&Distribution::Uniform, keys)?;
    let skewed = bench.sampler(&Distribution::Zipf(MIXED_THETA), keys)?;
    let phase = bench.phase(Bound::ops_or_seconds(keys, READ_SECONDS), 1);
    for (name, missing, sampler) in
        [(hit, 0.0, &uniform), (miss, 1.0, &uniform), (mixed, 0.5, &skewed)]
    {
        let make = |thread| Ok(PointReader::new(bench, name, thread, sampler.clone(), missing));
        bench.warm_up(phase, make)?;
        let (outcome, usage) = bench.timed(name, phase, make)?;
        let live_bytes = Some(bench.shape().raw_bytes());
        let row = bench.row(name, phase, &outcome, usage, keys, live_bytes)?;
        bench.tell(Row { budget, ..row });
    }
    Ok(())
}
