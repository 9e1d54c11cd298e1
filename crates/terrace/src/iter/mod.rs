//! Cursors over internal keys. [`merge`] makes one of many runs, [`level`] one of a run's files,
//! [`visible`] shows what a reader at some moment may see of it, asking [`cover`] which keys range
//! tombstones delete, and [`values`] reads the values that are not stored inline.

pub(crate) mod cover;
pub(crate) mod level;
pub(crate) mod merge;
pub(crate) mod values;
pub(crate) mod visible;

use crate::memtable::MemTable;
use level::LevelIter;
use std::sync::Arc;
use terrace_base::{InternalIter, Result, SeqNo};
use terrace_sst::SstIter;

/// What a scan asks of a cursor besides [`InternalIter`]: ways to move over many entries at once.
/// They may be called only while the cursor is valid and was last moved in their direction.
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

    /// As [`Self::skip_covered`], backward: from the current entry down to the user key `start`.
    fn skip_covered_back(&mut self, _start: &[u8], _seqno: SeqNo) -> Result<()> {
        Ok(())
    }
}

/// A cursor over one sorted run of a store.
#[allow(clippy::large_enum_variant, reason = "a handful per scan, moved only while it is built")]
pub(crate) enum RunIter {
    /// A memtable, and a cursor over its entries.
    Mem(terrace_skiplist::Iter, Arc<MemTable>),
    /// One SST.
    Sst(SstIter),
    /// The SSTs of a level, or one of L0.
    Level(LevelIter),
}

macro_rules! of_run {
    ($self:ident, $iter:ident => $call:expr) => {
        match $self {
            RunIter::Mem($iter, _) => $call,
            RunIter::Sst($iter) => $call,
            RunIter::Level($iter) => $call,
        }
    };
}

impl InternalIter for RunIter {
    #[inline]
    fn valid(&self) -> bool {
        of_run!(self, iter => iter.valid())
    }
    fn seek_to_first(&mut self) -> Result<()> {
        of_run!(self, iter => iter.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        of_run!(self, iter => iter.seek_to_last())
    }
    #[inline]
    fn prepare_seek(&mut self, user_key: &[u8]) {
        of_run!(self, iter => iter.prepare_seek(user_key));
    }
    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        of_run!(self, iter => iter.seek(user_key, trailer))
    }
    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        of_run!(self, iter => iter.seek_before(user_key, trailer))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        of_run!(self, iter => iter.next())
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        of_run!(self, iter => iter.prev())
    }
    #[inline]
    fn user_key(&self) -> &[u8] {
        of_run!(self, iter => iter.user_key())
    }
    #[inline]
    fn trailer(&self) -> u64 {
        of_run!(self, iter => iter.trailer())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        of_run!(self, iter => iter.value())
    }
}

impl ScanCursor for RunIter {
    fn skip_covered(&mut self, end: &[u8], seqno: SeqNo) -> Result<()> {
        match self {
            RunIter::Level(iter) => iter.skip_covered(end, seqno),
            RunIter::Mem(iter, memtable) => {
                match memtable.covered_until(iter.user_key(), end, seqno) {
                    Some(next) if next > iter.user_key() => iter.seek(next, u64::MAX),
                    _ => Ok(()),
                }
            }
            RunIter::Sst(_) => Ok(()),
        }
    }

    fn skip_covered_back(&mut self, start: &[u8], seqno: SeqNo) -> Result<()> {
        match self {
            RunIter::Level(iter) => iter.skip_covered_back(start, seqno),
            RunIter::Mem(iter, memtable) => {
                match memtable.covered_from(iter.user_key(), start, seqno) {
                    // Trailer 0 comes after all versions of a key.
                    Some((Some(stop), _)) if stop < iter.user_key() => iter.seek_before(stop, 0),
                    Some((None, start)) => iter.seek_before(start, u64::MAX),
                    _ => Ok(()),
                }
            }
            RunIter::Sst(_) => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
