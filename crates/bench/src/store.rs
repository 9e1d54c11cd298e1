//! What a workload asks of an engine, and the settings that all engines share.
//!
//! An adapter translates [`EngineConfig`] as an expert of its engine would and prints what it
//! set. It adds nothing to a call: no copy the engine's own API does not make, no lock.

use crate::filter::{FilterSpec, PeerFilter};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

/// An open store of some engine. Calls may come from many threads at once.
pub trait Store: Send + Sync {
    /// Writes one entry.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Shows the value of `key` to `see`, without a copy where the engine can; false if absent.
    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Removes one entry.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// As many `get`s in one call; returns how many keys were found.
    fn multi_get(&self, keys: &[Vec<u8>], see: &mut dyn FnMut(&[u8])) -> Result<usize>;

    /// A cursor over the entries of this moment.
    fn cursor(&self) -> Result<Box<dyn Cursor + '_>>;

    /// Writes memtables out and waits for it.
    fn flush(&self) -> Result<()>;

    /// Waits until no flush or compaction is running or due; gives since when that is known to be so.
    fn settle(&self) -> Result<Instant>;

    /// Bytes of filters and indexes on disk, where the engine tells.
    fn metadata_bytes(&self) -> Result<MetadataBytes>;

    /// Sorted runs now, each of which a lookup may have to search: files of level 0, and other levels that hold
    /// anything. `None` where the engine does not tell, and for a tree, which has none.
    fn sorted_runs(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// What the engine itself counts about filters, since it was opened.
    fn filter_counts(&self) -> Result<FilterCounts> {
        Ok(FilterCounts::default())
    }

    /// What the engine itself counts about bytes written and values, since it was opened.
    fn value_counts(&self) -> Result<ValueCounts> {
        Ok(ValueCounts::default())
    }

    /// What the engine itself counts about bytes written, since it was opened.
    fn write_counts(&self) -> Result<WriteCounts> {
        Ok(WriteCounts::default())
    }

    /// What the engine itself counts about models in place of indexes, since it was opened.
    fn model_counts(&self) -> Result<ModelCounts> {
        Ok(ModelCounts::default())
    }

    /// Merges all there is into as few sorted runs as the engine's full manual compaction makes, and waits for it.
    fn merge_all(&self) -> Result<()>;

    /// As [`Store::merge_all`], and rewrites values that are kept apart in key order.
    fn sort_values(&self) -> Result<()> {
        self.merge_all()
    }

    /// Begins a load of entries in any order, which the engine sorts by itself.
    fn bulk_loader(&self) -> Result<Box<dyn Loader + '_>> {
        bail!("this engine has no loader that sorts")
    }

    /// Begins a load of entries in key order into files in `dir`, which are ingested at the end.
    fn ingester(&self, dir: &Path) -> Result<Box<dyn Loader + '_>> {
        bail!("this engine cannot ingest files from {}", dir.display())
    }

    /// Backs the store up into `dir`, which has older backups or none.
    fn back_up(&self, dir: &Path) -> Result<()> {
        bail!("this engine makes no backups in {}", dir.display())
    }

    /// Makes a store in `target` of the newest backup in `dir`.
    fn restore(&self, dir: &Path, target: &Path) -> Result<()> {
        bail!("this engine restores nothing from {} into {}", dir.display(), target.display())
    }

    /// The engine's own statistics, for people.
    fn stats_text(&self) -> String;

    /// Every option that was set, in the engine's own words.
    fn options_text(&self) -> String;

    /// The engine's version.
    fn version(&self) -> String;

    /// Closes the store and reports what failed.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A position among the entries of a store, in key order.
pub trait Cursor {
    /// Goes to the first entry at or after `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Goes to the following entry; there must be a current one.
    fn next(&mut self) -> Result<()>;

    /// The current entry, or `None` past the end.
    fn entry(&self) -> Option<(&[u8], &[u8])>;
}

/// Takes the entries of a load; the store has them when it is finished.
pub trait Loader {
    /// Takes one entry.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Installs what was taken.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Bytes of data in a file that is ingested, for every engine.
pub const INGESTED_FILE_BYTES: u64 = 64 << 20;

/// Sizes on disk, `None` where the engine does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MetadataBytes {
    /// All filters.
    pub filters: Option<u64>,
    /// All indexes, of every level of a tree of them.
    pub indexes: Option<u64>,
}

/// An engine's own counts, `None` where it does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FilterCounts {
    /// Searches of a file's data that did not find the key, each of them a read if no data is
    /// cached.
    pub wasted_reads: Option<u64>,
    /// Parts of indexes that had to be read.
    pub index_reads: Option<u64>,
    /// Filter units brought into memory.
    pub unit_loads: Option<u64>,
    /// Bytes of filters in memory now.
    pub resident_bytes: Option<u64>,
}

