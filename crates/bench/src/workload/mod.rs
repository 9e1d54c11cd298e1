//! The workloads: their names, the store each runs on, and the way one is measured.
//!
//! A job makes one fresh store and runs its workloads on it: the fill (measured if it was asked
//! for), then what only reads, then what writes. Definitions are db_bench's and YCSB's; where
//! they differ it is said in the file of the family.
//!
//! - Before reads: memtables flushed, compaction settled, the file system synced; then, if the
//!   store fits the cache, one scan of everything, then [`WARM_UP_S`] of the workload's own
//!   operations, on keys drawn for that alone. Neither is measured. How many sorted runs there are then is the engine's
//!   affair: Terrace merges further while it is idle, others stop where nothing is due. `sorted_runs` in every row says how
//!   many there were at its end. With `--set merged=true` every engine merges everything by its full manual compaction
//!   first, so that all are read from one run, and rows say `merged`.
//! - A workload that fills, overwrites or deletes is measured to settled: its clock and its
//!   kernel counters run from the first operation until no flush or compaction is left. The
//!   same operations up to the last acknowledgement are a row `NAME-unsettled`.
//! - A lookup of a key that must be there and is not (or the reverse), a value of another length, and an entry that a
//!   scan leaves out, repeats or has at a wrong place end the job: a figure of an engine that loses data is none.
//! - Bytes that a process wrote while a workload only read are noted: something was not over yet.

mod backup;
mod budget_curve;
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
mod paired;
mod point_read;
mod range;
mod skew;
mod tiny_cache;
mod watch;
mod ycsb;

use crate::catalog::StoreKind;
use crate::job::{Event, Job, Observer};
use crate::report::{Facts, Row, StoreState, cells};
use crate::store::{EngineConfig, Store};
use crate::store_size::StoreSize;
use anyhow::{Context, Result, bail, ensure};
use std::hint::black_box;
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
/// An engine may write this much into logs for people while it is only read from.
const QUIET_BYTES: u64 = 64 << 10;

/// Carries out a job: makes the store, runs the workloads, closes it.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    match job.store {
        StoreKind::Basic => fill::run_basic(job, observer),
        StoreKind::Ycsb => ycsb::run(job, observer),
        StoreKind::TinyCache(_) => tiny_cache::run(job, observer),
        StoreKind::BudgetCurve => budget_curve::run(job, observer),
        StoreKind::Packages => packages::run(job, observer),
        StoreKind::Filters => filters::run(job, observer),
        StoreKind::Elastic(variant) => elastic::run(job, observer, variant),
        StoreKind::LargeValues(_) => large_values::run(job, observer),
        StoreKind::Learned(set) => learned::run(job, observer, set),
        StoreKind::Skew(_) => skew::run(job, observer),
        StoreKind::MixedPhases(_) => mixed_phases::run(job, observer),
        StoreKind::BulkLoad | StoreKind::Ingest => load::run(job, observer),
        StoreKind::Backup => backup::run(job, observer),
        StoreKind::Paired => paired::run(job, observer),
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
        let facts = job.facts(store.options_text(), store.version());
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

    /// Runs a workload and says what it cost.
    fn timed<W: Worker>(
        &self,
        name: &str,
        phase: Phase,
        make: impl Fn(usize) -> Result<W> + Sync,
    ) -> Result<(Outcome, Usage)> {
        let window = Window::open()?;
        let outcome = self.run_phase(name, phase, make)?;
        Ok((outcome, window.usage()?))
    }

    /// Runs and reports a workload that needs no settling.
    fn measure<W: Worker>(
        &self,
        name: &str,
        phase: Phase,
        items: u64,
        make: impl Fn(usize) -> Result<W> + Sync,
    ) -> Result<()> {
        let (outcome, usage) = self.timed(name, phase, make)?;
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
        let unsettled_runs = self.store.sorted_runs()?;
        let before_settling = Instant::now();
        let settling = self.settle()?.saturating_duration_since(before_settling);
        let settled_usage = window.usage()?;
        let live = live_bytes(&outcome);
        let unsettled = StoreState {
            keys: items,
            live_bytes: Some(live),
            dir_bytes: dir_bytes_unsettled,
            metadata: self.store.metadata_bytes()?,
            sorted_runs: unsettled_runs,
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
        self.note_writes_of_reads(name, outcome, usage);
        let state = StoreState {
            keys,
            live_bytes,
            dir_bytes: usage::dir_bytes(&self.job.dir)?,
            metadata: self.store.metadata_bytes()?,
            sorted_runs: self.store.sorted_runs()?,
        };
        Ok(Row::new(name, &self.facts, phase.threads, outcome, usage, state))
    }

    /// Notes what the process wrote during a workload that only looked up: what it did for that was no part of the
    /// reads, and may have slowed them.
    fn note_writes_of_reads(&self, name: &str, outcome: &Outcome, usage: Usage) {
        let tally = outcome.tally;
        let reads_only = tally.user_bytes == 0 && tally.found + tally.missed > 0;
        if reads_only && usage.written_bytes > QUIET_BYTES {
            let written = cells::bytes(usage.written_bytes);
            let text = format!("{name} only reads, and meanwhile the process wrote {written}");
            self.observer.tell(Event::Note(text));
        }
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
        usage::sync_file_system(&self.job.dir)
    }

    /// Has the engine merge everything, if the user wants that before reads.
    fn merge_if_asked(&mut self) -> Result<()> {
        if !self.job.settings.merged {
            return Ok(());
        }
        self.begin("merging", 0);
        self.store.merge_all()?;
        self.calm()?;
        self.facts.merged = true;
        Ok(())
    }

    /// Scans the whole store once if it fits the cache, and insists on finding all of it.
    fn warm_up_by_scan(&self) -> Result<()> {
        if self.shape().raw_bytes() > self.job.config.cache_bytes as u64 {
            return Ok(());
        }
        self.observer.tell(Event::Begin { what: "warming up".to_owned(), ops: self.shape().keys });
        let mut cursor = self.store.cursor()?;
        cursor.seek(b"")?;
        let mut values = ValueCheck::new(self.shape().value_size);
        let mut seen = 0;
        while let Some((_, value)) = cursor.entry() {
            values.see(value);
            cursor.next()?;
            seen += 1;
            self.observer.done.store(seen, Ordering::Relaxed);
        }
        let keys = self.shape().keys;
        ensure!(seen == keys, "wrong answer: a scan of all {keys} entries found {seen}");
        values.result()
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

/// Looks at a value as a reader would, at least at its length and its far end.
#[inline]
fn touch(value: &[u8]) {
    black_box((value.len(), value.last()));
}

/// Looks at values that must be of one length.
#[derive(Debug, Clone, Copy)]
struct ValueCheck {
    length: usize,
    wrong: Option<usize>,
}

impl ValueCheck {
    /// Of values of `length` bytes.
    fn new(length: usize) -> Self {
        Self { length, wrong: None }
    }

    /// Looks at one.
    #[inline]
    fn see(&mut self, value: &[u8]) {
        touch(value);
        if value.len() != self.length {
            self.wrong = Some(value.len());
        }
    }

    /// An error if one had another length.
    #[inline]
    fn result(&self) -> Result<()> {
        match self.wrong {
            None => Ok(()),
            Some(wrong) => bail!("wrong answer: a value of {wrong} bytes, not {}", self.length),
        }
    }
}

#[cfg(test)]
mod tests;
