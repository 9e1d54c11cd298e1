//! How an SST is written, and the limits of the format.

use terrace_base::key::{EXPIRY_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use terrace_base::{FileNumber, SeqNo};
use terrace_compression::Compression;
use terrace_filter::FilterPolicy;

/// The unit in which a file is read past the page cache.
pub const PAGE_BYTES: usize = 4096;

/// Default target of a data block, in bytes.
pub const DEFAULT_BLOCK_SIZE: usize = PAGE_BYTES;

/// Default target of an index or filter partition in memory, in bytes.
pub const DEFAULT_METADATA_BLOCK_SIZE: usize = 4096;

/// Default of the pieces in which a file is written, in bytes.
pub const DEFAULT_WRITE_BYTES: usize = 1 << 20;

/// The largest uncompressed block that a writer may make and a reader allocates for: one entry
/// with the longest key and value, and the block's own fields.
pub const MAX_BLOCK_BYTES: usize = MAX_VALUE_BYTES + EXPIRY_BYTES + MAX_KEY_BYTES + 1024;

/// How one SST is written. Readers need none of this: the file says it all.
#[derive(Debug, Clone)]
pub struct SstOptions {
    /// Target of a data block before compression, trailer included: 4,096 fills exactly one page of the file, and
    /// one slot of the page memory. Sizes above a page are rounded down to whole pages. Larger entries
    /// get a block of their own.
    pub block_size: usize,
    /// Target of an index partition, and of the largest unit of a filter partition, in memory,
    /// buffer header and trailer included: 4,096 fills exactly one 4 KiB slot of the page memory.
    pub metadata_block_size: usize,
    /// How data blocks are stored. A block that saves less than an eighth is stored as it is.
    pub compression: Compression,
    /// Which filter is written.
    pub filter: FilterPolicy,
    /// Above 0: filters also know the first this many bytes of every key that has them, for scans of
    /// a prefix.
    pub prefix_len: usize,
    /// `false`: one index partition and one filter partition whatever their size, as engines
    /// without partitions have; for comparison.
    pub partitioned: bool,
    /// Train a learned index while writing, and keep it if it pays.
    pub learning: bool,
    /// Write past the page cache.
    pub direct_write: bool,
    /// The file is written in pieces of at least this many bytes, and a writer holds as many, and a block.
    pub write_bytes: usize,
    /// Wall-clock time of creation in Unix milliseconds, recorded in the properties.
    pub created_ms: u64,
    /// Id and name of the column family, recorded in the properties.
    pub family: Option<(u32, String)>,
    /// Every write of the family up to here was in SSTs when this one was made, recorded in the properties.
    pub flushed_seqno: SeqNo,
    /// As in the properties.
    pub is_hot_checkpoint: bool,
    /// As in the properties.
    pub as_old_as: Option<FileNumber>,
    /// The family's merge operator, recorded in the properties if an operand is added.
    pub merge_operator: Option<String>,
}

impl Default for SstOptions {
    fn default() -> Self {
        Self {
            block_size: DEFAULT_BLOCK_SIZE,
            metadata_block_size: DEFAULT_METADATA_BLOCK_SIZE,
            compression: Compression::default(),
            filter: FilterPolicy::BlockedBloom { bits_per_unit: 10.0, units: 1 },
            prefix_len: 0,
            partitioned: true,
            learning: true,
            direct_write: false,
            write_bytes: DEFAULT_WRITE_BYTES,
            created_ms: 0,
            family: None,
            flushed_seqno: SeqNo::ZERO,
            is_hot_checkpoint: false,
            as_old_as: None,
            merge_operator: None,
        }
    }
}
