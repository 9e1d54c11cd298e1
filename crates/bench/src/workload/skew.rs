//! `skew` and `cluster-skew`: writes alone, under Zipf's law, and what they cost on disk.
//!
//! `skew`: as many puts as there are keys, each of a key drawn under Zipf's law, into one empty store,
//! for each exponent from 0.5 to 1.8 (`--set zipf=0.9,1.2`); a row `skew-0.9` each.
//!
//! `cluster-skew`: the same of exponent 0.9 into three stores of one process with a router before them
//! (`instances`), for each layout (`catalog/skew/layout.rs`): a row `cluster-skew-hash` each. Plans are `terrace-cluster`'s,
//! made of what was counted in the first quarter of the writes (`--set plan_after=0.25`), by a
//! Space-Saving of 8,192 counters per instance or exactly (`--set top=exact`), and carried out by moving
//! keys there and then: what moves write is among the bytes written, not among those of
//! clients.
//!
//! Bytes are counted until the store has settled: memtables flushed, no merge due. Compaction for reads while a store is
//! idle is off. Figures are the engines' own counts; the kernel's, of all files together, are in
//! `bytes_written`, which is smaller where a file was deleted before it was written back. The row
//! `-unsettled` ends with the last acknowledgement; throughput is there.
//!
//! An engine whose merges cannot keep up lets files gather and merges more of them at once, which costs fewer
//! bytes. `--set rate=20MiB` bounds what clients write per second, so that merges keep up, as in the
//! published setting; latencies then have the waits in them.
//!
//! Variants and sizes: `catalog/skew.rs`.

mod instances;
mod plans;

use super::watch::{Watch, Watched};
use crate::catalog::Workload;
use crate::catalog::skew::layout::Layout;
use crate::catalog::skew::{CLUSTER_EXPONENT, DEFAULT_SIZE, INSTANCES};
use crate::job::{Event, Job, Observer};
use crate::report::figures::SkewFigures;
use crate::report::{Facts, Row, StoreState};
use anyhow::{Context, Result};
use instances::Instances;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_base::SplitMix64;
use terrace_cluster::{Placement, PlanSpec};
use terrace_workload::distribution::{Distribution, Sampler};
use terrace_workload::keys::KeySpace;
use terrace_workload::phase::{self, Outcome, Phase, Tally, Worker};
use terrace_workload::usage::{self, Usage, Window};
use terrace_workload::values::Values;

/// One in this many items is looked up at the end.
const CHECK_EVERY: usize = 997;

/// A writer that is ahead of its rate waits for at least so long.
const SHORTEST_WAIT: Duration = Duration::from_millis(2);

/// Runs whichever of the two is asked for.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    if job.workloads.contains(&Workload::Skew) {
        for zipf in job.settings.zipf.iter() {
            Run::open(job, observer, &format!("skew-{zipf:.1}"), 1, Placement::Slots, zipf)?
                .measure(None)?;
        }
    }
    if job.workloads.contains(&Workload::ClusterSkew) {
        for layout in job.settings.layouts.iter() {
            let name = format!("cluster-skew-{}", layout.name());
            let placement = match layout {
                Layout::Range => Placement::Range,
                _ => Placement::Slots,
            };
            let run = Run::open(job, observer, &name, INSTANCES, placement, CLUSTER_EXPONENT)?;
            run.measure(layout.plan(job.shape.keys as f64 / DEFAULT_SIZE.0 as f64))?;
        }
    }
    Ok(())
}

/// One measurement: fresh stores, all writes, rows.
struct Run<'a> {
    job: &'a Job,
    observer: &'a Observer,
    name: &'a str,
    zipf: f64,
    instances: Instances,
    space: KeySpace,
    sampler: Sampler,
    facts: Facts,
}

