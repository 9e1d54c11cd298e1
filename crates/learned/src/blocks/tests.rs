//! Every key is in the block it is said to be in, or right before it; bytes from anywhere are
//! answered.

use super::*;
use crate::NoModel;
use proptest::collection::vec;
use proptest::prelude::*;
use terrace_base::{Rng, SplitMix64};

/// Keys cut into blocks of these sizes, in turns.
fn train(keys: &[Vec<u8>], sizes: &[usize]) -> (BlockTraining, Vec<usize>) {
    let mut builder = BlockModelBuilder::new();
    keys.iter().step_by(SAMPLED_KEYS as usize).for_each(|key| builder.sample(key));
    let (mut at, mut starts) = (0, Vec::new());
    let mut sizes = sizes.iter().cycle();
    while at < keys.len() {
        builder.push(at.checked_sub(1).map_or(&[], |before| &keys[before]), &keys[at]);
        starts.push(at);
        at += sizes.next().copied().unwrap_or(1).max(1);
    }
    (builder.finish(), starts)
}

/// The promise, for keys and others; returns how many keys were not in the block named.
fn check(model: &BlockModel, keys: &[Vec<u8>], starts: &[usize], probes: &[Vec<u8>]) -> usize {
    assert_eq!(model.block_count() as usize, starts.len());
    let mut wrong = 0;
    for (at, probe) in keys.iter().chain(probes).enumerate() {
        let Some(guess) = model.locate(probe) else {
            assert!(model.model().stats().run_count > 0);
            continue;
        };
        // The last block that begins at or below the key.
        let after = starts.partition_point(|start| keys[*start] <= *probe);
        let block = guess.block as usize;
        assert!(block < starts.len() && block + 1 >= after, "{probe:?}: {block}, not {after} - 1");
        if block >= after && block > 0 {
            // Named too early: the key is in the cell of the block's first key.
            let (x, first) = (model.model().project(probe), &keys[starts[block]]);
            assert!(x <= model.model().project(first));
            wrong += usize::from(at < keys.len());
        }
    }
    for (block, start) in (0..).zip(starts) {
        assert!(model.admits_first_key(block, &keys[*start]));
    }
    wrong
}

fn decimals(numbers: impl Iterator<Item = u64>) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = numbers.map(|n| format!("{n:016}").into_bytes()).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn clusters(run: u64) -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(run);
    let mut base = 0;
    decimals((0..60_000u64).map(|at| {
        base += if at.is_multiple_of(run) { 1 + rng.below(1 << 20) } else { 1 };
        base
    }))
}

#[test]
fn keys_of_all_kinds_take_little_and_name_the_block() {
    let mut rng = SplitMix64::new(1);
    let random = decimals((0..60_000).map(|_| rng.below(10_000_000_000_000_000)));
    let normal = decimals((0..60_000).map(|_| (0..12).map(|_| rng.below(1 << 45)).sum()));
    let sets = [
        ("linear", decimals(0..60_000), 1),
        ("random", random, 1),
        ("normal", normal, 1),
        ("gaps after 10", clusters(10), 3),
        ("gaps after 100", clusters(100), 3),
    ];
    for (name, keys, cell_bytes) in sets {
        let (training, starts) = train(&keys, &[45]);
        let bytes = training.model.as_ref().map_err(|why| format!("{name}: {why}")).unwrap();
        let model = BlockModel::decode(bytes).unwrap();
        assert_eq!((model.cell_bytes(), training.cell_bytes), (cell_bytes, cell_bytes), "{name}");
        let wrong = check(&model, &keys, &starts, &[]);
        assert!(wrong * 100 < keys.len(), "{name}: {wrong} keys in the block before");
        let per_block = model.memory_bytes() as f64 / starts.len() as f64;
        assert!(per_block < cell_bytes as f64 + 1.5, "{name}: {per_block} bytes a block");
        assert_eq!(training.stats, *model.model().stats());
        assert!(model.model().segments().count() as u64 == training.stats.segment_count);
    }
}