/// An engine's own counts of what large values cost, `None` where it does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueCounts {
    /// Bytes handed to files: log, flushes, compactions, value files.
    pub written_bytes: Option<u64>,
    /// Reads of values that are kept apart.
    pub value_reads: Option<u64>,
    /// Bytes of files that hold such values, now.
    pub value_file_bytes: Option<u64>,
    /// How many of these bytes are still wanted, now.
    pub value_live_bytes: Option<u64>,
    /// Bytes of values that garbage collection moved.
    pub moved_bytes: Option<u64>,
}

/// An engine's own counts of what it wrote, `None` where it does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// Bytes of the log.
    pub log_bytes: Option<u64>,
    /// Bytes of everything else: flushes, merges, checkpoints, values that were moved.
    pub table_bytes: Option<u64>,
    /// Keys that stay in memory because they are written often, now.
    pub hot_keys: Option<u64>,
}

/// An engine's own counts about models that say where in a file a key is, `None` where it does not
/// tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// Searches of a file that a model guided.
    pub by_model: Option<u64>,
    /// Searches of a file that an index guided.
    pub by_index: Option<u64>,
    /// Searches of a file that a model of its whole level guided.
    pub by_level: Option<u64>,
    /// Bytes of models in memory now, with what they need beside them.
    pub model_bytes: Option<u64>,
    /// Nanoseconds of training.
    pub training_ns: Option<u64>,
    /// Keys of the models that came of it, each time one was made.
    pub trained_keys: Option<u64>,
    /// Models made.
    pub built: Option<u64>,
    /// Files whose keys were found not worth a model.
    pub refused: Option<u64>,
    /// Levels that have a model of all their files now.
    pub level_models: Option<u64>,
}

/// Settings every engine gets alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineConfig {
    /// Bytes for blocks.
    pub cache_bytes: usize,
    /// Bytes for all memtables together.
    pub write_bytes: usize,
    /// Bytes at which one memtable is full.
    pub memtable_bytes: usize,
    /// The filters to build; `None` leaves the engine its default.
    pub filter: Option<FilterSpec>,
    /// Who decides which filters are in memory.
    pub filter_memory: FilterMemory,
    /// Whether a data block that a lookup had to read goes into the cache.
    pub fill_cache: bool,
    /// Have the engine count what it does, if that is not free.
    pub statistics: bool,
    /// Block compression, on every level.
    pub compression: Compression,
    /// When a write is durable.
    pub sync: Durability,
    /// Bypass the page cache for SSTs.
    pub direct_io: bool,
    /// Threads for flush and compaction together.
    pub background_jobs: usize,
    /// Pieces one compaction may be split into.
    pub subcompactions: usize,
    /// Uncompressed bytes of a data block.
    pub block_size: usize,
    /// Where indexes and filters live.
    pub metadata: MetadataPlace,
    /// `--set ENGINE.name=value` of this engine: name and value, untranslated.
    pub extra: Vec<(String, String)>,
}

/// Where indexes and filters live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetadataPlace {
    /// As is fastest for the engine when memory is plenty.
    Fastest,
    /// In the block cache, charged to it.
    InCache {
        /// Cut into partitions that are loaded singly.
        partitioned: bool,
    },
}

impl EngineConfig {
    /// What an engine that is not Terrace builds; an error if it has nothing like it.
    pub fn peer_filter(&self) -> Result<PeerFilter> {
        match self.filter {
            None => Ok(PeerFilter::None),
            Some(spec) => {
                spec.for_peers().with_context(|| format!("--filter {spec}: only terrace has it"))
            }
        }
    }
}

/// Who decides which filters are in memory. Only Terrace lets choose; others keep filters where
/// [`MetadataPlace`] says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum FilterMemory {
    /// Filters are kept like other metadata.
    AsMetadata,
    /// As the engine does it by default, within the bytes for blocks.
    Default,
    /// This many bytes, beside those for blocks, go where they save most reads.
    Budget(usize),
    /// This many bytes, beside those for blocks, are handed out by ElasticBF's queues.
    Queues(usize),
}

/// `--set compression=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    /// Blocks as they are.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl FromStr for Compression {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            _ => bail!("--set compression={text}: known are none, lz4, zstd"),
        }
    }
}

/// `--set sync=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// The log may stay in the process for a while.
    Buffered,
    /// The log is handed to the kernel before a write returns.
    None,
    /// The log is on the device before a write returns.
    Batch,
}

impl FromStr for Durability {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "buffered" => Ok(Self::Buffered),
            "none" => Ok(Self::None),
            "batch" => Ok(Self::Batch),
            _ => bail!("--set sync={text}: known are buffered, none, batch"),
        }
    }
}
