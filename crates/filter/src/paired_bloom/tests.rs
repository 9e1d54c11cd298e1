//! Batches, pairs, and what pairing is for.

use super::*;
use proptest::prelude::*;
use terrace_base::{Rng, SplitMix64};

fn random_hashes(seed: u64, count: usize) -> Vec<u64> {
    let mut rng = SplitMix64::new(seed);
    (0..count).map(|_| rng.next_u64()).collect()
}

fn filter_of(hashes: &[u64], bits: f64) -> (FilterShape, Vec<u8>) {
    let mut bytes = Vec::new();
    let shape = build(hashes, bits, 1, &mut Scratch::default(), &mut bytes);
    (shape, bytes)
}

/// The pair of every block, as a lookup finds it.
fn pairs_of(blocks: &[Block]) -> Vec<usize> {
    let pair = |(at, block): (usize, &Block)| batch_start(at) + usize::from(block[0]) % BATCH;
    blocks.iter().enumerate().map(pair).collect()
}

#[test]
fn every_block_is_the_pair_of_its_pair() {
    for (keys, count) in [(1, 2), (100, 2), (6_500, 128), (6_600, 130), (20_000, 392)] {
        let (_, bytes) = filter_of(&random_hashes(keys as u64, keys), 10.0);
        let pairs = pairs_of(blocks(&bytes));
        assert_eq!(pairs.len(), count);
        for (at, pair) in pairs.iter().enumerate() {
            assert!(*pair != at && pairs[*pair] == at, "{keys} keys: {at}");
            assert_eq!(batch_start(*pair), batch_start(at));
        }
    }
}

#[test]
fn pairs_are_laden_alike() {
    let hashes = random_hashes(3, 16_000);
    let (_, bytes) = filter_of(&hashes, 23.4);
    let pairs = pairs_of(blocks(&bytes));
    let mut loads = vec![0.0; pairs.len()];
    for hash in &hashes {
        loads[block_number(pairs.len(), *hash)] += 1.0;
    }
    let spread = |loads: &[f64]| {
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        let squares = loads.iter().map(|load| (load - mean).powi(2)).sum::<f64>();
        (squares / loads.len() as f64).sqrt() / mean
    };
    let paired: Vec<f64> = loads.iter().zip(&pairs).map(|(load, at)| load + loads[*at]).collect();
    assert!(spread(&loads) > 0.2, "{}", spread(&loads));
    assert!(spread(&paired) < 0.04, "{}", spread(&paired));
}

#[test]
fn fractions_of_a_bit_count() {
    let hashes = random_hashes(4, 16_000);
    let length = |bits| filter_of(&hashes, bits).1.len() as f64 * 8.0 / 16_000.0;
    for bits in [4.0, 10.5, 23.0, 23.4] {
        assert!((bits..bits + 0.07).contains(&length(bits)), "{bits}: {}", length(bits));
    }
}

#[test]
fn probes_are_as_published_and_the_model_with_them() {
    let (shape, _) = filter_of(&random_hashes(5, 16_000), 23.4);
    assert_eq!(shape.seed, 8);
    assert!(expected_fpr(&shape, 1, 16_000) < 1.0 / 55_000.0);
    assert_eq!(filter_of(&random_hashes(5, 16_000), 10.0).0.seed, 3);
}

#[test]
fn the_model_is_a_probability_for_any_load() {
    for blocks in [2, 4, 126, 128, 130, 254, 256, 736, u64::from(u32::MAX >> 6) - 1] {
        for keys in [1, 100, 10_000, u64::MAX] {
            for half in 1..=MAX_HALF {
                let rate = unit_fpr(blocks, keys, half);
                assert!((0.0..=1.0 + 1e-9).contains(&rate), "{blocks}, {keys}, {half}: {rate}");
            }
        }
    }
}

proptest! {
    /// Numbers in a damaged block lead to some block or to none, never to a panic.
    #[test]
    fn damaged_numbers_are_answered(
        keys in 1usize..3000,
        seed: u64,
        damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..50),
    ) {
        let hashes = random_hashes(seed, keys);
        let (shape, mut bytes) = filter_of(&hashes, 8.0);
        for (at, byte) in damage {
            let count = bytes.len() / BLOCK_BYTES;
            bytes[at % count * BLOCK_BYTES] = byte;
        }
        for hash in hashes {
            may_contain(&shape, &bytes, 1, hash);
        }
    }
}
