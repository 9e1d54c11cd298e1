//! fjall, an LSM engine in Rust, as a crate.
//!
//! fjall has neither direct I/O nor a cursor that seeks: a seek opens a new range. As for the other engines there is
//! memory for all indexes and filters, so they are whole and stay in it, and data blocks have a hash index, whose size
//! `fjall.hash_ratio` sets (0 for none). `--set
//! fjall.separation_threshold=BYTES` keeps values of at least this many bytes apart, in blob files of
//! `fjall.blob_file_bytes`; the rest of its garbage collection is as fjall has it by default.

use crate::engine::{CALM_POLLS, wait_until_idle};
use crate::filter::PeerFilter;
use crate::store::{Compression, Cursor, Durability, EngineConfig, MetadataBytes, Store};
use anyhow::{Context, Result, bail, ensure};
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    HashRatioPolicy, PartitioningPolicy, PinningPolicy,
};
use fjall::{
    AbstractTree, CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions,
    KvSeparationOptions, PersistMode, UserKey, UserValue,
};
use std::path::Path;
use std::time::Instant;

/// The version of the fjall crate linked in; a test holds it to `Cargo.lock`.
pub const VERSION: &str = "3.1.13";

/// Buckets per entry of the hash index of a data block: as many as RocksDB's has, which is to be filled to three
/// quarters.
const HASH_RATIO: f32 = 4.0 / 3.0;

struct FjallStore {
    database: Database,
    keyspace: Keyspace,
    sync: bool,
    options: String,
}

/// Opens or creates the store in `dir`.
pub fn open(dir: &Path, config: &EngineConfig) -> Result<Box<dyn Store>> {
    let compression = match config.compression {
        Compression::None => CompressionType::None,
        Compression::Lz4 => CompressionType::Lz4,
        Compression::Zstd => bail!("fjall has no zstd; use --set compression=none or lz4"),
    };
    let (separation, hash_ratio) = settings(config, compression)?;
    let bits = match config.peer_filter()? {
        PeerFilter::Bloom(bits) => bits as f32,
        _ => 0.0,
    };
    let filter = match bits {
        0.0 => FilterPolicyEntry::None,
        _ => FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits)),
    };
    let database = Database::builder(dir)
        .cache_size(config.cache_bytes as u64)
        .worker_threads(config.background_jobs)
        .manual_journal_persist(config.sync == Durability::Buffered)
        .open()?;
    let keyspace = database.keyspace("default", || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(config.memtable_bytes as u64)
            .manual_journal_persist(config.sync == Durability::Buffered)
            .data_block_size_policy(BlockSizePolicy::all(config.block_size as u32))
            .data_block_compression_policy(CompressionPolicy::all(compression))
            .filter_policy(FilterPolicy::all(filter))
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .index_block_pinning_policy(PinningPolicy::all(true))
            .filter_block_partitioning_policy(PartitioningPolicy::all(false))
            .index_block_partitioning_policy(PartitioningPolicy::all(false))
            .data_block_hash_ratio_policy(HashRatioPolicy::all(hash_ratio))
            .with_kv_separation(separation.clone())
    })?;
    let options = format!(
        "cache_size={};max_memtable_size={};worker_threads={};data_block_size={};compression={:?};\
         bloom_bits_per_key={bits};filters_and_indexes=pinned,whole;data_block_hash_ratio={hash_ratio};\
         manual_journal_persist={};persist_each_write={};\
         kv_separation={}",
        config.cache_bytes,
        config.memtable_bytes,
        config.background_jobs,
        config.block_size,
        config.compression,
        config.sync == Durability::Buffered,
        config.sync == Durability::Batch,
        separation.map_or("none".to_owned(), |options| format!("{options:?}")),
    );
    Ok(Box::new(FjallStore { database, keyspace, sync: config.sync == Durability::Batch, options }))
}

/// Which values are kept apart, if any, and the buckets per entry of hash indexes.
fn settings(
    config: &EngineConfig,
    compression: CompressionType,
) -> Result<(Option<KvSeparationOptions>, f32)> {
    let options = KvSeparationOptions::default().compression(compression);
    let (mut options, mut separates, mut hash_ratio) = (options, false, HASH_RATIO);
    for (name, value) in &config.extra {
        let bad = || format!("--set fjall.{name}={value}: not a number");
        match name.as_str() {
            "separation_threshold" => {
                options = options.separation_threshold(value.parse().with_context(bad)?);
                separates = true;
            }
            "blob_file_bytes" => {
                options = options.file_target_size(value.parse().with_context(bad)?);
            }
            "hash_ratio" => {
                hash_ratio = value.parse().with_context(bad)?;
                ensure!((0.0..=8.0).contains(&hash_ratio), "--set fjall.hash_ratio must be 0 to 8");
            }
            _ => bail!(
                "fjall has the settings separation_threshold, blob_file_bytes and hash_ratio, not `{name}`"
            ),
        }
    }
    Ok((separates.then_some(options), hash_ratio))
}

impl FjallStore {
    fn persist(&self) -> Result<()> {
        if self.sync {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Store for FjallStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value)?;
        self.persist()
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key)?;
        if let Some(value) = &value {
            see(value);
        }
        Ok(value.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key)?;
        self.persist()
    }

    fn multi_get(&self, keys: &[Vec<u8>], see: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key, see)?);
        }
        Ok(found)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(FjallCursor { keyspace: &self.keyspace, range: None, entry: None }))
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        Ok(())
    }

    fn settle(&self) -> Result<Instant> {
        wait_until_idle(CALM_POLLS, || {
            Ok(self.database.outstanding_flushes() == 0
                && self.keyspace.sealed_memtable_count() == 0
                && self.database.active_compactions() == 0)
        })
    }

    fn metadata_bytes(&self) -> Result<MetadataBytes> {
        Ok(MetadataBytes { filters: Some(self.keyspace.tree.filter_size()), indexes: None })
    }

    fn sorted_runs(&self) -> Result<Option<u64>> {
        let tree = &self.keyspace.tree;
        let tables = (1..).map_while(|level| tree.level_table_count(level));
        let deeper = tables.filter(|tables| *tables > 0).count();
        Ok(Some((tree.l0_run_count() + deeper) as u64))
    }

    fn merge_all(&self) -> Result<()> {
        self.flush()?;
        self.keyspace.major_compact()?;
        self.settle().map(drop)
    }

    fn stats_text(&self) -> String {
        let levels: Vec<String> = (0..7)
            .map_while(|level| self.keyspace.tree.level_table_count(level))
            .map(|count| count.to_string())
            .collect();
        format!(
            "tables by level {}, compactions {}, time compacting {:?}, cache {} of {} bytes",
            levels.join(" "),
            self.database.compactions_completed(),
            self.database.time_compacting(),
            self.database.cache_size(),
            self.database.cache_capacity(),
        )
    }

    fn options_text(&self) -> String {
        self.options.clone()
    }

    fn version(&self) -> String {
        VERSION.to_owned()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.persist(PersistMode::SyncData)?;
        Ok(())
    }
}

struct FjallCursor<'a> {
    keyspace: &'a Keyspace,
    range: Option<fjall::Iter>,
    entry: Option<(UserKey, UserValue)>,
}

impl Cursor for FjallCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.range = Some(self.keyspace.range(key..));
        self.next()
    }

    fn next(&mut self) -> Result<()> {
        let guard: Option<Guard> = self.range.as_mut().and_then(Iterator::next);
        self.entry = guard.map(Guard::into_inner).transpose()?;
        Ok(())
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.entry.as_ref().map(|(key, value)| (&key[..], &value[..]))
    }
}
