//! The properties block: what the writer recorded about the file as a whole.
//!
//! A varint count, then per property: tag varint, length varint, bytes. Numbers are varints, the
//! filter policy a text. Readers skip tags they do not know, so properties can be added without
//! a new format version; tags are never reused.

use crate::block_handle::Checked;
use crate::value_refs;
use terrace_base::codec::{get_varint, put_bytes, put_varint};
use terrace_base::{Decoder, FileNumber, SeqNo, ValueRef};
use terrace_compression::Compression;

/// The order of user keys that every SST of this version has.
pub const COMPARATOR: &str = "bytes";

/// What the writer recorded about the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Properties {
    /// Point entries, tombstones included.
    pub entry_count: u64,
    /// Point tombstones.
    pub tombstone_count: u64,
    /// Range tombstones (one per fragment and sequence number).
    pub range_tombstone_count: u64,
    /// Bytes of all user keys before compression.
    pub raw_key_bytes: u64,
    /// Bytes of all values before compression.
    pub raw_value_bytes: u64,
    /// Data blocks.
    pub data_block_count: u64,
    /// Stored bytes of the data blocks; they are the first of the file.
    pub data_bytes: u64,
    /// Stored bytes of the filter partitions.
    pub filter_bytes: u64,
    /// Stored bytes of the index partitions.
    pub index_bytes: u64,
    /// Stored bytes of the learned index; 0 if there is none.
    pub model_bytes: u64,
    /// How data blocks were to be compressed.
    pub compression: Compression,
    /// The filter policy as text (`terrace_filter::FilterPolicy`).
    pub filter: String,
    /// Smallest sequence number of any entry or range tombstone.
    pub smallest_seqno: SeqNo,
    /// Largest sequence number of any entry or range tombstone.
    pub largest_seqno: SeqNo,
    /// Smallest user key covered by an entry or a range tombstone.
    pub smallest: Vec<u8>,
    /// Largest user key covered, or the end of a range tombstone.
    pub largest: Vec<u8>,
    /// Whether `largest` is the end of a range tombstone and not covered itself.
    pub largest_exclusive: bool,
    /// Wall-clock time of creation in Unix milliseconds.
    pub created_ms: u64,
    /// When at least 30 % of the entry bytes will have expired; `None` if never.
    pub ttl_due_ms: Option<u64>,
    /// The value segments that entries refer to, ascending.
    pub value_refs: Vec<ValueRef>,
    /// Id and name of the column family, for a repair without a manifest.
    pub family: Option<(u32, String)>,
    /// Every write of the family up to here was in SSTs when this one was made; 0 if it does not say.
    pub flushed_seqno: SeqNo,
    /// A checkpoint of a hot table: then [`Self::flushed_seqno`] holds for what was hot only.
    pub is_hot_checkpoint: bool,
    /// The sequence number of every entry and range tombstone, which are stored with 0: of files that were
    /// written before the store knew it (ingestion).
    pub global_seqno: Option<SeqNo>,
    /// The name of the merge operator whose operands the file has; none in files without operands, and in those that stores of
    /// earlier builds wrote.
    pub merge_operator: Option<String>,
    /// What the file has is as old as the file of this number: a repair has written it out of that one, or out of several of
    /// which that is the newest. None: its own number tells.
    pub as_old_as: Option<FileNumber>,
    /// The order of user keys; this version knows [`COMPARATOR`] only.
    pub comparator: String,
}

impl Default for Properties {
    fn default() -> Self {
        Self {
            entry_count: 0,
            tombstone_count: 0,
            range_tombstone_count: 0,
            raw_key_bytes: 0,
            raw_value_bytes: 0,
            data_block_count: 0,
            data_bytes: 0,
            filter_bytes: 0,
            index_bytes: 0,
            model_bytes: 0,
            compression: Compression::None,
            filter: "none".to_string(),
            smallest_seqno: SeqNo::ZERO,
            largest_seqno: SeqNo::ZERO,
            smallest: Vec::new(),
            largest: Vec::new(),
            largest_exclusive: false,
            created_ms: 0,
            ttl_due_ms: None,
            value_refs: Vec::new(),
            family: None,
            flushed_seqno: SeqNo::ZERO,
            is_hot_checkpoint: false,
            global_seqno: None,
            merge_operator: None,
            as_old_as: None,
            comparator: COMPARATOR.to_string(),
        }
    }
}

