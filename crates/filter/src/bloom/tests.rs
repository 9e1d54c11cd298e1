//! Size, number of probes, and the rate of the textbook.

use super::*;
use terrace_base::{Rng, SplitMix64};

fn shape_of(keys: u64, bits: f64) -> FilterShape {
    let mut rng = SplitMix64::new(keys);
    let hashes: Vec<u64> = (0..keys).map(|_| rng.next_u64()).collect();
    build(&hashes, bits, 1, &mut Vec::new())
}

#[test]
fn probes_are_as_many_as_the_textbook_says() {
    for (bits, probes) in [(1.0, 1), (4.0, 3), (8.0, 6), (10.0, 7), (16.0, 11), (23.4, 16)] {
        assert_eq!(shape_of(50_000, bits).seed, probes, "{bits} bits");
    }
    assert_eq!(shape_of(1, 10.0).seed, 44);
}

#[test]
fn a_large_filters_model_is_the_textbooks() {
    for bits in [4.0, 8.0, 10.0, 16.0, 23.4] {
        let shape = shape_of(100_000, bits);
        let k = f64::from(shape.seed);
        let textbook = (1.0 - (-k / bits).exp()).powf(k);
        let ratio = expected_fpr(&shape, 1, 100_000) / textbook;
        assert!((0.99..1.01).contains(&ratio), "{bits} bits: {ratio}");
    }
}

#[test]
fn positions_of_the_largest_unit_are_in_it() {
    for hash in [0, 1, u64::MAX, u64::MAX << 32] {
        assert!(positions(u32::MAX as usize, hash, 44).all(|at| at < u32::MAX as usize * 8));
    }
    assert_eq!(positions(0, u64::MAX, 44).max(), Some(0));
}

#[test]
fn probes_of_two_keys_with_equal_upper_halves_part() {
    let (one, other) = (0x1234_5678_0000_0001, 0x1234_5678_8000_0001);
    let mut shared = positions(4096, one, 16).zip(positions(4096, other, 16));
    assert!(shared.next().is_some_and(|(a, b)| a == b));
    assert!(shared.filter(|(a, b)| a == b).count() <= 1);
}
