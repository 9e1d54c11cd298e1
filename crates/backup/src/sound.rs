//! Whether a file of a store is what was written, as far as that can be told of it alone: of an SST.

use crate::error::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use terrace_manifest::names::{self, FileName};
use terrace_sst::{
    BlockCache, FilterMemory, ReadCounters, ReaderOptions, SstReader, VerifyReport, is_damage,
};
use terrace_vfs::Vfs;

/// Blocks and partitions that are read one by one; nothing is read twice.
const CACHE_BYTES: usize = 1 << 20;

/// Checks the file `name` of the checkpoint in `dir`, a folder of the store, if it is an SST: every checksum, and the order of
/// its entries. Not the values that it refers to.
///
/// # Errors
/// `Damaged` with the path that it has in the store; I/O.
pub(crate) fn check(vfs: &Arc<dyn Vfs>, dir: &Path, name: &str) -> Result<()> {
    match verify(vfs, dir, name) {
        Err(error) if is_damage(&error) => {
            let path = dir.parent().unwrap_or(dir).join(name);
            let what = match error {
                terrace_vfs::Error::Corruption { offset, detail, .. } => {
                    format!("at offset {offset}: {detail}; repair the store first")
                }
                error => error.to_string(),
            };
            Err(Error::Damaged { path, what })
        }
        verified => Ok(verified.map(drop)?),
    }
}

fn verify(vfs: &Arc<dyn Vfs>, dir: &Path, name: &str) -> terrace_vfs::Result<VerifyReport> {
    let FileName::Sst(number) = names::parse(name) else { return Ok(VerifyReport::default()) };
    let options = ReaderOptions {
        cache: Arc::new(BlockCache::new(CACHE_BYTES)),
        filter_memory: FilterMemory::Cached,
        models: false,
        direct: false,
        counters: Arc::new(ReadCounters::new()),
    };
    let path = dir.join(name);
    SstReader::open(vfs, &path, number, vfs.len(&path)?, &options)?.verify()
}
