//! The top-level index: which index partition and which filter partition a key belongs to.
//! Decoded when the file is opened and pinned from then on.
//!
//! ```text
//! varint partition count, then per index partition:
//!     separator (length varint, bytes), handle, offset of its first data block varint,
//!     data blocks varint
//! prefix length varint (0: filters know whole keys only),
//! varint partition count, then per filter partition:
//!     separator, offset of its first unit varint, kind u8, seed u8, units u8,
//!     bytes of the first unit varint, bytes of each other unit varint, keys varint
//! varint count of other blocks, then per block: tag varint, handle
//! handle: offset varint, stored length varint
//! ```
//! The separator of an index partition is that of its last data block; the separator of a filter
//! partition is at or above its keys and below those of the next. The units of a filter partition
//! are stored blocks that follow each other. *Other blocks* are advisory and named by tag, so that
//! later versions can add some: 1 is the learned index. Searches compare 8-byte heads in one contiguous array
//! first.

use crate::block_handle::{BlockHandle, Checked, MAX_STORED_BYTES, TRAILER_BYTES};
use crate::options::MAX_BLOCK_BYTES;
use terrace_base::Decoder;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::key::{common_prefix, head};
use terrace_filter::{FilterKind, FilterShape};

/// The tag of the learned index ([`crate::index::learned`]) among the other blocks.
pub(crate) const TAG_LEARNED: u64 = 1;

/// An index partition as the top level lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexPlace {
    pub handle: BlockHandle,
    /// Where its first data block starts.
    pub data_offset: u64,
    pub block_count: u64,
    /// Data blocks of the partitions before; not stored.
    pub first_block: u64,
}

/// A filter partition as the top level lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterPlace {
    /// Where its first unit starts.
    pub offset: u64,
    pub shape: FilterShape,
    /// Hashes it was built from: its keys, and their prefixes if the file filters those.
    pub key_count: u64,
}

impl FilterPlace {
    /// Where unit `unit` lies.
    pub fn unit(&self, unit: u8) -> BlockHandle {
        let range = self.shape.unit_range(unit);
        let before = range.start + usize::from(unit) * TRAILER_BYTES;
        let stored_len = (range.end - range.start + TRAILER_BYTES) as u32;
        BlockHandle { offset: self.offset.saturating_add(before as u64), stored_len }
    }

    /// Where all units lie.
    pub fn whole(&self) -> BlockHandle {
        self.units(0, self.shape.unit_count)
    }

    /// Where units `from` to `to` (not included) lie, one after another.
    pub fn units(&self, from: u8, to: u8) -> BlockHandle {
        let (first, last) = (self.unit(from), self.unit(to.saturating_sub(1)));
        let end = last.offset.saturating_add(u64::from(last.stored_len));
        BlockHandle { offset: first.offset, stored_len: end.saturating_sub(first.offset) as u32 }
    }
}

/// The decoded top-level index.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TopLevel {
    index_separators: Separators,
    index: Vec<IndexPlace>,
    prefix_len: usize,
    filter_separators: Separators,
    filters: Vec<FilterPlace>,
    /// Whether the file has filters that are not listed here, for their kind is unknown.
    skips_filters: bool,
    /// By tag.
    others: Vec<(u64, BlockHandle)>,
}

