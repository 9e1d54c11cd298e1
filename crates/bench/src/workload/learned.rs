//! `learned`: lookups in memory, guided by models or by indexes, under keys of six kinds.
//!
//! The setting of Bourbon (Dai et al., "From WiscKey to Bourbon: A Learned Index for Log-Structured
//! Merge Trees", OSDI 2020, section 5): 5 million keys of 16 bytes with values of 64, loaded in
//! random order, all of it cached; uniform lookups of stored keys on one thread. Files are of 64 MiB,
//! smaller in a smaller store, so that it has as many. The kinds of keys are in [`KeySet`] (`--set keysets=linear,normal` for some of them).
//!
//! | variant | what it is |
//! |---|---|
//! | (none), Terrace | `learning = build`: files have models, written with them |
//! | `off` | the same store, opened with `learning = off`: indexes |
//! | `level` | the same store and options, read until levels have models of their own |
//! | `level-written` | one key in a thousand is overwritten then, and the store settled |
//! | (none), RocksDB and Speedb | binary search in the index |
//! | `interpolation` | the same store, `index_block_search_type=kInterpolation`, if the library has it |
//!
//! - `learned-KEYS-fill`, to settled, and `-unsettled`: of Terrace two stores are filled, one with
//!   models and one (`off`) without, which of them first changing from repeat to repeat; the one
//!   without is removed. `training_ns_per_key` is by the engine's count.
//! - `learned-KEYS`: the store is opened as each variant in turn, scanned once, and read for 5 seconds
//!   (or as `--ops` and `--duration` say), three times over (`--set rounds=`) with another one first
//!   each time, so that what changes on the machine meanwhile hits all alike. Each of these
//!   measurements is a repeat of its own in the report. `speedup` is the rate over that of the same
//!   round without a model (of RocksDB: by binary search).
//! - With `--set merged=true` everything is merged after the fill, so that every variant reads one sorted run.
//! - The keys to look up are drawn and spelled out beforehand, 2^20 of them or 16 for each key, so that neither is part
//!   of a lookup.
//!
//! `level` is left out if no level has a model after 20 seconds of lookups (`--set level_wait=`).
//! The engine makes models of levels by itself, and sooner in a small store: the variant without a
//! name may get them during its turn, too. `model_share` and `level_share` say how many of the searches of a file were guided by a model of
//! the file, or of its level.

mod keys;
mod lookups;

use super::{Bench, Bound, TIME_EVERY_POINT_READ};
use crate::catalog::key_set::KeySet;
use crate::catalog::learned::Variant;
use crate::job::{Event, Job, Observer};
use crate::report::Row;
use crate::report::figures::LearnedFigures;
use crate::store::ModelCounts;
use anyhow::{Result, ensure};
use keys::Keys;
use lookups::{Filler, Queries, Reader, Rewriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace_workload::phase::Phase;

/// Seconds of one turn.
const TURN_SECONDS: u64 = 5;
/// Of the keys, one in this many is overwritten to see what becomes of models of levels.
const KEYS_PER_REWRITE: u64 = 1000;
const MIN_REWRITES: u64 = 100;
/// Lookups between two looks for models of levels.
const LEVEL_POLL: Duration = Duration::from_millis(500);

/// Fills the stores, then lets the variants take turns.
pub fn run(job: &Job, observer: &Observer, set: KeySet) -> Result<()> {
    let shape = job.shape;
    let keys = Keys::new(set, shape.keys, shape.key_size, job.settings.seed)?;
    ensure!(!job.variants.is_empty(), "learned has no variant for {}", job.engine);
    let mut job = job.clone();
    job.shape.keys = keys.len();
    let queries = Queries::draw(&keys, job.settings.seed);
    let mut learned = Learned { job: &job, observer, set, keys, queries, dir: PathBuf::new() };
    learned.fill()?;
    learned.rounds()
}

/// The keys, and the store that holds them.
struct Learned<'a> {
    job: &'a Job,
    observer: &'a Observer,
    set: KeySet,
    keys: Keys,
    queries: Queries,
    /// Where the store to read is.
    dir: PathBuf,
}

