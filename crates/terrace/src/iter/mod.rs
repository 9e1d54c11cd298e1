//! Cursors over internal keys: [`merge`] makes one of many.

pub(crate) mod level;
pub(crate) mod merge;

use terrace_base::{InternalIter, Result, SeqNo};

/// What a scan asks of a cursor besides [`InternalIter`]: ways to move on over many entries at
/// once. Both may be called only while the cursor is valid and was last moved forward.
pub(crate) trait ScanCursor: InternalIter {
    /// As [`InternalIter::seek`], for a target at or after the current entry.
    fn seek_onward(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.seek(user_key, trailer)
    }

    /// Every entry from the current one up to the user key `end` that is older than `seqno` is
    /// deleted by a range tombstone: moves on over some of those entries, where that is cheaper
    /// than stepping. Never moves over any other entry.
    fn skip_covered(&mut self, _end: &[u8], _seqno: SeqNo) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod testing;
