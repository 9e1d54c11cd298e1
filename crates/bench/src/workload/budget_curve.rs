//! `budget-curve`: reads per lookup over memory, of one store that is opened again and again with more of it, with direct
//! I/O.
//!
//! Rows `budget-curve-hit` (stored keys), `budget-curve-miss` (absent keys), both drawn uniformly unless
//! `--distribution` says otherwise, and `budget-curve-mixed` (half of them absent, by Zipf 0.99). The variant of a row is its memory
//! in percent of the bytes of keys and values: 0.05 to 20, as far as that is 4 MiB at least. A quarter of the memory is for memtables, the rest
//! for blocks, index and filters; both engines are given the same, and `rss_bytes` says what each needs besides. The store is
//! loaded with ample memory, in key order unless `--set tiny_load=random`.

use super::fill::{self, Order};
use super::point_read::{PointReader, READ_SECONDS};
use super::tiny_cache::load_config;
use super::{Bench, Bound};
use crate::catalog::budget_curve::{memories, with_memory};
use crate::job::{Job, Observer};
use crate::report::Row;
use crate::report::figures::BudgetFigures;
use anyhow::Result;
use terrace_workload::distribution::Distribution;

/// Skew of the mixed lookups.
const MIXED_THETA: f64 = 0.99;

/// Loads, then reads with each memory.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let mut bench = Bench::open(job, observer, &load_config(job))?;
    let random = job.settings.tiny_cache_random_load;
    fill::load(&bench, if random { Order::Random } else { Order::Sequential })?;
    bench.merge_if_asked()?;
    let merged = bench.facts.merged;
    bench.store.close()?;
    let memories = memories(job.shape.raw_bytes());
    let last = memories.len().saturating_sub(1);
    for (point, memory_bytes) in memories.into_iter().enumerate() {
        let mut bench = Bench::open(job, observer, &with_memory(&job.config, memory_bytes))?;
        bench.facts.merged = merged;
        let memory_percent = memory_bytes as f64 * 100.0 / job.shape.raw_bytes().max(1) as f64;
        bench.facts.variant = label(memory_percent);
        read(&bench, BudgetFigures { memory_bytes: memory_bytes as u64, memory_percent })?;
        if point < last {
            bench.store.close()?;
        } else {
            bench.close()?;
        }
    }
    Ok(())
}

fn read(bench: &Bench<'_>, figures: BudgetFigures) -> Result<()> {
    let keys = bench.shape().keys;
    let phase = bench.phase(Bound::ops_or_seconds(keys, READ_SECONDS), 1);
    let uniform = bench.sampler(&Distribution::Uniform, keys)?;
    let skewed = bench.sampler(&Distribution::Zipf(MIXED_THETA), keys)?;
    for (name, missing, sampler) in [
        ("budget-curve-hit", 0.0, &uniform),
        ("budget-curve-miss", 1.0, &uniform),
        ("budget-curve-mixed", 0.5, &skewed),
    ] {
        let make = |thread| Ok(PointReader::new(bench, name, thread, sampler.clone(), missing));
        bench.warm_up(phase, make)?;
        let (outcome, usage) = bench.timed(name, phase, make)?;
        let live_bytes = Some(bench.shape().raw_bytes());
        let row = bench.row(name, phase, &outcome, usage, keys, live_bytes)?;
        bench.tell(Row { budget: Some(figures), ..row });
    }
    Ok(())
}

/// `0.08%`, `20%`.
fn label(percent: f64) -> String {
    let text = format!("{percent:.2}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}
