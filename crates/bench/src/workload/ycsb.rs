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

use super::fill::{self, Order};
use super::{Bench, Bound, touch};
use crate::catalog::Workload;
use crate::catalog::mix::Mix;
use crate::job::{Job, Observer};
use crate::store::Store;
use anyhow::{Result, ensure};
use std::sync::atomic::{AtomicU64, Ordering};
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
    let bench = Bench::open(job, observer, &job.config)?;
    fill::load(&bench, Order::Random)?;
    bench.warm_up_by_scan()?;
    let items = AtomicU64::new(job.shape.keys);
    for workload in &job.workloads {
        if let Workload::Ycsb(mix) = workload {
            run_mix(&bench, *mix, &items)?;
            bench.calm()?;
        }
    }
    bench.close()
}

fn run_mix(bench: &Bench<'_>, mix: Mix, items: &AtomicU64) -> Result<()> {
    let before = items.load(Ordering::Relaxed);
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
            shares,
            items,
            key: Vec::new(),
            tally: Tally::default(),
        }
    };
    // Warming up writes nothing: the mix finds the store as loaded.
    bench.warm_up(phase, |thread| Ok(make(thread, shares(Mix::C))))?;
    bench.measure(mix.name(), phase, before, |thread| Ok(make(thread, shares(mix))))
}

struct Client<'a> {
    store: &'a dyn Store,
    keys: KeySpace,
    sampler: Sampler,
    rng: SplitMix64,
    values: Values,
    shares: Shares,
    /// Items inserted so far, by all threads.
    items: &'a AtomicU64,
    key: Vec<u8>,
    tally: Tally,
}

impl Client<'_> {
    fn read(&mut self) -> Result<()> {
        let found = self.store.get(&self.key, &mut touch)?;
        self.tally.found += u64::from(found);
        self.tally.missed += u64::from(!found);
        // An item is counted before its insert is done, so only inserting mixes may miss.
        ensure!(
            found || self.shares.insert > 0.0,
            "wrong answer: key {:02x?} is stored, the store says otherwise",
            self.key
        );
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let value = self.values.next_value();
        self.store.put(&self.key, value)?;
        self.tally.user_bytes += (self.key.len() + value.len()) as u64;
        Ok(())
    }

    fn scan(&mut self) -> Result<()> {
        let mut left = 1 + self.rng.below(LONGEST_SCAN);
        let mut cursor = self.store.cursor()?;
        cursor.seek(&self.key)?;
        while let Some((key, value)) = cursor.entry() {
            touch(key);
            touch(value);
            left -= 1;
            if left == 0 {
                break;
            }
            cursor.next()?;
        }
        Ok(())
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
            let item = self.items.fetch_add(1, Ordering::Relaxed);
            self.keys.present(item, &mut self.key);
            self.write()?;
            self.sampler.grown_to(item + 1);
            return Ok(());
        }
        let (update, scan, modify) = (
            falls_in(self.shares.update),
            falls_in(self.shares.scan),
            falls_in(self.shares.read_modify_write),
        );
        self.keys.present(self.sampler.item(&mut self.rng), &mut self.key);
        if update {
            self.write()
        } else if scan {
            self.scan()
        } else if modify {
            self.read()?;
            self.write()
        } else {
            self.read()
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
