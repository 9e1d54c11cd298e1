//! Popularity that is contiguous in key space: rank is position.
//!
//! The most popular item is the one at an offset, the next popular the one after it, and so on,
//! from the last item on to the first. So neighbours share their popularity, as the keys of one
//! user, one day or one prefix do, and a partition of a sorted file is hot or cold as a whole.
//! ([`crate::distribution`] scatters ranks over the items instead.)

use crate::zipf::Zipf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::SplitMix64;

/// Zipf's law over positions. Clones share the offset.
#[derive(Debug, Clone)]
pub struct HotRange {
    zipf: Zipf,
    items: u64,
    offset: Arc<AtomicU64>,
}

impl HotRange {
    /// Zipf's law over `0..items`, hottest at `offset`.
    pub fn new(exponent: f64, items: u64, offset: u64) -> Self {
        let offset = Arc::new(AtomicU64::new(offset % items));
        Self { zipf: Zipf::new(items, exponent), items, offset }
    }

    /// The next item.
    #[inline]
    pub fn item(&self, rng: &mut SplitMix64) -> u64 {
        self.at(self.zipf.rank(rng))
    }

    /// The item of rank `rank`, from 0.
    pub fn at(&self, rank: u64) -> u64 {
        (self.offset.load(Ordering::Relaxed) + rank) % self.items
    }

    /// Moves all ranks on by this many positions.
    pub fn move_by(&self, positions: u64) {
        // Only one thread moves.
        let moved = (self.offset.load(Ordering::Relaxed) + positions) % self.items;
        self.offset.store(moved, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_rank_has_a_position_of_its_own(items in 1u64..500, offset in 0u64..2000, jump in 0u64..2000) {
            let range = HotRange::new(0.99, items, offset);
            let other = range.clone();
            range.move_by(jump);
            let mut positions: Vec<u64> = (0..items).map(|rank| other.at(rank)).collect();
            for (rank, position) in positions.iter().enumerate() {
                prop_assert_eq!(*position, (offset + jump + rank as u64) % items);
            }
            positions.sort_unstable();
            prop_assert_eq!(positions, (0..items).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_hot_items_are_neighbours_and_move_together() {
        let range = HotRange::new(1.1, 10_000, 3000);
        let mut rng = SplitMix64::new(4);
        let mut share = |from: u64| {
            let hot = (0..20_000).filter(|_| (from..from + 100).contains(&range.item(&mut rng)));
            hot.count() as f64 / 20_000.0
        };
        // The first 100 of 10,000 ranks carry 67 % of Zipf 1.1.
        assert!((0.64..0.71).contains(&share(3000)));
        range.move_by(5000);
        assert!((0.64..0.71).contains(&share(8000)));
        assert!(share(3000) < 0.02);
    }
}
