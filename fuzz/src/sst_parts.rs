//! Takes a small SST apart and puts it together again around a part that is not its own, with
//! every place and checksum right, so that a target reaches the decoder of that part.
//!
//! Small means: one data block, one index partition, at most one filter partition, at most a learned
//! index. The layout is
//! that of `docs/format/sst.md`; a test joins what was split and expects the same file.

use terrace_base::checksum::block_checksum;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::{Decoder, FileNumber};
use terrace_sst::{FOOTER_BYTES, FORMAT_VERSION, MAGIC};

/// The number of the file that targets make of their input.
pub const FILE_NUMBER: FileNumber = FileNumber::new(7);

/// Bytes after the content of a stored block: how it is stored, checksum.
const TRAILER_BYTES: usize = 5;

/// Bytes of the footer that its checksum covers.
const FOOTER_FIELDS_BYTES: usize = FOOTER_BYTES - 12;

/// What the footer's checksum counts as the way it is stored.
const FOOTER_KIND: u8 = 0xff;

/// The tag of the learned index among the other blocks of the top-level index.
const TAG_LEARNED: u64 = 1;

/// Tags of the properties that name sizes: data, filters, index.
const SIZE_TAGS: [u64; 3] = [7, 8, 9];

/// The parts of a small SST, each as its decoder gets it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts {
    /// How the data block is stored, and its content in that form.
    pub block: (u8, Vec<u8>),
    /// The filter partition.
    pub filter: Option<Vec<u8>>,
    /// The index partition.
    pub index: Vec<u8>,
    /// The learned index.
    pub learned: Option<Vec<u8>>,
    /// The range tombstones.
    pub tombstones: Option<Vec<u8>>,
    /// The top-level index as it was split off; joining makes its places anew.
    pub top_level: Vec<u8>,
    /// The properties; joining makes the sizes anew.
    pub properties: Vec<u8>,
    /// The footer's fields as they were split off; joining makes them anew.
    pub footer: Vec<u8>,
}

/// A part that joining takes as it is, whatever places it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsIs {
    /// None: every place is made right.
    Nothing,
    /// The index partition.
    Index,
    /// The top-level index.
    TopLevel,
    /// The properties.
    Properties,
    /// The footer's fields.
    Footer,
}

/// Offset and stored length.
type Handle = (u64, u32);

/// The top-level index of a small SST.
struct TopLevel {
    index_separator: Vec<u8>,
    index: Handle,
    data_offset: u64,
    block_count: u64,
    prefix_len: u64,
    filter: Option<ListedFilter>,
    learned: Option<Handle>,
}

/// A filter partition of one unit as the top-level index lists it.
struct ListedFilter {
    separator: Vec<u8>,
    offset: u64,
    /// Kind, seed, and number of units (1).
    shape: [u8; 3],
    unit_bytes: u32,
    key_count: u64,
}

impl ListedFilter {
    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let (separator, offset) = (decoder.bytes()?.to_vec(), decoder.varint()?);
        let shape = [decoder.u8()?, decoder.u8()?, decoder.u8()?];
        let (first, other) = (decoder.varint()?, decoder.varint()?);
        let unit_bytes = u32::try_from(first).ok()?;
        let key_count = decoder.varint()?;
        let one_unit = shape[2] == 1 && first == other;
        one_unit.then_some(Self { separator, offset, shape, unit_bytes, key_count })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.separator);
        put_varint(out, self.offset);
        out.extend_from_slice(&self.shape);
        put_varint(out, u64::from(self.unit_bytes));
        put_varint(out, u64::from(self.unit_bytes));
        put_varint(out, self.key_count);
    }

    fn handle(&self) -> Option<Handle> {
        Some((self.offset, self.unit_bytes.checked_add(TRAILER_BYTES as u32)?))
    }

    fn set_handle(&mut self, (offset, len): Handle) {
        self.offset = offset;
        self.unit_bytes = len.saturating_sub(TRAILER_BYTES as u32);
    }
}

impl Parts {
    /// Takes `file` apart; `None` if it is not a small SST.
    pub fn split(file: &[u8]) -> Option<Self> {
        let footer = file.last_chunk::<FOOTER_BYTES>()?;
        let mut decoder = Decoder::new(footer);
        let mut handle = || Some((decoder.u64()?, decoder.u32()?));
        let (tombstones, top_level, properties) = (handle()?, handle()?, handle()?);
        let top_level = content(file, top_level)?.1;
        let top = TopLevel::decode(&top_level)?;
        let (index, filter) = (top.index, top.filter.as_ref().and_then(ListedFilter::handle));
        let block_end = filter.unwrap_or(index).0;
        let tombstones = (tombstones.1 != 0).then_some(tombstones);
        Some(Self {
            block: content(file, (0, u32::try_from(block_end).ok()?))?,
            filter: filter.and_then(|handle| Some(content(file, handle)?.1)),
            index: content(file, index)?.1,
            learned: top.learned.and_then(|handle| Some(content(file, handle)?.1)),
            tombstones: tombstones.and_then(|handle| Some(content(file, handle)?.1)),
            top_level,
            properties: content(file, properties)?.1,
            footer: footer[..FOOTER_FIELDS_BYTES].to_vec(),
        })
    }

