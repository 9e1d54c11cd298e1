//! One index partition: for each of a run of neighbouring data blocks its separator and place.
//!
//! ```text
//! ┌───────────────┬────────┬──────┬────────────┬─────────┬─────────────┬─────────┬───────────┬─────┐
//! │ count u32     │ prefix │ 0..3 │ guides     │ heads   │ offsets     │ lens    │ tail ends │tails│
//! │ prefix len u16│        │ zeros│ u32 × n/16 │ u32 × n │ u32 × (n+1) │ u8 × n  │ u16|u32   │     │
//! │ flags u8, 0   │        │      │            │         │             │ flag 1  │ × (n+1)   │     │
//! │ base u64      │        │      │            │         │             │         │ flag 2, 4 │     │
//! └───────────────┴────────┴──────┴────────────┴─────────┴─────────────┴─────────┴───────────┴─────┘
//! ```
//! A separator is at or above every key of its block and below every larger key of the next; it
//! is cut like the keys of a data block into prefix, head and tail. Separators shorter than prefix
//! and head have their rest length (0..=4) listed (flag 1); longer ones have tails (flag 2, with
//! `u32` ends under flag 4); most partitions need neither: 8.25 bytes a block. Guide `j` is head
//! `16 j + 15`: a search touches the guides and one line of heads instead of a line per halving.
//! Blocks follow each other without gaps: block `i` is stored at
//! `base + offsets[i] .. base + offsets[i + 1]`. Versions of one user key may span blocks, and
//! then separators repeat.

use crate::block::compare_rest;
use crate::block::format::MAX_PREFIX_BYTES;
use crate::block::search::{self, HEAD_BYTES, Head, head_of};
use crate::block_handle::{BlockHandle, Checked, MAX_STORED_BYTES, TRAILER_BYTES};
use std::cmp::Ordering;
use terrace_base::key::common_prefix;
use terrace_buf::Buf;

/// Bytes of the fixed fields at the front.
const HEADER_BYTES: usize = 16;

const FLAG_LENS: u8 = 1;
const FLAG_TAILS: u8 = 2;
const FLAG_WIDE_TAILS: u8 = 4;

const OFFSET_BYTES: usize = 4;

/// Heads per guide.
const GUIDED: usize = search::WINDOW;

/// Runs of equal heads up to this length are walked, longer ones halved.
const WALK_MAX: usize = 4;

/// A checked index partition and the memory it lies in.
#[derive(Debug, Clone)]
pub(crate) struct IndexPartition {
    buf: Buf,
    count: u32,
    prefix_len: u16,
    flags: u8,
    base: u64,
    /// Where arrays start, from the fields above.
    guides_at: usize,
    heads_at: usize,
    tail_ends_at: usize,
}

impl IndexPartition {
    /// Checks `buf` whole; what is wrong with it otherwise.
    pub fn load(buf: Buf) -> Checked<Self> {
        let Some(front) = buf.first_chunk::<HEADER_BYTES>() else { return Err("index is cut off") };
        let [c0, c1, c2, c3, p0, p1, flags, zero, base @ ..] = *front;
        if flags & !(FLAG_LENS | FLAG_TAILS | FLAG_WIDE_TAILS) != 0 || zero != 0 {
            return Err("index with unknown flags");
        }
        let count = u32::from_le_bytes([c0, c1, c2, c3]);
        let prefix_len = u16::from_le_bytes([p0, p1]);
        if count == 0 || count as usize > buf.len() / (HEAD_BYTES + OFFSET_BYTES) {
            return Err("impossible index entry count");
        }
        let guides_at = (HEADER_BYTES + usize::from(prefix_len)).next_multiple_of(HEAD_BYTES);
        let heads_at = guides_at + count as usize / GUIDED * HEAD_BYTES;
        let lens_at = heads_at + count as usize * (HEAD_BYTES + OFFSET_BYTES) + OFFSET_BYTES;
        let tail_ends_at = lens_at + if flags & FLAG_LENS != 0 { count as usize } else { 0 };
        let base = u64::from_le_bytes(base);
        let index = Self { buf, count, prefix_len, flags, base, guides_at, heads_at, tail_ends_at };
        if index.tail_ends_at > index.buf.len() || index.tails_at() > index.buf.len() {
            return Err("index arrays pass the end");
        }
        index.check_offsets()?;
        index.check_separators()?;
        Ok(index)
    }

