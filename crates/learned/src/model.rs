//! A model: from a key to a narrow range of positions.
//!
//! A *position* is a number that keys have in their order: the ordinal of an entry in its file, of
//! a data block whose first key it is, or of the block a key is in. From one key to the next it
//! stays or grows by one. A model is a [`Projection`] and lines over its numbers, each from its
//! head to the next; see [`crate::line`] for one, `codec` for the stored form.
//!
//! Why [`Model::search_range`] holds: lines never fall, so the line at `x` lies between its heights
//! at the last key number at or below `x` and the first one at or above it, which are at most
//! `delta` from those keys' positions; and these differ by at most one. Past a segment's last point
//! the line is held at the start of the next segment.

mod codec;

use crate::heads::Heads;
use crate::line::{Line, SearchRange};
use crate::projection::Projection;
use crate::stats::ModelStats;
use std::fmt;

pub use codec::Malformed;

/// A model, ready for lookups. Takes 24 bytes a segment, 4 to 8 for the table over them, and
/// the projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    projection: Projection,
    delta: u32,
    heads: Heads,
    /// Of every head, and an empty run at the end.
    lines: Vec<Line>,
    stats: ModelStats,
}

impl Model {
    /// The model with these lines, at least one, over positions up to `end` (not included).
    pub(crate) fn of(
        projection: Projection,
        delta: u32,
        heads: Vec<u64>,
        mut lines: Vec<Line>,
        end: u32,
        stats: ModelStats,
    ) -> Self {
        lines.push(Line::run(end));
        lines.shrink_to_fit();
        Self { projection, delta, heads: Heads::new(heads), lines, stats }
    }

    /// The key projection. Numbers of different models have nothing to do with each other.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// The number of `key`, for [`Self::search_range`].
    #[inline]
    pub fn project(&self, key: &[u8]) -> u64 {
        self.projection.project(key)
    }

    /// Where a key with the number `x` can be.
    ///
    /// The position of the first key at or above it lies in `low..=high`, whether the key
    /// itself is there or not; past the last key is the position after it. If several entries have
    /// the same key (versions), this holds for every place between and after them too. Outside runs
    /// the range has at most `2 * delta + 2` positions. Takes some nanoseconds.
    #[inline]
    pub fn search_range(&self, x: u64) -> SearchRange {
        let Some(at) = self.heads.at_or_below(x).checked_sub(1) else {
            let start = self.lines[0].start();
            return SearchRange { low: start, high: start };
        };
        let next = self.lines[at + 1].start();
        self.lines[at].range(x - self.heads.get(at), next, self.delta)
    }

    /// The line of `x`, how far `x` is from its head, and where the next line starts; `None` if
    /// `x` is below the first head.
    #[inline]
    pub(crate) fn line_at(&self, x: u64) -> Option<(Line, u64, u32)> {
        let at = self.heads.at_or_below(x).checked_sub(1)?;
        Some((self.lines[at], x - self.heads.get(at), self.lines[at + 1].start()))
    }

    /// How many segments there are, runs among them.
    pub(crate) fn segment_count(&self) -> usize {
        self.heads.len()
    }

    /// Head and line of segment `at`, and where the next line starts.
    pub(crate) fn segment(&self, at: usize) -> (u64, Line, u32) {
        (self.heads.get(at), self.lines[at], self.lines[at + 1].start())
    }

    /// The head of segment `at`, if there is one.
    pub(crate) fn head(&self, at: usize) -> Option<u64> {
        self.heads.as_slice().get(at).copied()
    }

    /// [`Self::search_range`] of the key's number.
    #[inline]
    pub fn search_range_of(&self, key: &[u8]) -> SearchRange {
        self.search_range(self.project(key))
    }

    /// The error bound.
    pub fn delta(&self) -> u32 {
        self.delta
    }

    /// The position after that of the last key.
    pub fn end(&self) -> u32 {
        self.lines.last().map_or(0, Line::start)
    }

    /// What was counted when the model was built.
    pub fn stats(&self) -> &ModelStats {
        &self.stats
    }

    /// Memory taken, this struct included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.projection.memory_bytes()
            + self.heads.memory_bytes()
            + self.lines.capacity() * size_of::<Line>()
    }
}

/// The projection, the error bound, and the statistics.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = (self.projection.greatest() as f64 + 1.0).log2();
        writeln!(f, "projection: {} ({bits:.1} bits)", self.projection)?;
        writeln!(f, "delta {}, {} bytes of memory", self.delta, self.memory_bytes())?;
        self.stats.fmt(f)
    }
}
