//! `budget-curve`: reads per lookup over memory, of one store that is opened again and again with more of it, with direct
//! I/O.
//!
//! Rows `budget-curve-hit` (stored keys), `budget-curve-miss` (absent keys), both drawn uniformly unless
//! `--distribution` says otherwise, and `budget-curve-mixed` (half of them absent, by Zipf 0.99). The variant of a row is its memory
//! in percent of the bytes of keys and values: 0.05 to 20, as far as that is 4 MiB at least. A quarter of the memory is for memtables, the rest
//! for blocks, index and filters; both engines are given the same, and `rss_bytes` says what each needs besides. The store is
//! loaded with ample memory, in key order unless `--set tiny_load=random`.

use super::{Bench, tiny_cache};
use crate::catalog::budget_curve::{memories, with_memory};
use crate::job::{Job, Observer};
use crate::report::figures::BudgetFigures;
use anyhow::Result;

const ROWS: [&str; 3] = ["budget-curve-hit", "budget-curve-miss", "budget-curve-mixed"];

/// Loads, then reads with each memory.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let merged = tiny_cache::load(job, observer)?;
    let memories = memories(job.shape.raw_bytes());
    let last = memories.len().saturating_sub(1);
    for (point, memory_bytes) in memories.into_iter().enumerate() {
        let mut bench = Bench::open(job, observer, &with_memory(&job.config, memory_bytes))?;
        bench.facts.merged = merged;
        let memory_percent = memory_bytes as f64 * 100.0 / job.shape.raw_bytes().max(1) as f64;
        bench.facts.variant = label(memory_percent);
        let figures = BudgetFigures { memory_bytes: memory_bytes as u64, memory_percent };
        tiny_cache::read(&bench, ROWS, Some(figures))?;
        if point < last {
            bench.store.close()?;
        } else {
            bench.close()?;
        }
    }
    Ok(())
}

/// `0.08%`, `20%`.
fn label(percent: f64) -> String {
    let text = format!("{percent:.2}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}