    /// The same in another place, if it is to be moved ([`Buf::packed`]).
    pub fn packed(&self) -> Option<Self> {
        Some(Self { buf: self.buf.packed()?, ..*self })
    }

    fn check_offsets(&self) -> Checked<()> {
        if self.offset(0) != 0 {
            return Err("the first block offset is not 0");
        }
        for at in 0..self.count() {
            let len = self.offset(at + 1).checked_sub(self.offset(at));
            let len = len.ok_or("block offsets are not ascending")? as usize;
            if len <= TRAILER_BYTES || len > MAX_STORED_BYTES {
                return Err("impossible block length");
            }
        }
        match self.base.checked_add(u64::from(self.offset(self.count()))) {
            Some(_) => Ok(()),
            None => Err("blocks pass the end of any file"),
        }
    }

    fn check_separators(&self) -> Checked<()> {
        let tails_len = self.buf.len() - self.tails_at();
        let last_of_group = |at: usize| self.heads().get(at * GUIDED + GUIDED - 1);
        if (0..self.guides().len()).any(|at| self.guides().get(at) != last_of_group(at)) {
            return Err("guides differ from their heads");
        }
        let mut end = 0;
        if self.flags & FLAG_TAILS != 0 && self.tail_end(0) != 0 {
            return Err("the first tail does not start at 0");
        }
        for at in 0..self.count() {
            let rest_len = self.head_len(at);
            if rest_len > HEAD_BYTES {
                return Err("impossible separator length");
            }
            if rest_len < HEAD_BYTES && self.head(at) & (u32::MAX >> (8 * rest_len)) != 0 {
                return Err("short separator with bytes in the padding of its head");
            }
            if self.flags & FLAG_TAILS != 0 {
                let next = self.tail_end(at + 1);
                if next < end || next > tails_len || (next > end && rest_len < HEAD_BYTES) {
                    return Err("impossible separator tail");
                }
                end = next;
            }
        }
        if end == tails_len { Ok(()) } else { Err("bytes after the last separator") }
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Memory taken, with the buffer's header.
    pub fn charge_bytes(&self) -> usize {
        self.buf.charge_bytes()
    }

    /// Length of the payload.
    pub fn payload_bytes(&self) -> usize {
        self.buf.len()
    }

    #[inline]
    fn offsets_at(&self) -> usize {
        self.heads_at + self.count() * HEAD_BYTES
    }

    #[inline]
    fn lens_at(&self) -> usize {
        self.offsets_at() + (self.count() + 1) * OFFSET_BYTES
    }

    fn tail_end_bytes(&self) -> usize {
        match (self.flags & FLAG_TAILS != 0, self.flags & FLAG_WIDE_TAILS != 0) {
            (false, _) => 0,
            (true, false) => 2,
            (true, true) => 4,
        }
    }

    fn tails_at(&self) -> usize {
        self.tail_ends_at
            + if self.tail_end_bytes() == 0 {
                0
            } else {
                (self.count() + 1) * self.tail_end_bytes()
            }
    }

    /// What all separators start with.
    pub fn prefix(&self) -> &[u8] {
        &self.buf[HEADER_BYTES..HEADER_BYTES + self.prefix_len as usize]
    }

    #[inline]
    fn guides(&self) -> &[Head] {
        self.buf[self.guides_at..self.heads_at].as_chunks().0
    }

    #[inline]
    fn heads(&self) -> &[Head] {
        self.buf[self.heads_at..self.offsets_at()].as_chunks().0
    }

    fn head(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.heads()[at])
    }

    #[inline]
    fn offset(&self, at: usize) -> u32 {
        let offsets = self.buf[self.offsets_at()..self.lens_at()].as_chunks().0;
        u32::from_le_bytes(offsets[at])
    }

