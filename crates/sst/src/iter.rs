//! stub
use terrace_base::{InternalIter, Result, Error};
/// How a scan reads.
#[derive(Debug, Clone, Copy)]
pub struct ScanOptions {
    /// Whether blocks that had to be read go into the cache.
    pub fill_cache: bool,
    /// Above 0: read the data in sequential pieces of at least this size, past the cache.
    pub readahead_bytes: usize,
    /// How many missing blocks ahead are read together once a scan is seen to be sequential.
    pub prefetch_blocks: usize,
}
impl Default for ScanOptions {
    fn default() -> Self { Self { fill_cache: true, readahead_bytes: 0, prefetch_blocks: 8 } }
}
impl ScanOptions {
    /// For compaction: sequential reads of 1 MiB past the cache.
    pub fn compaction() -> Self { Self { fill_cache: false, readahead_bytes: 1 << 20, prefetch_blocks: 0 } }
}
/// A cursor over the entries of one SST.
pub struct SstIter {}
fn unready<T>() -> Result<T> { Err(Error::InvalidArgument("not written yet".into())) }
impl InternalIter for SstIter {
    fn valid(&self) -> bool { false }
    fn seek_to_first(&mut self) -> Result<()> { unready() }
    fn seek_to_last(&mut self) -> Result<()> { unready() }
    fn seek(&mut self, _: &[u8], _: u64) -> Result<()> { unready() }
    fn seek_before(&mut self, _: &[u8], _: u64) -> Result<()> { unready() }
    fn next(&mut self) -> Result<()> { unready() }
    fn prev(&mut self) -> Result<()> { unready() }
    fn user_key(&self) -> &[u8] { &[] }
    fn trailer(&self) -> u64 { 0 }
    fn value(&self) -> &[u8] { &[] }
}
