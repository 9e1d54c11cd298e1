//! The range tombstones of a memtable: one writer adds, readers at any moment ask which tombstone
//! covers a key, without a lock and without work left over from the write.
//!
//! A memtable gets its tombstones in the order of their sequence numbers, so what a read may see is
//! a prefix of them; the last one of the prefix that covers its key decides. Over the
//! tombstones, cut into chunks of [`CHUNK`], stands a binary tree: a node of level `l` covers `2^l`
//! chunks and holds the union of their ranges as intervals that do not touch.
//!
//! ```text
//!   level 2   [   0..32                       ]
//!   level 1   [   0..16      ] [   16..32     ] [   32..48     ]
//!   level 0   [ 0..8 ][8..16 ] [16..24][24..32] [32..40][40..48] [48..56]
//!   tombstones 0 1 2 ...                                                  56 57 58
//! ```
//!
//! 1. A read that may see the first 59 looks at 58, 57, 56, then at the nodes 48..56, 32..48 and
//!    0..32: newest first, one binary search each. In the first node that covers the key it goes
//!    down, right before left, to the tombstone. O(log² n) comparisons.
//! 2. A node is made once, when its last tombstone comes, and never changes, as little as a
//!    tombstone does: a prefix of the tree is the tree of the prefix. So one structure serves the
//!    newest read, every snapshot and every iterator, and none of them holds a copy.
//! 3. Every tombstone is in one node of each level: O(n log n) intervals at most, and as few as
//!    levels if the ranges overlap, since these become one in a union. An interval is eight bytes:
//!    the tombstones that its bounds come from.
//!
//! Why not fragments, as SSTs have them: `n` nested tombstones make `2 n` fragments with `n / 2`
//! sequence numbers each, and every new tombstone makes all of them anew. See
//! docs/decisions/0010-range-tombstones.md.

use super::newer_keys::NewerKeys;
use std::cmp::Ordering as Compared;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_base::range_tombstone::CoverSpan;
use terrace_base::sync::Mutex;
use terrace_base::{MAX_SEQNO, RangeTombstoneRef, SeqNo};

/// Tombstones that are looked at one by one.
const CHUNK: usize = 8;

/// Entries of the first two segments of an [`Appended`].
const FIRST_SEGMENT: usize = 8;
/// Segments of an [`Appended`]: room for 2^32 entries, as many as an [`Interval`] can name.
const SEGMENTS: usize = 31;

/// What an allocation takes besides its bytes, about.
const ALLOCATION_BYTES: usize = 16;

/// A list that grows at its end while others read it. Segments double, so that nothing moves.
struct Appended<T> {
    segments: [OnceLock<Box<[OnceLock<T>]>>; SEGMENTS],
}

impl<T> Default for Appended<T> {
    fn default() -> Self {
        Self { segments: [const { OnceLock::new() }; SEGMENTS] }
    }
}

impl<T> Appended<T> {
    /// Segment of `index`, its first index, and its length.
    #[inline]
    fn place(index: usize) -> (usize, usize, usize) {
        match index / FIRST_SEGMENT {
            0 => (0, 0, FIRST_SEGMENT),
            parts => {
                let doublings = parts.ilog2() as usize;
                (doublings + 1, FIRST_SEGMENT << doublings, FIRST_SEGMENT << doublings)
            }
        }
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&T> {
        let (segment, start, _) = Self::place(index);
        self.segments.get(segment)?.get()?.get(index - start)?.get()
    }

    /// Puts `entry` at `index`, behind all others; gives the bytes that were allocated for it.
    fn put(&self, index: usize, entry: T) -> usize {
        let (segment, start, len) = Self::place(index);
        let Some(segment) = self.segments.get(segment) else { return 0 };
        let mut allocated = 0;
        let entries = segment.get_or_init(|| {
            allocated = len * size_of::<OnceLock<T>>() + ALLOCATION_BYTES;
            (0..len).map(|_| OnceLock::new()).collect()
        });
        let place = entries.get(index - start);
        let is_put = place.is_some_and(|place| place.set(entry).is_ok());
        debug_assert!(is_put, "an entry is put once");
        allocated
    }
}

struct Tombstone {
    /// Start and end.
    keys: Box<[u8]>,
    start_len: usize,
    seqno: SeqNo,
    /// Of entries of the memtable.
    newer_keys: NewerKeys,
}

impl Tombstone {
    #[inline]
    fn start(&self) -> &[u8] {
        &self.keys[..self.start_len]
    }