impl<'a> Run<'a> {
    fn open(
        job: &'a Job,
        observer: &'a Observer,
        name: &'a str,
        count: usize,
        placement: Placement,
        zipf: f64,
    ) -> Result<Self> {
        let keys = job.shape.keys;
        let space = KeySpace::new(job.shape.key_size, keys)?;
        let instances = Instances::open(job, name, count, placement, space)?;
        let first = instances.stores().first().context("an instance")?;
        let facts = job.facts(first.options_text(), first.version());
        observer.tell(Event::Options(facts.options.clone()));
        let sampler = Sampler::new(&Distribution::Zipf(zipf), keys, job.settings.seed)?;
        Ok(Self { job, observer, name, zipf, instances, space, sampler, facts })
    }

    /// Writes, carries out the plan meanwhile, settles, tells.
    fn measure(mut self, plan: Option<PlanSpec>) -> Result<()> {
        let all = self.job.limit.ops.unwrap_or(self.job.shape.keys);
        let before = match plan {
            Some(_) => (all as f64 * self.job.settings.plan_after) as u64,
            None => all,
        };
        let watch = Watch::new();
        let window = Window::open()?;
        let mut outcome = self.write(before, 0, &watch)?;
        let mut moved = None;
        if let Some(plan) = plan {
            let start = Instant::now();
            let lists = self.instances.top_lists();
            let moves = plans::moves(&plan, self.instances.topology(), &lists)?;
            moved = Some(self.instances.carry_out(moves)?);
            let rest = self.write(all - before, 1, &watch)?;
            outcome.ops += rest.ops;
            outcome.seconds += start.elapsed().as_secs_f64();
            outcome.latencies.add(&rest.latencies)?;
            outcome.tally += rest.tally;
        }
        let unsettled = self.row("-unsettled", &outcome, window.usage()?, moved)?;
        let settling = Instant::now();
        self.begin("settling", 0);
        let settled = self.instances.settle()?.unwrap_or(settling);
        outcome.seconds += settled.saturating_duration_since(settling).as_secs_f64();
        let settled = self.row("", &outcome, window.usage()?, moved)?;
        self.instances.check(CHECK_EVERY)?;
        let hot_keys = unsettled.skew.as_ref().and_then(|figures| figures.hot_keys);
        // A flush ends what is hot.
        let skew = settled.skew.clone().map(|figures| SkewFigures { hot_keys, ..figures });
        self.observer.tell(Event::Row(Box::new(Row { skew, ..settled })));
        self.observer.tell(Event::Row(Box::new(unsettled)));
        if self.job.stats {
            for store in self.instances.stores() {
                self.observer.tell(Event::Stats(store.stats_text()));
            }
        }
        self.instances.close()
    }

    fn begin(&self, what: &str, ops: u64) {
        self.observer.done.store(0, Ordering::Relaxed);
        self.observer.tell(Event::Begin { what: what.to_owned(), ops });
    }

    fn write(&self, ops: u64, part: u64, watch: &Watch) -> Result<Outcome> {
        self.begin(self.name, ops);
        let phase = Phase { threads: self.job.threads, ops, duration: None, time_every: 1 };
        let make = |thread| Ok(Watched::new(Writer::new(self, part, thread), watch));
        phase::run(phase, &self.observer.done, make).with_context(|| self.name.to_owned())
    }

    fn row(
        &self,
        ending: &str,
        outcome: &Outcome,
        usage: Usage,
        moved: Option<u64>,
    ) -> Result<Row> {
        let shape = self.job.shape;
        let keys = self.instances.distinct_items();
        let dirs = self.instances.dirs().iter().map(|dir| usage::dir_bytes(dir));
        let state = StoreState {
            keys,
            live_bytes: Some(keys * (shape.key_size + shape.value_size) as u64),
            dir_bytes: dirs.sum::<Result<u64>>()?,
            metadata: self.instances.metadata_bytes()?,
            // Of all instances together they are among the figures.
            sorted_runs: None,
        };
        let name = format!("{}{ending}", self.name);
        let row = Row::new(&name, &self.facts, self.job.threads, outcome, usage, state);
        Ok(Row { skew: Some(self.figures(row.user_bytes, moved)?), ..row })
    }

