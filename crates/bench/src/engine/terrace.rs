//! Terrace, through its public API.
//!
//! Indexes are always in the block cache and partitioned by default; [`MetadataPlace`] only switches
//! the partitions off. Filters are there, too, unless [`FilterMemory`] gives them memory of their
//! own. `--set terrace.NAME=VALUE` reaches the options that are not said for all engines, by [`set`].

mod loads;

use crate::store::{
    Compression, Cursor, Durability, EngineConfig, FilterCounts, FilterMemory, Loader,
    MetadataBytes, MetadataPlace, ModelCounts, Store, ValueCounts, WriteCounts,
};
use anyhow::{Context, Result, bail};
use loads::{Bulk, Ingester};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use terrace::vfs::Vfs;
use terrace::{
    AdvancedOptions, BulkOptions, CfOptions, DEFAULT_FILTER_SHARE, DEFAULT_MEMTABLE_SHARE, Db,
    DirectIo, FilterAllocator, Iter, MemoryShares, OPTIONS, Options, ReadOptions, SyncMode,
};
use terrace_backup::Backups;
use terrace_encryption::{EncryptedVfs, KeyRing};
use terrace_manifest::names::{self, FileName};
use terrace_sst::{BlockCache, ReadCounters, ReaderOptions, SstReader};

/// Cache for reading properties of SSTs, of which nothing is kept.
const PROPERTIES_CACHE_BYTES: usize = 1 << 20;

/// The least memory of a bulk loader.
const MIN_BULK_BYTES: usize = 1 << 20;

/// What settings of all engines, or the bench itself, decide.
const OF_ALL_ENGINES: [&str; 10] = [
    "background_jobs",
    "block_size",
    "compression",
    "create_if_missing",
    "direct_reads",
    "direct_writes",
    "filter",
    "memory_budget",
    "merge_operator",
    "sync",
];

struct TerraceStore {
    db: Db,
    /// `None` reads in the default way.
    read_options: Option<ReadOptions>,
    dir: PathBuf,
    vfs: Arc<dyn Vfs>,
    /// Memory of the loader, which has as much as memtables have.
    bulk_bytes: usize,
    options: String,
}

/// Opens or creates the store in `dir`.
pub fn open(dir: &Path, config: &EngineConfig) -> Result<Box<dyn Store>> {
    let options = translate(config)?;
    let text = format!("{options:?}");
    let vfs = options.advanced.vfs.clone();
    let db = Db::open(dir, options)?;
    let read_options =
        (!config.fill_cache).then(|| ReadOptions { fill_cache: false, ..ReadOptions::default() });
    let bulk_bytes = config.write_bytes.max(MIN_BULK_BYTES);
    let dir = dir.to_owned();
    Ok(Box::new(TerraceStore { db, read_options, dir, vfs, bulk_bytes, options: text }))
}

fn translate(config: &EngineConfig) -> Result<Options> {
    let filters = Filters::of(config);
    let memory_budget = config.cache_bytes + config.write_bytes + filters.extra_bytes;
    let share = |bytes: usize| bytes as f64 / memory_budget as f64;
    let advanced = AdvancedOptions {
        memory_shares: MemoryShares {
            memtables: share(config.write_bytes),
            cache: share(config.cache_bytes + filters.extra_bytes - filters.bytes),
            filters: share(filters.bytes),
        },
        filter_allocator: filters.allocator,
        memtable_bytes: config.memtable_bytes,
        block_size: config.block_size,
        partitioned_metadata: config.metadata != MetadataPlace::InCache { partitioned: false },
        max_subcompactions: config.subcompactions,
        ..AdvancedOptions::default()
    };
    let compression = match config.compression {
        Compression::None => terrace::Compression::None,
        Compression::Lz4 => terrace::Compression::Lz4,
        Compression::Zstd => terrace::Compression::Zstd,
    };
    let family = CfOptions {
        compression: vec![compression],
        filter: match config.filter {
            Some(spec) => vec![spec.0],
            None => CfOptions::default().filter,
        },
        ..CfOptions::default()
    };
    let mut options = Options {
        memory_budget,
        sync: match config.sync {
            Durability::Buffered => SyncMode::Buffered,
            Durability::None => SyncMode::None,
            Durability::Batch => SyncMode::Batch,
        },
        background_jobs: config.background_jobs,
        direct_io: DirectIo { reads: config.direct_io, writes: config.direct_io },
        default_family: family,
        advanced,
        ..Options::default()
    };
    for (name, value) in &config.extra {
        set(&mut options, name, value).with_context(|| format!("--set terrace.{name}={value}"))?;
    }
    Ok(options)
}

