//! How many bytes of long records that turn out to be none [`super::LogReader::resync`] may sum up: what programs write as
//! values may look like records at many offsets.

use std::cmp::Ordering;

/// Each part has this many times the bytes of the segment.
const MULTIPLE: u64 = 8;

/// What may still be summed up, by where records would end.
pub(super) struct SumBudget {
    /// Wherever.
    anywhere: u64,
    /// Once that is used up, where the content of the file ends: of one length only one record ends there, and noise that ends
    /// in zeros does not keep the last one from being found.
    at_end: u64,
    /// And behind it: their last bytes would be zeros.
    behind_end: u64,
}

impl SumBudget {
    /// For a segment of this length.
    pub fn of(file_bytes: u64) -> Self {
        let bytes = file_bytes.saturating_mul(MULTIPLE);
        Self { anywhere: bytes, at_end: bytes, behind_end: bytes }
    }

    /// Whether it depends on where records would end: nothing is left of what counts anywhere.
    pub fn is_short(&self) -> bool {
        self.anywhere == 0
    }

    /// What is left for a record that would end at `after`; `end` is where the content of the file ends, which is asked for
    /// only of one that [`Self::is_short`]. `None` if something follows there, which tells by itself whether a record is worth it.
    pub fn left(&mut self, after: u64, end: u64) -> Option<&mut u64> {
        if !self.is_short() {
            return Some(&mut self.anywhere);
        }
        match after.cmp(&end) {
            Ordering::Less => None,
            Ordering::Equal => Some(&mut self.at_end),
            Ordering::Greater => Some(&mut self.behind_end),
        }
    }
}