impl Learned<'_> {
    fn name(&self) -> String {
        format!("learned-{}", self.set)
    }

    fn live_bytes(&self) -> u64 {
        self.keys.bytes() + self.keys.len() * self.job.shape.value_size as u64
    }

    /// The job of opening the store in `dir` as `variant`.
    fn job_of(&self, variant: Variant, dir: &Path) -> Job {
        let mut job = Job { dir: dir.to_owned(), ..self.job.clone() };
        variant.configure(&mut job.config);
        job
    }

    /// Fills one store for each variant that needs its own, and keeps the first of them.
    fn fill(&mut self) -> Result<()> {
        let mut stores = Variant::stores(&self.job.variants);
        if let Some(kept) = stores.first() {
            self.dir = self.job.dir.join(kept.store_name());
        }
        if self.job.repeat.is_multiple_of(2) {
            stores.reverse();
        }
        for variant in stores {
            let dir = self.job.dir.join(variant.store_name());
            self.fill_one(variant, &dir)?;
            if dir != self.dir {
                std::fs::remove_dir_all(dir)?;
            }
        }
        Ok(())
    }

    fn fill_one(&self, variant: Variant, dir: &Path) -> Result<()> {
        let job = self.job_of(variant, dir);
        let mut bench = Bench::open(&job, self.observer, &job.config)?;
        variant.name().clone_into(&mut bench.facts.variant);
        let phase =
            Phase { threads: job.threads, ops: self.keys.len(), duration: None, time_every: 1 };
        let order = bench.load_order();
        let make = |thread| Ok(Filler::new(&bench, &self.keys, order.clone(), thread));
        let (name, live) = (format!("{}-fill", self.name()), self.live_bytes());
        let (settled, unsettled) =
            bench.rows_to_settled(&name, phase, self.keys.len(), |_| live, make)?;
        let counts = bench.store.model_counts()?;
        let figures = self.figures(ModelCounts::default(), counts);
        bench.tell(Row { learned: Some(figures), ..settled });
        bench.tell(unsettled);
        bench.calm()?;
        bench.merge_if_asked()?;
        bench.store.close()
    }

    /// All turns, and what becomes of models of levels.
    fn rounds(&self) -> Result<()> {
        let mut variants = self.job.variants.clone();
        let mut has_levels = variants.contains(&Variant::Level);
        for round in 1..=self.job.settings.rounds {
            let mut rows: Vec<(Variant, Row)> = Vec::new();
            for variant in &variants {
                if *variant == Variant::Level && !has_levels {
                    continue;
                }
                match self.turn(*variant, round, false)? {
                    Some(row) => rows.push((*variant, row)),
                    None => has_levels = false,
                }
            }
            variants.rotate_left(1);
            let without = rows.iter().find(|(variant, _)| variant.is_baseline());
            let without = without.map(|(_, row)| row.ops_per_s).filter(|rate| *rate > 0.0);
            for (variant, mut row) in rows {
                let speedup = without.filter(|_| !variant.is_baseline());
                if let Some(figures) = &mut row.learned {
                    figures.speedup = speedup.map(|rate| row.ops_per_s / rate);
                }
                self.observer.tell(Event::Row(Box::new(row)));
            }
        }
        if has_levels && let Some(row) = self.turn(Variant::Level, 1, true)? {
            self.observer.tell(Event::Row(Box::new(row)));
        }
        Ok(())
    }

    /// Opens the store as `variant` and reads, `after_writes` if it is to be so; `None` if that was
    /// to be with models of levels and there are none.
    fn turn(&self, variant: Variant, round: u64, after_writes: bool) -> Result<Option<Row>> {
        let job = self.job_of(variant, &self.dir);
        let mut bench = Bench::open(&job, self.observer, &job.config)?;
        let suffix = if after_writes { "-written" } else { "" };
        bench.facts.variant = format!("{}{suffix}", variant.name());
        bench.facts.repeat = repeat(&job, round);
        bench.facts.repeats = if after_writes { job.repeats } else { repeats(&job) };
        bench.facts.merged = job.settings.merged && !after_writes;
        bench.warm_up_by_scan()?;
        if variant == Variant::Level && !self.wait_for_levels(&bench)? {
            bench.close()?;
            return Ok(None);
        }
        if after_writes {
            self.rewrite_some(&bench)?;
        }
        let name = self.name();
        let bound = Bound { ops: u64::MAX, duration: Some(Duration::from_secs(TURN_SECONDS)) };
        let phase = bench.phase(bound, TIME_EVERY_POINT_READ);
        let make = |thread| Ok(Reader::new(&bench, &self.queries, thread));
        bench.warm_up(phase, make)?;
        let before = bench.store.model_counts()?;
        let (outcome, usage) = bench.timed(&name, phase, make)?;
        let after = bench.store.model_counts()?;
        let live = Some(self.live_bytes());
        let row = bench.row(&name, phase, &outcome, usage, self.keys.len(), live)?;
        bench.close()?;
        Ok(Some(Row { learned: Some(self.figures(before, after)), ..row }))
    }

    /// Reads until some level has a model; false if none has one in time.
    fn wait_for_levels(&self, bench: &Bench<'_>) -> Result<bool> {
        let start = Instant::now();
        let limit = Duration::from_secs_f64(self.job.settings.level_wait_s);
        while start.elapsed() < limit {
            match bench.store.model_counts()?.level_models {
                None => break,
                Some(0) => {}
                Some(_) => return Ok(true),
            }
            let phase =
                Phase { threads: 1, ops: u64::MAX, duration: Some(LEVEL_POLL), time_every: 8 };
            bench.run_phase("waiting for models of levels", phase, |thread| {
                Ok(Reader::new(bench, &self.queries, thread))
            })?;
        }
        self.observer.tell(Event::Note(format!(
            "{}: no level has a model of its own after {:.0} s of lookups",
            self.name(),
            start.elapsed().as_secs_f64()
        )));
        Ok(false)
    }

    fn rewrite_some(&self, bench: &Bench<'_>) -> Result<()> {
        let ops = (self.keys.len() / KEYS_PER_REWRITE).max(MIN_REWRITES);
        let phase = Phase { threads: 1, ops, duration: None, time_every: 1 };
        bench.run_phase("overwriting", phase, |_| Ok(Rewriter::new(bench, &self.keys)))?;
        bench.settle().map(drop)
    }

    fn figures(&self, before: ModelCounts, after: ModelCounts) -> LearnedFigures {
        let since = |now: Option<u64>, then: Option<u64>| {
            Some(now?.saturating_sub(then.unwrap_or(0)) as f64)
        };
        let model = since(after.by_model, before.by_model);
        let index = since(after.by_index, before.by_index);
        let level = since(after.by_level, before.by_level);
        let all = model.zip(index).map(|(m, i)| m + i + level.unwrap_or(0.0));
        let training = since(after.training_ns, before.training_ns);
        let trained = since(after.trained_keys, before.trained_keys);
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        LearnedFigures {
            key_set: self.set.to_string(),
            speedup: None,
            model_share: model.zip(all).and_then(|(part, all)| share(part, all)),
            level_share: level.zip(all).and_then(|(part, all)| share(part, all)),
            model_bytes: after.model_bytes,
            models_built: after.built,
            models_refused: after.refused,
            level_models: after.level_models,
            training_s: training.map(|ns| ns / 1e9),
            training_ns_per_key: training.zip(trained).and_then(|(ns, keys)| share(ns, keys)),
        }
    }
}

/// Every turn is a repeat of its own.
fn repeat(job: &Job, round: u64) -> u32 {
    let turns = u64::from(job.repeat.max(1) - 1) * job.settings.rounds + round;
    u32::try_from(turns).unwrap_or(u32::MAX)
}

/// How many there are to be of each variant.
fn repeats(job: &Job) -> u32 {
    u32::try_from(u64::from(job.repeats) * job.settings.rounds).unwrap_or(u32::MAX)
}
