//! The keys that come most in a stream of which every operation is seen: Space-Saving counters, and a
//! count sketch that decides who gets one.
//!
//! ```text
//! key -> has a counter? -- yes --> counted there, exactly                          O(1)
//!              \-- no --> CountSketch -> estimate > least counter? -- yes --> takes it over
//! ```
//! With counters alone every key takes one over, and at a moderate skew (Zipf 0.9) most of them hold keys that came once: see the
//! design of the sketch in front in Roy, Khan, Alonso: "Augmented Sketch" (SIGMOD 2016), where, too, keys with a
//! counter are not in the sketch, so that it is not filled by the heavy ones. What was counted of a key that loses its counter goes
//! into the sketch.

use crate::count_sketch::CountSketch;
use crate::stream_summary::StreamSummary;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Longer keys are counted in the sums only.
const MAX_KEY_BYTES: usize = 512;

/// A key that comes often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeavyKey {
    /// The key.
    pub key: Vec<u8>,
    /// About how often it came.
    pub count: u64,
    /// So much of `count` was estimated: it came at least `count - error` times.
    pub error: u64,
    /// Average bytes of its operations.
    pub bytes: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct HeavyKeys {
    summary: StreamSummary,
    sketch: CountSketch,
    seed: u64,
    operations: u64,
    bytes: u64,
}

impl HeavyKeys {
    /// With counters for `keys` keys, at least 1. Memory: 256 KiB and keys × 700 bytes, at most, whatever
    /// comes. `seed` is that of the hashes: with one that others do not know, nobody can choose keys that
    /// collide.
    pub fn new(keys: usize, seed: u64) -> Self {
        let (summary, sketch) = (StreamSummary::new(keys), CountSketch::new());
        Self { summary, sketch, seed, operations: 0, bytes: 0 }
    }

    /// A key came, in an operation of `bytes` bytes. Cost: one hash and O(1).
    pub fn observe(&mut self, key: &[u8], bytes: u64) {
        self.operations += 1;
        self.bytes += bytes;
        if key.len() > MAX_KEY_BYTES {
            return;
        }
        let hash = xxh3_64_with_seed(key, self.seed);
        if let Some(slot) = self.summary.find(hash, key) {
            return self.summary.increment(slot, bytes);
        }
        if !self.summary.is_full() {
            return self.summary.insert(key, hash, 1, 0, bytes);
        }
        self.sketch.add(hash, 1);
        let estimate = self.sketch.estimate(hash);
        if estimate > self.summary.least_count() {
            // All of it is in the sketch.
            let size = bytes.saturating_mul(u64::from(estimate));
            let gone = self.summary.replace_least(key, hash, estimate, estimate, size);
            if let Some((hash, counted)) = gone {
                self.sketch.add(hash, counted);
            }
        }
    }

    /// The `n` keys with the largest counts, largest first; of equal ones those that are more certain,
    /// then in order of keys. Cost: O(k log k).
    pub fn top(&self, n: usize) -> Vec<HeavyKey> {
        let mut all: Vec<_> = self.summary.iter().collect();
        all.sort_unstable_by(|(a, a_count), (b, b_count)| {
            let order = b_count.cmp(a_count).then(a.estimated.cmp(&b.estimated));
            order.then_with(|| a.key.cmp(&b.key))
        });
        let heavy = all.into_iter().take(n).map(|(counter, count)| HeavyKey {
            key: counter.key.to_vec(),
            count: u64::from(count),
            error: u64::from(counter.estimated),
            bytes: counter.bytes / u64::from(count.max(1)),
        });
        heavy.collect()
    }

