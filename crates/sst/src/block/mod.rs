//! Data blocks in memory: O(1) access to any entry, lookup by heads, nothing decoded twice.
//!
//! A block is checked whole when it is loaded ([`DataBlock::load`]); after that, access trusts
//! its fields (and stays memory-safe whatever they say). Format: [`format`]. Used by the reader,
//! the iterator, verification and dumps.

pub(crate) mod format;
pub(crate) mod search;
pub(crate) mod writer;

use crate::block_handle::Checked;
use format::{ENTRY_TRAILER_BYTES, HEADER_BYTES, Layout, compare_rests, tail_len};
use search::{HEAD_BYTES, Head, head_of};
use std::cmp::Ordering;
use std::ops::Range;
use terrace_base::codec::get_varint;
use terrace_buf::{Buf, Slice};

/// Runs of equal heads up to this length are walked, longer ones halved.
const WALK_MAX: usize = 4;

/// Entries of a run of equal heads that are fetched together.
const PREFETCHED_ENTRIES: usize = 16;

/// Bytes at the front of a block that are fetched together: header, prefix, heads and offsets of
/// some 45 entries.
const PREFETCH_BYTES: usize = 320;

/// Bytes that are fetched before and after the place where an entry should be: that place is right
/// to a few entries.
const PREFETCH_BEFORE_BYTES: usize = 64;
const PREFETCH_AFTER_BYTES: usize = 192;

/// Bytes of a cache line, at which blocks begin.
const LINE_BYTES: usize = 64;

/// Bytes of an entry that are fetched at once.
const PREFETCH_ENTRY_BYTES: usize = 256;

/// A checked block and the memory it lies in: one pointer, so that a slot can hold it.
#[derive(Clone)]
pub(crate) struct DataBlock {
    buf: Buf,
}

impl DataBlock {
    /// Checks `buf` whole; what is wrong with it otherwise.
    pub fn load(buf: Buf) -> Checked<Self> {
        format::parse(&buf)?;
        Ok(Self { buf })
    }

    /// The block in a `buf` that was [`load`](Self::load)ed before.
    pub fn checked(buf: Buf) -> Self {
        Self { buf }
    }

    /// The memory it lies in.
    #[inline]
    pub fn buf(&self) -> &Buf {
        &self.buf
    }

    #[inline]
    pub fn block(&self) -> BlockRef<'_> {
        BlockRef::checked(&self.buf)
    }

    #[inline]
    pub fn layout(&self) -> Layout {
        Layout::checked(&self.buf)
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// A value of this block, keeping the block alive.
    #[inline]
    pub fn value(&self, value: ValueRange) -> Slice {
        value.pinned(&self.buf)
    }
}

/// Asks for the lines of a block that a lookup reads first, its count of owners among them.
#[inline]
pub(crate) fn prefetch(block: &Buf) {
    block.prefetch_header();
    block.prefetch(0, PREFETCH_BYTES);
}

/// Asks for the lines of a block whose entries begin at `entries_at`, most likely, that a lookup reads before its entry.
#[inline]
pub(crate) fn prefetch_front(block: &Buf, entries_at: usize) {
    block.prefetch_header();
    block.prefetch(0, entries_at.min(PREFETCH_BYTES));
}

/// Asks for the lines of the entry that a lookup compares first. Reads those of [`prefetch_front`].
#[inline]
pub(crate) fn prefetch_entry(block: &Buf, aim: Aim) {
    let Aim::At(at) = aim else { return };
    let block_ref = BlockRef::checked(block);
    if at < block_ref.count() {
        let Range { start, end } = block_ref.entry_range(at);
        // From the start of its first line, so that the last one is met.
        block.prefetch(start / LINE_BYTES * LINE_BYTES, end.min(start + PREFETCH_ENTRY_BYTES));
    }
}

/// Asks for the lines of a block around `offset`, where an entry should be.
#[inline]
pub(crate) fn prefetch_around(block: &Buf, offset: usize) {
    block.prefetch(offset.saturating_sub(PREFETCH_BEFORE_BYTES), offset + PREFETCH_AFTER_BYTES);
}

/// Where a value lies in its block's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ValueRange {
    pub start: usize,
    pub end: usize,
}

impl ValueRange {
    /// The value in `block`, keeping the block alive.
    #[inline]
    pub fn pinned(self, block: &Buf) -> Slice {
        Slice::of(block.clone(), self.start, self.end - self.start)
    }
}