/// Who holds how much of the filters in memory.
struct Filters {
    allocator: FilterAllocator,
    /// Their memory.
    bytes: usize,
    /// How much of it is beside the memory for blocks.
    extra_bytes: usize,
}

impl Filters {
    fn of(config: &EngineConfig) -> Self {
        let (allocator, bytes, extra_bytes) = match config.filter_memory {
            FilterMemory::AsMetadata => (FilterAllocator::Cached, 0, 0),
            FilterMemory::Default => {
                let share = DEFAULT_FILTER_SHARE / (1.0 - DEFAULT_MEMTABLE_SHARE);
                let bytes = (config.cache_bytes as f64 * share) as usize;
                (FilterAllocator::default(), bytes, 0)
            }
            FilterMemory::Budget(bytes) => (FilterAllocator::Budget, bytes, bytes),
            FilterMemory::Queues(bytes) => (FilterAllocator::Mq, bytes, bytes),
        };
        Self { allocator, bytes, extra_bytes }
    }
}

fn set(options: &mut Options, name: &str, value: &str) -> Result<()> {
    let advanced = &mut options.advanced;
    match name {
        "write_tracking" => advanced.write_tracking.keys = value.parse()?,
        "encryption_key_file" => {
            let keys = KeyRing::load(value.as_ref())?;
            advanced.vfs = Arc::new(EncryptedVfs::new(advanced.vfs.clone(), keys));
        }
        "memory_shares" => {
            let parts: Vec<f64> = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
            let [memtables, cache, filters] = parts[..] else {
                bail!("it must be three shares: memtables,cache,filters")
            };
            advanced.memory_shares = MemoryShares { memtables, cache, filters };
        }
        "value_separation_threshold" if value == "off" => options.set_option(name, "none")?,
        _ if OPTIONS.contains(&name) && !OF_ALL_ENGINES.contains(&name) => {
            options.set_option(name, value)?;
        }
        _ => bail!("terrace has no such setting here"),
    }
    Ok(())
}

