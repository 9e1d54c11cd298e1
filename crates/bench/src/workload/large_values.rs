//! `large-values`: values of a page each, more than memory holds, written, overwritten, read and
//! scanned.
//!
//! 2 GiB of values of 4096 bytes under keys of 16 (`--keys`, `--value-size` or `--set value_bytes=`),
//! direct I/O, a cache of a 64th of the data. Memtables, files, levels, log segments and blob files
//! have every engine's default sizes at 2 GiB and shrink with a smaller store, so that it has the
//! same shape.
//!
//! | variant | engines | values are |
//! |---|---|---|
//! | (none) | all | where the engine keeps them by default: Terrace's in its log, others' in their tables |
//! | `inline` | Terrace | in its tables |
//! | `blob` | RocksDB, Speedb, fjall | in blob files, from 1 KiB on, with garbage collection |
//!
//! In this order, on one store:
//! - `large-values-load`: every key once in random order, to settled, and `-unsettled`.
//! - `large-values-read`: uniform lookups of stored keys. `read_calls_per_op` is the kernel's count, and left out for an
//!   engine that reads through `io_uring`, whose reads that count does not have; `value_reads_per_op` is the engine's, of
//!   reads of values that are kept apart.
//! - `large-values-scan`: 100 entries (`--set scan_length=`) from the key that was drawn, values
//!   looked at; each thread keeps one cursor. Values lie as the load wrote them.
//! - `large-values-sort`: everything is merged, and values that are kept apart are rewritten in key
//!   order (Terrace: garbage collection of all segments; RocksDB: a compaction of everything with an
//!   age cutoff of 1 and a threshold of 0). `ops` are the keys.
//! - `large-values-scan-sorted`: the scans again.
//! - `large-values-update`: three times (`--set passes=`) as many puts as keys, each over a key
//!   drawn uniformly, to settled, and `-unsettled`. Meanwhile the size of the directory is sampled
//!   every second (`--set sample_ms=`): `space_series` is it over the bytes of keys and values that
//!   live, `space_amp_max` the highest sample, settling included.
//!
//! Reads and scans run for as many operations as there are keys, at most 15 seconds, or as `--ops`
//! and `--duration` say; loading and overwriting are not shortened. `longest_gap_us` is the longest
//! time in which no thread finished a write (`watch`). `engine_written_bytes` is the
//! engine's own count beside the kernel's. An engine without direct I/O is not read from: that
//! would measure the page cache.

mod scans;
mod space;

use super::fill::Filler;
use super::overwrite::Overwriter;
use super::point_read::{PointReader, READ_SECONDS};
use super::watch::{Watch, Watched};
use super::{Bench, Bound, fill};
use crate::job::{Job, Observer};
use crate::report::Row;
use crate::report::figures::LargeValueFigures;
use crate::store::ValueCounts;
use anyhow::Result;
use scans::ScanReader;
use space::Sample;
use std::time::{Duration, Instant};
use terrace_workload::distribution::Distribution;
use terrace_workload::phase::{self, Outcome, Phase, Tally};
use terrace_workload::usage::Window;

/// Loads, reads, scans, sorts, scans, overwrites.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let bench = Bench::open(job, observer, &job.config)?;
    load(&bench)?;
    bench.calm()?;
    if job.engine.has_direct_io() {
        read(&bench)?;
        scan(&bench, "large-values-scan")?;
        sort(&bench)?;
        scan(&bench, "large-values-scan-sorted")?;
    }
    update(&bench)?;
    bench.close()
}

fn load(bench: &Bench<'_>) -> Result<()> {
    let before = bench.store.value_counts()?;
    let watch = Watch::new();
    let keys = bench.shape().keys;
    let live = keys * bench.item_bytes();
    let make = |thread| Ok(Watched::new(Filler::new(bench, fill::Order::Random, thread), &watch));
    let phase = fill::whole(bench);
    let (settled, unsettled) =
        bench.rows_to_settled("large-values-load", phase, keys, |_| live, make)?;
    tell_written(bench, [settled, unsettled], &watch, before, &[])
}

fn update(bench: &Bench<'_>) -> Result<()> {
    let before = bench.store.value_counts()?;
    let settings = bench.job.settings;
    let keys = bench.shape().keys;
    let live = keys * bench.item_bytes();
    let phase = Phase {
        threads: bench.job.threads,
        ops: (keys as f64 * settings.passes).ceil() as u64,
        duration: None,
        time_every: 1,
    };
    let sampler = bench.sampler(&Distribution::Uniform, keys)?;
    let watch = Watch::new();
    let every = Duration::from_millis(settings.sample_ms);
    let make = |thread| {
        let writer = Overwriter::new(bench, "large-values-update", thread, sampler.clone());
        Ok(Watched::new(writer, &watch))
    };
    let ((settled, unsettled), samples) = space::sampled(&bench.job.dir, &watch, every, || {
        bench.rows_to_settled("large-values-update", phase, keys, |_| live, make)
    })?;
    tell_written(bench, [settled, unsettled], &watch, before, &samples)
}