    /// Puts the parts together; the parts named by `as_is` keep what places they say.
    pub fn join(&self, as_is: AsIs) -> Vec<u8> {
        let mut file = Vec::new();
        let block = put_block(&mut file, self.block.0, &self.block.1);
        let data_bytes = file.len() as u64;
        let filter = self.filter.as_ref().map(|filter| put_block(&mut file, 0, filter));
        let filter_bytes = file.len() as u64 - data_bytes;
        let mut index = self.index.clone();
        if as_is != AsIs::Index {
            place_block(&mut index, block.1);
        }
        let index = put_block(&mut file, 0, &index);
        let learned = self.learned.as_ref().map(|bytes| put_block(&mut file, 0, bytes));
        let tombstones = self.tombstones.as_ref().map(|bytes| put_block(&mut file, 0, bytes));
        let mut top_level = self.top_level.clone();
        if as_is != AsIs::TopLevel
            && let Some(mut top) = TopLevel::decode(&top_level)
        {
            top.index = index;
            top.learned = learned;
            if let (Some(listed), Some(handle)) = (&mut top.filter, filter) {
                listed.set_handle(handle);
            }
            top_level = top.encode();
        }
        let top_level = put_block(&mut file, 0, &top_level);
        let mut properties = self.properties.clone();
        if as_is != AsIs::Properties {
            let sizes = [data_bytes, filter_bytes, u64::from(index.1)];
            properties = with_sizes(&properties, sizes).unwrap_or(properties);
        }
        let properties = put_block(&mut file, 0, &properties);
        let mut fields = self.footer.clone();
        if as_is != AsIs::Footer {
            fields.clear();
            for (offset, len) in [tombstones.unwrap_or_default(), top_level, properties] {
                fields.extend_from_slice(&offset.to_le_bytes());
                fields.extend_from_slice(&len.to_le_bytes());
            }
            fields.extend_from_slice(&FILE_NUMBER.get().to_le_bytes());
            fields.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        }
        let sum = block_checksum(&fields, FOOTER_KIND, FILE_NUMBER, file.len() as u64);
        file.extend_from_slice(&fields);
        file.extend_from_slice(&sum.to_le_bytes());
        file.extend_from_slice(&MAGIC.to_le_bytes());
        file
    }
}

/// The learned index of a file with one data block of `stored_len` bytes, of which `blocks` is the
/// model.
pub fn learned_index(blocks: &[u8], stored_len: usize) -> Vec<u8> {
    let mut places = Vec::new();
    put_varint(&mut places, stored_len as u64);
    places.push(0);
    let mut out = vec![3];
    for (tag, section) in [(1, blocks), (2, &[0][..]), (3, &places)] {
        put_varint(&mut out, tag);
        put_bytes(&mut out, section);
    }
    out
}

/// The model of one block: its line is level, and the block begins on it.
pub fn one_block_model() -> Vec<u8> {
    let mut model = vec![1, 1, 0];
    model.push(1);
    model.extend([0; 15]);
    // One position and one segment: start, zeros, head, shift, slope, offset 256.
    model.extend([1, 1, 0, 0, 0, 8, 0, 0x80, 2]);
    let mut blocks = vec![1, 1];
    put_bytes(&mut blocks, &model);
    blocks.push(0x80);
    blocks
}

impl Parts {
    /// Bytes of the stored data block.
    pub fn stored_block_bytes(&self) -> usize {
        self.block.1.len() + TRAILER_BYTES
    }
}

