//! stub
use crate::{BlockCache, Properties, ReadCounters, ScanOptions, SstIter};
use std::path::Path;
use std::sync::Arc;
use terrace_base::key::{SeqNo, seek_trailer};
use terrace_base::{Error, RangeTombstones, Result};
use terrace_vfs::{Slice, Vfs};

/// What readers of one store share.
#[derive(Clone)]
pub struct ReaderOptions {
    /// Where blocks and metadata partitions live.
    pub cache: Arc<BlockCache>,
    /// Read past the page cache.
    pub direct: bool,
    /// Where reads are counted.
    pub counters: Arc<ReadCounters>,
}

/// A point lookup: the key, its hash, and the newest version it may see.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    /// The key looked for.
    pub user_key: &'a [u8],
    /// [`terrace_base::checksum::hash_key`] of the key.
    pub hash: u64,
    /// The first trailer that is visible: [`seek_trailer`] of the read's sequence number.
    pub trailer: u64,
}

impl<'a> Lookup<'a> {
    /// A lookup of the newest version of `user_key` at or below `seqno`.
    #[inline]
    pub fn new(user_key: &'a [u8], seqno: SeqNo) -> Self {
        let hash = terrace_base::checksum::hash_key(user_key);
        Self { user_key, hash, trailer: seek_trailer(seqno) }
    }
}

/// A version found by a lookup.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its sequence number and kind.
    pub trailer: u64,
    /// Its stored value (with the expiry in front for `PutTtl`), pinned to its block.
    pub value: Slice,
}

/// An open SST.
pub struct SstReader {}

fn unready<T>() -> Result<T> { Err(Error::InvalidArgument("not written yet".into())) }

impl SstReader {
    /// Opens.
    pub fn open(_vfs: &Arc<dyn Vfs>, _path: &Path, _file_number: u64, _size_bytes: u64, _options: &ReaderOptions) -> Result<Arc<Self>> { unready() }
    /// If the key's filter partition is resident: prefetches the cache line its probes touch.
    pub fn prefetch_filter(&self, _lookup: &Lookup<'_>) {}
    /// Whether the file may hold a version of the key (loads the filter partition on demand).
    pub fn may_contain(&self, _lookup: &Lookup<'_>) -> Result<bool> { unready() }
    /// The newest visible version of the key; does not ask the filter. A file with filters counts
    /// a lookup that finds nothing as a false positive.
    pub fn get(&self, _lookup: &Lookup<'_>) -> Result<Option<Entry>> { unready() }
    /// `may_contain` and `get` in one; if neither the filter nor the index partition is resident,
    /// both are read in one batch.
    pub fn get_with_filter(&self, _lookup: &Lookup<'_>) -> Result<Option<Entry>> { unready() }
    /// A cursor.
    pub fn iter(self: &Arc<Self>, _options: ScanOptions) -> SstIter { SstIter {} }
    /// tombstones
    pub fn range_tombstones(&self) -> &RangeTombstones { unreachable!() }
    /// properties
    pub fn properties(&self) -> &Properties { unreachable!() }
    /// number
    pub fn file_number(&self) -> u64 { 0 }
    /// size
    pub fn size_bytes(&self) -> u64 { 0 }
    /// Bytes that stay in memory while the file is open.
    pub fn pinned_bytes(&self) -> usize { 0 }
    /// About how many bytes of the file's data precede `user_key`. Reads nothing.
    pub fn approximate_offset(&self, _user_key: &[u8]) -> u64 { 0 }
    /// At most `count` user keys, ascending, that cut the data into parts of about equal size.
    pub fn index_separators(&self, _count: usize) -> Result<Vec<Vec<u8>>> { unready() }
    /// Reads everything and checks every checksum and invariant.
    pub fn verify(&self) -> Result<crate::VerifyReport> { unready() }
    /// Many lookups, missing blocks read together.
    pub fn multi_get(&self, _lookups: &[Lookup<'_>]) -> Result<Vec<Option<Entry>>> { unready() }
}
