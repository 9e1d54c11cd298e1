//! False positives are as many as the models say, in partitions of every size, and units are
//! independent of each other.

use crate::{filter_of, policy, random_hashes};
use terrace_base::{Rng, SplitMix64};
use terrace_filter::FilterPolicy;

/// False positives of each number of units, from 0 on, and the model for it, over lookups spread
/// over several partitions.
struct Measured {
    policy: FilterPolicy,
    lookups: u64,
    passed: Vec<u64>,
    expected: Vec<f64>,
}

fn measure(policy: FilterPolicy, keys: usize, partitions: u64, lookups: u64) -> Measured {
    let mut rng = SplitMix64::new(0xfa15e);
    let mut measured = Measured { policy, lookups, passed: Vec::new(), expected: Vec::new() };
    for partition in 0..partitions {
        let (shape, bytes) = filter_of(policy, &random_hashes(partition, keys));
        let levels = usize::from(shape.unit_count) + 1;
        measured.passed.resize(levels, 0);
        measured.expected =
            (0..=shape.unit_count).map(|units| shape.expected_fpr(units, keys as u64)).collect();
        for _ in 0..lookups / partitions {
            let hash = rng.next_u64();
            for (units, passed) in (0..=shape.unit_count).zip(&mut measured.passed) {
                if !shape.may_contain(&bytes[..shape.prefix_bytes(units)], units, hash) {
                    break;
                }
                *passed += 1;
            }
        }
    }
    measured
}

impl Measured {
    fn rate(&self, units: usize) -> f64 {
        self.passed[units] as f64 / self.lookups as f64
    }

    fn last(&self) -> usize {
        self.passed.len() - 1
    }

    /// Holds the rate of this many units to the model, allowing four standard deviations of the
    /// count besides `tolerance`.
    fn check(&self, units: usize, tolerance: f64) {
        let expected = self.expected[units];
        let chance = 4.0 / (expected * self.lookups as f64).sqrt();
        let ratio = self.rate(units) / expected;
        assert!(
            (ratio - 1.0).abs() < tolerance + chance,
            "{} units of {}: {:.3e}, {ratio:.3} of the model",
            units,
            self.policy,
            self.rate(units)
        );
    }
}

#[test]
fn rates_are_the_models_at_every_size() {
    for kind in ["bloom", "blocked", "paired"] {
        for (bits, lookups) in [
            ("4", 200_000),
            ("8", 500_000),
            ("10", 1_000_000),
            ("16", 2_000_000),
            ("23.4", 3_000_000),
        ] {
            for (keys, partitions) in [(100, 200), (1_400, 40), (16_000, 10)] {
                let policy = policy(&format!("{kind}:{bits}"));
                measure(policy, keys, partitions, lookups).check(1, 0.05);
            }
        }
    }
}

/// The published rate of paired Bloom filters, 1 in 55,000 at 23.4 bits, with room for chance.
#[test]
fn paired_blocks_reach_the_published_rate() {
    let measured = measure(policy("paired:23.4"), 16_000, 10, 10_000_000);
    measured.check(1, 0.05);
    assert!(measured.expected[1] < 1.0 / 58_000.0, "{:.3e}", measured.expected[1]);
    assert!(measured.passed[1] < 240, "{} of {}", measured.passed[1], measured.lookups);
}

#[test]
fn a_ribbons_columns_halve_the_rate_each() {
    for keys in [500, 16_000] {
        let measured = measure(policy("ribbon:16"), keys, 4, 2_000_000);
        for units in 1..=measured.last() {
            measured.check(units, 0.02);
        }
    }
}

/// Had lookups that pass one unit a better chance with the next, its share would rise.
#[test]
fn each_unit_stops_the_same_share_of_what_those_before_let_through() {
    for text in ["bloom:4x6", "blocked:4x6", "paired:4x6", "bloom:2x4", "blocked:8x3", "paired:8x3"]
    {
        let measured = measure(policy(text), 4_000, 20, 1_000_000);
        for units in 1..=measured.last() {
            measured.check(units, 0.03);
            let share = measured.passed[units] as f64 / measured.passed[units - 1] as f64;
            let chance = 4.0 / (measured.passed[units] as f64).sqrt();
            let ratio = share / measured.expected[1];
            assert!((ratio - 1.0).abs() < 0.03 + chance, "{text}: unit {units}: {ratio:.3}");
        }
    }
}

/// Separability: n units of b/n bits stop as much as one filter of b bits.
#[test]
fn units_together_are_as_good_as_one_filter() {
    // Above 1: units take whole numbers of probes, even ones when paired. Below: a key's blocks are
    // not full in all units.
    for (units, one, range) in [
        ("bloom:4x4", "bloom:16", 0.90..1.12),
        ("bloom:8x2", "bloom:16", 0.90..1.12),
        ("blocked:4x4", "blocked:16", 0.45..1.00),
        ("blocked:8x2", "blocked:16", 0.60..1.00),
        ("paired:4x4", "paired:16", 0.85..1.35),
        ("paired:8x2", "paired:16", 0.85..1.15),
    ] {
        let split = measure(policy(units), 8_000, 20, 3_000_000);
        let whole = measure(policy(one), 8_000, 20, 3_000_000);
        let ratio = split.rate(split.last()) / whole.rate(1);
        assert!(range.contains(&ratio), "{units} lets through {ratio:.3} times what {one} does");
    }
}
