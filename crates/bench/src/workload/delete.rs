//! `deleterandom`: as many deletes as there are keys, of keys drawn with replacement, as db_bench.
//!
//! With uniform draws 63 % of the keys are gone at the end; which are is kept in one bit a key, so
//! that space amplification is over what really lives.

use super::{Bench, Bound};
use crate::store::Store;
use anyhow::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::SplitMix64;
use terrace_workload::distribution::{Distribution, Sampler};
use terrace_workload::keys::KeySpace;
use terrace_workload::phase::{Tally, Worker};

/// Deletes of stored keys, measured to settled.
pub fn deleterandom(bench: &Bench<'_>) -> Result<()> {
    let keys = bench.shape().keys;
    let sampler = bench.sampler(&Distribution::Uniform, keys)?;
    let phase = bench.phase(Bound::ops(keys), 1);
    let deleted: Vec<AtomicU64> = (0..keys.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
    let live_bytes = |_: &_| {
        let gone: u64 =
            deleted.iter().map(|bits| u64::from(bits.load(Ordering::Relaxed).count_ones())).sum();
        (keys - gone) * bench.item_bytes()
    };
    bench.measure_to_settled("deleterandom", phase, keys, live_bytes, |thread| {
        Ok(Deleter {
            store: &*bench.store,
            keys: bench.keys,
            sampler: sampler.clone(),
            rng: bench.rng("deleterandom", thread),
            deleted: &deleted,
            key: Vec::new(),
            tally: Tally::default(),
        })
    })
}

struct Deleter<'a> {
    store: &'a dyn Store,
    keys: KeySpace,
    sampler: Sampler,
    rng: SplitMix64,
    deleted: &'a [AtomicU64],
    key: Vec<u8>,
    tally: Tally,
}

impl Worker for Deleter<'_> {
    fn step(&mut self, _sequence: u64) -> Result<()> {
        let item = self.sampler.item(&mut self.rng);
        self.keys.present(item, &mut self.key);
        self.store.delete(&self.key)?;
        if let Some(bits) = self.deleted.get((item / 64) as usize) {
            bits.fetch_or(1 << (item % 64), Ordering::Relaxed);
        }
        self.tally.user_bytes += self.key.len() as u64;
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
