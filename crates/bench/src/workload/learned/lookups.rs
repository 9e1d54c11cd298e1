//! What the threads of `learned` do: put every key once, look keys up, put a few again.

use super::keys::Keys;
use crate::store::Store;
use crate::workload::{Bench, ValueCheck, WARM_UP_THREADS};
use anyhow::{Result, ensure};
use terrace_base::{Rng, SplitMix64};
use terrace_workload::keys::Permutation;
use terrace_workload::phase::{Tally, Worker};
use terrace_workload::values::Values;

/// How many lookups are drawn beforehand, at most, and for each key.
const MAX_DRAWN: u64 = 1 << 20;
const DRAWN_PER_KEY: u64 = 16;

/// Keys to look up, uniform among the stored ones, one behind another in memory.
#[derive(Debug)]
pub struct Queries {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Queries {
    /// Draws them from `keys`.
    pub fn draw(keys: &Keys, seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed ^ 0x0ead);
        let (mut bytes, mut key) = (Vec::new(), Vec::new());
        let drawn = keys.len().saturating_mul(DRAWN_PER_KEY).clamp(1, MAX_DRAWN);
        let ends = (0..drawn)
            .map(|_| {
                keys.write(rng.below(keys.len().max(1)), &mut key);
                bytes.extend_from_slice(&key);
                bytes.len()
            })
            .collect();
        Self { bytes, ends }
    }

    /// Where a thread begins: one that warms up half a round away from those that are measured.
    fn first(&self, thread: usize) -> u64 {
        if thread < WARM_UP_THREADS { 0 } else { self.ends.len() as u64 / 2 }
    }

    /// Query number `sequence`, beginning anew after the last.
    #[inline]
    fn get(&self, sequence: u64) -> &[u8] {
        let at = sequence as usize % self.ends.len();
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }
}

/// Looks the queries up.
pub struct Reader<'a> {
    store: &'a dyn Store,
    queries: &'a Queries,
    first: u64,
    value_size: usize,
    tally: Tally,
}

impl<'a> Reader<'a> {
    /// A reader of the bench's store. `thread` says whether it warms up.
    pub fn new(bench: &'a Bench<'_>, queries: &'a Queries, thread: usize) -> Self {
        Self {
            store: &*bench.store,
            queries,
            first: queries.first(thread),
            value_size: bench.shape().value_size,
            tally: Tally::default(),
        }
    }
}

impl Worker for Reader<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        let key = self.queries.get(sequence.wrapping_add(self.first));
        let mut values = ValueCheck::new(self.value_size);
        let found = self.store.get(key, &mut |value| values.see(value))?;
        ensure!(found, "wrong answer: key {key:02x?} is stored, the store says otherwise");
        self.tally.found += 1;
        values.result()
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

/// Puts every key once, in random order.
pub struct Filler<'a> {
    store: &'a dyn Store,
    keys: &'a Keys,
    order: Permutation,
    values: Values,
    key: Vec<u8>,
    tally: Tally,
}

impl<'a> Filler<'a> {
    /// A writer of `keys` into the bench's store.
    pub fn new(bench: &'a Bench<'_>, keys: &'a Keys, order: Permutation, thread: usize) -> Self {
        let seed = bench.job.settings.seed.wrapping_add(thread as u64);
        Self {
            store: &*bench.store,
            keys,
            order,
            values: Values::new(bench.shape().value_size, seed),
            key: Vec::new(),
            tally: Tally::default(),
        }
    }
}

impl Worker for Filler<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        self.keys.write(self.order.apply(sequence), &mut self.key);
        let value = self.values.next_value();
        self.store.put(&self.key, value)?;
        self.tally.user_bytes += (self.key.len() + value.len()) as u64;
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

/// Puts keys again, drawn uniformly.
pub struct Rewriter<'a> {
    filler: Filler<'a>,
    rng: SplitMix64,
}

impl<'a> Rewriter<'a> {
    /// A writer of `keys` into the bench's store.
    pub fn new(bench: &'a Bench<'_>, keys: &'a Keys) -> Self {
        let filler = Filler::new(bench, keys, bench.load_order(), 1);
        Self { filler, rng: bench.rng("rewriter", 0) }
    }
}

impl Worker for Rewriter<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        let item = self.rng.below(self.filler.keys.len().max(1));
        self.filler.step(item)
    }

    fn tally(&self) -> Tally {
        self.filler.tally()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::key_set::KeySet;
    use std::collections::BTreeSet;

    #[test]
    fn queries_are_stored_keys_and_reach_all_of_them() {
        let keys = Keys::new(KeySet::Ycsb, 300, 16, 1).unwrap();
        let queries = Queries::draw(&keys, 5);
        let mut stored = BTreeSet::new();
        for index in 0..300 {
            let mut key = Vec::new();
            keys.write(index, &mut key);
            stored.insert(key);
        }
        let seen: BTreeSet<Vec<u8>> = (0..4800).map(|at| queries.get(at).to_vec()).collect();
        assert_eq!(seen, stored);
        assert_eq!(queries.get(4800 + 3), queries.get(3));
    }

    #[test]
    fn what_warms_up_does_not_ask_for_what_is_measured_first() {
        let keys = Keys::new(KeySet::Ycsb, 300, 16, 1).unwrap();
        let queries = Queries::draw(&keys, 5);
        let asked = |thread| -> Vec<&[u8]> {
            (0..20).map(|at| queries.get(queries.first(thread) + at)).collect()
        };
        assert_ne!(asked(0), asked(WARM_UP_THREADS));
        assert_eq!(asked(0), asked(1));
    }
}
