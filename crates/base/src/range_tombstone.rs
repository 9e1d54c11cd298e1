//! Range tombstones: deletions of half-open key ranges, and the fragmented set that answers
//! "which tombstone covers this key".
//!
//! Overlapping tombstones are cut at each other's bounds into fragments that do not overlap; each
//! fragment lists the sequence numbers of the tombstones that cover it, newest first. A lookup is
//! then one binary search (Pebble and RocksDB fragment in the same way).
//!
//! Fragments that list *every* tombstone take the square of their number if these overlap, so
//! nothing in the engine builds them: [`RangeTombstones::collapse`] keeps the newest of each stripe
//! of sequence numbers, which is all that readers at the stripes' ends can tell apart. A set of
//! `n` tombstones in `s` stripes has at most `2 n` fragments and `2 n s` sequence numbers.
//!
//! Memory is flat. Fragments that touch share a bound; a gap is a bound without sequence numbers:
//!
//! ```text
//!   bounds   a      c      f          m      p
//!   seqnos   9      9 4    (none)     7      (none: the end)
//! ```

mod fragmenter;

use crate::number::SeqNo;
use std::ops::Range;

/// Every version older than `seqno` of every key in `[start, end)` is deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// First key covered.
    pub start: Vec<u8>,
    /// First key after `start` that is not covered.
    pub end: Vec<u8>,
    /// The write's sequence number.
    pub seqno: SeqNo,
}

impl RangeTombstone {
    /// The same, borrowed.
    pub fn as_ref(&self) -> RangeTombstoneRef<'_> {
        RangeTombstoneRef { start: &self.start, end: &self.end, seqno: self.seqno }
    }
}

/// A borrowed [`RangeTombstone`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeTombstoneRef<'a> {
    /// First key covered.
    pub start: &'a [u8],
    /// First key after `start` that is not covered.
    pub end: &'a [u8],
    /// The write's sequence number.
    pub seqno: SeqNo,
}

/// A key range without inner bounds, and who covers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// First key.
    pub start: &'a [u8],
    /// First key past the fragment.
    pub end: &'a [u8],
    /// Sequence numbers of the covering tombstones, descending, without repeats, at least one.
    pub seqnos: &'a [SeqNo],
}

impl<'a> Fragment<'a> {
    /// The fragment as one tombstone for each sequence number.
    pub fn tombstones(self) -> impl Iterator<Item = RangeTombstoneRef<'a>> {
        let Self { start, end, seqnos } = self;
        seqnos.iter().map(move |seqno| RangeTombstoneRef { start, end, seqno: *seqno })
    }
}

/// A range of keys `[start, end)` around some key within which one read meets the same tombstone.
/// `None` leaves a side open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoverSpan<'a> {
    /// First key.
    pub start: Option<&'a [u8]>,
    /// First key past the span.
    pub end: Option<&'a [u8]>,
    /// The newest tombstone that the read sees; 0 if none covers the span.
    pub seqno: SeqNo,
}

/// Where the fragment from one bound to the next begins, and what covers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    key_start: usize,
    key_len: u32,
    /// 0: a gap follows, or the end of the set.
    seqno_count: u32,
    seqnos_start: usize,
}

/// An immutable, fragmented set of range tombstones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    /// Ascending.
    bounds: Vec<Bound>,
    /// The keys of the bounds, in their order.
    keys: Vec<u8>,
    /// The lists of the bounds, in their order.
    seqnos: Vec<SeqNo>,
    fragment_count: usize,
}

impl RangeTombstones {
    /// Fragments `tombstones` and keeps every sequence number, so memory grows with the square of
    /// their overlap: for few. Empty ranges are ignored.
    pub fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> Self {
        let all: Vec<RangeTombstone> = tombstones.into_iter().collect();
        Self::collapse(all.iter().map(RangeTombstone::as_ref), |seqno| seqno.get())
    }