#[test]
fn within_says_how_far() {
    let keys = decimals((0..60_000).map(|at| at * 7));
    let (training, starts) = train(&keys, &[50]);
    let model = BlockModel::decode(&training.model.unwrap()).unwrap();
    for (at, key) in keys.iter().enumerate().take(59_000) {
        let guess = model.locate(key).unwrap();
        if guess.block as usize != at / 50 {
            continue;
        }
        let want = (at - starts[at / 50]) as f64 / 50.0 * 255.0;
        assert!((f64::from(guess.within) - want).abs() < 6.0, "{at}: {guess:?} for {want}");
    }
}

#[test]
fn what_cannot_be_told_apart_is_refused() {
    assert_eq!(train(&[], &[1]).0.model, Err(NoModel::Empty));
    let same = vec![b"versions".to_vec(); 500];
    assert_eq!(train(&same, &[3]).0.model, Err(NoModel::TooManyTies));
    let late: Vec<Vec<u8>> = (0..4096u32)
        .map(|at| [vec![(at / 16) as u8; 9], at.to_be_bytes().to_vec()].concat())
        .collect();
    assert!(train(&late, &[7]).0.model.is_err());
    let mut builder = BlockModelBuilder::new();
    builder.push(b"", b"b");
    builder.push(b"a", b"c");
    assert_eq!(builder.finish().model, Err(NoModel::OutOfOrder));
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), Just(b'0'), Just(b'9'), Just(255), any::<u8>()]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (prop_oneof![Just(""), Just("table/")], vec(byte(), 0..14))
            .prop_map(|(front, back)| [front.as_bytes(), &back].concat()),
        4 => (0u32..64, any::<u64>()).prop_map(|(shift, x)| (x >> shift).to_be_bytes().to_vec()),
        4 => any::<u16>().prop_map(|x| format!("{x}").into_bytes()),
        1 => (vec(byte(), 0..3), 200usize..400).prop_map(|(back, len)| [vec![b'z'; len], back].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_block_is_the_one_or_the_one_after(
        mut keys in vec(key(), 1..300), probes in vec(key(), 0..50),
        sizes in vec(1usize..9, 1..4), repeats in 0usize..30,
    ) {
        keys.extend_from_within(..repeats.min(keys.len()));
        keys.sort();
        let (training, starts) = train(&keys, &sizes);
        if let Ok(bytes) = training.model {
            check(&BlockModel::decode(&bytes).unwrap(), &keys, &starts, &probes);
        }
    }

    #[test]
    fn damaged_block_models_never_panic(
        shift in 0u32..60, numbers in vec(any::<u64>(), 1..200), cut: usize,
        damage in vec((any::<usize>(), any::<u8>()), 1..5), probes in vec(key(), 1..20),
    ) {
        let mut keys: Vec<Vec<u8>> =
            numbers.iter().map(|x| (x >> shift).to_be_bytes().to_vec()).collect();
        keys.sort();
        let mut bytes = train(&keys, &[2]).0.model.unwrap_or_default();
        prop_assume!(!bytes.is_empty());
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(if cut % 3 == 0 { cut % bytes.len() } else { bytes.len() });
        if let Ok(model) = BlockModel::decode(&bytes) {
            for probe in keys.iter().chain(&probes) {
                if let Some(guess) = model.locate(probe) {
                    prop_assert!(guess.block < model.block_count());
                }
            }
            for x in [0, 1, u64::MAX / 2, u64::MAX] {
                model.locate_number(x);
            }
            prop_assert!(model.model().segments().all(|s| s.from.0 <= s.to.0));
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>, probe: Vec<u8>) {
        for bytes in [bytes.clone(), [&[1, 1], &bytes[..]].concat()] {
            if let Ok(model) = BlockModel::decode(&bytes) {
                model.locate(&probe);
            }
        }
    }
}
