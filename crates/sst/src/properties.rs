//! stub
use crate::Compression;
use terrace_base::SeqNo;
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
    /// Stored bytes of the data blocks.
    pub data_bytes: u64,
    /// Stored bytes of the index partitions.
    pub index_bytes: u64,
    /// Stored bytes of the filter partitions.
    pub filter_bytes: u64,
    /// How data blocks were to be compressed.
    pub compression: Compression,
    /// Filter memory in bits per key; 0 if there is no filter.
    pub filter_bits_per_key: f64,
    /// Smallest sequence number of any entry or range tombstone.
    pub smallest_seqno: SeqNo,
    /// Largest sequence number of any entry or range tombstone.
    pub largest_seqno: SeqNo,
    /// Wall-clock time of creation in Unix milliseconds.
    pub created_ms: u64,
    /// When at least 30 % of the entry bytes will have expired.
    pub ttl_due_ms: Option<u64>,
    /// The order of user keys.
    pub comparator: String,
}
