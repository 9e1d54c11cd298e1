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
use crate::store::EngineConfig;
use anyhow::Result;

/// Skew of the mixed lookups.
const MIXED_THETA: f64 = 0.99;
const LOAD_CACHE_BYTES: usize = 64 << 20;
const LOAD_WRITE_BYTES: usize = 256 << 20;
const LOAD_MEMTABLE_BYTES: usize = 64 << 20;

/// The settings for the load: ample memory.
pub(super) fn load_config(job: &Job) -> EngineConfig {
    EngineConfig {
        cache_bytes: LOAD_CACHE_BYTES,
        write_bytes: LOAD_WRITE_BYTES,
        memtable_bytes: LOAD_MEMTABLE_BYTES,
        ..job.config.clone()
    }
}

/// Loads with ample memory, reopens with little, reads.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let random = job.settings.tiny_cache_random_load;
    let mut bench = Bench::open(job, observer, &load_config(job))?;
    fill::load(&bench, if random { Order::Random } else { Order::Sequential })?;
    bench.merge_if_asked()?;
    let merged = bench.facts.merged;
    bench.store.close()?;

    let mut bench = Bench::open(job, observer, &job.config)?;
    bench.facts.merged = merged;
    let keys = job.shape.keys;
    let uniform = bench.sampler(&Distribution::Uniform, keys)?;
    let skewed = bench.sampler(&Distribution::Zipf(MIXED_THETA), keys)?;
    let phase = bench.phase(Bound::ops_or_seconds(keys, READ_SECONDS), 1);
    for (name, missing, sampler) in [
        ("tiny-cache-hit", 0.0, &uniform),
        ("tiny-cache-miss", 1.0, &uniform),
        ("tiny-cache-mixed", 0.5, &skewed),
    ] {
        let make = |thread| Ok(PointReader::new(&bench, name, thread, sampler.clone(), missing));
        bench.warm_up(phase, make)?;
        bench.measure(name, phase, keys, make)?;
    }
    bench.close()
}
