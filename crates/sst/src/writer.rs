//! stub
use crate::SstOptions;
use std::path::Path;
use terrace_base::{Error, RangeTombstones, Result, SeqNo};
use terrace_vfs::Vfs;
/// Writes one SST.
pub struct SstWriter {}
/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct SstSummary {
    /// Length of the file.
    pub size_bytes: u64,
    /// Point entries, tombstones included.
    pub entry_count: u64,
    /// Point tombstones.
    pub tombstone_count: u64,
    /// Range tombstones (one per fragment and sequence number).
    pub range_tombstone_count: u64,
    /// Smallest user key covered by an entry or a range tombstone.
    pub smallest: Vec<u8>,
    /// Largest user key covered.
    pub largest: Vec<u8>,
    /// Whether `largest` is the end of a range tombstone and not covered itself.
    pub largest_exclusive: bool,
    /// Smallest sequence number of any entry or range tombstone.
    pub smallest_seqno: SeqNo,
    /// Largest sequence number of any entry or range tombstone.
    pub largest_seqno: SeqNo,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// When at least 30 % of the entry bytes will have expired.
    pub ttl_due_ms: Option<u64>,
    /// Stored bytes of the filter partitions.
    pub filter_bytes: u64,
    /// Stored bytes of the index partitions.
    pub index_bytes: u64,
    /// Stored bytes of the data blocks.
    pub data_bytes: u64,
}
fn unready<T>() -> Result<T> { Err(Error::InvalidArgument("not written yet".into())) }
impl SstWriter {
    /// Creates the file.
    pub fn create(_vfs: &dyn Vfs, _path: &Path, _file_number: u64, _options: SstOptions) -> Result<Self> { unready() }
    /// Adds.
    pub fn add(&mut self, _user_key: &[u8], _trailer: u64, _value: &[u8]) -> Result<()> { unready() }
    /// Tombstones.
    pub fn set_range_tombstones(&mut self, _t: RangeTombstones) {}
    /// size
    pub fn estimated_bytes(&self) -> u64 { 0 }
    /// count
    pub fn entry_count(&self) -> u64 { 0 }
    /// end
    pub fn finish(self) -> Result<SstSummary> { unready() }
}