    /// Cuts `tombstones` at all their bounds; of those that cover a fragment, only the newest of
    /// each stripe stays. `stripe_of` must not descend; empty ranges are ignored. O(n log n), plus
    /// what comes out: fewer than two fragments for every tombstone.
    pub fn collapse<'a>(
        tombstones: impl IntoIterator<Item = RangeTombstoneRef<'a>>,
        stripe_of: impl Fn(SeqNo) -> u64,
    ) -> Self {
        fragmenter::collapse(
            tombstones.into_iter().filter(|t| t.start < t.end).collect(),
            stripe_of,
        )
    }

    /// Adds a fragment past all others. It must not be empty; its sequence numbers descend.
    pub fn push(&mut self, fragment: Fragment<'_>) {
        let Fragment { start, end, seqnos } = fragment;
        debug_assert!(start < end && !seqnos.is_empty());
        debug_assert!(seqnos.windows(2).all(|pair| pair[0] > pair[1]));
        debug_assert!(self.last_key().is_none_or(|last| last <= start));
        if self.last_key() == Some(start) {
            // What was the end of the set begins a fragment.
            self.pop_bound();
        }
        self.push_bound(start, seqnos);
        self.push_bound(end, &[]);
        self.fragment_count += 1;
    }

    /// As [`Self::push`]; joined with the last fragment if they touch and list the same.
    pub fn push_joined(&mut self, fragment: Fragment<'_>) {
        let touches = self.last_key() == Some(fragment.start);
        let before = self.bounds.len().checked_sub(2).map(|at| self.seqnos_of(&self.bounds[at]));
        if touches && before == Some(fragment.seqnos) {
            self.pop_bound();
            self.push_bound(fragment.end, &[]);
        } else {
            self.push(fragment);
        }
    }

    fn push_bound(&mut self, key: &[u8], seqnos: &[SeqNo]) {
        self.bounds.push(Bound {
            key_start: self.keys.len(),
            key_len: key.len() as u32,
            seqno_count: seqnos.len() as u32,
            seqnos_start: self.seqnos.len(),
        });
        self.keys.extend_from_slice(key);
        self.seqnos.extend_from_slice(seqnos);
    }

    /// Takes back the end of the set.
    fn pop_bound(&mut self) {
        if let Some(bound) = self.bounds.pop() {
            self.keys.truncate(bound.key_start);
            self.seqnos.truncate(bound.seqnos_start);
        }
    }

    /// Gives back memory that was reserved while the set grew.
    pub fn shrink_to_fit(&mut self) {
        self.bounds.shrink_to_fit();
        self.keys.shrink_to_fit();
        self.seqnos.shrink_to_fit();
    }

    #[inline]
    fn key_of(&self, bound: &Bound) -> &[u8] {
        &self.keys[bound.key_start..bound.key_start + bound.key_len as usize]
    }

    #[inline]
    fn seqnos_of(&self, bound: &Bound) -> &[SeqNo] {
        &self.seqnos[bound.seqnos_start..bound.seqnos_start + bound.seqno_count as usize]
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.bounds.last().map(|bound| self.key_of(bound))
    }

    /// Bounds at or below `key`.
    #[inline]
    fn bounds_upto(&self, key: &[u8]) -> usize {
        self.bounds.partition_point(|bound| self.key_of(bound) <= key)
    }

    /// The fragment that begins at bound `at`, unless a gap does.
    #[inline]
    fn fragment(&self, at: usize) -> Option<Fragment<'_>> {
        let [first, next] = self.bounds.get(at..)?.first_chunk::<2>()?;
        let (start, end) = (self.key_of(first), self.key_of(next));
        (first.seqno_count > 0).then(|| Fragment { start, end, seqnos: self.seqnos_of(first) })
    }

    /// Whether nothing is covered.
    pub fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Fragments.
    pub fn fragment_count(&self) -> usize {
        self.fragment_count
    }

    /// The sequence numbers of all fragments together.
    pub fn seqnos(&self) -> &[SeqNo] {
        &self.seqnos
    }

    /// The fragments in key order.
    pub fn fragments(&self) -> Fragments<'_> {
        Fragments { set: self, bounds: 0..self.bounds.len() }
    }

    /// The fragments inside `[start, end)`, cut to it; `None` leaves that side open.
    pub fn fragments_in<'a>(
        &'a self,
        start: Option<&'a [u8]>,
        end: Option<&'a [u8]>,
    ) -> impl Iterator<Item = Fragment<'a>> {
        let first = start.map_or(0, |start| self.bounds_upto(start).saturating_sub(1));
        let last = end.map_or(self.bounds.len(), |end| {
            self.bounds.partition_point(|bound| self.key_of(bound) < end)
        });
        (first..last).filter_map(move |at| {
            let mut fragment = self.fragment(at)?;
            if let Some(start) = start {
                fragment.start = fragment.start.max(start);
            }
            if let Some(end) = end {
                fragment.end = fragment.end.min(end);
            }
            (fragment.start < fragment.end).then_some(fragment)
        })
    }

    /// The fragments as single tombstones, in key order, newest first within a fragment.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.fragments().flat_map(Fragment::tombstones).map(|t| RangeTombstone {
            start: t.start.to_vec(),
            end: t.end.to_vec(),
            seqno: t.seqno,
        })
    }

    /// The fragment that contains `key`.
    #[inline]
    pub fn fragment_at(&self, key: &[u8]) -> Option<Fragment<'_>> {
        self.fragment(self.bounds_upto(key).checked_sub(1)?)
    }

    /// The newest tombstone at or below `read_seqno` that covers `key`; versions of the key with
    /// a smaller sequence number are deleted. One binary search.
    pub fn covering_seqno(&self, key: &[u8], read_seqno: SeqNo) -> Option<SeqNo> {
        newest_visible(self.fragment_at(key)?.seqnos, read_seqno)
    }

    /// The fragment or the gap that holds `key`, as a read at `read_seqno` sees it.
    pub fn span_at(&self, key: &[u8], read_seqno: SeqNo) -> CoverSpan<'_> {
        let after = self.bounds_upto(key);
        let before = after.checked_sub(1).map(|at| &self.bounds[at]);
        let seqnos = before.map_or(&[][..], |bound| self.seqnos_of(bound));
        CoverSpan {
            start: before.map(|bound| self.key_of(bound)),
            end: self.bounds.get(after).map(|bound| self.key_of(bound)),
            seqno: newest_visible(seqnos, read_seqno).unwrap_or_default(),
        }
    }

    /// The part of the set inside `[start, end)`; `None` leaves that side open.
    pub fn clip(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let mut part = Self::default();
        self.fragments_in(start, end).for_each(|fragment| part.push(fragment));
        part
    }

    /// Bytes of memory the set takes.
    pub fn memory_bytes(&self) -> usize {
        self.bounds.capacity() * size_of::<Bound>()
            + self.keys.capacity()
            + self.seqnos.capacity() * size_of::<SeqNo>()
    }
}

/// The fragments of a set in key order.
#[derive(Debug, Clone)]
pub struct Fragments<'a> {
    set: &'a RangeTombstones,
    /// Where those begin that are left.
    bounds: Range<usize>,
}

impl<'a> Iterator for Fragments<'a> {
    type Item = Fragment<'a>;

    fn next(&mut self) -> Option<Fragment<'a>> {
        self.bounds.by_ref().find_map(|at| self.set.fragment(at))
    }
}

impl DoubleEndedIterator for Fragments<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.bounds.by_ref().rev().find_map(|at| self.set.fragment(at))
    }
}

/// The first of the descending `seqnos` that a read at `read_seqno` sees.
#[inline]
fn newest_visible(seqnos: &[SeqNo], read_seqno: SeqNo) -> Option<SeqNo> {
    seqnos.get(seqnos.partition_point(|seqno| *seqno > read_seqno)).copied()
}

#[cfg(test)]
mod tests;