    /// All operations, halved as the counts are.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Bytes of all operations, halved as the counts are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Halves everything: called in equal intervals, counts are exponential averages with that half-life, and
    /// a key that has cooled loses its counter to others. Cost: O(k log k), and the sketch once.
    pub fn age(&mut self) {
        self.summary.halve();
        self.sketch.halve();
        self.operations /= 2;
        self.bytes /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Numbers from 0 to `keys` that come as Zipf's law says.
    struct Zipf {
        sums: Vec<f64>,
        state: u64,
    }

    impl Zipf {
        fn new(keys: usize, exponent: f64, seed: u64) -> Self {
            let mut sum = 0.0;
            let mut next = |rank: usize| {
                sum += (rank as f64).powf(-exponent);
                sum
            };
            Self { sums: (1..=keys).map(&mut next).collect(), state: seed }
        }

        fn draw(&mut self) -> u32 {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let unit = (self.state >> 11) as f64 / (1u64 << 53) as f64;
            let at = unit * self.sums.last().unwrap();
            let rank = self.sums.partition_point(|sum| *sum < at) as u32;
            // Not in the order of heat.
            rank.wrapping_mul(2_654_435_761)
        }
    }

    /// The share of all operations that those of the 1,000 found keys are, and of the truly heaviest.
    fn shares(exponent: f64, seed: u64, age_every: usize) -> (f64, f64) {
        const OPERATIONS: usize = 2_000_000;
        let mut zipf = Zipf::new(1_000_000, exponent, seed);
        let mut heavy = HeavyKeys::new(1_000, seed);
        let mut exact: HashMap<u32, u64> = HashMap::new();
        for number in 0..OPERATIONS {
            let key = zipf.draw();
            *exact.entry(key).or_default() += 1;
            heavy.observe(&key.to_le_bytes(), 4096);
            if age_every > 0 && number % age_every == age_every - 1 {
                heavy.age();
            }
        }
        let mut counts: Vec<u64> = exact.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let best: u64 = counts.iter().take(1_000).sum();
        let found: u64 = heavy
            .top(1_000)
            .iter()
            .map(|key| exact[&u32::from_le_bytes(key.key[..].try_into().unwrap())])
            .sum();
        (found as f64 / OPERATIONS as f64, best as f64 / OPERATIONS as f64)
    }

    #[test]
    fn the_share_of_the_found_keys_is_within_5_percent_of_exact_counting() {
        for exponent in [0.9, 1.1] {
            for (seed, age_every) in [(1, 0), (2, 250_000)] {
                let (found, best) = shares(exponent, seed, age_every);
                println!("zipf {exponent} seed {seed} age {age_every}: {found:.4} of {best:.4}");
                assert!(found >= best * 0.95, "zipf {exponent}: {found} of {best}");
            }
        }
    }

    #[test]
    fn counts_are_near_the_truth_and_errors_bound_what_is_certain() {
        let mut zipf = Zipf::new(100_000, 1.0, 7);
        let mut heavy = HeavyKeys::new(200, 7);
        let mut exact: HashMap<u32, u64> = HashMap::new();
        for _ in 0..500_000 {
            let key = zipf.draw();
            *exact.entry(key).or_default() += 1;
            heavy.observe(&key.to_le_bytes(), 100);
        }
        for found in heavy.top(100) {
            let truth = exact[&u32::from_le_bytes(found.key[..].try_into().unwrap())];
            assert!(found.count - found.error <= truth, "{found:?} {truth}");
            assert!(found.count.abs_diff(truth) <= truth / 4 + 50, "{found:?} {truth}");
            assert_eq!(found.bytes, 100);
        }
        assert_eq!((heavy.operations(), heavy.bytes()), (500_000, 50_000_000));
    }

    #[test]
    fn a_key_that_cools_leaves_and_a_new_one_comes() {
        let mut heavy = HeavyKeys::new(4, 0);
        let feed = |heavy: &mut HeavyKeys, names: [&[u8]; 4]| {
            for round in 0..4_000_u32 {
                heavy.observe(names[round as usize % 4], 1);
                heavy.observe(&(round + (1 << 20)).to_le_bytes(), 1);
            }
            heavy.age();
        };
        feed(&mut heavy, [b"a", b"b", b"c", b"d"]);
        let names = |heavy: &HeavyKeys| {
            let mut names: Vec<_> = heavy.top(4).into_iter().map(|key| key.key).collect();
            names.sort();
            names
        };
        assert_eq!(names(&heavy), [b"a", b"b", b"c", b"d"]);
        for _ in 0..4 {
            feed(&mut heavy, [b"a", b"b", b"x", b"y"]);
        }
        assert_eq!(names(&heavy), [b"a", b"b", b"x", b"y"]);
    }

    #[test]
    fn memory_is_bounded_by_the_length_of_keys() {
        let mut heavy = HeavyKeys::new(1_000, 0);
        heavy.observe(&[0; MAX_KEY_BYTES + 1], 1);
        assert!(heavy.top(1).is_empty());
        // A counter with its key, its places in the index (at most half full) and its bucket.
        let counter = size_of::<crate::stream_summary::Counter>() + MAX_KEY_BYTES + 4 * 4 + 24;
        assert!((256 << 10) + 1_000 * counter <= 1 << 20);
    }
}