impl TopLevel {
    /// A top level over partitions in file order.
    pub fn new(
        index: Vec<(Vec<u8>, IndexPlace)>,
        prefix_len: usize,
        filters: Vec<(Vec<u8>, FilterPlace)>,
        others: Vec<(u64, BlockHandle)>,
    ) -> Self {
        let (index_keys, mut index) = index.into_iter().unzip::<_, IndexPlace, Vec<_>, Vec<_>>();
        let (filter_keys, filters) = filters.into_iter().unzip::<_, _, Vec<_>, _>();
        let mut first_block = 0u64;
        for place in &mut index {
            place.first_block = first_block;
            first_block = first_block.saturating_add(place.block_count);
        }
        Self {
            index_separators: Separators::new(&index_keys),
            index,
            prefix_len,
            filter_separators: Separators::new(&filter_keys),
            filters,
            skips_filters: false,
            others,
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let put_handle = |out: &mut Vec<u8>, handle: BlockHandle| {
            put_varint(out, handle.offset);
            put_varint(out, u64::from(handle.stored_len));
        };
        put_varint(out, self.index.len() as u64);
        for (at, place) in self.index.iter().enumerate() {
            put_bytes(out, self.index_separators.get(at));
            put_handle(out, place.handle);
            put_varint(out, place.data_offset);
            put_varint(out, place.block_count);
        }
        put_varint(out, self.prefix_len as u64);
        put_varint(out, self.filters.len() as u64);
        for (at, place) in self.filters.iter().enumerate() {
            put_bytes(out, self.filter_separators.get(at));
            put_varint(out, place.offset);
            out.extend_from_slice(&[
                place.shape.kind as u8,
                place.shape.seed,
                place.shape.unit_count,
            ]);
            put_varint(out, u64::from(place.shape.first_unit_bytes));
            put_varint(out, u64::from(place.shape.unit_bytes));
            put_varint(out, place.key_count);
        }
        put_varint(out, self.others.len() as u64);
        for (tag, handle) in &self.others {
            put_varint(out, *tag);
            put_handle(out, *handle);
        }
    }

    /// Decodes and checks; `file_end` is the end of what handles may name. An unknown filter kind
    /// is no error: the file is read without its filters.
    pub fn decode(bytes: &[u8], file_end: u64) -> Checked<Self> {
        let mut decoder = Decoder::new(bytes);
        let decoded =
            Self::decode_fields(&mut decoder, file_end).ok_or("top-level index is malformed")?;
        if !decoder.is_empty() {
            return Err("bytes after the top-level index");
        }
        if !decoded.index_separators.ascending() || !decoded.filter_separators.ascending() {
            return Err("separators of the top-level index are out of order");
        }
        let starts = decoded.index.windows(2).all(|pair| pair[0].data_offset < pair[1].data_offset);
        if !starts {
            return Err("data ranges of the top-level index are out of order");
        }
        Ok(decoded)
    }

    fn decode_fields(decoder: &mut Decoder<'_>, file_end: u64) -> Option<Self> {
        let handle = |decoder: &mut Decoder<'_>| {
            let offset = decoder.varint()?;
            let stored_len = u32::try_from(decoder.varint()?).ok()?;
            let handle = BlockHandle { offset, stored_len };
            let len = stored_len as usize;
            let fits = len > TRAILER_BYTES && len <= MAX_STORED_BYTES && handle.end()? <= file_end;
            fits.then_some(handle)
        };
        let count = decoder.varint()?;
        let mut index = Vec::new();
        for _ in 0..count {
            let separator = decoder.bytes()?.to_vec();
            let handle = handle(decoder)?;
            let data_offset = decoder.varint().filter(|offset| *offset <= handle.offset)?;
            index.push((
                separator,
                IndexPlace { handle, data_offset, block_count: decoder.varint()?, first_block: 0 },
            ));
        }
        let prefix_len = usize::try_from(decoder.varint()?).ok()?;
        let count = decoder.varint()?;
        let (mut filters, mut all_known) = (Vec::new(), true);
        for _ in 0..count {
            let separator = decoder.bytes()?.to_vec();
            match Self::decode_filter(decoder, file_end)? {
                Some(place) => filters.push((separator, place)),
                None => all_known = false,
            }
        }
        if !all_known {
            filters.clear();
        }
        let count = decoder.varint()?;
        let mut others = Vec::new();
        for _ in 0..count {
            others.push((decoder.varint()?, handle(decoder)?));
        }
        let skips_filters = !all_known;
        Some(Self { skips_filters, ..Self::new(index, prefix_len, filters, others) })
    }

