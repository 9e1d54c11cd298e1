//! `packages`: real package names, looked up by their real popularity.
//!
//! `crates/cli/data/packages.tsv.zst` has names, monthly downloads and summaries. Half of the names, chosen
//! at random, are stored with their summaries (row `packages-load`, to settled); the other half is
//! absent. A lookup is for an absent name with probability `--missing` (0.5), and names of either
//! half are drawn by their downloads (row `packages`). `--keys` uses fewer of the names.

use super::point_read::READ_SECONDS;
use super::{Bench, Bound, TIME_EVERY_POINT_READ, ValueCheck};
use crate::job::{Job, Observer};
use crate::package_names::find_packages;
use crate::store::Store;
use anyhow::{Result, ensure};
use terrace_base::{Rng, SplitMix64};
use terrace_workload::distribution::{Alias, Popular, read_popularity};
use terrace_workload::keys::Permutation;
use terrace_workload::phase::{Phase, Tally, Worker};

/// Lookups per stored name, at most.
const LOOKUPS_PER_NAME: u64 = 20;

/// Loads half of the names and looks names up.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let mut bench = Bench::open(job, observer, &job.config)?;
    let (stored, absent) = halves(read_popularity(&find_packages()?)?, job);
    ensure!(!stored.is_empty() && !absent.is_empty(), "--keys must be at least 2 for packages");
    let count = stored.len() as u64;
    let live: u64 = stored.iter().map(|line| (line.name.len() + line.rest.len()) as u64).sum();

    let load = Phase { threads: job.threads, ops: count, duration: None, time_every: 1 };
    bench.measure_to_settled(
        "packages-load",
        load,
        count,
        |_| live,
        |_| Ok(Loader { store: &*bench.store, lines: &stored, tally: Tally::default() }),
    )?;
    bench.calm()?;
    bench.merge_if_asked()?;

    let weights =
        |lines: &[Popular]| Alias::new(&lines.iter().map(|l| l.count).collect::<Vec<_>>());
    let laws = [weights(&stored)?, weights(&absent)?];
    let missing = job.missing.unwrap_or(0.5);
    let bound = Bound::ops_or_seconds(count * LOOKUPS_PER_NAME, READ_SECONDS);
    let phase = bench.phase(bound, TIME_EVERY_POINT_READ);
    let make = |thread| {
        Ok(NameReader {
            store: &*bench.store,
            names: [&stored, &absent],
            laws: &laws,
            missing,
            rng: bench.rng("packages", thread),
            tally: Tally::default(),
        })
    };
    bench.warm_up(phase, make)?;
    let (outcome, usage) = bench.timed("packages", phase, make)?;
    bench.report("packages", phase, &outcome, usage, count, Some(live))?;
    bench.close()
}

/// The names to store and those to leave out, each in random order.
fn halves(lines: Vec<Popular>, job: &Job) -> (Vec<Popular>, Vec<Popular>) {
    let order = Permutation::new(lines.len() as u64, job.settings.seed);
    let mut shuffled: Vec<(u64, Popular)> =
        lines.into_iter().enumerate().map(|(i, line)| (order.apply(i as u64), line)).collect();
    shuffled.sort_by_key(|(place, _)| *place);
    let wanted = usize::try_from(job.shape.keys).unwrap_or(usize::MAX).min(shuffled.len());
    let mut stored: Vec<Popular> =
        shuffled.into_iter().take(wanted).map(|(_, line)| line).collect();
    let absent = stored.split_off(wanted.div_ceil(2));
    (stored, absent)
}

struct Loader<'a> {
    store: &'a dyn Store,
    lines: &'a [Popular],
    tally: Tally,
}

impl Worker for Loader<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        let line = &self.lines[sequence as usize];
        self.store.put(&line.name, &line.rest)?;
        self.tally.user_bytes += (line.name.len() + line.rest.len()) as u64;
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

struct NameReader<'a> {
    store: &'a dyn Store,
    /// Stored and absent names, and the popularity of each.
    names: [&'a [Popular]; 2],
    laws: &'a [Alias; 2],
    missing: f64,
    rng: SplitMix64,
    tally: Tally,
}

impl Worker for NameReader<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        let half = usize::from(self.rng.unit() < self.missing);
        let line = &self.names[half][self.laws[half].index(&mut self.rng) as usize];
        let mut values = ValueCheck::new(line.rest.len());
        let found = self.store.get(&line.name, &mut |value| values.see(value))?;
        ensure!(
            found == (half == 0),
            "wrong answer for the name {}",
            String::from_utf8_lossy(&line.name)
        );
        self.tally.found += u64::from(found);
        self.tally.missed += u64::from(!found);
        values.result()
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
