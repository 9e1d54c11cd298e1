//! No key is ever missed, whatever is loaded; bytes and shapes from anywhere are answered.

use crate::{filter_of, policy, random_hashes};
use proptest::prelude::*;
use terrace_base::checksum::hash_key;
use terrace_filter::{FilterBuilder, FilterKind, FilterPolicy, FilterShape, MAX_UNITS};

fn policies() -> impl Strategy<Value = FilterPolicy> {
    let bloom = (0..3, 1.0..24.0f64, 1u8..6).prop_map(|(kind, bits_per_unit, units)| match kind {
        0 => FilterPolicy::Bloom { bits_per_unit, units },
        1 => FilterPolicy::BlockedBloom { bits_per_unit, units },
        _ => FilterPolicy::PairedBloom { bits_per_unit, units },
    });
    let ribbon = (2u8..=24).prop_map(|columns| FilterPolicy::Ribbon { columns });
    prop_oneof![3 => bloom, 1 => ribbon]
}

fn kinds() -> impl Strategy<Value = FilterKind> {
    prop_oneof![
        Just(FilterKind::Bloom),
        Just(FilterKind::BlockedBloom),
        Just(FilterKind::PairedBloom),
        Just(FilterKind::Ribbon),
    ]
}

/// Lengths that filters have, and lengths that they have not.
fn lengths() -> impl Strategy<Value = u32> {
    prop_oneof![(0u32..8).prop_map(|blocks| blocks * 64), 0u32..300, any::<u32>()]
}

/// Bytes are read by versions to come: a kind whose bytes change is another kind.
#[test]
fn bytes_are_what_they_were() {
    for (text, seed, digest) in [
        ("blocked:10", 0, 0xa2eb_aac5_39c2_13c0),
        ("blocked:23.4x3", 0, 0x3c7a_d497_8866_f629),
        ("bloom:10", 7, 0x9003_6c47_a876_88be),
        ("bloom:4x6", 3, 0x370c_ff9c_3850_09dd),
        ("paired:4x6", 1, 0x9474_4cb1_7e11_fbf1),
        ("paired:23.4", 8, 0xa438_6e2e_cb15_3a46),
    ] {
        let (shape, bytes) = filter_of(policy(text), &random_hashes(1, 4_000));
        assert_eq!((shape.seed, hash_key(&bytes)), (seed, digest), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_key_is_found_in_every_prefix_of_the_units(
        policy in policies(),
        seed: u64,
        count in prop_oneof![1usize..100, 1usize..5000],
        repeats in 0usize..50,
        before in proptest::collection::vec(any::<u8>(), 0..5),
    ) {
        let mut hashes = random_hashes(seed, count);
        hashes.extend_from_within(..repeats.min(count));
        let mut out = before.clone();
        let shape = FilterBuilder::new(policy).build(&hashes, &mut out);
        let (front, bytes) = out.split_at(before.len());
        prop_assert_eq!(front, &before[..]);
        prop_assert!(shape.is_sound(), "{:?}", shape);
        prop_assert_eq!(bytes.len(), shape.prefix_bytes(shape.unit_count));
        prop_assert!(bytes.len().is_multiple_of(8));
        let mut rate = 1.0;
        for units in 0..=shape.unit_count {
            let loaded = &bytes[..shape.prefix_bytes(units)];
            for hash in &hashes {
                shape.prefetch(loaded, *hash);
                prop_assert!(shape.may_contain(loaded, units, *hash), "{} units", units);
            }
            let expected = shape.expected_fpr(units, hashes.len() as u64);
            prop_assert!((0.0..=rate).contains(&expected), "{} units: {}", units, expected);
            rate = expected;
        }
    }

    #[test]
    fn a_builder_keeps_nothing_of_the_filter_before(
        policy in policies(),
        seed: u64,
        first in 1usize..2000,
        second in 1usize..2000,
    ) {
        let mut builder = FilterBuilder::new(policy);
        builder.build(&random_hashes(seed, first), &mut Vec::new());
        let hashes = random_hashes(!seed, second);
        let mut bytes = Vec::new();
        let shape = builder.build(&hashes, &mut bytes);
        prop_assert_eq!((shape, bytes), filter_of(policy, &hashes));
    }

    #[test]
    fn any_bytes_with_any_shape_are_answered(
        kind in kinds(),
        unit_count: u8,
        seed: u8,
        first_unit_bytes in lengths(),
        unit_bytes in lengths(),
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        units: u8,
        key_count: u64,
        hashes in proptest::collection::vec(any::<u64>(), 20),
    ) {
        let shape = FilterShape { kind, unit_count, seed, first_unit_bytes, unit_bytes };
        let fitting = &bytes[..shape.prefix_bytes(units).min(bytes.len())];
        for hash in hashes {
            for loaded in [&bytes[..], fitting] {
                shape.prefetch(loaded, hash);
                let answer = shape.may_contain(loaded, units, hash);
                prop_assert!(answer || loaded.len() == shape.prefix_bytes(units));
            }
        }
        // Of unsound shapes nothing is asked but may_contain, where a lookup raced with damage.
        if shape.is_sound() {
            let rate = shape.expected_fpr(units, key_count);
            prop_assert!((0.0..=1.0 + 1e-9).contains(&rate), "{}", rate);
        }
        prop_assert!(!shape.is_sound() || (1..=MAX_UNITS).contains(&unit_count));
    }

    #[test]
    fn damaged_and_shortened_filters_are_answered(
        policy in policies(),
        seed: u64,
        damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..20),
        cut in 1usize..200,
    ) {
        let hashes = random_hashes(seed, 500);
        let (shape, mut bytes) = filter_of(policy, &hashes);
        let short = &bytes[..bytes.len() - cut.min(bytes.len())];
        prop_assert!(hashes.iter().all(|hash| shape.may_contain(short, shape.unit_count, !hash)));
        let length = bytes.len();
        for (at, byte) in damage {
            bytes[at % length] ^= byte;
        }
        for hash in hashes {
            shape.may_contain(&bytes, shape.unit_count, hash);
        }
    }
}