    /// The place of one filter partition; `Some(None)` for a kind that this version does not know.
    #[expect(clippy::option_option, reason = "malformed, unknown and known are three things")]
    fn decode_filter(decoder: &mut Decoder<'_>, file_end: u64) -> Option<Option<FilterPlace>> {
        let offset = decoder.varint()?;
        let (kind, seed, unit_count) = (decoder.u8()?, decoder.u8()?, decoder.u8()?);
        let first_unit_bytes = u32::try_from(decoder.varint()?).ok()?;
        let unit_bytes = u32::try_from(decoder.varint()?).ok()?;
        let key_count = decoder.varint()?;
        let Some(kind) = FilterKind::from_byte(kind) else { return Some(None) };
        let shape = FilterShape { kind, unit_count, seed, first_unit_bytes, unit_bytes };
        if !shape.is_sound() || shape.prefix_bytes(unit_count) > MAX_BLOCK_BYTES {
            return None;
        }
        let place = FilterPlace { offset, shape, key_count };
        (place.whole().end()? <= file_end).then_some(Some(place))
    }

    pub fn index(&self) -> &[IndexPlace] {
        &self.index
    }

    pub fn index_separator(&self, at: usize) -> &[u8] {
        self.index_separators.get(at)
    }

    /// Blocks that are neither data nor partitions, by tag.
    pub fn others(&self) -> &[(u64, BlockHandle)] {
        &self.others
    }

    /// The other block with this tag.
    pub fn other(&self, tag: u64) -> Option<BlockHandle> {
        self.others.iter().find(|(known, _)| *known == tag).map(|(_, handle)| *handle)
    }

    /// The index partition that lists data block `ordinal`, and the block's number there.
    pub fn partition_of_block(&self, ordinal: u64) -> Option<(usize, usize)> {
        let after = self.index.partition_point(|place| place.first_block <= ordinal);
        let at = after.checked_sub(1)?;
        let block = ordinal - self.index[at].first_block;
        (block < self.index[at].block_count).then_some((at, block as usize))
    }

    pub fn filters(&self) -> &[FilterPlace] {
        &self.filters
    }

    /// Whether filters of the file are left out, because this build does not know their kind.
    pub fn skips_filters(&self) -> bool {
        self.skips_filters
    }

    pub fn filter_separator(&self, at: usize) -> &[u8] {
        self.filter_separators.get(at)
    }

    /// Length of the key prefixes that the filters know besides whole keys; 0 for none.
    pub fn prefix_len(&self) -> usize {
        self.prefix_len
    }

    /// The index partition that may cover `user_key`; the count if the key is past all.
    #[inline]
    pub fn index_at(&self, user_key: &[u8]) -> usize {
        self.index_separators.lower_bound(user_key)
    }

    /// The filter partition that may cover `user_key`; the count if the key is past all.
    #[inline]
    pub fn filter_at(&self, user_key: &[u8]) -> usize {
        self.filter_separators.lower_bound(user_key)
    }

    pub fn memory_bytes(&self) -> usize {
        self.index_separators.memory_bytes()
            + self.filter_separators.memory_bytes()
            + size_of_val(self.index.as_slice())
            + size_of_val(self.filters.as_slice())
            + size_of_val(self.others.as_slice())
    }
}

/// An ascending list of keys: heads after their common prefix in one array, keys in another.
#[derive(Clone, Debug, Default, PartialEq)]
struct Separators {
    prefix_len: usize,
    heads: Vec<u64>,
    ends: Vec<usize>,
    keys: Vec<u8>,
}

