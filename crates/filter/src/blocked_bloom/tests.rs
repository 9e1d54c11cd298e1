//! The model against published figures and its own table; what a block says of itself.

use super::*;
use terrace_base::{Rng, SplitMix64};

/// The model's limit of many keys.
fn limit(bits_per_key: f64, probes: u32) -> f64 {
    fpr_with(1 << 20, (f64::from(1 << 20) * BLOCK_BITS / bits_per_key) as u64, probes)
}

#[test]
fn the_table_of_probes_gives_the_lowest_rate() {
    assert_eq!(probes_for(10.0), 6);
    for fifths in 5..320 {
        let bits = f64::from(fifths) / 5.0;
        let best = (1..=MAX_PROBES).map(|probes| limit(bits, probes)).fold(1.0, f64::min);
        assert!(limit(bits, probes_for(bits)) <= best * 1.001, "{bits} bits");
    }
}

#[test]
fn the_model_agrees_with_published_figures() {
    for (bits, fpr) in [(9.9, 0.01), (22.0, 1e-4), (23.4, 1.0 / 16_000.0)] {
        assert!((limit(bits, probes_for(bits)) / fpr - 1.0).abs() < 0.1, "{bits} bits");
    }
}

#[test]
fn the_model_is_a_probability_for_any_load() {
    for blocks in [1, 2, 3, 1000, u64::from(u32::MAX)] {
        for keys in [1, 100, 600 * blocks, 601 * blocks, u64::MAX] {
            for probes in [1, 2, 16] {
                let rate = fpr_with(blocks, keys, probes);
                assert!((0.0..=1.0).contains(&rate), "{blocks} blocks, {keys} keys: {rate}");
            }
        }
    }
    let (below, above) = (fpr_with(100, 59_999, 1), fpr_with(100, 60_001, 1));
    assert!((below / above - 1.0).abs() < 1e-2, "{below} {above}");
}

#[test]
fn every_block_knows_the_number_of_probes() {
    let mut rng = SplitMix64::new(7);
    let hashes: Vec<u64> = (0..100_000).map(|_| rng.next_u64()).collect();
    for (bits, probes) in [(1.0, 1), (10.0, 6), (23.4, 12), (60.0, 16)] {
        let mut bytes = Vec::new();
        build(&hashes, bits, 2, &mut bytes);
        assert!(blocks(&bytes).iter().all(|block| probes_of(block) == probes), "{bits} bits");
    }
}
