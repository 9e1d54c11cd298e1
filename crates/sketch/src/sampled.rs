//! A sample of a stream of operations, cheap enough for every operation of a hot loop.

use crate::top_keys::{Hot, TopKeys};

/// The rarest sample: twice as long gaps are still far from the end of an integer.
const MOST_ONE_IN: u32 = 1 << 24;

/// [`TopKeys`] of one in so many operations, each of which stands for that many.
///
/// Gaps between samples are random, so that a stream with a period is not seen through a comb. The
/// guarantees of [`TopKeys`] hold for the sample; for the stream a count is an unbiased estimate
/// with a standard deviation of about sqrt(count × one_in).
#[derive(Debug, Clone)]
pub struct SampledKeys {
    left: u32,
    one_in: u32,
    random: u64,
    keys: TopKeys,
}

impl SampledKeys {
    /// Observes one of `one_in` operations (1: all of them; at most 2^24). `seed` decides which.
    pub fn new(keys: TopKeys, one_in: u32, seed: u64) -> Self {
        let mut sampled =
            Self { left: 1, one_in: one_in.clamp(1, MOST_ONE_IN), random: seed, keys };
        sampled.left = sampled.gap();
        sampled
    }

    /// `key` was asked for. Cost: a decrement and a branch, and [`TopKeys::observe`] now and then.
    #[inline]
    pub fn observe(&mut self, key: &[u8]) {
        if self.is_due() {
            self.keys.observe(key, u64::from(self.one_in));
        }
    }

    /// Whether this operation is one of the sample: for callers to whom finding the key costs
    /// something. It counts as an operation; give its key to [`Self::observe_due`].
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0 && self.is_due_now()
    }

    #[cold]
    #[inline(never)]
    fn is_due_now(&mut self) -> bool {
        self.left = self.gap();
        true
    }

    /// The key of an operation for which [`Self::is_due`] was true.
    pub fn observe_due(&mut self, key: &[u8]) {
        self.keys.observe(key, u64::from(self.one_in));
    }

    /// Operations until the next sample: 1 to 2 × one_in - 1, all alike likely.
    fn gap(&mut self) -> u32 {
        // Splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let gaps = u64::from(self.one_in) * 2 - 1;
        // Both factors are below 2^32, so the upper half of the product is below `gaps`.
        1 + (((bits >> 32) * gaps) >> 32) as u32
    }

    /// The `n` keys that were asked for most, with estimates of how often.
    pub fn top(&self, n: usize) -> Vec<Hot> {
        self.keys.top(n)
    }

    /// See [`TopKeys::age`].
    pub fn age(&mut self) {
        self.keys.age();
    }

    /// The sample.
    pub fn keys(&self) -> &TopKeys {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_near_the_truth() {
        let mut sampled = SampledKeys::new(TopKeys::new(32, 8), 64, 7);
        for n in 0..2_000_000u32 {
            // One key in four, in a rhythm that a fixed gap of 64 would always or never meet.
            let key = if n % 4 == 0 { u32::MAX } else { n % 1024 };
            sampled.observe(&key.to_be_bytes());
        }
        let top = &sampled.top(1)[0];
        assert_eq!(top.key, u32::MAX.to_be_bytes());
        assert!((450_000..550_000).contains(&top.count), "{}", top.count);
        assert!((1_900_000..2_100_000).contains(&sampled.keys().total()));
        sampled.age();
        assert!((225_000..275_000).contains(&sampled.top(1)[0].count));
    }

    #[test]
    fn one_in_one_is_everything() {
        assert_eq!(SampledKeys::new(TopKeys::new(1, 1), u32::MAX, 1).one_in, MOST_ONE_IN);
        for one_in in [0, 1] {
            let mut sampled = SampledKeys::new(TopKeys::new(4, 8), one_in, 1);
            (0..1000).for_each(|_| sampled.observe(b"k"));
            assert_eq!(sampled.top(1)[0].count, 1000);
        }
    }

    #[test]
    fn gaps_keep_their_mean_and_range() {
        for one_in in [2u32, 3, 100, MOST_ONE_IN] {
            let mut sampled = SampledKeys::new(TopKeys::new(1, 8), one_in, 3);
            let gaps: Vec<_> = (0..100_000).map(|_| sampled.gap()).collect();
            assert!(gaps.iter().all(|gap| *gap >= 1 && u64::from(*gap) < 2 * u64::from(one_in)));
            let mean = gaps.iter().map(|gap| f64::from(*gap)).sum::<f64>() / 100_000.0;
            let off = (mean / f64::from(one_in) - 1.0).abs();
            assert!(off < 0.02, "{one_in} {mean}");
        }
    }

    #[test]
    fn due_operations_are_those_observed() {
        let mut a = SampledKeys::new(TopKeys::new(4, 8), 10, 5);
        let mut b = a.clone();
        for _ in 0..10_000 {
            a.observe(b"k");
            if b.is_due() {
                b.observe_due(b"k");
            }
        }
        assert_eq!(a.top(4), b.top(4));
        assert!(a.top(1)[0].count > 8_000);
    }
}
