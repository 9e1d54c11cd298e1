//! Files of unit tests.

use crate::reader::{FilterMemory, ReaderOptions, SstReader};
use crate::residency::BlockCache;
use crate::{Lookup, ReadCounters, SstOptions, SstWriter};
use std::path::Path;
use std::sync::Arc;
use terrace_base::key::pack_trailer;
use terrace_base::{FileNumber, MAX_SEQNO, Result, SeqNo, ValueKind};
use terrace_compression::Compression;
use terrace_vfs::{SimVfs, Vfs};

pub(crate) const NUMBER: FileNumber = FileNumber::new(1);

/// Keys of a file whose blocks have some twenty each.
pub(crate) const KEYS: u64 = 2000;

pub(crate) fn path() -> &'static Path {
    Path::new("/000001.sst")
}

pub(crate) fn key(at: u64) -> Vec<u8> {
    format!("{:016}", at * 7).into_bytes()
}

/// Opens the file at [`path`], with filters in a cache of its own.
pub(crate) fn open(sim: &SimVfs) -> Result<Arc<SstReader>> {
    let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
    let options = ReaderOptions {
        cache: Arc::new(BlockCache::new(64 << 20)),
        filter_memory: FilterMemory::Cached,
        models: true,
        direct: false,
        counters: Arc::new(ReadCounters::new()),
    };
    SstReader::open(&vfs, path(), NUMBER, vfs.len(path())?, &options)
}

/// A file of `count` keys from [`key`], all with this value.
pub(crate) fn file(options: SstOptions, count: u64, value: &[u8]) -> Arc<SstReader> {
    let sim = SimVfs::new(1);
    let mut writer = SstWriter::create(&sim, path(), NUMBER, options).unwrap();
    for at in 0..count {
        writer.add(&key(at), pack_trailer(SeqNo::new(7), ValueKind::Put), value).unwrap();
    }
    writer.finish().unwrap();
    open(&sim).unwrap()
}

/// A file of [`KEYS`] keys with its model and all blocks in memory.
pub(crate) fn file_in_memory(value: &[u8]) -> Arc<SstReader> {
    let compression = Compression::None;
    let options = SstOptions { block_size: 512, compression, ..SstOptions::default() };
    let reader = file(options, KEYS, value);
    // Until every block is in its slot.
    for _ in 0..4 {
        for at in 0..KEYS {
            assert!(reader.get(&Lookup::new(&key(at), MAX_SEQNO)).unwrap().is_some());
        }
    }
    reader
}