    #[inline]
    fn end(&self) -> &[u8] {
        &self.keys[self.start_len..]
    }
}

/// A range of keys: from the start of one tombstone to the end of another.
#[derive(Clone, Copy)]
struct Interval {
    start_of: u32,
    end_of: u32,
}

/// Intervals in key order that neither overlap nor touch.
type Union = Box<[Interval]>;

/// Range tombstones in the order of their sequence numbers.
#[derive(Default)]
pub(super) struct RangeSet {
    /// Tombstones that readers may look at; all nodes over them are there.
    len: AtomicUsize,
    bytes: AtomicUsize,
    tombstones: Appended<Tombstone>,
    /// Of every chunk the unions of the nodes that end with it, level 0 first.
    nodes: Appended<Box<[Union]>>,
    adding: Mutex<()>,
}

/// What a search learns besides the covering tombstone.
trait Around<'a> {
    /// Nothing newer than what is found covers the keys from `start` on.
    fn starts_at(&mut self, start: &'a [u8]);
    /// Nothing newer than what is found covers the keys below `end`.
    fn ends_at(&mut self, end: &'a [u8]);
    /// The key is compared with one more tombstone or interval: with its start, and perhaps with its end.
    #[inline]
    fn compares(&mut self) {}
}

/// For a lookup of one key.
impl<'a> Around<'a> for () {
    #[inline]
    fn starts_at(&mut self, _: &'a [u8]) {}
    #[inline]
    fn ends_at(&mut self, _: &'a [u8]) {}
}

impl<'a> Around<'a> for CoverSpan<'a> {
    #[inline]
    fn starts_at(&mut self, start: &'a [u8]) {
        self.start = self.start.max(Some(start));
    }

    #[inline]
    fn ends_at(&mut self, end: &'a [u8]) {
        self.end = Some(self.end.map_or(end, |before| before.min(end)));
    }
}

impl RangeSet {
    /// Adds a tombstone that is newer than all others; nothing if its range is empty. `is_newest`: the memtable has no
    /// newer entry.
    pub fn add(&self, start: &[u8], end: &[u8], seqno: SeqNo, is_newest: bool) {
        if start >= end {
            return;
        }
        let newer_keys = match is_newest {
            true => NewerKeys::within(start, end),
            false => NewerKeys::unknown(),
        };
        let _adding = self.adding.lock();
        let at = self.len.load(Ordering::Relaxed);
        debug_assert!(at == 0 || self.tombstones.get(at - 1).is_some_and(|t| t.seqno <= seqno));
        let keys = [start, end].concat().into_boxed_slice();
        let mut bytes = keys.len() + ALLOCATION_BYTES;
        bytes +=
            self.tombstones.put(at, Tombstone { keys, start_len: start.len(), seqno, newer_keys });
        if (at + 1).is_multiple_of(CHUNK) {
            bytes += self.finish_chunk(at / CHUNK);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Release: a reader that sees the count finds the tombstones and the nodes.
        self.len.store(at + 1, Ordering::Release);
    }

    /// Makes the nodes that end with the last tombstone of `chunk`; gives their bytes.
    fn finish_chunk(&self, chunk: usize) -> usize {
        let mut unions = vec![self.union_of_chunk(chunk)];
        for level in 0..(chunk + 1).trailing_zeros() as usize {
            let left = self.node(chunk + 1 - (1 << level), level);
            let union = self.union(left, &unions[level]);
            unions.push(union);
        }
        let bytes = |union: &Union| size_of_val(&**union) + ALLOCATION_BYTES;
        let bytes: usize = unions.iter().map(bytes).sum();
        let bytes = bytes + unions.len() * size_of::<Union>() + ALLOCATION_BYTES;
        bytes + self.nodes.put(chunk, unions.into_boxed_slice())
    }

    fn union_of_chunk(&self, chunk: usize) -> Union {
        let first = chunk * CHUNK;
        let mut single: Vec<Interval> = (first..first + CHUNK)
            .map(|at| Interval { start_of: at as u32, end_of: at as u32 })
            .collect();
        single.sort_unstable_by(|a, b| self.start(a).cmp(self.start(b)));
        let mut union = Vec::with_capacity(CHUNK);
        single.into_iter().for_each(|next| self.append(&mut union, next));
        union.into_boxed_slice()
    }

    fn union(&self, a: &[Interval], b: &[Interval]) -> Union {
        let mut union = Vec::with_capacity(a.len() + b.len());
        let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(in_a), Some(in_b)) => match self.start(in_a).cmp(self.start(in_b)) {
                    Compared::Greater => b.next(),
                    _ => a.next(),
                },
                (Some(_), None) => a.next(),
                (None, _) => b.next(),
            };
            match next {
                Some(next) => self.append(&mut union, *next),
                None => return union.into_boxed_slice(),
            }
        }
    }

    /// Adds an interval that starts at or after the last one.
    fn append(&self, union: &mut Vec<Interval>, next: Interval) {
        match union.last_mut() {
            Some(last) if self.start(&next) <= self.end(last) => {
                if self.end(last) < self.end(&next) {
                    last.end_of = next.end_of;
                }
            }
            _ => union.push(next),
        }
    }

    #[inline]
    fn start(&self, interval: &Interval) -> &[u8] {
        self.tombstones.get(interval.start_of as usize).map_or(&[], Tombstone::start)
    }

    #[inline]
    fn end(&self, interval: &Interval) -> &[u8] {
        self.tombstones.get(interval.end_of as usize).map_or(&[], Tombstone::end)
    }

    /// The union of the `2^level` chunks before chunk `end`.
    #[inline]
    fn node(&self, end: usize, level: usize) -> &[Interval] {
        let union = self.nodes.get(end - 1).and_then(|unions| unions.get(level));
        debug_assert!(union.is_some(), "a node is made with its last tombstone");
        union.map_or(&[], |union| union)
    }

    /// Whether there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Acquire: pairs with the Release in `add`.
        self.len.load(Ordering::Acquire) == 0
    }

