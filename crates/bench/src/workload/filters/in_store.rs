//! The filters of a peer, measured through a store of its own: all keys in one sorted run, then lookups of
//! absent keys. The engine's tickers say how many of these its filters let through, and the properties
//! of its tables how large the filters are.

use super::PROBES_PER_KEY;
use crate::filter::FilterSpec;
use crate::job::{Event, Job, Observer};
use crate::report::Row;
use crate::report::figures::FilterFigures;
use crate::workload::point_read::PointReader;
use crate::workload::{Bench, fill};
use anyhow::{Context, Result, ensure};
use terrace_workload::distribution::{Distribution, Sampler};
use terrace_workload::phase::Phase;

/// Loads a store with such filters, asks it, and tells a row called `name`.
pub fn measure(job: &Job, observer: &Observer, spec: FilterSpec, name: &str) -> Result<()> {
    let mut job = Job { dir: job.dir.join(name), ..job.clone() };
    job.config.filter = Some(spec);
    job.config.statistics = true;
    let bench = Bench::open(&job, observer, &job.config)?;
    fill::load(&bench, fill::Order::Sequential)?;
    bench.store.sort_values()?;
    bench.calm()?;
    let keys = job.shape.keys;
    let probes = keys * PROBES_PER_KEY;
    let phase = Phase { threads: 1, ops: probes, duration: None, time_every: 8 };
    let sampler = Sampler::new(&Distribution::Uniform, keys, job.settings.seed)?;
    let before = bench.store.filter_counts()?;
    let (outcome, usage) = bench.timed(name, phase, |thread| {
        Ok(PointReader::new(&bench, name, thread, sampler.clone(), 1.0))
    })?;
    let after = bench.store.filter_counts()?;
    let runs = bench.store.sorted_runs()?;
    ensure!(runs == Some(1), "{name}: {runs:?} runs were asked, not one");
    let passed = after.wasted_reads.zip(before.wasted_reads);
    let (after_probes, before_probes) =
        passed.with_context(|| format!("{} does not count what its filters pass", job.engine))?;
    let row = bench.row(name, phase, &outcome, usage, keys, None)?;
    let bytes = bench.store.metadata_bytes()?.filters;
    let bytes =
        bytes.with_context(|| format!("{} does not tell the size of filters", job.engine))?;
    let figures = FilterFigures {
        fpr: after_probes.saturating_sub(before_probes) as f64 / probes as f64,
        model_fpr: None,
        probes,
        bits_per_key: bytes as f64 * 8.0 / keys as f64,
        keys_per_filter: None,
        build_ns_per_key: None,
        query_hot_ns: None,
        query_hot_positive_ns: None,
        query_cold_ns: None,
        hash_ns: None,
    };
    observer.tell(Event::Row(Box::new(Row { filters: Some(figures), ..row })));
    bench.close()?;
    Ok(std::fs::remove_dir_all(&job.dir)?)
}
