//! The memory of a previous insert, which makes the next one cheap if it is near.

use crate::link::MAX_HEIGHT;
use crate::search::{Gap, Record};

/// The place of the previous insert into one list.
///
/// Belongs to a writer, not to a list: used with another list it starts over.
///
/// Invariant: on every level below `height`, the gap's left side is a node of the list `list` more
/// than that level high (or its head), and lies at or before the left side of the level below. So
/// what lies after the left side on one level does on all levels above. Right sides promise nothing:
/// they only tell how far to climb.
#[derive(Debug, Clone, Default)]
pub struct Hint {
    /// The list the gaps are of; 0 is none.
    pub(crate) list: u64,
    pub(crate) height: usize,
    /// How many of the last inserts lay near the one before.
    pub(crate) nearness: Share,
    /// How many of the last inserts that went alone were of keys that the list did not have.
    pub(crate) novelty: Share,
    pub(crate) gaps: [Gap; MAX_HEIGHT],
}

impl Record for Hint {
    #[inline]
    fn note(&mut self, level: usize, gap: Gap) {
        self.gaps[level] = gap;
    }
}

/// The level up to which a search that starts from the hint is near it.
pub(crate) const NEAR: usize = 1;

/// How many of the last inserts were so, of 256; older ones count for less and less.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Share(u16);

impl Share {
    /// An eighth of what is known is forgotten for each insert.
    #[inline]
    pub(crate) fn note(&mut self, is_so: bool) {
        self.0 = self.0 - self.0 / 8 + 32 * u16::from(is_so);
    }

    /// Whether it was most of them.
    #[inline]
    pub(crate) fn is_high(self) -> bool {
        self.0 > 128
    }
}
