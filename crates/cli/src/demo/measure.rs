//! What the demo measures: the load, and lookups under one amount of memory.

use super::data::Data;
use anyhow::{Result, ensure};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use terrace::{AdvancedOptions, Db, DirectIo, Metrics, Options};
use terrace_base::{Rng, SplitMix64};
use terrace_inspect::Counts;
use terrace_workload::phase::{self, Phase, Tally, Worker};
use terrace_workload::usage::Window;

/// Memory while loading.
const LOAD_BYTES: usize = 64 << 20;

/// The data is small, so memtables, files and levels are, too: as many as a large store has.
const MEMTABLE_BYTES: usize = 1 << 20;
const TARGET_FILE_BYTES: u64 = 2 << 20;
const LEVEL_BASE_BYTES: u64 = 4 << 20;

/// Of the lookups, one in this many is timed.
const TIME_EVERY: u64 = 8;

/// Lookups before the measured ones while memory is scarce.
const WARM_UP: Duration = Duration::from_millis(400);

/// Threads that warm up are numbered from here on: they ask for other names than those that are measured.
const WARM_UP_THREADS: usize = 1 << 20;

/// Everything that was measured.
pub struct Measured {
    pub load: Load,
    pub scarce: Lookups,
    pub cached: Lookups,
    /// What the check of the finished store counted.
    pub check: Counts,
}

/// The load.
pub struct Load {
    pub records: u64,
    pub raw_bytes: u64,
    /// Until the last write was acknowledged.
    pub seconds: f64,
    /// Until flush and compaction had nothing left to do.
    pub settled_seconds: f64,
    /// When the last write was acknowledged.
    pub unsettled: Metrics,
    /// When there was nothing left to do.
    pub settled: Metrics,
}

/// How the store is opened for lookups.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub memory_bytes: usize,
    /// Past the page cache: what is not in the store's own memory comes from the device.
    pub direct: bool,
}

/// Lookups under one shape.
pub struct Lookups {
    pub shape: Shape,
    /// One thread, then two.
    pub stretches: Vec<Stretch>,
    /// Bytes that stay in memory for the index whatever the cache does.
    pub pinned_bytes: u64,
}

/// One stretch of lookups.
pub struct Stretch {
    pub threads: usize,
    pub lookups: u64,
    pub seconds: f64,
    pub found: u64,
    pub absent: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// What the kernel fetched from devices for this process.
    pub kernel_read_bytes: u64,
    pub reads: Reads,
}

/// What the engine counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reads {
    pub device_reads: u64,
    pub filter_checks: u64,
    pub filter_negatives: u64,
    pub filter_false_positives: u64,
    pub data_block_hits: u64,
    pub data_block_misses: u64,
    pub metadata_hits: u64,
    pub metadata_misses: u64,
}

impl Reads {
    fn between(before: &Metrics, after: &Metrics) -> Self {
        let diff = |field: fn(&Metrics) -> u64| field(after) - field(before);
        Self {
            device_reads: diff(|m| m.reads.device_reads),
            filter_checks: diff(|m| m.reads.filter_checks),
            filter_negatives: diff(|m| m.reads.filter_negatives),
            filter_false_positives: diff(|m| m.reads.filter_false_positives),
            data_block_hits: diff(|m| m.reads.data_block_hits),
            data_block_misses: diff(|m| m.reads.data_block_misses),
            metadata_hits: diff(|m| m.reads.index_hits + m.reads.filter_hits),
            metadata_misses: diff(|m| m.reads.index_misses + m.reads.filter_misses),
        }
    }

    /// The sum of two stretches.
    pub fn plus(self, other: Self) -> Self {
        Self {
            device_reads: self.device_reads + other.device_reads,
            filter_checks: self.filter_checks + other.filter_checks,
            filter_negatives: self.filter_negatives + other.filter_negatives,
            filter_false_positives: self.filter_false_positives + other.filter_false_positives,
            data_block_hits: self.data_block_hits + other.data_block_hits,
            data_block_misses: self.data_block_misses + other.data_block_misses,
            metadata_hits: self.metadata_hits + other.metadata_hits,
            metadata_misses: self.metadata_misses + other.metadata_misses,
        }
    }
}

