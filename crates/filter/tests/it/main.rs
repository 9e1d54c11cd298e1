//! Every kind of filter through the public interface: what must hold for all of them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod properties;
mod rates;

use terrace_base::{Rng, SplitMix64};
use terrace_filter::{FilterBuilder, FilterPolicy, FilterShape};

fn policy(text: &str) -> FilterPolicy {
    text.parse().unwrap()
}

fn random_hashes(seed: u64, count: usize) -> Vec<u64> {
    let mut rng = SplitMix64::new(seed);
    (0..count).map(|_| rng.next_u64()).collect()
}

fn filter_of(policy: FilterPolicy, hashes: &[u64]) -> (FilterShape, Vec<u8>) {
    let mut bytes = Vec::new();
    let shape = FilterBuilder::new(policy).build(hashes, &mut bytes);
    (shape, bytes)
}
