//! How long what was timed took, to two significant digits, in memory that does not grow.
//!
//! ```text
//! ns      0 .. 256   256 .. 512   512 .. 1024  ...
//! slots   256        128          128          as many for each doubling: a slot is at most a 128th of its values wide
//! ```
//! That is how HdrHistogram lays its counts out.

/// Longer durations are recorded as this one (an hour).
const LONGEST_NS: u64 = 3600 * 1_000_000_000;

/// Slots of each doubling, as a power of two.
const DOUBLING_BITS: u32 = 7;

/// Slots up to that of [`LONGEST_NS`].
const SLOTS: usize = slot_of(LONGEST_NS) + 1;

/// Counts of durations in nanoseconds.
#[derive(Debug)]
pub(super) struct Histogram {
    slots: Box<[u64]>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { slots: vec![0; SLOTS].into(), count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, ns: u64) {
        let ns = ns.min(LONGEST_NS);
        self.slots[slot_of(ns)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The longest; 0 if there is none.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The duration that a share of `quantile` does not exceed, at most a 128th too long; 0 if there is none.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let wanted = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.slots.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, |slot| last_of(slot).min(self.max_ns))
    }
}

/// The slot of a duration.
const fn slot_of(ns: u64) -> usize {
    // The bits that its doubling does not tell apart.
    let coarse_bits = coarse_bits(ns);
    ((coarse_bits as usize) << DOUBLING_BITS) + (ns >> coarse_bits) as usize
}

const fn coarse_bits(ns: u64) -> u32 {
    let bits = u64::BITS - ns.leading_zeros();
    bits.saturating_sub(DOUBLING_BITS + 1)
}

/// The longest duration of a slot.
const fn last_of(slot: usize) -> u64 {
    let coarse_bits = ((slot >> DOUBLING_BITS) as u32).saturating_sub(1);
    let first = (slot - ((coarse_bits as usize) << DOUBLING_BITS)) as u64;
    ((first + 1) << coarse_bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slots_follow_each_other_without_a_gap() {
        let mut first = 0;
        for slot in 0..SLOTS {
            let last = last_of(slot);
            assert_eq!((slot_of(first), slot_of(last)), (slot, slot));
            assert!(last - first <= first / 128, "{slot}: {first} to {last}");
            first = last + 1;
        }
        assert!(first > LONGEST_NS);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_durations(
            mut all in proptest::collection::vec(
                prop_oneof![0..1000_u64, any::<u32>().prop_map(u64::from), any::<u64>()],
                1..200,
            ),
            quantile in 0.0..=1.0,
        ) {
            let mut histogram = Histogram::default();
            prop_assert_eq!(histogram.quantile_ns(quantile), 0);
            all.iter().for_each(|ns| histogram.record(*ns));
            all.iter_mut().for_each(|ns| *ns = (*ns).min(LONGEST_NS));
            all.sort_unstable();
            let rank = ((all.len() as f64 * quantile).ceil() as usize).clamp(1, all.len());
            let (exact, found) = (all[rank - 1], histogram.quantile_ns(quantile));
            prop_assert!(exact <= found && found - exact <= exact / 128, "{} for {}", found, exact);
            prop_assert_eq!(histogram.max_ns(), all[all.len() - 1]);
            prop_assert_eq!(histogram.count(), all.len() as u64);
            prop_assert_eq!(histogram.sum_ns(), all.iter().sum::<u64>());
        }
    }
}