    /// How many bytes of head `at` belong to the separator.
    fn head_len(&self, at: usize) -> usize {
        if self.flags & FLAG_LENS == 0 {
            return HEAD_BYTES;
        }
        self.buf.get(self.lens_at() + at).map_or(HEAD_BYTES, |len| usize::from(*len))
    }

    fn tail_end(&self, at: usize) -> usize {
        let bytes = self.buf.get(self.tail_ends_at + at * self.tail_end_bytes()..);
        let bytes = bytes.unwrap_or_default();
        if self.flags & FLAG_WIDE_TAILS != 0 {
            bytes.first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk) as usize)
        } else {
            bytes.first_chunk().map_or(0, |chunk| usize::from(u16::from_le_bytes(*chunk)))
        }
    }

    #[inline]
    fn tail(&self, at: usize) -> &[u8] {
        if self.flags & FLAG_TAILS == 0 {
            return &[];
        }
        let tails = &self.buf[self.tails_at()..];
        tails.get(self.tail_end(at)..self.tail_end(at + 1)).unwrap_or_default()
    }

    /// Where data block `at` is stored.
    #[inline]
    pub fn handle(&self, at: usize) -> BlockHandle {
        let start = self.offset(at);
        let stored_len = self.offset(at + 1) - start;
        BlockHandle { offset: self.base + u64::from(start), stored_len }
    }

    /// Where the blocks of this partition start and end in the file.
    pub fn data_range(&self) -> (u64, u64) {
        (self.base, self.base + u64::from(self.offset(self.count())))
    }

    /// The first block whose separator is at or above `user_key`; the count if there is none.
    #[inline]
    pub fn lower_bound(&self, user_key: &[u8]) -> usize {
        let prefix = self.prefix();
        let Some((front, rest)) = user_key.split_at_checked(prefix.len()) else {
            return if user_key < prefix { 0 } else { self.count() };
        };
        if front != prefix {
            return if front < prefix { 0 } else { self.count() };
        }
        let heads = self.heads();
        let head = head_of(rest);
        let stored = head.to_le_bytes();
        let group = search::lower_bound(self.guides(), head) * GUIDED;
        // What follows the search is asked for before it.
        let place = self.offsets_at() + group * OFFSET_BYTES;
        terrace_filter::prefetch_read(&self.buf, place);
        terrace_filter::prefetch_read(&self.buf, place + GUIDED * OFFSET_BYTES);
        let mut at = search::lower_bound_in_group(heads, group, head);
        if heads.get(at + WALK_MAX) == Some(&stored) {
            at = self.halve_run(at, head, rest);
        }
        while heads.get(at) == Some(&stored) && self.compare(at, rest) == Ordering::Less {
            at += 1;
        }
        at
    }

    #[cold]
    fn halve_run(&self, from: usize, head: u32, rest: &[u8]) -> usize {
        let mut low = from;
        let mut high = match head.checked_add(1) {
            Some(next) => search::lower_bound(self.heads(), next).max(from),
            None => self.count(),
        };
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(middle, rest) {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// How separator `at`, whose head equals that of `rest`, compares to it.
    #[inline]
    fn compare(&self, at: usize, rest: &[u8]) -> Ordering {
        let tail = self.tail(at);
        compare_rest(self.head_len(at) + tail.len(), tail, rest)
    }

    /// Whether the separator of block `at` is `user_key` itself: only then may versions of the
    /// key follow in the next block.
    #[inline]
    pub fn separator_is(&self, at: usize, user_key: &[u8]) -> bool {
        user_key.strip_prefix(self.prefix()).is_some_and(|rest| {
            self.head(at) == head_of(rest) && self.compare(at, rest) == Ordering::Equal
        })
    }

    /// The separator of block `at`.
    pub fn separator(&self, at: usize) -> Vec<u8> {
        let head = self.head(at).to_be_bytes();
        [self.prefix(), &head[..self.head_len(at)], self.tail(at)].concat()
    }
}

/// Collects separators of one partition, as they come. Separators ascend, repeats allowed.
#[derive(Debug, Default)]
pub(crate) struct PartitionWriter {
    base: u64,
    separators: Vec<u8>,
    separator_ends: Vec<usize>,
    /// Ends of the blocks relative to `base`.
    block_ends: Vec<u32>,
    prefix_len: usize,
    longest: usize,
}

impl PartitionWriter {
    pub fn is_empty(&self) -> bool {
        self.block_ends.is_empty()
    }

    pub fn len(&self) -> usize {
        self.block_ends.len()
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    fn separator(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.separator_ends[at - 1] };
        &self.separators[start..self.separator_ends[at]]
    }

    pub fn last_separator(&self) -> &[u8] {
        if self.is_empty() { &[] } else { self.separator(self.len() - 1) }
    }

    /// Whether a block that ends at `end` can be described relative to this partition's base.
    pub fn reaches(&self, end: u64) -> bool {
        self.is_empty() || end - self.base <= u64::from(u32::MAX)
    }

    fn prefix_with(&self, separator: &[u8]) -> usize {
        match self.is_empty() {
            true => separator.len().min(MAX_PREFIX_BYTES),
            false => common_prefix(&self.separator(0)[..self.prefix_len], separator),
        }
    }

    /// About the size with one more separator: no less than it will be, but for separators that
    /// end inside prefix and head.
    pub fn size_with(&self, separator: &[u8]) -> usize {
        let n = self.len() + 1;
        let prefix_len = self.prefix_with(separator);
        let cut = prefix_len + HEAD_BYTES;
        let tails = match self.longest.max(separator.len()) > cut {
            true => 4 * (n + 1) + (self.separators.len() + separator.len()).saturating_sub(n * cut),
            false => 0,
        };
        let arrays = n * (HEAD_BYTES + OFFSET_BYTES + 1) + n / GUIDED * HEAD_BYTES + OFFSET_BYTES;
        HEADER_BYTES + (prefix_len + HEAD_BYTES - 1) + arrays + tails
    }

    /// Adds a data block. Blocks are added in file order without gaps.
    pub fn add(&mut self, separator: &[u8], block: BlockHandle) {
        if self.is_empty() {
            self.base = block.offset;
        }
        self.prefix_len = self.prefix_with(separator);
        self.longest = self.longest.max(separator.len());
        self.separators.extend_from_slice(separator);
        self.separator_ends.push(self.separators.len());
        let end = block.offset - self.base + u64::from(block.stored_len);
        self.block_ends.push(end as u32);
    }

    /// Appends the partition to `out` and starts the next one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let n = self.len();
        let rests = || (0..n).map(|at| &self.separator(at)[self.prefix_len..]);
        let with_lens = rests().any(|rest| rest.len() < HEAD_BYTES);
        let tail = |rest: &[u8]| rest.len().saturating_sub(HEAD_BYTES);
        let tail_bytes: usize = rests().map(tail).sum();
        let mut flags = 0;
        flags |= if with_lens { FLAG_LENS } else { 0 };
        flags |= if tail_bytes > 0 { FLAG_TAILS } else { 0 };
        let wide = tail_bytes > usize::from(u16::MAX);
        flags |= if wide { FLAG_WIDE_TAILS } else { 0 };
        let start = out.len();
        out.extend_from_slice(&(n as u32).to_le_bytes());
        out.extend_from_slice(&(self.prefix_len as u16).to_le_bytes());
        out.extend_from_slice(&[flags, 0]);
        out.extend_from_slice(&self.base.to_le_bytes());
        out.extend_from_slice(self.separators.get(..self.prefix_len).unwrap_or_default());
        out.resize(start + (out.len() - start).next_multiple_of(HEAD_BYTES), 0);
        for group in rests().skip(GUIDED - 1).step_by(GUIDED) {
            out.extend_from_slice(&head_of(group).to_le_bytes());
        }
        for rest in rests() {
            out.extend_from_slice(&head_of(rest).to_le_bytes());
        }
        out.extend_from_slice(&0u32.to_le_bytes());
        for end in &self.block_ends {
            out.extend_from_slice(&end.to_le_bytes());
        }
        if with_lens {
            out.extend(rests().map(|rest| rest.len().min(HEAD_BYTES) as u8));
        }
        if tail_bytes > 0 {
            let width = if wide { 4 } else { 2 };
            let mut end = 0u32;
            out.extend_from_slice(&end.to_le_bytes()[..width]);
            for rest in rests() {
                end += tail(rest) as u32;
                out.extend_from_slice(&end.to_le_bytes()[..width]);
            }
            for rest in rests() {
                out.extend_from_slice(rest.get(HEAD_BYTES..).unwrap_or_default());
            }
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(255)];
        (prop_oneof![Just(""), Just("shared-prefix"), Just("shared")], vec(byte, 0..9))
            .prop_map(|(front, back)| [front.as_bytes(), &back].concat())
    }

    fn build(keys: &[Vec<u8>]) -> (Vec<u8>, Vec<BlockHandle>) {
        let mut writer = PartitionWriter::default();
        let mut offset = 1 << 40;
        let mut handles = Vec::new();
        let mut bound = 0;
        for (at, key) in keys.iter().enumerate() {
            let handle = BlockHandle { offset, stored_len: 100 + at as u32 };
            offset += u64::from(handle.stored_len);
            bound = writer.size_with(key);
            assert!(writer.reaches(offset));
            writer.add(key, handle);
            handles.push(handle);
        }
        let mut out = b"?".to_vec();
        writer.finish(&mut out);
        let cut = common_prefix(&keys[0], &keys[keys.len() - 1]) + HEAD_BYTES;
        let short: usize = keys.iter().map(|key| cut.saturating_sub(key.len())).sum();
        assert!(writer.is_empty() && out.len() - 1 <= bound + short);
        (out.split_off(1), handles)
    }

    #[test]
    fn short_separators_cost_eight_and_a_quarter_bytes_a_block() {
        let keys: Vec<Vec<u8>> =
            (0..400u32).map(|i| format!("user{:04}", i * 25).into_bytes()).collect();
        assert_eq!(build(&keys).0.len(), HEADER_BYTES + 4 + 4 + 400 * 8 + 100);
    }

    #[test]
    fn a_partition_does_not_reach_past_4_gib() {
        let mut writer = PartitionWriter::default();
        writer.add(b"a", BlockHandle { offset: 10, stored_len: 100 });
        assert!(writer.reaches(10 + u64::from(u32::MAX)));
        assert!(!writer.reaches(11 + u64::from(u32::MAX)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn partitions_round_trip(
            mut keys in vec(key(), 1..80), long in 0usize..3, probes in vec(key(), 0..20),
        ) {
            keys.extend((0..long).map(|at| vec![b'z'; 40_000 + at]));
            keys.sort();
            let (bytes, handles) = build(&keys);
            let index = IndexPartition::load(Buf::from(&bytes[..])).unwrap();
            prop_assert_eq!(index.count(), keys.len());
            for (at, key) in keys.iter().enumerate() {
                prop_assert_eq!(&index.separator(at), key);
                prop_assert_eq!(index.handle(at), handles[at]);
                prop_assert!(index.separator_is(at, key));
            }
            for probe in probes.iter().chain(&keys) {
                let want = keys.partition_point(|key| key < probe);
                prop_assert_eq!(index.lower_bound(probe), want);
                let is = keys.get(want).is_some_and(|key| key == probe);
                prop_assert_eq!(want < keys.len() && index.separator_is(want, probe), is);
            }
        }

        #[test]
        fn damaged_partitions_never_panic(
            mut keys in vec(key(), 1..20), probe in key(),
            damage in vec((any::<usize>(), any::<u8>()), 1..4), cut: usize,
        ) {
            keys.sort();
            let (mut bytes, _) = build(&keys);
            for (at, byte) in damage {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            if cut % 3 == 0 {
                bytes.truncate(cut % bytes.len());
            }
            if let Ok(index) = IndexPartition::load(Buf::from(&bytes[..])) {
                index.lower_bound(&probe);
                for at in 0..index.count() {
                    index.separator(at);
                    index.handle(at);
                }
            }
        }
    }
}
