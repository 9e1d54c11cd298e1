//! Asking a filter, by its kind.

use crate::layout::{FilterKind, FilterShape, MAX_UNITS};
use crate::{blocked_bloom, bloom, paired_bloom, ribbon};

impl FilterShape {
    /// Whether a filter can look like that; to be asked of a shape that was read from a file.
    pub fn is_sound(&self) -> bool {
        let units = (1..=MAX_UNITS).contains(&self.unit_count);
        units
            && match self.kind {
                FilterKind::BlockedBloom => blocked_bloom::is_sound(self),
                FilterKind::Bloom => bloom::is_sound(self),
                FilterKind::PairedBloom => paired_bloom::is_sound(self),
                FilterKind::Ribbon => ribbon::is_sound(self),
            }
    }

    /// Whether the key with this hash may be among those the filter was built from, as far as its
    /// first `units` units tell, which `loaded` holds ([`FilterShape::prefix_bytes`]). `false` is
    /// certain; `true` is wrong with the probability [`FilterShape::expected_fpr`]. No units, and
    /// bytes of another length, are `true`.
    #[inline]
    pub fn may_contain(&self, loaded: &[u8], units: u8, hash: u64) -> bool {
        match self.kind {
            FilterKind::BlockedBloom => blocked_bloom::may_contain(self, loaded, units, hash),
            FilterKind::Bloom => bloom::may_contain(self, loaded, units, hash),
            FilterKind::PairedBloom => paired_bloom::may_contain(self, loaded, units, hash),
            FilterKind::Ribbon => ribbon::may_contain(self, loaded, units, hash),
        }
    }

    /// Asks for the cache line that [`FilterShape::may_contain`] with the same arguments reads
    /// first.
    #[inline]
    pub fn prefetch(&self, loaded: &[u8], hash: u64) {
        match self.kind {
            FilterKind::BlockedBloom => blocked_bloom::prefetch(self, loaded, hash),
            FilterKind::Bloom => bloom::prefetch(self, loaded, hash),
            FilterKind::PairedBloom => paired_bloom::prefetch(self, loaded, hash),
            FilterKind::Ribbon => ribbon::prefetch(self, loaded, hash),
        }
    }

    /// Asks for the cache lines that [`FilterShape::may_contain`] with the same arguments reads after the first, unless
    /// that denies the key: for a caller that has other work until they come. It reads the first, so
    /// [`FilterShape::prefetch`] should have been called before.
    #[inline]
    pub fn prefetch_rest(&self, loaded: &[u8], hash: u64) {
        if self.kind == FilterKind::Ribbon {
            ribbon::prefetch_rest(self, loaded, hash);
        }
    }

    /// The false positive rate to expect of the first `units` units of a filter over `key_count`
    /// keys, between 0 and 1; 1 without units. The model of each kind is in its module.
    pub fn expected_fpr(&self, units: u8, key_count: u64) -> f64 {
        let units = units.min(self.unit_count);
        if units == 0 || key_count == 0 {
            return if units == 0 { 1.0 } else { 0.0 };
        }
        match self.kind {
            FilterKind::BlockedBloom => blocked_bloom::expected_fpr(self, units, key_count),
            FilterKind::Bloom => bloom::expected_fpr(self, units, key_count),
            FilterKind::PairedBloom => paired_bloom::expected_fpr(self, units, key_count),
            FilterKind::Ribbon => ribbon::expected_fpr(units),
        }
    }
}
