//! What a filter's bytes are: everything a lookup must know besides them. Stored by the caller.

use std::ops::Range;

/// The most units a filter has.
pub const MAX_UNITS: u8 = 32;

/// How a filter's bytes are laid out. The number is stored on disk and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FilterKind {
    /// All probes of a key in one 64-byte block: one cache line per lookup.
    BlockedBloom = 1,
    /// One bit array, probes all over it: the textbook's false positive rate.
    Bloom = 2,
    /// Half of the probes in one block, half in the block it was paired with when the filter was
    /// built, so that all blocks fill alike.
    PairedBloom = 3,
    /// A linear system solved for every key; bit plane by bit plane, each with a false positive
    /// rate of 1/2.
    Ribbon = 4,
}

impl FilterKind {
    /// The kind stored as `byte`, or `None` for a number this version does not know.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::BlockedBloom),
            2 => Some(Self::Bloom),
            3 => Some(Self::PairedBloom),
            4 => Some(Self::Ribbon),
            _ => None,
        }
    }

    /// The name used in options and dumps.
    pub fn name(self) -> &'static str {
        match self {
            Self::BlockedBloom => "blocked",
            Self::Bloom => "bloom",
            Self::PairedBloom => "paired",
            Self::Ribbon => "ribbon",
        }
    }
}

/// The shape of one filter: kind, units, and their lengths. All units but the first are equally
/// long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterShape {
    /// How the bytes are laid out.
    pub kind: FilterKind,
    /// Number of units, 1 to [`MAX_UNITS`].
    pub unit_count: u8,
    /// What else the kind must know: which hash function the ribbon could be solved with, how many
    /// probes a key has in a Bloom filter, how the blocks of a paired one are cut into batches.
    pub seed: u8,
    /// Length of the first unit.
    pub first_unit_bytes: u32,
    /// Length of each unit after the first; that of the first if there is no other.
    pub unit_bytes: u32,
}

impl FilterShape {
    /// Bytes of the first `units` units together.
    #[inline]
    pub fn prefix_bytes(&self, units: u8) -> usize {
        match units.min(self.unit_count) {
            0 => 0,
            units => {
                self.first_unit_bytes as usize + (units as usize - 1) * self.unit_bytes as usize
            }
        }
    }

    /// Where unit `unit` lies in the bytes of the filter.
    pub fn unit_range(&self, unit: u8) -> Range<usize> {
        self.prefix_bytes(unit)..self.prefix_bytes(unit + 1)
    }
}
