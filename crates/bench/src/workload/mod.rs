//! The workloads: their names, the store each runs on, and the way one is measured.
//!
//! A job makes one fresh store and runs its workloads on it: the fill (measured if it was asked
//! for), then what only reads, then what writes. Definitions are db_bench's and YCSB's; where
//! they differ it is said in the file of the family.
//!
//! - Before reads: memtables flushed, compaction settled, the file system synced; then, if the
//!   store fits the cache, one scan of everything, then [`WARM_UP_S`] of the workload's own
//!   operations. Neither is measured.
//! - A workload that fills, overwrites or deletes is measured to settled: its clock and its
//!   kernel counters run from the first operation until no flush or compaction is left. The
//!   same operations up to the last acknowledgement are a row `NAME-unsettled`.
//! - A lookup of a key that must be there and is not (or the reverse) ends the job: a figure of
//!   an engine that loses data is none.

mod delete;
pub mod elastic;
mod fill;
mod filters;
mod mixed;
mod overwrite;
mod packages;
mod point_read;
mod range;
mod tiny_cache;
mod ycsb;

use crate::distribution::{Distribution, Sampler};
use crate::engine::Engine;
use crate::job::{Event, Job, Observer, Shape};
use crate::keys::{KeySpace, Permutation};
use crate::phase::{self, Outcome, Phase, Worker};
use crate::report::{Facts, Row, StoreState};
use crate::store::{EngineConfig, Store};
use crate::usage::{self, Usage, Window};
use anyhow::{Context, Result, bail};
pub use packages::find_packages;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hint::black_box;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_base::SplitMix64;
pub use tiny_cache::TinyCache;
pub use ycsb::Mix;

/// Seconds of unmeasured operations before a read workload.
pub const WARM_UP_S: f64 = 2.0;
/// Of cached point operations, one of so many is timed.
const TIME_EVERY_POINT_READ: u64 = 8;

/// A workload that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the names are db_bench's and YCSB's; each family's file defines its own"
)]
pub enum Workload {
    Fillseq,
    Fillrandom,
    Readrandom,
    Readmissing,
    Seekrandom,
    Scan,
    Readwhilewriting,
    Overwrite,
    Deleterandom,
    Ycsb(Mix),
    TinyCache,
    Packages,
    Filters,
    Elastic,
    ElasticShift,
}

/// The stores workloads run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreKind {
    /// db_bench's.
    Basic,
    /// YCSB's.
    Ycsb,
    /// A large store behind a tiny cache.
    TinyCache(TinyCache),
    /// Real names.
    Packages,
    /// No store: filters alone.
    Filters,
    /// A large store with little memory for filters.
    Elastic(elastic::Variant),
}

impl Workload {
    /// All, in the order in which they run on a store.
    pub const ALL: [Self; 20] = [
        Self::Fillseq,
        Self::Fillrandom,
        Self::Readrandom,
        Self::Readmissing,
        Self::Seekrandom,
        Self::Scan,
        Self::Readwhilewriting,
        Self::Overwrite,
        Self::Deleterandom,
        Self::Ycsb(Mix::C),
        Self::Ycsb(Mix::B),
        Self::Ycsb(Mix::A),
        Self::Ycsb(Mix::F),
        Self::Ycsb(Mix::D),
        Self::Ycsb(Mix::E),
        Self::TinyCache,
        Self::Packages,
        Self::Filters,
        Self::Elastic,
        Self::ElasticShift,
    ];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fillseq => "fillseq",
            Self::Fillrandom => "fillrandom",
            Self::Readrandom => "readrandom",
            Self::Readmissing => "readmissing",
            Self::Seekrandom => "seekrandom",
            Self::Scan => "scan",
            Self::Readwhilewriting => "readwhilewriting",
            Self::Overwrite => "overwrite",
            Self::Deleterandom => "deleterandom",
            Self::Ycsb(mix) => mix.name(),
            Self::TinyCache => "tiny-cache",
            Self::Packages => "packages",
            Self::Filters => "filters",
            Self::Elastic => "elastic",
            Self::ElasticShift => "elastic-shift",
        }
    }

    /// The stores it needs.
    pub fn stores(self) -> &'static [StoreKind] {
        match self {
            Self::Ycsb(_) => &[StoreKind::Ycsb],
            Self::TinyCache => &[
                StoreKind::TinyCache(TinyCache::Partitioned),
                StoreKind::TinyCache(TinyCache::Whole),
                StoreKind::TinyCache(TinyCache::ElasticFilters),
            ],
            Self::Packages => &[StoreKind::Packages],
            Self::Filters => &[StoreKind::Filters],
            Self::Elastic | Self::ElasticShift => &[
                StoreKind::Elastic(elastic::Variant::Default),
                StoreKind::Elastic(elastic::Variant::BudgetBloom),
                StoreKind::Elastic(elastic::Variant::MqBloom),
                StoreKind::Elastic(elastic::Variant::UniformBloom),
                StoreKind::Elastic(elastic::Variant::UniformRibbon),
            ],
            _ => &[StoreKind::Basic],
        }
    }

    /// True for the two that fill a fresh store.
    pub fn is_fill(self) -> bool {
        matches!(self, Self::Fillseq | Self::Fillrandom)
    }
}

