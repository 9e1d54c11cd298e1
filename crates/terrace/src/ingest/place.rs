//! Into which level an ingested file goes. Pure.
//!
//! A file above existing data is newer than all of it, so it may lie in a level only if neither that level
//! nor one above it has a file of its key range. It must not meet, in its level, what a running
//! compaction writes there. The deepest such level is the best: what lies there already is not
//! rewritten on its way down. L0 takes any file.

use crate::background::compaction::pick::{LAST_LEVEL, Span, has_keys_of, may_write};
use crate::jobs::scheduler::RunningCompaction;
use crate::options::CompactionStyle;
use terrace_base::SeqNo;
use terrace_manifest::{LEVEL_COUNT, Version};

/// What a level is chosen from.
pub(super) struct Levels<'a> {
    pub family: u32,
    pub version: &'a Version,
    pub style: CompactionStyle,
    pub running: &'a [RunningCompaction],
}

impl Levels<'_> {
    /// The deepest level for a file of `span` that is newer than all that is there.
    pub fn above(&self, span: &Span<'_>) -> usize {
        if self.style == CompactionStyle::Tiered {
            // A level is a run there, and runs are merged by their age and size.
            return 0;
        }
        (0..LEVEL_COUNT).take_while(|level| self.is_free(*level, span)).last().unwrap_or(0)
    }

    /// Whether the last level has room for a file of `span` below all that is there.
    pub fn has_room_below(&self, span: &Span<'_>) -> bool {
        !self.overlaps(LAST_LEVEL, span)
    }

    /// Whether a running compaction has keys of `span`: it has seen already what lies below them.
    pub fn is_compacted(&self, span: &Span<'_>) -> bool {
        self.running.iter().any(|running| has_keys_of(running, self.family, span))
    }

    /// Whether entries of `span` have lost their sequence numbers, as nothing lay below them. Beside another entry of
    /// the number 0 the kind would say which of them is the newer.
    pub fn has_entries_without_number(&self, span: &Span<'_>) -> bool {
        let (start, end) = span.bounds();
        // Only those: it is asked for each of many files, while nobody writes.
        (0..LEVEL_COUNT)
            .flat_map(|level| self.version.level(level).overlapping(start, end))
            .any(|file| file.smallest_seqno == SeqNo::ZERO && span.overlaps(file))
    }

    fn is_free(&self, level: usize, span: &Span<'_>) -> bool {
        !self.overlaps(level, span) && may_write(self.running, self.family, level, span)
    }

    fn overlaps(&self, level: usize, span: &Span<'_>) -> bool {
        let (start, end) = span.bounds();
        match level {
            0 => self.version.level(0).files().iter().any(|file| span.overlaps(file)),
            level => !self.version.level(level).overlapping(start, end).is_empty(),
        }
    }
}

#[cfg(test)]
mod tests;