/// Tags of the numbers, in the order of [`Properties::numbers`].
const NUMBER_TAGS: [u64; 13] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 21, 12, 13, 17];
const TAG_COMPRESSION: u64 = 10;
const TAG_FILTER: u64 = 11;
const TAG_SMALLEST: u64 = 14;
const TAG_LARGEST: u64 = 15;
const TAG_LARGEST_EXCLUSIVE: u64 = 16;
const TAG_TTL_DUE: u64 = 18;
const TAG_COMPARATOR: u64 = 19;
const TAG_VALUE_REFS: u64 = 20;
const TAG_FAMILY: u64 = 22;
const TAG_FLUSHED_SEQNO: u64 = 23;
const TAG_GLOBAL_SEQNO: u64 = 24;
const TAG_MERGE_OPERATOR: u64 = 25;
const TAG_HOT_CHECKPOINT: u64 = 26;
const TAG_AS_OLD_AS: u64 = 27;

impl Properties {
    fn numbers(&mut self) -> [&mut u64; NUMBER_TAGS.len()] {
        [
            &mut self.entry_count,
            &mut self.tombstone_count,
            &mut self.range_tombstone_count,
            &mut self.raw_key_bytes,
            &mut self.raw_value_bytes,
            &mut self.data_block_count,
            &mut self.data_bytes,
            &mut self.filter_bytes,
            &mut self.index_bytes,
            &mut self.model_bytes,
            self.smallest_seqno.raw_mut(),
            self.largest_seqno.raw_mut(),
            &mut self.created_ms,
        ]
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let number = |value: u64| {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            bytes
        };
        let mut fields: Vec<(u64, Vec<u8>)> = Vec::new();
        for (tag, value) in NUMBER_TAGS.into_iter().zip(self.clone().numbers()) {
            fields.push((tag, number(*value)));
        }
        fields.push((TAG_COMPRESSION, vec![self.compression as u8]));
        fields.push((TAG_FILTER, self.filter.clone().into_bytes()));
        fields.push((TAG_SMALLEST, self.smallest.clone()));
        fields.push((TAG_LARGEST, self.largest.clone()));
        fields.push((TAG_LARGEST_EXCLUSIVE, vec![u8::from(self.largest_exclusive)]));
        if let Some(due) = self.ttl_due_ms {
            fields.push((TAG_TTL_DUE, number(due)));
        }
        if !self.value_refs.is_empty() {
            fields.push((TAG_VALUE_REFS, value_refs::encode(&self.value_refs)));
        }
        if let Some((id, name)) = &self.family {
            fields.push((TAG_FAMILY, [number(u64::from(*id)), name.clone().into_bytes()].concat()));
        }
        if self.flushed_seqno > SeqNo::ZERO {
            fields.push((TAG_FLUSHED_SEQNO, number(self.flushed_seqno.get())));
        }
        if let Some(seqno) = self.global_seqno {
            fields.push((TAG_GLOBAL_SEQNO, number(seqno.get())));
        }
        if let Some(name) = &self.merge_operator {
            fields.push((TAG_MERGE_OPERATOR, name.clone().into_bytes()));
        }
        if self.is_hot_checkpoint {
            fields.push((TAG_HOT_CHECKPOINT, vec![1]));
        }
        if let Some(file) = self.as_old_as {
            fields.push((TAG_AS_OLD_AS, number(file.get())));
        }
        fields.push((TAG_COMPARATOR, self.comparator.clone().into_bytes()));
        fields.sort_unstable_by_key(|(tag, _)| *tag);
        put_varint(out, fields.len() as u64);
        for (tag, bytes) in fields {
            put_varint(out, tag);
            put_bytes(out, &bytes);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Checked<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut properties = Self::default();
        let count = decoder.varint().ok_or("properties are cut off")?;
        for _ in 0..count {
            let field = decoder.varint().and_then(|tag| Some((tag, decoder.bytes()?)));
            let (tag, bytes) = field.ok_or("properties are cut off")?;
            properties.decode_field(tag, bytes).ok_or("a property is malformed")?;
        }
        match decoder.is_empty() {
            true => Ok(properties),
            false => Err("bytes after the properties"),
        }
    }

    fn decode_field(&mut self, tag: u64, bytes: &[u8]) -> Option<()> {
        let number = || get_varint(bytes).filter(|(_, len)| *len == bytes.len()).map(|(v, _)| v);
        if let Some(at) = NUMBER_TAGS.iter().position(|known| *known == tag) {
            *self.numbers()[at] = number()?;
            return Some(());
        }
        match tag {
            TAG_COMPRESSION => self.compression = Compression::from_byte(*bytes.first()?)?,
            TAG_FILTER => self.filter = String::from_utf8(bytes.to_vec()).ok()?,
            TAG_SMALLEST => self.smallest = bytes.to_vec(),
            TAG_LARGEST => self.largest = bytes.to_vec(),
            TAG_LARGEST_EXCLUSIVE => self.largest_exclusive = *bytes.first()? != 0,
            TAG_TTL_DUE => self.ttl_due_ms = Some(number()?),
            TAG_VALUE_REFS => self.value_refs = value_refs::decode(bytes)?,
            TAG_FAMILY => {
                let (id, len) = get_varint(bytes)?;
                let name = String::from_utf8(bytes.get(len..)?.to_vec()).ok()?;
                self.family = Some((u32::try_from(id).ok()?, name));
            }
            TAG_FLUSHED_SEQNO => self.flushed_seqno = SeqNo::new(number()?),
            TAG_GLOBAL_SEQNO => self.global_seqno = Some(SeqNo::new(number()?)),
            TAG_MERGE_OPERATOR => {
                self.merge_operator = Some(String::from_utf8(bytes.to_vec()).ok()?);
            }
            TAG_HOT_CHECKPOINT => self.is_hot_checkpoint = *bytes.first()? != 0,
            TAG_AS_OLD_AS => self.as_old_as = Some(FileNumber::new(number()?)),
            TAG_COMPARATOR => self.comparator = String::from_utf8(bytes.to_vec()).ok()?,
            _ => {}
        }
        Some(())
    }

    /// About the bytes of memory they take.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.smallest.len()
            + self.largest.len()
            + self.comparator.len()
            + self.family.as_ref().map_or(0, |(_, name)| name.len())
            + self.filter.len()
            + self.merge_operator.as_ref().map_or(0, String::len)
            + self.value_refs.len() * size_of::<ValueRef>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use terrace_base::SegmentNumber;

    proptest! {
        #[test]
        fn round_trip(
            values in proptest::collection::vec(any::<u64>(), NUMBER_TAGS.len()), kind in 0u8..3,
            filter: String, smallest: Vec<u8>, largest: Vec<u8>, exclusive: bool,
            ttl_due_ms: Option<u64>, segments in proptest::collection::btree_map(any::<u32>(), any::<u64>(), 0..4),
            family: Option<(u32, String)>, flushed_seqno: u64, is_hot_checkpoint: bool,
            global_seqno: Option<u64>, merge_operator: Option<String>, as_old_as: Option<u64>,
            damage: Vec<(usize, u8)>,
        ) {
            let mut properties = Properties {
                compression: Compression::from_byte(kind).unwrap(),
                filter,
                smallest,
                largest,
                largest_exclusive: exclusive,
                ttl_due_ms,
                family,
                flushed_seqno: SeqNo::new(flushed_seqno),
                is_hot_checkpoint,
                global_seqno: global_seqno.map(SeqNo::new),
                merge_operator,
                as_old_as: as_old_as.map(FileNumber::new),
                value_refs: segments
                    .into_iter()
                    .map(|(segment, bytes)| ValueRef { segment: SegmentNumber::new(segment.into()), bytes })
                    .collect(),
                ..Properties::default()
            };
            for (field, value) in properties.numbers().into_iter().zip(values) {
                *field = value;
            }
            let mut bytes = Vec::new();
            properties.encode(&mut bytes);
            prop_assert_eq!(&Properties::decode(&bytes).unwrap(), &properties);
            prop_assert!(Properties::decode(&bytes[..bytes.len() - 1]).is_err());
            for (at, byte) in damage {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let _ = Properties::decode(&bytes);
        }
    }

    #[test]
    fn unknown_tags_are_skipped() {
        let mut bytes = vec![2, 99, 3, b'n', b'e', b'w', 1];
        put_bytes(&mut bytes, &[42]);
        let properties = Properties::decode(&bytes).unwrap();
        assert_eq!(properties, Properties { entry_count: 42, ..Properties::default() });
    }
}
