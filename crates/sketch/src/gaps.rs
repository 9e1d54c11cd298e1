//! Which operations of a stream are looked at, so that the hot loop only counts down.

use std::sync::atomic::{AtomicU64, Ordering};

/// The rarest sample: twice as long gaps are still far from the end of an integer.
const MAX_ONE_IN: u32 = 1 << 24;

/// Random gaps between the samples of a stream, so that one with a period is not seen through a
/// comb.
///
/// One operation is looked at after each gap. With weight [`Self::one_in`] for each of these, what
/// is counted of a key is an unbiased estimate of how often it came, with a standard deviation of
/// about sqrt(count × one_in). Threads may draw from the same gaps.
#[derive(Debug)]
pub struct Gaps {
    one_in: u32,
    random: AtomicU64,
}

impl Gaps {
    /// Gaps of `one_in` operations in the mean (1: every operation is looked at; at most 2^24).
    /// `seed` decides which: nobody whose operations are sampled should know it.
    pub fn new(one_in: u32, seed: u64) -> Self {
        Self { one_in: one_in.clamp(1, MAX_ONE_IN), random: AtomicU64::new(seed) }
    }

    /// For how many operations a sample stands.
    pub fn one_in(&self) -> u32 {
        self.one_in
    }

    /// Draws a gap: the operation of this number from now on is the next to look at. 1 to
    /// 2 × one_in - 1, all alike likely.
    pub fn draw(&self) -> u32 {
        // Splitmix64 (Steele, Lea, Flood, OOPSLA 2014), whose state only counts.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.random.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let gaps = u64::from(self.one_in) * 2 - 1;
        // Both factors are below 2^32, so the upper half of the product is below `gaps`.
        1 + (((bits >> 32) * gaps) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopKeys;

    #[test]
    fn estimates_are_near_the_truth() {
        let (mut keys, gaps) = (TopKeys::new(32, 8, 0), Gaps::new(64, 7));
        let mut left = gaps.draw();
        for n in 0..2_000_000u32 {
            left -= 1;
            if left == 0 {
                left = gaps.draw();
                // One key in four, in a rhythm that a fixed gap of 64 would always or never meet.
                let key = if n % 4 == 0 { u32::MAX } else { n % 1024 };
                keys.observe(&key.to_be_bytes(), u64::from(gaps.one_in()));
            }
        }
        let top = &keys.top(1)[0];
        assert_eq!(top.key, u32::MAX.to_be_bytes());
        assert!((450_000..550_000).contains(&top.count), "{}", top.count);
    }

    #[test]
    fn gaps_keep_their_mean_and_range() {
        for one_in in [2u32, 3, 100, MAX_ONE_IN] {
            let gaps = Gaps::new(one_in, 3);
            let drawn: Vec<_> = (0..100_000).map(|_| gaps.draw()).collect();
            assert!(drawn.iter().all(|gap| *gap >= 1 && u64::from(*gap) < 2 * u64::from(one_in)));
            let mean = drawn.iter().map(|gap| f64::from(*gap)).sum::<f64>() / 100_000.0;
            let off = (mean / f64::from(one_in) - 1.0).abs();
            assert!(off < 0.02, "{one_in} {mean}");
        }
    }

    #[test]
    fn one_in_one_is_everything() {
        assert_eq!(Gaps::new(u32::MAX, 1).one_in(), MAX_ONE_IN);
        for one_in in [0, 1] {
            let gaps = Gaps::new(one_in, 1);
            assert!((0..1000).all(|_| gaps.draw() == 1) && gaps.one_in() == 1);
        }
    }
}