impl Separators {
    fn new(keys: &[Vec<u8>]) -> Self {
        let prefix_len = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) => common_prefix(first, last),
            _ => 0,
        };
        let mut list = Self { prefix_len, ..Self::default() };
        for key in keys {
            // Out of order (a damaged file, refused later) a key may lack the prefix.
            list.heads.push(head(key.get(prefix_len..).unwrap_or_default()));
            list.keys.extend_from_slice(key);
            list.ends.push(list.keys.len());
        }
        list.keys.shrink_to_fit();
        list
    }

    fn ascending(&self) -> bool {
        (1..self.ends.len()).all(|at| self.get(at - 1) <= self.get(at))
    }

    #[inline]
    fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.keys[start..self.ends[at]]
    }

    /// The first key at or above `key`; the count if there is none.
    #[inline]
    fn lower_bound(&self, key: &[u8]) -> usize {
        let prefix = &self.keys[..self.prefix_len];
        let Some((front, rest)) = key.split_at_checked(self.prefix_len) else {
            return if key < prefix { 0 } else { self.heads.len() };
        };
        if front != prefix {
            return if front < prefix { 0 } else { self.heads.len() };
        }
        let wanted = head(rest);
        let mut at = self.heads.partition_point(|head| *head < wanted);
        if self.heads.get(at) == Some(&wanted) {
            let run = self.heads[at..].partition_point(|head| *head == wanted);
            let (mut low, mut high) = (at, at + run);
            while low < high {
                let middle = low.midpoint(high);
                match &self.get(middle)[self.prefix_len..] < rest {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            at = low;
        }
        at
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(self.heads.as_slice())
            + size_of_val(self.ends.as_slice())
            + self.keys.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(b'a'), Just(255)];
        (prop_oneof![Just(""), Just("shared")], vec(byte, 0..12))
            .prop_map(|(front, back)| [front.as_bytes(), &back].concat())
    }

    fn top_level(mut keys: Vec<Vec<u8>>, mut filter_keys: Vec<Vec<u8>>) -> TopLevel {
        keys.sort();
        filter_keys.sort();
        let handle =
            |at: usize| BlockHandle { offset: 1000 + at as u64, stored_len: 50 + at as u32 };
        let index = |(at, key)| {
            let data_offset = at as u64;
            (key, IndexPlace { handle: handle(at), data_offset, block_count: 9, first_block: 0 })
        };
        let shape = FilterShape {
            kind: FilterKind::BlockedBloom,
            unit_count: 3,
            seed: 0,
            first_unit_bytes: 64,
            unit_bytes: 64,
        };
        let filter =
            |(at, key)| (key, FilterPlace { offset: 1000 + at as u64, shape, key_count: 4 });
        TopLevel::new(
            keys.into_iter().enumerate().map(index).collect(),
            7,
            filter_keys.into_iter().enumerate().map(filter).collect(),
            vec![(TAG_LEARNED, handle(7)), (99, handle(8))],
        )
    }

    proptest! {
        #[test]
        fn round_trips_and_searches(
            keys in vec(key(), 0..30), filters in vec(key(), 0..30), probes in vec(key(), 1..20),
        ) {
            let top = top_level(keys.clone(), filters);
            let mut bytes = Vec::new();
            top.encode(&mut bytes);
            prop_assert_eq!(&TopLevel::decode(&bytes, 5000).unwrap(), &top);
            prop_assert!(TopLevel::decode(&bytes, 1000).is_err());
            prop_assert_eq!((top.other(99), top.other(2)), (Some(BlockHandle { offset: 1008, stored_len: 58 }), None));
            let mut sorted = keys;
            sorted.sort();
            for probe in probes.iter().chain(&sorted) {
                let want = sorted.partition_point(|key| key < probe);
                prop_assert_eq!(top.index_at(probe), want);
            }
        }

        #[test]
        fn damaged_bytes_never_panic(
            keys in vec(key(), 0..10), filters in vec(key(), 0..10), probe in key(),
            damage in vec((any::<usize>(), any::<u8>()), 1..4), cut: usize,
        ) {
            let mut bytes = Vec::new();
            top_level(keys, filters).encode(&mut bytes);
            for (at, byte) in damage {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            if cut % 3 == 0 {
                bytes.truncate(cut % bytes.len());
            }
            if let Ok(top) = TopLevel::decode(&bytes, 5000) {
                top.index_at(&probe);
                top.filter_at(&probe);
            }
        }
    }
}
