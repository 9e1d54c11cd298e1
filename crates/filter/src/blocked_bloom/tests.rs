//! No false negatives, false positives as the model says, SIMD as scalar, damage harmless.

use super::*;
use proptest::prelude::*;
use terrace_base::checksum::hash_key;
use terrace_base::{Rng, SplitMix64};

fn filter_of(hashes: &[u64], bits_per_key: f64) -> Vec<u8> {
    let mut bytes = Vec::new();
    build(hashes, bits_per_key, &mut bytes);
    bytes
}

fn random_hashes(seed: u64, count: usize) -> Vec<u64> {
    let mut rng = SplitMix64::new(seed);
    (0..count).map(|_| rng.next_u64()).collect()
}

/// False positives in `queries` lookups of random hashes.
fn false_positives(bytes: &[u8], queries: u64) -> u64 {
    let mut rng = SplitMix64::new(0xfa15e);
    (0..queries).filter(|_| may_contain(bytes, rng.next_u64())).count() as u64
}

#[test]
fn false_positives_are_as_many_as_the_model_says() {
    for (bits, queries) in [
        (4.0, 1_000_000),
        (8.0, 2_000_000),
        (10.0, 2_000_000),
        (16.0, 6_000_000),
        (23.4, 30_000_000),
    ] {
        let bytes = filter_of(&random_hashes(7, 100_000), bits);
        let measured = false_positives(&bytes, queries) as f64 / queries as f64;
        let ratio = measured / theoretical_fpr(bits);
        let band = if bits < 16.0 { 0.95..1.05 } else { 0.9..1.1 };
        assert!(band.contains(&ratio), "{bits} bits: {measured:.3e}, {ratio:.3} of the model");
    }
}

#[test]
fn partitions_of_hashed_sequential_keys_are_no_worse() {
    let mut found = 0;
    for partition in 0..200u64 {
        let key = |n: u64| hash_key(format!("user{:012}", partition * 10_000 + n).as_bytes());
        let hashes: Vec<u64> = (0..3_276).map(key).collect();
        let bytes = filter_of(&hashes, 10.0);
        assert_eq!(bytes.len(), 4096);
        found += (5_000..10_000).filter(|n| may_contain(&bytes, key(*n))).count();
    }
    let ratio = found as f64 / 1_000_000.0 / theoretical_fpr(10.0);
    assert!((0.95..1.05).contains(&ratio), "{ratio:.3} of the model");
}

#[test]
fn the_table_of_probes_gives_the_lowest_rate() {
    assert_eq!(probes_for(10.0), 6);
    for tenths in 10..640 {
        let bits = f64::from(tenths) / 10.0;
        let best = (1..=MAX_PROBES).map(|probes| fpr_with(bits, probes)).fold(1.0, f64::min);
        assert!(theoretical_fpr(bits) <= best * 1.001, "{bits} bits");
    }
}

#[test]
fn the_model_agrees_with_published_figures() {
    let about = |bits, fpr: f64| (theoretical_fpr(bits) / fpr - 1.0).abs() < 0.1;
    assert!(about(9.9, 0.01) && about(22.0, 1e-4) && about(23.4, 1.0 / 16_000.0));
    assert!(theoretical_fpr(f64::NAN) < 1.0 && theoretical_fpr(-3.0) == theoretical_fpr(1.0));
}

#[test]
fn nothing_built_is_nothing_found() {
    let bytes = filter_of(&[], 10.0);
    assert_eq!(bytes.len(), BLOCK_BYTES);
    assert_eq!(false_positives(&bytes, 1_000), 0);
}

#[test]
fn bytes_of_an_impossible_length_may_contain_everything() {
    for length in [0, 1, 63, 65, 100, 4095] {
        for hash in random_hashes(1, 100) {
            assert!(may_contain(&vec![0; length], hash));
            prefetch(&vec![0; length], hash);
        }
    }
}

proptest! {
    #[test]
    fn every_key_is_found(
        hashes in proptest::collection::vec(any::<u64>(), 0..300),
        bits in prop_oneof![1.0..40.0, Just(0.0), Just(f64::NAN), Just(1e9)],
        before in proptest::collection::vec(any::<u8>(), 0..5),
    ) {
        let mut out = before.clone();
        build(&hashes, bits, &mut out);
        let (front, bytes) = out.split_at(before.len());
        prop_assert_eq!(front, &before[..]);
        prop_assert!(!bytes.is_empty() && bytes.len().is_multiple_of(BLOCK_BYTES));
        for hash in hashes {
            prefetch(bytes, hash);
            prop_assert!(may_contain(bytes, hash));
        }
    }

    #[test]
    fn simd_answers_as_scalar_on_any_block(
        seed: u64,
        density in 0u32..=100,
        probes in 1..=MAX_PROBES,
        hashes in proptest::collection::vec(any::<u32>(), 64),
    ) {
        let mut rng = SplitMix64::new(seed);
        let mut block = [0; BLOCK_BYTES];
        for at in 0..512 {
            block[at / 8] |= u8::from(rng.below(100) < u64::from(density)) << (at % 8);
        }
        // Half of the keys are set but for one bit somewhere.
        for (at, hash) in hashes.iter().enumerate() {
            if at % 2 == 0 {
                set(&mut block, *hash, probes);
                block[rng.below(64) as usize] &= !(1 << rng.below(8));
            }
        }
        for hash in hashes {
            let scalar = covers_scalar(&block, hash, probes);
            prop_assert_eq!(machine::covers(&block, hash, probes).unwrap_or(scalar), scalar);
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300), hash: u64) {
        prefetch(&bytes, hash);
        let answer = may_contain(&bytes, hash);
        prop_assert!(answer || (!bytes.is_empty() && bytes.len().is_multiple_of(BLOCK_BYTES)));
    }
}
