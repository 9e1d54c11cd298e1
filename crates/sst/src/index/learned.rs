//! The learned index of a file: which data block a key is in, and where every block lies, in about
//! a quarter of the bytes of the index partitions. It serves point lookups, and seeks and steps of
//! iterators in what is in memory; everything else, and keys that it cannot tell apart, goes through
//! the partitions.
//!
//! ```text
//! varint section count, then per section: tag varint, length varint, bytes
//!   1 blocks     terrace_learned::BlockModel
//!   2 continued  varint count, then varints: the blocks that begin with the last key of the block
//!                before, ascending, each less the one before
//!   3 places     per group of 64 blocks: shortest stored length varint, width u8 (0..=32), then
//!                per block its stored length less the shortest: `width` bits each, from the low
//!                bits of the first byte up; groups are padded to whole bytes
//! ```
//! Sections with other tags are skipped. The payload is advisory: a file whose model is damaged, or
//! of a kind this version does not know, is read through its index partitions.

use crate::block_handle::{BlockHandle, Checked, MAX_STORED_BYTES, TRAILER_BYTES};
use crate::options::MAX_BLOCK_BYTES;
use terrace_base::Decoder;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::sync::Instant;
use terrace_learned::{
    BlockGuess, BlockModel, BlockModelBuilder, ModelStats, NoModel, SAMPLED_KEYS,
};

const TAG_BLOCKS: u64 = 1;
const TAG_CONTINUED: u64 = 2;
const TAG_PLACES: u64 = 3;

/// Blocks per group of places.
const GROUP: usize = 64;

/// Widths of length differences go up to this.
const MAX_WIDTH: u32 = 32;

/// More blocks than one in this many that begin inside a key's versions do not pay.
const CONTINUED_PART: usize = 16;

/// A model must take at most one part in this many of what the index partitions take.
const INDEX_PART: usize = 2;

/// The decoded learned index.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LearnedIndex {
    blocks: BlockModel,
    continued: Box<[u32]>,
    places: Places,
}

impl LearnedIndex {
    /// Decodes and checks against what the file is known to have.
    pub fn decode(payload: &[u8], block_count: u64, data_bytes: u64) -> Checked<Self> {
        let mut decoder = Decoder::new(payload);
        let (mut blocks, mut continued, mut places) = (None, None, None);
        let sections = decoder.varint().ok_or("the learned index is cut off")?;
        for _ in 0..sections {
            let section = decoder.varint().and_then(|tag| Some((tag, decoder.bytes()?)));
            match section.ok_or("the learned index is cut off")? {
                (TAG_BLOCKS, bytes) => {
                    blocks = Some(BlockModel::decode(bytes).map_err(|malformed| malformed.0)?);
                }
                (TAG_CONTINUED, bytes) => continued = Some(decode_continued(bytes)?),
                (TAG_PLACES, bytes) => {
                    places = Some(Places::decode(bytes, block_count, data_bytes)?);
                }
                _ => {}
            }
        }
        if !decoder.is_empty() {
            return Err("bytes after the learned index");
        }
        let (Some(blocks), Some(continued), Some(places)) = (blocks, continued, places) else {
            return Err("the learned index lacks a section");
        };
        if u64::from(blocks.block_count()) != block_count {
            return Err("the learned index is of another number of blocks");
        }
        Ok(Self { blocks, continued, places })
    }

    pub fn block_count(&self) -> usize {
        self.blocks.block_count() as usize
    }

    /// The model of keys and blocks.
    pub fn blocks(&self) -> &BlockModel {
        &self.blocks
    }

    /// See [`BlockModel::locate`].
    #[inline]
    pub fn locate(&self, user_key: &[u8]) -> Option<BlockGuess> {
        self.blocks.locate(user_key)
    }

    /// Whether block `block` begins with the last key of the block before.
    #[inline]
    pub fn is_continued(&self, block: usize) -> bool {
        !self.continued.is_empty() && self.continued.binary_search(&(block as u32)).is_ok()
    }