impl StoreKind {
    /// Keys and value bytes unless the user says otherwise.
    pub fn default_size(self) -> (u64, usize) {
        match self {
            Self::Basic => (10_000_000, 100),
            Self::Ycsb => (2_000_000, 1000),
            Self::TinyCache(_) => (13_000_000, 400),
            // Bounded by the lines of the file; values are summaries, a few dozen bytes.
            Self::Packages => (1_000_000, 100),
            Self::Filters => (10_000_000, 0),
            Self::Elastic(_) => (8_000_000, 1024),
        }
    }

    /// Whether the engine has what this store is about, or why it is left out: an empty text where
    /// that goes without saying, since the store shows what only Terrace can be told.
    pub fn suits(self, engine: Engine) -> Result<(), String> {
        let name = match self {
            Self::TinyCache(TinyCache::ElasticFilters) if engine != Engine::Terrace => {
                return Err(String::new());
            }
            Self::Elastic(variant)
                if variant != elastic::Variant::Default && engine != Engine::Terrace =>
            {
                return Err(String::new());
            }
            Self::TinyCache(_) => "tiny-cache",
            Self::Elastic(_) => "elastic",
            Self::Filters if !engine.has_filters_alone() => {
                return Err(format!(
                    "{engine} is left out of filters: it has none outside of a store"
                ));
            }
            _ => return Ok(()),
        };
        match engine.has_direct_io() {
            true => Ok(()),
            false => Err(format!("{engine} is left out of {name}: it has no direct I/O")),
        }
    }

    /// Whether anything is written to disk.
    pub fn is_on_disk(self) -> bool {
        self != Self::Filters
    }

    /// The `variant` column of its rows.
    pub fn variant(self) -> &'static str {
        match self {
            Self::TinyCache(TinyCache::Partitioned) => "partitions-on",
            Self::TinyCache(TinyCache::Whole) => "partitions-off",
            Self::TinyCache(TinyCache::ElasticFilters) => "elastic-filters",
            Self::Elastic(variant) => variant.name(),
            _ => "",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|workload| workload.name() == text) {
            Some(workload) => Ok(workload),
            None => bail!(
                "there is no workload `{text}`; known are {}",
                Self::ALL.map(Self::name).join(" ")
            ),
        }
    }
}

/// Bytes of the cache, all memtables and one memtable of `tiny-cache`.
pub fn tiny_cache_defaults() -> (usize, usize, usize) {
    (tiny_cache::CACHE_BYTES, tiny_cache::WRITE_BYTES, tiny_cache::MEMTABLE_BYTES)
}

/// Carries out a job: makes the store, runs the workloads, closes it.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    match job.store {
        StoreKind::Basic => fill::run_basic(job, observer),
        StoreKind::Ycsb => ycsb::run(job, observer),
        StoreKind::TinyCache(_) => tiny_cache::run(job, observer),
        StoreKind::Packages => packages::run(job, observer),
        StoreKind::Filters => filters::run(job, observer),
        StoreKind::Elastic(variant) => elastic::run(job, observer, variant),
    }
}