fn options(memory_bytes: usize, direct: bool) -> Options {
    Options {
        memory_budget: memory_bytes,
        direct_io: DirectIo { reads: direct, writes: false },
        advanced: AdvancedOptions {
            // No more than the share of the budget that all memtables together have.
            memtable_bytes: MEMTABLE_BYTES.min(memory_bytes / 16),
            target_file_bytes: TARGET_FILE_BYTES,
            level_base_bytes: LEVEL_BASE_BYTES,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

/// Loads all names in random order, one write each, and waits until the store has settled.
pub fn load(dir: &Path, data: &Data) -> Result<Load> {
    let db = Db::open(dir, options(LOAD_BYTES, false))?;
    let start = Instant::now();
    for package in &data.packages {
        db.put(&package.name, &package.value)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let unsettled = db.metrics();
    db.flush()?;
    db.wait_idle()?;
    let settled_seconds = start.elapsed().as_secs_f64();
    let settled = db.metrics();
    db.close()?;
    let records = data.packages.len() as u64;
    let raw_bytes = data.raw_bytes;
    Ok(Load { records, raw_bytes, seconds, settled_seconds, unsettled, settled })
}

/// Looks names up for `duration` on one thread, then as long on two.
pub fn lookups(dir: &Path, data: &Data, shape: Shape, duration: Duration) -> Result<Lookups> {
    let db = Db::open(dir, options(shape.memory_bytes, shape.direct))?;
    if shape.direct {
        run(&db, data, 1, WARM_UP.min(duration), WARM_UP_THREADS)?;
    } else {
        // Once through all names brings every block into the cache.
        for package in &data.packages {
            db.get(&package.name)?;
        }
    }
    let stretches = [1, 2]
        .into_iter()
        .map(|threads| run(&db, data, threads, duration, 0))
        .collect::<Result<_>>()?;
    let pinned_bytes = db.metrics().pinned_bytes;
    db.close()?;
    Ok(Lookups { shape, stretches, pinned_bytes })
}

/// The threads are numbered from `first` on.
fn run(db: &Db, data: &Data, threads: usize, duration: Duration, first: usize) -> Result<Stretch> {
    let before = db.metrics();
    let window = Window::open()?;
    let phase = Phase { threads, ops: u64::MAX, duration: Some(duration), time_every: TIME_EVERY };
    let outcome = phase::run(phase, &AtomicU64::new(0), |thread| {
        let rng = names_asked(threads, first + thread);
        Ok(Reader { db, data, rng, tally: Tally::default() })
    })?;
    let usage = window.usage()?;
    let us = |quantile: f64| outcome.latencies.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Stretch {
        threads,
        lookups: outcome.ops,
        seconds: outcome.seconds,
        found: outcome.tally.found,
        absent: outcome.tally.missed,
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        kernel_read_bytes: usage.read_bytes,
        reads: Reads::between(&before, &db.metrics()),
    })
}

/// Which names a thread, one of `threads`, looks up.
fn names_asked(threads: usize, thread: usize) -> SplitMix64 {
    SplitMix64::new(threads as u64 * 100 + thread as u64)
}

struct Reader<'a> {
    db: &'a Db,
    data: &'a Data,
    rng: SplitMix64,
    tally: Tally,
}

impl Worker for Reader<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        let at = self.data.popularity.index(&mut self.rng) as usize;
        let package = &self.data.packages[at];
        if self.rng.one_in(2) {
            let found = self.db.get(&package.misspelled)?;
            ensure!(found.is_none(), "a name that is not in the store was found");
            self.tally.missed += 1;
        } else {
            let found = self.db.get(&package.name)?;
            ensure!(
                found.is_some_and(|value| value.len() == package.value.len()),
                "a name was not found, or with a wrong value"
            );
            self.tally.found += 1;
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_asks_for_other_names_than_what_is_measured() {
        let first = |thread| names_asked(1, thread).next_u64();
        assert_ne!(first(0), first(WARM_UP_THREADS));
    }
}