    /// Where block `block` is stored. Takes up to some hundred ns: for blocks without a slot.
    pub fn handle(&self, block: usize) -> BlockHandle {
        self.places.handle(block)
    }

    /// Memory taken, this struct included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() - size_of::<BlockModel>()
            + self.blocks.memory_bytes()
            + size_of_val(&*self.continued)
            + self.places.memory_bytes()
    }

    /// Memory of the places alone.
    pub fn place_bytes(&self) -> usize {
        self.places.memory_bytes()
    }

    /// How many blocks begin with the last key of the block before.
    pub fn continued_count(&self) -> usize {
        self.continued.len()
    }
}

fn decode_continued(bytes: &[u8]) -> Checked<Box<[u32]>> {
    let mut decoder = Decoder::new(bytes);
    let malformed = "the list of continued blocks is malformed";
    let count = decoder.varint().ok_or(malformed)?;
    if count > bytes.len() as u64 {
        return Err(malformed);
    }
    let mut blocks: Vec<u32> = Vec::with_capacity(count as usize);
    let mut block = 0u64;
    for _ in 0..count {
        let step = decoder.varint().filter(|step| *step > 0).ok_or(malformed)?;
        block = block.checked_add(step).ok_or(malformed)?;
        blocks.push(u32::try_from(block).map_err(|_| malformed)?);
    }
    if decoder.is_empty() { Ok(blocks.into()) } else { Err(malformed) }
}

/// Where all blocks lie: about a byte each.
#[derive(Debug, Clone, PartialEq)]
struct Places {
    groups: Box<[Group]>,
    /// The length differences of all groups, and 8 bytes more.
    packed: Box<[u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Group {
    /// Where its first block lies, times 256, plus the width.
    offset_and_width: u64,
    shortest: u32,
    /// Where its differences start.
    packed_at: u32,
}

impl Group {
    fn width(&self) -> u32 {
        (self.offset_and_width & 0xff) as u32
    }

    /// The stored length of block `at` of the group.
    fn len(&self, packed: &[u8], at: usize) -> u64 {
        let bit = at * self.width() as usize;
        let bytes = packed.get(self.packed_at as usize + bit / 8..).and_then(<[u8]>::first_chunk);
        let bits = u64::from_le_bytes(*bytes.unwrap_or(&[0; 8])) >> (bit % 8);
        u64::from(self.shortest) + (bits & ((1 << self.width()) - 1))
    }
}

impl Places {
    fn encode(lens: &[u32], out: &mut Vec<u8>) {
        for group in lens.chunks(GROUP) {
            let shortest = group.iter().copied().min().unwrap_or(0);
            let longest = group.iter().copied().max().unwrap_or(0);
            let width = u32::BITS - (longest - shortest).leading_zeros();
            put_varint(out, u64::from(shortest));
            out.push(width as u8);
            let (mut bits, mut held) = (0u64, 0);
            for len in group {
                bits |= u64::from(len - shortest) << held;
                held += width;
                while held >= u8::BITS {
                    out.push(bits as u8);
                    bits >>= u8::BITS;
                    held -= u8::BITS;
                }
            }
            if held > 0 {
                out.push(bits as u8);
            }
        }
    }

    fn decode(bytes: &[u8], block_count: u64, data_bytes: u64) -> Checked<Self> {
        let malformed = "the places of blocks are malformed";
        let group_count = block_count.div_ceil(GROUP as u64);
        // A group takes at least two bytes.
        if group_count > bytes.len() as u64 / 2 || u32::try_from(bytes.len()).is_err() {
            return Err(malformed);
        }
        let mut decoder = Decoder::new(bytes);
        let mut groups = Vec::with_capacity(group_count as usize);
        let mut packed = Vec::with_capacity(bytes.len() + 8);
        let (mut offset, mut left) = (0u64, block_count);
        while left > 0 {
            let count = left.min(GROUP as u64) as usize;
            let shortest = decoder.varint().and_then(|len| u32::try_from(len).ok());
            let shortest = shortest.ok_or(malformed)?;
            let width = decoder.u8().map(u32::from).filter(|width| *width <= MAX_WIDTH);
            let width = width.ok_or(malformed)?;
            let packed_len = (count * width as usize).div_ceil(8);
            let offset_and_width = offset << 8 | u64::from(width);
            let group = Group { offset_and_width, shortest, packed_at: packed.len() as u32 };
            packed.extend_from_slice(decoder.take(packed_len).ok_or(malformed)?);
            let end = packed.len();
            packed.extend_from_slice(&[0; 8]);
            for at in 0..count {
                let len = group.len(&packed, at);
                if len <= TRAILER_BYTES as u64 || len > MAX_STORED_BYTES as u64 {
                    return Err("impossible block length");
                }
                offset += len;
            }
            packed.truncate(end);
            if offset > data_bytes {
                return Err("the places of blocks pass the data");
            }
            groups.push(group);
            left -= count as u64;
        }
        if offset != data_bytes || !decoder.is_empty() {
            return Err("the places of blocks do not cover the data");
        }
        packed.extend_from_slice(&[0; 8]);
        Ok(Self { groups: groups.into(), packed: packed.into() })
    }

    fn handle(&self, block: usize) -> BlockHandle {
        let Some(group) = self.groups.get(block / GROUP) else { return BlockHandle::default() };
        let at = block % GROUP;
        let before: u64 = (0..at).map(|at| group.len(&self.packed, at)).sum();
        BlockHandle {
            offset: (group.offset_and_width >> 8) + before,
            stored_len: group.len(&self.packed, at) as u32,
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.groups) + self.packed.len()
    }
}

// Lengths of blocks fit the widths, and sums of a file's lengths fit beside a width.
const _: () = assert!((MAX_BLOCK_BYTES as u64) < 1 << 32);

/// What came of training.
#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    /// Stored bytes of the learned index; why there is none otherwise.
    pub model: Result<u64, NoModel>,
    /// What was counted over the first keys of blocks, as far as it came.
    pub stats: ModelStats,
    /// Nanoseconds that it took: while a file is written, from its last key on; afterwards, with
    /// reading the file.
    pub training_ns: u64,
}

/// Collects what a learned index is made of while data blocks are written.
#[derive(Default)]
pub(crate) struct LearnedWriter {
    builder: BlockModelBuilder,
    continued: Vec<u32>,
    lens: Vec<u32>,
    key_count: u64,
}

impl LearnedWriter {
    /// A block begins with `first`, after one that ended with `last_before`.
    pub fn start_block(&mut self, last_before: &[u8], first: &[u8]) {
        let block = self.builder.block_count();
        if block > 0 && last_before == first {
            self.continued.push(block);
        }
        self.builder.push(last_before, first);
    }