/// An open store under measurement.
struct Bench<'a> {
    job: &'a Job,
    observer: &'a Observer,
    store: Box<dyn Store>,
    keys: KeySpace,
    facts: Facts,
}

/// When a workload stops unless the user says otherwise.
#[derive(Debug, Clone, Copy)]
struct Bound {
    ops: u64,
    duration: Option<Duration>,
}

impl Bound {
    /// After so many operations.
    fn ops(ops: u64) -> Self {
        Self { ops, duration: None }
    }

    /// After so many operations or seconds, whichever comes first.
    fn ops_or_seconds(ops: u64, seconds: u64) -> Self {
        Self { ops, duration: Some(Duration::from_secs(seconds)) }
    }
}

impl<'a> Bench<'a> {
    /// Opens the job's store with `config`, creating it if it is not there.
    fn open(job: &'a Job, observer: &'a Observer, config: &EngineConfig) -> Result<Self> {
        let store = job.engine.open(&job.dir, config, job.library.as_deref())?;
        let facts = Facts {
            engine: job.engine,
            repeat: job.repeat,
            variant: job.store.variant().to_owned(),
            options: store.options_text(),
            version: store.version(),
            machine: job.machine.clone(),
            commit: job.commit.clone(),
        };
        observer.tell(Event::Options(facts.options.clone()));
        let keys = KeySpace::new(job.shape.key_size, job.shape.keys)?;
        Ok(Self { job, observer, store, keys, facts })
    }

    /// Closes the store, telling the engine's statistics first if they were asked for.
    fn close(self) -> Result<()> {
        if self.job.stats {
            self.observer.tell(Event::Stats(self.store.stats_text()));
        }
        self.store.close()
    }

    fn shape(&self) -> Shape {
        self.job.shape
    }

    /// The operation limits of a workload: the user's, else its own.
    fn phase(&self, default: Bound, time_every: u64) -> Phase {
        let limit = self.job.limit;
        let given = limit.ops.is_some() || limit.duration_s.is_some();
        Phase {
            threads: self.job.threads,
            ops: limit.ops.unwrap_or(if given { u64::MAX } else { default.ops }),
            duration: match given {
                true => limit.duration_s.map(Duration::from_secs_f64),
                false => default.duration,
            },
            time_every,
        }
    }

    /// Which item an operation touches.
    fn sampler(&self, default: &Distribution, items: u64) -> Result<Sampler> {
        let distribution = self.job.distribution.as_ref().unwrap_or(default);
        Sampler::new(distribution, items, self.job.settings.seed)
    }

    /// The random order in which keys are loaded.
    fn load_order(&self) -> Permutation {
        Permutation::new(self.shape().keys.max(1), self.job.settings.seed ^ 0x10ad)
    }

