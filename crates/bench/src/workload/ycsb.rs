//! YCSB's core workloads (Cooper et al., "Benchmarking cloud serving systems with YCSB", 2010).
//!
//! | mix | operations | keys |
//! |---|---|---|
//! | a | 50 % read, 50 % update | zipf |
//! | b | 95 % read, 5 % update | zipf |
//! | c | read | zipf |
//! | d | 95 % read, 5 % insert | latest |
//! | e | 95 % scan of 1 to 100 entries, 5 % insert | zipf |
//! | f | 50 % read, 50 % read-modify-write | zipf |
//!
//! The store is loaded in random order. Mixes run c b a f d e, those that insert last, and the
//! store settles between them. An update writes a whole value; a scan opens a new cursor, since
//! the store has changed. As many operations as keys, at most 30 s.
//!
//! What is read must be there, unless its insert is under way in another thread, and so must what a scan begins with and
//! goes on to.

mod inserts;

pub use inserts::Inserts;

use super::fill::{self, Order};
use super::{Bench, Bound, ValueCheck};
use crate::catalog::Workload;
use crate::catalog::mix::Mix;
use crate::job::{Job, Observer};
use crate::store::Store;
use anyhow::{Result, ensure};
use terrace_base::{Rng, SplitMix64};
use terrace_workload::distribution::{Distribution, Sampler, YCSB_EXPONENT};
use terrace_workload::keys::KeySpace;
use terrace_workload::phase::{Tally, Worker};
use terrace_workload::values::Values;

const MIX_SECONDS: u64 = 30;
const LONGEST_SCAN: u64 = 100;

/// Shares of operations; what is left to 1 is reads.
struct Shares {
    update: f64,
    insert: f64,
    scan: f64,
    read_modify_write: f64,
}

fn shares(mix: Mix) -> Shares {
    let reads = Shares { update: 0.0, insert: 0.0, scan: 0.0, read_modify_write: 0.0 };
    match mix {
        Mix::A => Shares { update: 0.5, ..reads },
        Mix::B => Shares { update: 0.05, ..reads },
        Mix::C => reads,
        Mix::D => Shares { insert: 0.05, ..reads },
        Mix::E => Shares { insert: 0.05, scan: 0.95, ..reads },
        Mix::F => Shares { read_modify_write: 0.5, ..reads },
    }
}

fn distribution(mix: Mix) -> Distribution {
    match mix {
        Mix::D => Distribution::Latest,
        _ => Distribution::Zipf(YCSB_EXPONENT),
    }
}

/// Loads the store and runs the mixes.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let mut bench = Bench::open(job, observer, &job.config)?;
    fill::load(&bench, Order::Random)?;
    bench.merge_if_asked()?;
    bench.warm_up_by_scan()?;
    let inserts = Inserts::new(job.shape.keys);
    for (number, workload) in job.workloads.iter().enumerate() {
        if let Workload::Ycsb(mix) = workload {
            if number > 0 {
                bench.merge_if_asked()?;
            }
            run_mix(&bench, *mix, &inserts)?;
            bench.calm()?;
        }
    }
    bench.close()
}

/// Runs and reports one mix.
pub fn run_mix(bench: &Bench<'_>, mix: Mix, inserts: &Inserts) -> Result<()> {
    let before = inserts.count();
    let sampler = bench.sampler(&distribution(mix), before)?;
    let phase = bench.phase(Bound::ops_or_seconds(bench.shape().keys, MIX_SECONDS), 1);
    let make = |thread: usize, shares: Shares| {
        let seed = bench.job.settings.seed ^ (0x7c5b + thread as u64);
        Client {
            store: &*bench.store,
            keys: bench.keys,
            sampler: sampler.clone(),
            rng: bench.rng(mix.name(), thread),
            values: Values::new(bench.shape().value_size, seed),
            value_size: bench.shape().value_size,
            shares,
            inserts,
            key: Vec::new(),
            tally: Tally::default(),
        }
    };
    // Warming up writes nothing: the mix finds the store as loaded.
    bench.warm_up(phase, |thread| Ok(make(thread, shares(Mix::C))))?;
    let (outcome, usage) =
        bench.timed(mix.name(), phase, |thread| Ok(make(thread, shares(mix))))?;
    let live = inserts.count() * bench.item_bytes();
    bench.report(mix.name(), phase, &outcome, usage, before, Some(live))
}

struct Client<'a> {
    store: &'a dyn Store,
    keys: KeySpace,
    sampler: Sampler,
    rng: SplitMix64,
    values: Values,
    value_size: usize,
    shares: Shares,
    /// By all threads.
    inserts: &'a Inserts,
    key: Vec<u8>,
    tally: Tally,
}

impl Client<'_> {
    fn read(&mut self, item: u64) -> Result<()> {
        let complete = self.inserts.complete();
        let mut values = ValueCheck::new(self.value_size);
        let found = self.store.get(&self.key, &mut |value| values.see(value))?;
        self.tally.found += u64::from(found);
        self.tally.missed += u64::from(!found);
        ensure!(
            found || item >= complete,
            "wrong answer: key {:02x?} is stored, the store says otherwise",
            self.key
        );
        values.result()
    }

    fn write(&mut self) -> Result<()> {
        let value = self.values.next_value();
        self.store.put(&self.key, value)?;
        self.tally.user_bytes += (self.key.len() + value.len()) as u64;
        Ok(())
    }

    fn scan(&mut self, item: u64) -> Result<()> {
        let length = 1 + self.rng.below(LONGEST_SCAN);
        let complete = self.inserts.complete();
        let mut values = ValueCheck::new(self.value_size);
        let mut cursor = self.store.cursor()?;
        cursor.seek(&self.key)?;
        for due in item..item + length {
            if due > item {
                cursor.next()?;
            }
            let entry = cursor.entry();
            ensure!(
                due >= complete || entry.is_some_and(|(key, _)| self.keys.is_present(due, key)),
                "wrong answer: a scan from {:02x?} has {:02x?} where that of item {due} is due",
                self.key,
                entry.map(|(key, _)| key)
            );
            let Some((_, value)) = entry else { break };
            values.see(value);
        }
        values.result()
    }
}

impl Worker for Client<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        let mut draw = self.rng.unit();
        let mut falls_in = |share: f64| {
            draw -= share;
            draw < 0.0
        };
        if falls_in(self.shares.insert) {
            let inserts = self.inserts;
            let item = inserts.insert(|item| {
                self.keys.present(item, &mut self.key);
                self.write()
            })?;
            self.sampler.grown_to(item + 1);
            return Ok(());
        }
        let (update, scan, modify) = (
            falls_in(self.shares.update),
            falls_in(self.shares.scan),
            falls_in(self.shares.read_modify_write),
        );
        let item = self.sampler.item(&mut self.rng);
        self.keys.present(item, &mut self.key);
        if update {
            self.write()
        } else if scan {
            self.scan(item)
        } else if modify {
            self.read(item)?;
            self.write()
        } else {
            self.read(item)
        }
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_whole() {
        for mix in [Mix::A, Mix::B, Mix::C, Mix::D, Mix::E, Mix::F] {
            let s = shares(mix);
            assert!(s.update + s.insert + s.scan + s.read_modify_write <= 1.0, "{mix:?}");
        }
    }
}
