//! SSTs: immutable sorted files of entries with a partitioned index and partitioned filters.
//!
//! [`SstWriter`] makes one, [`SstReader`] answers lookups and hands out [`SstIter`]s. The format
//! is drawn in `docs/format/sst.md`. Floor 2: uses base, buf, vfs, compression, filter and cache; knows nothing of
//! levels, snapshots' visibility rules or other files.

// Only `block::search` allows unsafe code (SIMD loads), on its own module.
#![deny(unsafe_code)]

mod block;
mod block_handle;
mod copy;
mod counters;
mod damage;
mod dump;
mod expiry;
mod filter_partition;
mod filter_read_policy;
mod filter_units;
mod footer;
mod get;
mod index;
mod iter;
mod learned;
mod level_lookup;
mod load;
mod lookup;
mod lookup_trace;
mod model_use;
mod model_view;
mod multi_get;
mod options;
mod pages;
mod properties;
mod reader;
mod residency;
mod salvage;
mod separators;
#[cfg(test)]
mod test_files;
mod tombstone_block;
mod unfinished;
mod value_refs;
mod verify;
mod writer;

pub use counters::{ReadCounters, ReadCounts};
pub use damage::is_damage;
pub use dump::{DumpDetail, dump};
pub use expiry::TTL_DUE_PERCENT;
pub use filter_units::{
    FilterPartitionInfo, FilterUses, UnitLoad, UnitsLoaded, drop_filter_units, filter_charge_bytes,
    load_filter_units,
};
pub use footer::{EXTERNAL_FILE_NUMBER, FOOTER_BYTES, FORMAT_VERSION, MAGIC};
pub use index::learned::Training;
pub use iter::{COMPACTION_READAHEAD_BYTES, DEFAULT_PREFETCH_BLOCKS, ScanOptions, SstIter};
pub use lookup::{BlockPlace, Entry, EntryAt, FilterAt, InLevel, Lookup};
pub use lookup_trace::{BlockSaid, FilterSaid, LookupTrace, RunPlace};
pub use model_view::{ModelPoint, ModelView};
pub use multi_get::{BatchLookup, multi_get};
pub use options::{
    DEFAULT_BLOCK_SIZE, DEFAULT_METADATA_BLOCK_SIZE, DEFAULT_WRITE_BYTES, MAX_BLOCK_BYTES,
    PAGE_BYTES, SstOptions,
};
pub use properties::{COMPARATOR, Properties};
pub use reader::{FilterMemory, ReaderOptions, SstReader, read_number, read_properties};
pub use residency::packing::pack_cache;
pub use residency::{BlockCache, CachedBlock};
pub use salvage::{TakeEntry, Unreadable};
pub use terrace_compression::Compression;
pub use terrace_filter::{FilterKind, FilterPolicy, FilterShape, PolicyError};
pub use terrace_learned::NoModel;
pub use verify::VerifyReport;

pub use unfinished::{SstSummary, Stamp, UnfinishedSst};
pub use writer::SstWriter;