    fn figures(&self, user_bytes: u64, moved: Option<u64>) -> Result<SkewFigures> {
        let counts = self.instances.write_counts()?;
        let by_instance = self.instances.user_bytes();
        let runs = self.instances.stores().iter().map(|store| store.sorted_runs());
        let runs: Vec<Option<u64>> = runs.collect::<Result<_>>()?;
        let table_bytes: Option<u64> = counts.iter().map(|counts| counts.table_bytes).sum();
        let log_bytes: Option<u64> = counts.iter().map(|counts| counts.log_bytes).sum();
        let over = |bytes: u64, user: u64| bytes as f64 / user.max(1) as f64;
        let amps: Option<Vec<f64>> = counts
            .iter()
            .zip(&by_instance)
            .map(|(counts, user)| Some(over(counts.table_bytes?, *user)))
            .collect();
        let amps = amps.filter(|amps| amps.len() > 1).unwrap_or_default();
        let shares = by_instance.iter().filter(|_| by_instance.len() > 1);
        Ok(SkewFigures {
            zipf: self.zipf,
            table_bytes,
            log_bytes,
            table_write_amp: table_bytes.map(|bytes| over(bytes, user_bytes)),
            total_write_amp: table_bytes
                .zip(log_bytes)
                .map(|(tables, log)| over(tables + log, user_bytes)),
            hot_keys: counts.iter().map(|counts| counts.hot_keys).sum(),
            run_count: runs.into_iter().sum(),
            moved_keys: moved,
            mean_instance_write_amp: (!amps.is_empty())
                .then(|| amps.iter().sum::<f64>() / amps.len() as f64),
            instance_shares: shares.map(|bytes| over(*bytes, user_bytes)).collect(),
            instance_write_amps: amps,
        })
    }
}

/// A thread that writes.
struct Writer<'a> {
    instances: &'a Instances,
    space: KeySpace,
    sampler: Sampler,
    values: Values,
    rng: SplitMix64,
    key: Vec<u8>,
    tally: Tally,
    pace: Pace,
}

/// Keeps a thread to its share of the rate.
struct Pace {
    start: Instant,
    bytes_per_s: f64,
}

impl Pace {
    /// `bytes_per_s` of 0 is no bound.
    fn new(bytes_per_s: u64, threads: usize) -> Self {
        Self { start: Instant::now(), bytes_per_s: bytes_per_s as f64 / threads.max(1) as f64 }
    }

    /// Waits until `bytes` may have been written.
    fn keep(&self, bytes: u64) {
        if self.bytes_per_s == 0.0 {
            return;
        }
        let due = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        let ahead = due.saturating_sub(self.start.elapsed());
        if ahead > SHORTEST_WAIT {
            std::thread::sleep(ahead);
        }
    }
}

impl<'a> Writer<'a> {
    fn new(run: &'a Run<'_>, part: u64, thread: usize) -> Self {
        let number = part << 16 | thread as u64;
        let seed = run.job.settings.seed.wrapping_mul(0x9e37_79b9) ^ number << 8;
        Self {
            instances: &run.instances,
            space: run.space,
            sampler: run.sampler.clone(),
            values: Values::new(run.job.shape.value_size, seed),
            rng: SplitMix64::new(seed ^ 0x5ce7),
            key: Vec::new(),
            tally: Tally::default(),
            pace: Pace::new(run.job.settings.rate, run.job.threads),
        }
    }
}

impl Worker for Writer<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        let item = self.sampler.item(&mut self.rng);
        self.space.present(item, &mut self.key);
        let value = self.values.next_value();
        self.instances.put(item, &self.key, value)?;
        self.tally.user_bytes += (self.key.len() + value.len()) as u64;
        self.pace.keep(self.tally.user_bytes);
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