/// An entry without its head and prefix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawEntry<'a> {
    /// Length of the key after the prefix.
    pub rest_len: usize,
    /// The key after prefix and head.
    pub tail: &'a [u8],
    pub trailer: u64,
    pub value: ValueRange,
}

/// The answer of a lookup in one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Located {
    /// The newest visible version.
    Found { trailer: u64, value: ValueRange },
    /// A larger key stands where the key would be: no block has a visible version.
    Absent,
    /// Everything in the block sorts before; versions may follow in the next block.
    PastEnd,
}

/// Where a key is in a block, as far as heads say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// At this entry or after it: the first whose head is not below that of the key. The key has the block's prefix.
    At(usize),
    /// It is not in the block, and would be at this index.
    Beside(usize),
}

/// A checked block, wherever its bytes lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRef<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> BlockRef<'a> {
    /// The block in bytes that [`DataBlock::load`] has checked.
    #[inline]
    pub fn checked(bytes: &'a [u8]) -> Self {
        Self { bytes, layout: Layout::checked(bytes) }
    }

    /// `layout` must come from [`format::parse`] of the same bytes.
    #[inline]
    pub fn new(bytes: &'a [u8], layout: Layout) -> Self {
        Self { bytes, layout }
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.layout.count as usize
    }

    #[inline]
    pub fn prefix(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..HEADER_BYTES + self.layout.prefix_len as usize]
    }

    #[inline]
    fn heads(&self) -> &'a [Head] {
        self.layout.heads(self.bytes)
    }

    /// The head of entry `at` as the key bytes it stands for.
    #[inline]
    pub fn head(&self, at: usize) -> [u8; HEAD_BYTES] {
        u32::from_le_bytes(self.heads()[at]).to_be_bytes()
    }

    /// Entry `at`, which must be below the count.
    #[inline(always)]
    pub fn entry(&self, at: usize) -> RawEntry<'a> {
        let range = self.entry_range(at);
        let end = range.end;
        let entry = &self.bytes[range];
        let (rest_len, key_at) = match entry.first() {
            Some(len) if *len < 0x80 => (usize::from(*len), 1),
            _ => get_varint(entry).map_or((0, 1), |(len, at)| (len as usize, at)),
        };
        let (tail, after) = entry[key_at..].split_at(tail_len(rest_len));
        let (trailer, value_len) = match after.split_first_chunk::<ENTRY_TRAILER_BYTES>() {
            Some((trailer, value)) if !self.layout.is_bare() => {
                (u64::from_le_bytes(*trailer), value.len())
            }
            _ => (u64::from(self.layout.common_trailer), after.len()),
        };
        RawEntry { rest_len, tail, trailer, value: ValueRange { start: end - value_len, end } }
    }

    /// Where the fields of entry `at` lie.
    #[inline]
    pub fn entry_range(&self, at: usize) -> Range<usize> {
        let entries_at = self.layout.entries_at();
        let start = entries_at + self.layout.offset(self.bytes, at);
        start..entries_at + self.layout.offset(self.bytes, at + 1)
    }

    /// The bytes of a value of this block.
    pub fn value(&self, value: ValueRange) -> &'a [u8] {
        &self.bytes[value.start..value.end]
    }

    /// Puts the user key of entry `at` into `key`.
    pub fn read_key(&self, at: usize, key: &mut Vec<u8>) {
        let entry = self.entry(at);
        key.clear();
        key.extend_from_slice(self.prefix());
        let head = self.head(at);
        key.extend_from_slice(&head[..entry.rest_len.min(HEAD_BYTES)]);
        key.extend_from_slice(entry.tail);
    }

    /// The newest version of `user_key` at or after `trailer`.
    #[inline]
    pub fn find(&self, user_key: &[u8], trailer: u64) -> Located {
        self.find_at(user_key, trailer).1
    }

    /// As [`Self::find`], with the index of the entry found, or where it would be.
    #[inline]
    pub fn find_at(&self, user_key: &[u8], trailer: u64) -> (usize, Located) {
        self.find_aimed(self.aim(user_key), user_key, trailer)
    }

    /// As [`Self::find_at`], with what [`Self::aim`] has said of the same key.
    #[inline]
    pub fn find_aimed(&self, aim: Aim, user_key: &[u8], trailer: u64) -> (usize, Located) {
        match self.position_at(aim, user_key, trailer) {
            (at, Some(RawEntry { trailer, value, .. })) => (at, Located::Found { trailer, value }),
            (at, None) if at == self.count() => (at, Located::PastEnd),
            (at, None) => (at, Located::Absent),
        }
    }

    /// The index of the first entry at or after `(user_key, trailer)`; the count if there is none.
    #[inline]
    pub fn lower_bound(&self, user_key: &[u8], trailer: u64) -> usize {
        self.position(user_key, trailer).0
    }

    /// The lower bound, and its entry if that has the same user key.
    #[inline]
    fn position(&self, user_key: &[u8], trailer: u64) -> (usize, Option<RawEntry<'a>>) {
        self.position_at(self.aim(user_key), user_key, trailer)
    }

    #[inline]
    fn position_at(
        &self,
        aim: Aim,
        user_key: &[u8],
        trailer: u64,
    ) -> (usize, Option<RawEntry<'a>>) {
        match aim {
            Aim::At(at) => self.position_from(at, user_key, trailer),
            Aim::Beside(at) => (at, None),
        }
    }

    /// What the heads say of the key, without a look at an entry.
    #[inline]
    pub fn aim(&self, user_key: &[u8]) -> Aim {
        let prefix = self.prefix();
        match user_key.split_at_checked(prefix.len()) {
            Some((front, rest)) if front == prefix => {
                Aim::At(search::lower_bound(self.heads(), head_of(rest)))
            }
            // A key shorter than the prefix is below every key or above every key, as one with another front is.
            _ if user_key < prefix => Aim::Beside(0),
            _ => Aim::Beside(self.count()),
        }
    }

    /// As [`Self::position`], from the first entry with the head of the key on.
    #[inline]
    fn position_from(
        &self,
        mut at: usize,
        user_key: &[u8],
        trailer: u64,
    ) -> (usize, Option<RawEntry<'a>>) {
        let rest = &user_key[usize::from(self.layout.prefix_len)..];
        let heads = self.heads();
        let head = head_of(rest);
        let stored = head.to_le_bytes();
        if heads.get(at + WALK_MAX) == Some(&stored) {
            at = self.halve_run(at, head, rest, trailer);
        }
        while heads.get(at) == Some(&stored) {
            let entry = self.entry(at);
            match compare_rest(entry.rest_len, entry.tail, rest) {
                Ordering::Equal if entry.trailer <= trailer => return (at, Some(entry)),
                Ordering::Greater => break,
                Ordering::Less | Ordering::Equal => at += 1,
            }
        }
        (at, None)
    }

    /// The lower bound inside the run of entries with `head` that starts at `from`.
    #[cold]
    fn halve_run(&self, from: usize, head: u32, rest: &[u8], trailer: u64) -> usize {
        let mut low = from;
        let mut high = match head.checked_add(1) {
            Some(next) => search::lower_bound(self.heads(), next).max(from),
            None => self.count(),
        };
        while low < high {
            // Entries lie on lines of their own: those that may be compared next are asked for
            // together, where halving would wait for one after another.
            let (base, step) = (low, (high - low).div_ceil(PREFETCHED_ENTRIES));
            let probe = |number: usize| base + step * (number + 1) - 1;
            let probes = (high - low) / step;
            for number in 0..probes {
                terrace_filter::prefetch_read(self.bytes, self.entry_range(probe(number)).start);
            }
            let (mut from, mut to) = (0, probes);
            while from < to {
                let middle = from.midpoint(to);
                let entry = self.entry(probe(middle));
                let key_order = compare_rest(entry.rest_len, entry.tail, rest);
                match key_order.then_with(|| trailer.cmp(&entry.trailer)) {
                    Ordering::Less => from = middle + 1,
                    _ => to = middle,
                }
            }
            low = base + step * from;
            high = if from < probes { probe(from) } else { high };
        }
        low
    }
}

/// Compares two rests with equal heads, the left one given by length and tail.
#[inline]
pub(crate) fn compare_rest(left_len: usize, left_tail: &[u8], right: &[u8]) -> Ordering {
    let right_tail = right.get(HEAD_BYTES..).unwrap_or_default();
    compare_rests((left_len, left_tail), (right.len(), right_tail))
}

#[cfg(test)]
mod tests;