impl Store for TerraceStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = match &self.read_options {
            None => self.db.get(key)?,
            Some(options) => self.db.get_with(key, options)?,
        };
        if let Some(value) = &value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete(key)?)
    }

    fn multi_get(&self, keys: &[Vec<u8>], see: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let values = self.db.multi_get(keys)?;
        let found = values.iter().flatten();
        Ok(found.map(|value| see(value)).count())
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(TerraceCursor(self.db.iter()?)))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn settle(&self) -> Result<Instant> {
        self.db.wait_idle()?;
        Ok(Instant::now())
    }

    /// From the properties of the SSTs in the directory: the engine opens files lazily, so it does
    /// not know the sum itself.
    fn metadata_bytes(&self) -> Result<MetadataBytes> {
        let vfs = &self.vfs;
        let options = ReaderOptions {
            cache: Arc::new(BlockCache::new(PROPERTIES_CACHE_BYTES)),
            filter_memory: terrace_sst::FilterMemory::Cached,
            models: false,
            direct: false,
            counters: Arc::new(ReadCounters::default()),
        };
        let (mut filters, mut indexes) = (0, 0);
        for name in vfs.list(&self.dir)? {
            let FileName::Sst(number) = names::parse(&name) else { continue };
            let path = self.dir.join(&name);
            // A compaction may remove a file after it was listed, or be still writing it.
            let Ok(size_bytes) = vfs.len(&path) else { continue };
            let opened = SstReader::open(vfs, &path, number, size_bytes, &options);
            let Ok(reader) = opened else { continue };
            filters += reader.properties().filter_bytes;
            indexes += reader.properties().index_bytes;
        }
        Ok(MetadataBytes { filters: Some(filters), indexes: Some(indexes) })
    }

    fn sorted_runs(&self) -> Result<Option<u64>> {
        let metrics = self.db.metrics();
        let (first, deeper) = metrics.levels.split_first().context("a store has levels")?;
        let deeper = deeper.iter().filter(|level| level.file_count > 0).count() as u64;
        Ok(Some(first.file_count + deeper))
    }

    fn filter_counts(&self) -> Result<FilterCounts> {
        let metrics = self.db.metrics();
        Ok(FilterCounts {
            wasted_reads: Some(metrics.reads.wasted_lookups),
            index_reads: Some(metrics.reads.index_misses),
            unit_loads: Some(metrics.levels.iter().map(|level| level.filter_units_loaded).sum()),
            resident_bytes: Some(metrics.filter_memory_bytes),
        })
    }

    fn value_counts(&self) -> Result<ValueCounts> {
        let m = self.db.metrics();
        let tables = m.flush_bytes + m.hot_checkpoint_bytes + m.compaction_written_bytes;
        Ok(ValueCounts {
            written_bytes: Some(m.log_bytes + tables + m.gc_moved_bytes),
            value_reads: Some(m.value_reads),
            value_file_bytes: Some(m.value_segment_bytes),
            value_live_bytes: Some(m.value_live_bytes),
            moved_bytes: Some(m.gc_moved_bytes),
        })
    }

    fn write_counts(&self) -> Result<WriteCounts> {
        let m = self.db.metrics();
        let tables = m.flush_bytes + m.hot_checkpoint_bytes + m.compaction_written_bytes;
        Ok(WriteCounts {
            log_bytes: Some(m.log_bytes),
            table_bytes: Some(tables + m.gc_moved_bytes),
            hot_keys: Some(m.hot_keys),
        })
    }

    fn model_counts(&self) -> Result<ModelCounts> {
        let m = self.db.metrics();
        Ok(ModelCounts {
            by_model: Some(m.reads.lookups_by_model),
            by_index: Some(m.reads.lookups_by_index),
            by_level: Some(m.reads.lookups_by_level_model),
            model_bytes: Some(m.model_bytes),
            training_ns: Some(m.model_training_ns),
            trained_keys: Some(m.model_errors.iter().sum()),
            built: Some(m.models_built),
            refused: Some(m.models_refused),
            level_models: Some(m.level_models),
        })
    }

    fn merge_all(&self) -> Result<()> {
        self.flush()?;
        self.db.compact_range::<&[u8]>(..)?;
        self.settle().map(drop)
    }

    /// Values are put into order by collecting the segments that they are in, whatever is garbage
    /// there; without any, merging everything is all there is to do.
    fn sort_values(&self) -> Result<()> {
        self.flush()?;
        if self.db.metrics().value_segments == 0 {
            return self.merge_all();
        }
        self.db.collect_garbage(0.0)?;
        self.settle().map(drop)
    }

    fn bulk_loader(&self) -> Result<Box<dyn Loader + '_>> {
        let options = BulkOptions { memory_bytes: self.bulk_bytes, ..BulkOptions::default() };
        Ok(Box::new(Bulk(self.db.bulk_loader(&options)?)))
    }

    fn ingester(&self, dir: &Path) -> Result<Box<dyn Loader + '_>> {
        Ok(Box::new(Ingester::new(&self.db, dir)))
    }

    fn back_up(&self, dir: &Path) -> Result<()> {
        Backups::open_with(self.vfs.clone(), dir)?.create(&self.db, &mut |_| {})?;
        Ok(())
    }

    fn restore(&self, dir: &Path, target: &Path) -> Result<()> {
        let backups = Backups::open_with(self.vfs.clone(), dir)?;
        let newest = backups.list()?.last().context("there is no backup")?.id;
        Ok(backups.restore(newest, target, &mut |_| {})?)
    }

    fn stats_text(&self) -> String {
        self.db.metrics().to_string()
    }

    fn options_text(&self) -> String {
        self.options.clone()
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

struct TerraceCursor(Iter);

impl Cursor for TerraceCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.0.seek(key)?)
    }

    fn next(&mut self) -> Result<()> {
        Ok(self.0.next()?)
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.0.valid().then(|| (self.0.key(), self.0.value()))
    }
}
