//! Which range tombstone covers the key a scan stands on.
//!
//! A scan meets keys in order, so [`Cover`] remembers the answer together with the range of keys
//! for which it holds: between two bounds of tombstones a key costs two comparisons. Only past the
//! range are the sources asked again, and a file's tombstones are loaded when a key inside that
//! file's bounds first comes up.

use crate::memtable::MemTable;
use std::sync::Arc;
use terrace_base::range_tombstone::CoverSpan;
use terrace_base::{Result, SeqNo};

/// Tombstones of one memtable, file or level.
pub(crate) trait CoverSource: Send {
    /// The keys around `key` for which a read at `read_seqno` meets the same tombstone, or some of
    /// them.
    fn span(&mut self, key: &[u8], read_seqno: SeqNo) -> Result<CoverSpan<'_>>;
}

impl CoverSource for Arc<MemTable> {
    fn span(&mut self, key: &[u8], read_seqno: SeqNo) -> Result<CoverSpan<'_>> {
        Ok(self.cover_span(key, read_seqno))
    }
}

/// The tombstones of all sources as seen by one read.
pub(crate) struct Cover {
    sources: Vec<Box<dyn CoverSource>>,
    read_seqno: SeqNo,
    /// The answer within `start..end`; 0 is none. Meaningful while `known`.
    seqno: SeqNo,
    start: Vec<u8>,
    end: Vec<u8>,
    /// Whether `end` bounds the range.
    bounded: bool,
    known: bool,
    /// Around the key of the last answer, the keys that the tombstone of the answer covers.
    newest_start: Vec<u8>,
    newest_end: Option<Vec<u8>>,
}

impl Cover {
    /// The tombstones of `sources` at or below `read_seqno`.
    pub fn new(sources: Vec<Box<dyn CoverSource>>, read_seqno: SeqNo) -> Self {
        Self {
            sources,
            read_seqno,
            seqno: SeqNo::ZERO,
            start: Vec::new(),
            end: Vec::new(),
            bounded: false,
            known: false,
            newest_start: Vec::new(),
            newest_end: None,
        }
    }

    /// Whether there are no tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The newest tombstone that covers `key`, 0 if none: versions of the key with a smaller
    /// sequence number are deleted. Free if there are no sources.
    #[inline]
    pub fn seqno_at(&mut self, key: &[u8]) -> Result<SeqNo> {
        if self.sources.is_empty() {
            return Ok(SeqNo::ZERO);
        }
        let inside = self.known
            && key >= self.start.as_slice()
            && !(self.bounded && key >= self.end.as_slice());
        if !inside {
            self.look_up(key)?;
        }
        Ok(self.seqno)
    }

    /// From the key of the last answer to this one, if there is an end, all keys are covered by the tombstone of that
    /// answer: some perhaps by newer ones too.
    pub fn covered_until(&self) -> Option<&[u8]> {
        self.newest_end.as_deref().filter(|_| self.known)
    }

    /// As [`Self::covered_until`], from this key on.
    pub fn covered_from(&self) -> &[u8] {
        &self.newest_start
    }

    /// The intersection of what every source says about `key`.
    #[cold]
    fn look_up(&mut self, key: &[u8]) -> Result<()> {
        (self.seqno, self.known, self.bounded) = (SeqNo::ZERO, false, false);
        self.start.clear();
        self.newest_start.clear();
        self.newest_end = None;
        for source in &mut self.sources {
            let span = source.span(key, self.read_seqno)?;
            if span.seqno > self.seqno {
                self.seqno = span.seqno;
                self.newest_start.clear();
                self.newest_start.extend_from_slice(span.start.unwrap_or_default());
                self.newest_end = span.end.map(<[u8]>::to_vec);
            }
            if let Some(start) = span.start
                && start > self.start.as_slice()
            {
                self.start.clear();
                self.start.extend_from_slice(start);
            }
            if let Some(end) = span.end
                && !(self.bounded && end >= self.end.as_slice())
            {
                self.end.clear();
                self.end.extend_from_slice(end);
                self.bounded = true;
            }
        }
        self.known = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