    /// A generator for one thread of one workload.
    fn rng(&self, workload: &str, thread: usize) -> SplitMix64 {
        let name = workload.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(131) + u64::from(byte));
        SplitMix64::new(
            self.job.settings.seed.wrapping_mul(0x9e37_79b9) ^ (name << 8) ^ thread as u64,
        )
    }

    fn run_phase<W: Worker>(
        &self,
        what: &str,
        phase: Phase,
        make: impl Fn(usize) -> Result<W> + Sync,
    ) -> Result<Outcome> {
        self.observer.done.store(0, Ordering::Relaxed);
        self.observer.tell(Event::Begin { what: what.to_owned(), ops: phase.ops });
        phase::run(phase, &self.observer.done, make).with_context(|| what.to_owned())
    }

    /// Runs and reports a workload that needs no settling.
    fn measure<W: Worker>(
        &self,
        name: &str,
        phase: Phase,
        items: u64,
        make: impl Fn(usize) -> Result<W> + Sync,
    ) -> Result<()> {
        let window = Window::open()?;
        let outcome = self.run_phase(name, phase, make)?;
        let usage = window.usage()?;
        self.report(name, phase, &outcome, usage, items, Some(items * self.item_bytes()))
    }

    /// Runs and reports a workload that leaves work behind: up to the last acknowledgement, and
    /// to settled. `live_bytes` is asked after the operations.
    fn measure_to_settled<W: Worker>(
        &self,
        name: &str,
        phase: Phase,
        items: u64,
        live_bytes: impl Fn(&Outcome) -> u64,
        make: impl Fn(usize) -> Result<W> + Sync,
    ) -> Result<()> {
        let window = Window::open()?;
        let mut outcome = self.run_phase(name, phase, make)?;
        let usage = window.usage()?;
        let dir_bytes_unsettled = usage::dir_bytes(&self.job.dir)?;
        let before_settling = Instant::now();
        self.settle()?;
        let settling = before_settling.elapsed();
        let settled_usage = window.usage()?;
        let live = live_bytes(&outcome);
        let unsettled = StoreState {
            keys: items,
            live_bytes: Some(live),
            dir_bytes: dir_bytes_unsettled,
            metadata: self.store.metadata_bytes()?,
        };
        let row_name = format!("{name}-unsettled");
        let row = Row::new(&row_name, &self.facts, phase.threads, &outcome, usage, unsettled);
        outcome.seconds += settling.as_secs_f64();
        self.report(name, phase, &outcome, settled_usage, items, Some(live))?;
        self.observer.tell(Event::Row(Box::new(row)));
        Ok(())
    }

    fn report(
        &self,
        name: &str,
        phase: Phase,
        outcome: &Outcome,
        usage: Usage,
        keys: u64,
        live_bytes: Option<u64>,
    ) -> Result<()> {
        let row = self.row(name, phase, outcome, usage, keys, live_bytes)?;
        self.observer.tell(Event::Row(Box::new(row)));
        Ok(())
    }

    fn row(
        &self,
        name: &str,
        phase: Phase,
        outcome: &Outcome,
        usage: Usage,
        keys: u64,
        live_bytes: Option<u64>,
    ) -> Result<Row> {
        let state = StoreState {
            keys,
            live_bytes,
            dir_bytes: usage::dir_bytes(&self.job.dir)?,
            metadata: self.store.metadata_bytes()?,
        };
        Ok(Row::new(name, &self.facts, phase.threads, outcome, usage, state))
    }

    /// Bytes of one item.
    fn item_bytes(&self) -> u64 {
        (self.shape().key_size + self.shape().value_size) as u64
    }

    /// Flushes and waits for compactions.
    fn settle(&self) -> Result<()> {
        self.observer.done.store(0, Ordering::Relaxed);
        self.observer.tell(Event::Begin { what: "settling".to_owned(), ops: 0 });
        self.store.flush()?;
        self.store.settle()
    }

    /// Settled, and what the kernel still had to write is written: nothing of the load disturbs
    /// what is measured next.
    fn calm(&self) -> Result<()> {
        self.settle()?;
        sync_file_system(&self.job.dir)
    }

    /// Scans the whole store once if it fits the cache.
    fn warm_up_by_scan(&self) -> Result<()> {
        if self.shape().raw_bytes() > self.job.config.cache_bytes as u64 {
            return Ok(());
        }
        self.observer.tell(Event::Begin { what: "warming up".to_owned(), ops: self.shape().keys });
        let mut cursor = self.store.cursor()?;
        cursor.seek(b"")?;
        let mut seen = 0;
        while let Some((_, value)) = cursor.entry() {
            touch(value);
            cursor.next()?;
            seen += 1;
            self.observer.done.store(seen, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A tenth of the workload, at most [`WARM_UP_S`], unmeasured.
    fn warm_up<W: Worker>(
        &self,
        phase: Phase,
        make: impl Fn(usize) -> Result<W> + Sync,
    ) -> Result<()> {
        let longest = Duration::from_secs_f64(WARM_UP_S);
        let duration = phase.duration.map_or(longest, |duration| longest.min(duration / 10));
        let phase = Phase { ops: phase.ops.div_ceil(10), duration: Some(duration), ..phase };
        self.run_phase("warming up", phase, make).map(drop)
    }
}

/// Has the kernel write what it holds for the file system of `dir`.
fn sync_file_system(dir: &Path) -> Result<()> {
    rustix::fs::syncfs(std::fs::File::open(dir)?)?;
    Ok(())
}

/// Looks at a value as a reader would, at least at its length and its far end.
#[inline]
fn touch(value: &[u8]) {
    black_box((value.len(), value.last()));
}

#[cfg(test)]
mod tests;