    /// Memory held until the file ends.
    pub fn memory_bytes(&self) -> usize {
        let numbers = self.continued.capacity() + self.lens.capacity();
        self.builder.memory_bytes() + numbers * size_of::<u32>()
    }

    /// An entry of the block that was started last.
    #[inline]
    pub fn add(&mut self, user_key: &[u8]) {
        if self.key_count.is_multiple_of(SAMPLED_KEYS) {
            self.builder.sample(user_key);
        }
        self.key_count += 1;
    }

    /// The block that was started last takes this many stored bytes.
    pub fn finish_block(&mut self, stored_len: u32) {
        self.lens.push(stored_len);
    }

    /// Trains; the payload, if it pays beside index partitions of this many bytes.
    pub fn finish(self, index_bytes: u64) -> (Option<Vec<u8>>, Training) {
        let start = Instant::now();
        let blocks = self.builder.finish();
        let mut payload = None;
        let model = blocks.model.and_then(|blocks| {
            if self.continued.len() > self.lens.len() / CONTINUED_PART {
                return Err(NoModel::TooManyTies);
            }
            let bytes = encode(&blocks, &self.continued, &self.lens);
            if bytes.len() > MAX_BLOCK_BYTES.min(index_bytes as usize / INDEX_PART) {
                return Err(NoModel::TooManyBytes);
            }
            let len = bytes.len() as u64;
            payload = Some(bytes);
            Ok(len)
        });
        let training_ns = start.elapsed().as_nanos() as u64;
        (payload, Training { model, stats: blocks.stats, training_ns })
    }
}

fn encode(blocks: &[u8], continued: &[u32], lens: &[u32]) -> Vec<u8> {
    let mut list = Vec::new();
    put_varint(&mut list, continued.len() as u64);
    let mut before = 0;
    for block in continued {
        put_varint(&mut list, u64::from(block - before));
        before = *block;
    }
    let mut places = Vec::new();
    Places::encode(lens, &mut places);
    let sections = [(TAG_BLOCKS, blocks), (TAG_CONTINUED, &list), (TAG_PLACES, &places)];
    let mut out = Vec::new();
    put_varint(&mut out, sections.len() as u64);
    for (tag, bytes) in sections {
        put_varint(&mut out, tag);
        put_bytes(&mut out, bytes);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn learned(keys: u64, lens: impl Fn(u64) -> u32) -> (Vec<u8>, u64) {
        let mut writer = LearnedWriter::default();
        let key = |at: u64| format!("key{:012}", at * 31);
        let mut data_bytes = 0;
        for at in 0..keys {
            writer
                .start_block(key((at * 40).saturating_sub(1)).as_bytes(), key(at * 40).as_bytes());
            writer.finish_block(lens(at));
            data_bytes += u64::from(lens(at));
        }
        let (payload, training) = writer.finish(1 << 20);
        assert_eq!(training.model, Ok(payload.as_ref().unwrap().len() as u64));
        (payload.unwrap(), data_bytes)
    }

    #[test]
    fn sections_of_later_versions_are_skipped() {
        let (payload, data_bytes) = learned(100, |at| 4000 + (at % 20) as u32);
        let known = LearnedIndex::decode(&payload, 100, data_bytes).unwrap();
        let mut later = payload.clone();
        later[0] += 1;
        put_varint(&mut later, 77);
        put_bytes(&mut later, b"unknown");
        assert_eq!(LearnedIndex::decode(&later, 100, data_bytes).unwrap(), known);
        assert!(LearnedIndex::decode(&payload, 101, data_bytes).is_err());
        assert!(LearnedIndex::decode(&payload, 100, data_bytes - 1).is_err());
        assert!(LearnedIndex::decode(&[0], 100, data_bytes).is_err());
        assert!(known.memory_bytes() < 1300 + 100 * 3, "{}", known.memory_bytes());
    }

    proptest! {
        #[test]
        fn places_round_trip(
            lens in vec(prop_oneof![6u32..5000, 4000u32..4100, 6u32..1_000_000_000], 1..300),
        ) {
            let mut bytes = Vec::new();
            Places::encode(&lens, &mut bytes);
            let total = lens.iter().map(|len| u64::from(*len)).sum();
            let places = Places::decode(&bytes, lens.len() as u64, total).unwrap();
            let mut offset = 0;
            for (at, len) in lens.iter().enumerate() {
                prop_assert_eq!(places.handle(at), BlockHandle { offset, stored_len: *len });
                offset += u64::from(*len);
            }
            prop_assert!(Places::decode(&bytes, lens.len() as u64, total + 1).is_err());
        }

        #[test]
        fn damaged_payloads_never_panic(
            damage in vec((any::<usize>(), any::<u8>()), 1..4), cut: usize, probe: u64,
        ) {
            let (mut payload, data_bytes) = learned(150, |at| 4000 + (at * 7 % 100) as u32);
            for (at, byte) in damage {
                let at = at % payload.len();
                payload[at] = byte;
            }
            if cut % 3 == 0 {
                payload.truncate(cut % payload.len());
            }
            if let Ok(index) = LearnedIndex::decode(&payload, 150, data_bytes) {
                let guess = index.locate(format!("key{:012}", probe % 200_000).as_bytes());
                prop_assert!(guess.is_none_or(|guess| guess.block < 150));
                for block in 0..150 {
                    index.handle(block);
                    index.is_continued(block);
                }
            }
        }
    }
}