    /// Bytes of memory in use.
    pub fn size_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The tombstones, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstoneRef<'_>> {
        self.iter_from(0)
    }

    /// Those above `since`, oldest first.
    pub fn iter_since(&self, since: SeqNo) -> impl Iterator<Item = RangeTombstoneRef<'_>> {
        self.iter_from(self.visible_len(since))
    }

    fn iter_from(&self, first: usize) -> impl Iterator<Item = RangeTombstoneRef<'_>> {
        // Acquire: pairs with the Release in `add`.
        (first..self.len.load(Ordering::Acquire)).filter_map(|at| {
            let t = self.tombstones.get(at)?;
            Some(RangeTombstoneRef { start: t.start(), end: t.end(), seqno: t.seqno })
        })
    }

    /// The newest tombstone at or below `read_seqno` that covers `key`.
    #[inline]
    pub fn covering_seqno(&self, key: &[u8], read_seqno: SeqNo) -> Option<SeqNo> {
        self.find(key, read_seqno, &mut ()).map(|tombstone| tombstone.seqno)
    }

    /// The keys around `key` for which a read at `read_seqno` meets the same tombstone.
    pub fn span_at(&self, key: &[u8], read_seqno: SeqNo) -> CoverSpan<'_> {
        let mut span = CoverSpan::default();
        let found = self.find(key, read_seqno, &mut span);
        span.seqno = found.map(|tombstone| tombstone.seqno).unwrap_or_default();
        span
    }

    /// An entry is about to be inserted into the memtable.
    #[inline]
    pub fn note_entry(&self, key: &[u8], seqno: SeqNo) {
        if !self.is_empty() {
            self.note_entry_over(key, seqno);
        }
    }

    #[cold]
    fn note_entry_over(&self, key: &[u8], seqno: SeqNo) {
        if let Some(tombstone) = self.find(key, seqno, &mut ()) {
            let allocated = tombstone.newer_keys.add(key);
            if allocated > 0 {
                self.bytes.fetch_add(allocated, Ordering::Relaxed);
            }
        }
    }

    /// The first key from `key` on, at most `end`, before which the memtable has only entries that the tombstone of
    /// `seqno` covers. `None` if that is not known, or another tombstone is newer.
    pub fn covered_until<'a>(
        &'a self,
        key: &[u8],
        end: &'a [u8],
        seqno: SeqNo,
    ) -> Option<&'a [u8]> {
        let mut span = CoverSpan::default();
        let tombstone = self.find(key, MAX_SEQNO, &mut span).filter(|t| t.seqno == seqno)?;
        let end = span.end.map_or(end, |own| own.min(end));
        tombstone.newer_keys.first_in(key, end)
    }

    /// The mirror image: the last key in `[start, key]` that has an entry which the tombstone of `seqno` does not cover,
    /// if there is one, with the `start` from which that is so, the given one or one above it.
    pub fn covered_from<'a>(
        &'a self,
        key: &[u8],
        start: &'a [u8],
        seqno: SeqNo,
    ) -> Option<(Option<&'a [u8]>, &'a [u8])> {
        let mut span = CoverSpan::default();
        let tombstone = self.find(key, MAX_SEQNO, &mut span).filter(|t| t.seqno == seqno)?;
        let start = span.start.map_or(start, |own| own.max(start));
        Some((tombstone.newer_keys.last_in(start, key)?, start))
    }

    /// How many tombstones a read at `read_seqno` sees.
    #[inline]
    fn visible_len(&self, read_seqno: SeqNo) -> usize {
        // Acquire: pairs with the Release in `add`.
        let len = self.len.load(Ordering::Acquire);
        let is_seen = |at: usize| self.tombstones.get(at).is_some_and(|t| t.seqno <= read_seqno);
        if len == 0 || is_seen(len - 1) {
            return len;
        }
        let (mut seen, mut unseen) = (0, len - 1);
        while seen < unseen {
            let middle = seen.midpoint(unseen);
            match is_seen(middle) {
                true => seen = middle + 1,
                false => unseen = middle,
            }
        }
        seen
    }

    #[inline]
    fn find<'a>(
        &'a self,
        key: &[u8],
        read_seqno: SeqNo,
        around: &mut impl Around<'a>,
    ) -> Option<&'a Tombstone> {
        let len = self.visible_len(read_seqno);
        let mut end = len / CHUNK;
        let found = self.find_among(end * CHUNK, len, key, around);
        if found.is_some() {
            return found;
        }
        while end > 0 {
            let mut level = end.trailing_zeros() as usize;
            if !self.covers(self.node(end, level), key, around) {
                end -= 1 << level;
                continue;
            }
            while level > 0 {
                level -= 1;
                if !self.covers(self.node(end, level), key, around) {
                    end -= 1 << level;
                }
            }
            return self.find_among((end - 1) * CHUNK, end * CHUNK, key, around);
        }
        None
    }

    /// The newest of the tombstones `first..end` that covers `key`.
    #[inline]
    fn find_among<'a>(
        &'a self,
        first: usize,
        end: usize,
        key: &[u8],
        around: &mut impl Around<'a>,
    ) -> Option<&'a Tombstone> {
        for at in (first..end).rev() {
            let t = self.tombstones.get(at)?;
            around.compares();
            if key < t.start() {
                around.ends_at(t.start());
            } else if key < t.end() {
                around.starts_at(t.start());
                around.ends_at(t.end());
                return Some(t);
            } else {
                around.starts_at(t.end());
            }
        }
        None
    }

    #[inline]
    fn covers<'a>(
        &'a self,
        union: &'a [Interval],
        key: &[u8],
        around: &mut impl Around<'a>,
    ) -> bool {
        let after = union.partition_point(|interval| {
            around.compares();
            self.start(interval) <= key
        });
        if let Some(before) = after.checked_sub(1).map(|at| &union[at]) {
            let end = self.end(before);
            if key < end {
                return true;
            }
            around.starts_at(end);
        }
        if let Some(next) = union.get(after) {
            around.ends_at(self.start(next));
        }
        false
    }
}

#[cfg(test)]
mod tests;