impl TopLevel {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        if decoder.varint()? != 1 {
            return None;
        }
        let index_separator = decoder.bytes()?.to_vec();
        let index = decode_handle(&mut decoder)?;
        let (data_offset, block_count) = (decoder.varint()?, decoder.varint()?);
        let prefix_len = decoder.varint()?;
        let filter = match decoder.varint()? {
            0 => None,
            1 => Some(ListedFilter::decode(&mut decoder)?),
            _ => return None,
        };
        let learned = match decoder.varint()? {
            0 => None,
            1 if decoder.varint()? == TAG_LEARNED => Some(decode_handle(&mut decoder)?),
            _ => return None,
        };
        let small = decoder.is_empty() && data_offset == 0 && block_count == 1;
        small.then_some(Self {
            index_separator,
            index,
            data_offset,
            block_count,
            prefix_len,
            filter,
            learned,
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![1];
        put_bytes(&mut out, &self.index_separator);
        encode_handle(&mut out, self.index);
        put_varint(&mut out, self.data_offset);
        put_varint(&mut out, self.block_count);
        put_varint(&mut out, self.prefix_len);
        put_varint(&mut out, u64::from(self.filter.is_some()));
        if let Some(filter) = &self.filter {
            filter.encode(&mut out);
        }
        put_varint(&mut out, u64::from(self.learned.is_some()));
        if let Some(handle) = self.learned {
            put_varint(&mut out, TAG_LEARNED);
            encode_handle(&mut out, handle);
        }
        out
    }
}

fn decode_handle(decoder: &mut Decoder<'_>) -> Option<Handle> {
    Some((decoder.varint()?, u32::try_from(decoder.varint()?).ok()?))
}

fn encode_handle(out: &mut Vec<u8>, (offset, len): Handle) {
    put_varint(out, offset);
    put_varint(out, u64::from(len));
}

/// How the block at `handle` is stored, and its content.
fn content(file: &[u8], (offset, len): Handle) -> Option<(u8, Vec<u8>)> {
    let stored = file.get(usize::try_from(offset).ok()?..)?.get(..len as usize)?;
    let (content, trailer) = stored.split_last_chunk::<TRAILER_BYTES>()?;
    Some((trailer[0], content.to_vec()))
}

/// Appends a stored block.
fn put_block(file: &mut Vec<u8>, kind: u8, content: &[u8]) -> Handle {
    let offset = file.len() as u64;
    file.extend_from_slice(content);
    file.push(kind);
    let sum = block_checksum(content, kind, FILE_NUMBER, offset);
    file.extend_from_slice(&sum.to_le_bytes());
    (offset, (content.len() + TRAILER_BYTES) as u32)
}

/// Makes an index partition of one block say that it is `stored_len` long.
fn place_block(index: &mut [u8], stored_len: u32) {
    let Some([_, _, _, _, p0, p1]) = index.first_chunk::<6>().copied() else { return };
    let heads_at = (16 + usize::from(u16::from_le_bytes([p0, p1]))).next_multiple_of(4);
    let end_at = heads_at + 4 + 4;
    if let Some(end) = index.get_mut(end_at..end_at + 4) {
        end.copy_from_slice(&stored_len.to_le_bytes());
    }
}

/// The properties with other sizes of data, filters and index.
fn with_sizes(properties: &[u8], sizes: [u64; 3]) -> Option<Vec<u8>> {
    let mut decoder = Decoder::new(properties);
    let count = decoder.varint()?;
    let mut out = Vec::new();
    put_varint(&mut out, count);
    for _ in 0..count {
        let (tag, bytes) = (decoder.varint()?, decoder.bytes()?);
        put_varint(&mut out, tag);
        match SIZE_TAGS.iter().zip(sizes).find(|(listed, _)| **listed == tag) {
            Some((_, size)) => {
                let mut number = Vec::new();
                put_varint(&mut number, size);
                put_bytes(&mut out, &number);
            }
            None => put_bytes(&mut out, bytes),
        }
    }
    decoder.is_empty().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::small_ssts;

    #[test]
    fn joining_what_was_split_gives_the_same_file() {
        for file in small_ssts() {
            let parts = Parts::split(&file).expect("a small SST");
            assert_eq!(parts.join(AsIs::Nothing), file);
            for as_is in [AsIs::Index, AsIs::TopLevel, AsIs::Properties, AsIs::Footer] {
                assert_eq!(parts.join(as_is), file);
            }
        }
    }

    #[test]
    fn blocks_that_store_no_trailers_are_among_the_samples() {
        const FLAGS_AT: usize = 6;
        let plain = |file: &Vec<u8>| {
            let (kind, content) = Parts::split(file).expect("a small SST").block;
            (kind % 4 == 0).then(|| content[FLAGS_AT])
        };
        let flags: Vec<u8> = small_ssts().iter().filter_map(plain).collect();
        assert!(flags.contains(&2) && flags.contains(&4), "{flags:?}");
    }

    #[test]
    fn a_block_of_another_length_finds_its_place() {
        for file in small_ssts() {
            let mut parts = Parts::split(&file).expect("a small SST");
            parts.filter = parts.filter.map(|filter| [&filter[..], &filter[..]].concat());
            parts.block.1.extend_from_slice(b"more");
            let joined = parts.join(AsIs::Nothing);
            let again = Parts::split(&joined).expect("still a small SST");
            assert_eq!((&again.block, &again.filter), (&parts.block, &parts.filter));
        }
    }
}
