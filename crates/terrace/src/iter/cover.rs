//! Which range tombstone covers the key a scan stands on.
//!
//! A scan meets keys in order, so [`Cover`] remembers the answer together with the range of keys
//! for which it holds: between two bounds of tombstones a key costs two comparisons. Only past the
//! range are the sources asked again, and a file's tombstones are loaded when a key inside that
//! file's bounds first comes up.

use terrace_base::{RangeTombstones, Result, SeqNo};

/// The range of keys around a key, `[start, end)`, that the same tombstones of one source cover.
/// `None` leaves a side open.
pub(crate) struct Span<'a> {
    pub start: Option<&'a [u8]>,
    pub end: Option<&'a [u8]>,
    /// The covering tombstones, newest first.
    pub seqnos: &'a [SeqNo],
}

impl<'a> Span<'a> {
    /// The span of `set` that holds `key`: a fragment, or the gap between two.
    pub fn around(key: &[u8], set: &'a RangeTombstones) -> Self {
        let fragments = set.fragments();
        let after = fragments.partition_point(|f| f.start.as_slice() <= key);
        let next = fragments.get(after).map(|f| f.start.as_slice());
        match after.checked_sub(1).map(|at| &fragments[at]) {
            Some(f) if key < f.end.as_slice() => {
                Span { start: Some(&f.start), end: Some(&f.end), seqnos: &f.seqnos }
            }
            Some(f) => Span { start: Some(&f.end), end: next, seqnos: &[] },
            None => Span { start: None, end: next, seqnos: &[] },
        }
    }
}

/// Tombstones of one memtable, file or level.
pub(crate) trait CoverSource: Send {
    /// The span that holds `key`.
    fn span(&mut self, key: &[u8]) -> Result<Span<'_>>;
}

impl CoverSource for std::sync::Arc<RangeTombstones> {
    fn span(&mut self, key: &[u8]) -> Result<Span<'_>> {
        Ok(Span::around(key, self))
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
}

impl Cover {
    /// The tombstones of `sources` at or below `read_seqno`.
    pub fn new(sources: Vec<Box<dyn CoverSource>>, read_seqno: SeqNo) -> Self {
        let (start, end) = (Vec::new(), Vec::new());
        Self { sources, read_seqno, seqno: 0, start, end, bounded: false, known: false }
    }

    /// The newest tombstone that covers `key`, 0 if none: versions of the key with a smaller
    /// sequence number are deleted. Free if there are no sources.
    #[inline]
    pub fn seqno_at(&mut self, key: &[u8]) -> Result<SeqNo> {
        if self.sources.is_empty() {
            return Ok(0);
        }
        let inside = self.known
            && key >= self.start.as_slice()
            && !(self.bounded && key >= self.end.as_slice());
        if !inside {
            self.look_up(key)?;
        }
        Ok(self.seqno)
    }

    /// The key at which the last answer ends, if it does.
    pub fn end(&self) -> Option<&[u8]> {
        (self.known && self.bounded).then_some(self.end.as_slice())
    }

    /// The first key for which the last answer holds; empty if all below do.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// The intersection of what every source says about `key`.
    #[cold]
    fn look_up(&mut self, key: &[u8]) -> Result<()> {
        (self.seqno, self.known, self.bounded) = (0, false, false);
        self.start.clear();
        for source in &mut self.sources {
            let span = source.span(key)?;
            let visible = span.seqnos.iter().copied().find(|seqno| *seqno <= self.read_seqno);
            self.seqno = self.seqno.max(visible.unwrap_or(0));
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
