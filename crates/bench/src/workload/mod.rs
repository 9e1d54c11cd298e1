//! The workloads: their names, the store each runs on, and the way one is measured.
//!
//! A job makes one fresh store and runs its workloads on it: the fill (measured if it was asked
//! for), then what only reads, then what writes. Definitions are db_bench's and YCSB's; where
//! they differ it is said in the file of the family.
//!
//! - Before reads: memtables flushed, compaction settled, the file system synced; then, if the
//!   store fits the cache, one scan of everything, then [`WARM_UP_S`] of the workload's own
//!   operations, on keys drawn for that alone. Neither is measured.
//! - A workload that fills, overwrites or deletes is measured to settled: its clock and its
//!   kernel counters run from the first operation until no flush or compaction is left. The
//!   same operations up to the last acknowledgement are a row `NAME-unsettled`.
//! - A lookup of a key that must be there and is not (or the reverse) ends the job: a figure of
//!   an engine that loses data is none.

mod backup;
mod delete;
pub mod elastic;
mod fill;
mod filters;
pub mod large_values;
pub mod learned;
mod load;
mod mixed;
mod mixed_phases;
mod overwrite;
mod packages;
mod point_read;
mod range;
mod skew;
mod tiny_cache;
mod watch;
mod ycsb;

use crate::catalog::StoreKind;
use crate::job::{Event, Job, Observer};
use crate::report::{Facts, Row, StoreState};
use crate::store::{EngineConfig, Store};
use crate::store_size::StoreSize;
use anyhow::{Context, Result};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_base::SplitMix64;
use terrace_workload::distribution::{Distribution, Sampler};
use terrace_workload::keys::{KeySpace, Permutation};
use terrace_workload::phase::{self, Outcome, Phase, Worker};
use terrace_workload::usage::{self, Usage, Window};

/// Seconds of unmeasured operations before a read workload.
pub const WARM_UP_S: f64 = 2.0;
/// Threads that warm up are numbered from here on; a generator is seeded by the number.
pub const WARM_UP_THREADS: usize = 1 << 20;
/// Of cached point operations, one of this many is timed.
const TIME_EVERY_POINT_READ: u64 = 8;

/// Carries out a job: makes the store, runs the workloads, closes it.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    match job.store {
        StoreKind::Basic => fill::run_basic(job, observer),
        StoreKind::Ycsb => ycsb::run(job, observer),
        StoreKind::TinyCache(_) => tiny_cache::run(job, observer),
        StoreKind::Packages => packages::run(job, observer),
        StoreKind::Filters => filters::run(job, observer),
        StoreKind::Elastic(variant) => elastic::run(job, observer, variant),
        StoreKind::LargeValues(_) => large_values::run(job, observer),
        StoreKind::Learned(set) => learned::run(job, observer, set),
        StoreKind::Skew(_) => skew::run(job, observer),
        StoreKind::MixedPhases(_) => mixed_phases::run(job, observer),
        StoreKind::BulkLoad | StoreKind::Ingest => load::run(job, observer),
        StoreKind::Backup => backup::run(job, observer),
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
    /// After this many operations.
    fn ops(ops: u64) -> Self {
        Self { ops, duration: None }
    }

    /// After this many operations or seconds, whichever comes first.
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

    fn shape(&self) -> StoreSize {
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

    /// Tells that a stretch of work begins.
    fn begin(&self, what: &str, ops: u64) {
        self.observer.done.store(0, Ordering::Relaxed);
        self.observer.tell(Event::Begin { what: what.to_owned(), ops });
    }

    fn run_phase<W: Worker>(
        &self,
        what: &str,
        phase: Phase,
        make: impl Fn(usize) -> Result<W> + Sync,
    ) -> Result<Outcome> {
        self.begin(what, phase.ops);
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
        let (settled, unsettled) = self.rows_to_settled(name, phase, items, live_bytes, make)?;
        self.tell(settled);
        self.tell(unsettled);
        Ok(())
    }

    /// As [`Bench::measure_to_settled`], but hands over the rows, the one to settled first.
    fn rows_to_settled<W: Worker>(
        &self,
        name: &str,
        phase: Phase,
        items: u64,
        live_bytes: impl Fn(&Outcome) -> u64,
        make: impl Fn(usize) -> Result<W> + Sync,
    ) -> Result<(Row, Row)> {
        let window = Window::open()?;
        let mut outcome = self.run_phase(name, phase, make)?;
        let usage = window.usage()?;
        let dir_bytes_unsettled = usage::dir_bytes(&self.job.dir)?;
        let before_settling = Instant::now();
        let settling = self.settle()?.saturating_duration_since(before_settling);
        let settled_usage = window.usage()?;
        let live = live_bytes(&outcome);
        let unsettled = StoreState {
            keys: items,
            live_bytes: Some(live),
            dir_bytes: dir_bytes_unsettled,
            metadata: self.store.metadata_bytes()?,
        };
        let row_name = format!("{name}-unsettled");
        let unsettled = Row::new(&row_name, &self.facts, phase.threads, &outcome, usage, unsettled);
        outcome.seconds += settling.as_secs_f64();
        let settled = self.row(name, phase, &outcome, settled_usage, items, Some(live))?;
        Ok((settled, unsettled))
    }

    fn tell(&self, row: Row) {
        self.observer.tell(Event::Row(Box::new(row)));
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
        self.tell(self.row(name, phase, outcome, usage, keys, live_bytes)?);
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

    /// Flushes and waits for compactions; gives since when there are none left.
    fn settle(&self) -> Result<Instant> {
        self.begin("settling", 0);
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

    /// A tenth of the workload, at most [`WARM_UP_S`], unmeasured, by threads of other numbers than those that are
    /// measured: what these ask for is drawn anew.
    fn warm_up<W: Worker>(
        &self,
        phase: Phase,
        make: impl Fn(usize) -> Result<W> + Sync,
    ) -> Result<()> {
        let longest = Duration::from_secs_f64(WARM_UP_S);
        let duration = phase.duration.map_or(longest, |duration| longest.min(duration / 10));
        let phase = Phase { ops: phase.ops.div_ceil(10), duration: Some(duration), ..phase };
        self.run_phase("warming up", phase, |thread| make(WARM_UP_THREADS + thread)).map(drop)
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