/// Tells the rows of a phase of writes, to settled and before it, with what else was seen.
fn tell_written(
    bench: &Bench<'_>,
    rows: [Row; 2],
    watch: &Watch,
    before: ValueCounts,
    samples: &[Sample],
) -> Result<()> {
    let after = bench.store.value_counts()?;
    let [settled, unsettled] = rows;
    let written = since(after.written_bytes, before.written_bytes);
    let live = bench.shape().keys * bench.item_bytes();
    let gap = LargeValueFigures {
        longest_gap_us: Some(watch.longest_gap().as_secs_f64() * 1e6),
        ..figures(bench)
    };
    let figures = LargeValueFigures {
        engine_written_bytes: written,
        engine_write_amp: written
            .filter(|_| settled.user_bytes > 0)
            .map(|bytes| bytes as f64 / settled.user_bytes as f64),
        space_amp_max: space::highest(samples, live),
        value_file_bytes: after.value_file_bytes,
        value_live_bytes: after.value_live_bytes,
        moved_bytes: since(after.moved_bytes, before.moved_bytes),
        series_seconds: samples.iter().map(|sample| sample.seconds).collect(),
        space_series: space::amplification(samples, live),
        rate_series: space::rates(samples),
        ..gap.clone()
    };
    bench.tell(Row { large_values: Some(figures), ..settled });
    bench.tell(Row { large_values: Some(gap), ..unsettled });
    Ok(())
}

fn read(bench: &Bench<'_>) -> Result<()> {
    let name = "large-values-read";
    let keys = bench.shape().keys;
    let sampler = bench.sampler(&Distribution::Uniform, keys)?;
    let phase = bench.phase(Bound::ops_or_seconds(keys, READ_SECONDS), 1);
    let make = |thread| Ok(PointReader::new(bench, name, thread, sampler.clone(), 0.0));
    bench.warm_up(phase, make)?;
    let before = bench.store.value_counts()?;
    let (outcome, usage) = bench.timed(name, phase, make)?;
    let after = bench.store.value_counts()?;
    let per_op = |count: u64| count as f64 / outcome.ops.max(1) as f64;
    let calls = (!bench.job.engine.reads_by_io_uring()).then_some(usage.read_calls);
    let live = keys * bench.item_bytes();
    let row = bench.row(name, phase, &outcome, usage, keys, Some(live))?;
    let figures = LargeValueFigures {
        read_calls_per_op: calls.map(per_op),
        value_reads_per_op: since(after.value_reads, before.value_reads).map(per_op),
        ..figures(bench)
    };
    bench.tell(Row { large_values: Some(figures), ..row });
    Ok(())
}

fn scan(bench: &Bench<'_>, name: &str) -> Result<()> {
    let keys = bench.shape().keys;
    let length = bench.job.settings.scan_length.min(keys);
    // Every scan finds as many entries as it wants.
    let sampler = bench.sampler(&Distribution::Uniform, keys - length + 1)?;
    let phase = bench.phase(Bound::ops_or_seconds(keys, READ_SECONDS), 1);
    let make = |thread| ScanReader::new(bench, name, thread, sampler.clone(), length);
    bench.warm_up(phase, make)?;
    let before = bench.store.value_counts()?;
    let (outcome, usage) = bench.timed(name, phase, make)?;
    let after = bench.store.value_counts()?;
    let (ops, entries) = (outcome.ops.max(1) as f64, outcome.tally.found as f64);
    let calls = (!bench.job.engine.reads_by_io_uring()).then_some(usage.read_calls);
    let live = keys * bench.item_bytes();
    let row = bench.row(name, phase, &outcome, usage, keys, Some(live))?;
    let figures = LargeValueFigures {
        read_calls_per_op: calls.map(|calls| calls as f64 / ops),
        value_reads_per_op: since(after.value_reads, before.value_reads)
            .map(|reads| reads as f64 / ops),
        entries_per_s: Some(entries / outcome.seconds),
        bytes_per_s: Some(entries * bench.item_bytes() as f64 / outcome.seconds),
        ..figures(bench)
    };
    bench.tell(Row { large_values: Some(figures), ..row });
    Ok(())
}

fn sort(bench: &Bench<'_>) -> Result<()> {
    let name = "large-values-sort";
    let keys = bench.shape().keys;
    bench.begin(name, 0);
    let before = bench.store.value_counts()?;
    let window = Window::open()?;
    let start = Instant::now();
    bench.store.sort_values()?;
    let seconds = start.elapsed().as_secs_f64();
    let usage = window.usage()?;
    let after = bench.store.value_counts()?;
    let outcome =
        Outcome { ops: keys, seconds, latencies: phase::histogram()?, tally: Tally::default() };
    let phase = Phase { threads: 1, ops: keys, duration: None, time_every: 1 };
    let live = keys * bench.item_bytes();
    let row = bench.row(name, phase, &outcome, usage, keys, Some(live))?;
    let figures = LargeValueFigures {
        engine_written_bytes: since(after.written_bytes, before.written_bytes),
        value_file_bytes: after.value_file_bytes,
        value_live_bytes: after.value_live_bytes,
        moved_bytes: since(after.moved_bytes, before.moved_bytes),
        ..figures(bench)
    };
    bench.tell(Row { large_values: Some(figures), ..row });
    bench.calm()
}

fn figures(bench: &Bench<'_>) -> LargeValueFigures {
    LargeValueFigures {
        value_bytes: bench.shape().value_size as u64,
        ..LargeValueFigures::default()
    }
}

/// How far a counter came.
fn since(after: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}
