//! The variants of `large-values`: where values are kept, and the settings of each engine.

use crate::engine::Engine;
use crate::store::EngineConfig;
use crate::store_size::StoreSize;
use serde::{Deserialize, Serialize};

/// Keys and value bytes: a little over 2 GiB, so that no size below is cut.
pub const DEFAULT_SIZE: (u64, usize) = (524_288, 4096);
/// How many times as many keys as there are get overwritten.
pub const PASSES: f64 = 3.0;
/// Entries of one scan.
pub const SCAN_LENGTH: u64 = 100;
/// Milliseconds between samples of the directory's size.
pub const SAMPLE_MS: u64 = 1000;

/// Data bytes that call for the engines' default sizes of files.
const FULL_BYTES: u64 = 2 << 30;
/// A memtable, a table file, a segment of the log: Terrace's and RocksDB's default.
const FILE_BYTES: u64 = 64 << 20;
/// They are not cut smaller than this.
const MIN_FILE_BYTES: u64 = 1 << 20;
/// The first level, and a blob file of RocksDB: the defaults, as multiples of a file.
const LEVEL_FILES: u64 = 4;
/// Memtables there may be.
const MEMTABLES: usize = 4;
/// Data bytes per byte of cache.
const DATA_PER_CACHE: u64 = 64;
const MIN_CACHE_BYTES: u64 = 8 << 20;
/// Values from this size on are kept apart by those that do; Terrace's default.
const THRESHOLD_BYTES: u64 = 1024;
/// What blob files are read ahead by when garbage collection goes through them; as much as
/// RocksDB's compactions read tables ahead by default, since there is no page cache.
const BLOB_READAHEAD_BYTES: u64 = 2 << 20;

/// Where values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// As the engine does it by default.
    Default,
    /// In the tables, of an engine that would not.
    Inline,
    /// In blob files, of an engine that would not.
    Blob,
}

impl Variant {
    /// The `variant` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Inline => "inline",
            Self::Blob => "blob",
        }
    }

    /// Whether there is such a variant of this engine.
    pub fn suits(self, engine: Engine) -> bool {
        match self {
            Self::Default => true,
            Self::Inline => engine == Engine::Terrace,
            Self::Blob => matches!(engine, Engine::Rocksdb | Engine::Speedb | Engine::Fjall),
        }
    }
}

/// Bytes of a memtable, a table file and a segment for a store of `shape`.
fn file_bytes(shape: StoreSize) -> u64 {
    (shape.raw_bytes() / (FULL_BYTES / FILE_BYTES)).clamp(MIN_FILE_BYTES, FILE_BYTES)
}

/// Sets what `large-values` needs for a store of `shape`. Names of settings are the engine's own.
pub fn configure(config: &mut EngineConfig, engine: Engine, variant: Variant, shape: StoreSize) {
    let file = file_bytes(shape);
    config.memtable_bytes = file as usize;
    config.write_bytes = config.memtable_bytes * MEMTABLES;
    config.cache_bytes = (shape.raw_bytes() / DATA_PER_CACHE).max(MIN_CACHE_BYTES) as usize;
    config.direct_io = engine.has_direct_io();
    config.statistics = true;
    let mut set = |name: &str, value: &str| config.extra.push((name.to_owned(), value.to_owned()));
    match engine {
        Engine::Terrace => {
            set("level_base_bytes", &(LEVEL_FILES * file).to_string());
            set("target_file_bytes", &file.to_string());
            set("segment_bytes", &file.to_string());
            if variant == Variant::Inline {
                set("value_separation_threshold", "off");
            }
        }
        Engine::Rocksdb | Engine::Speedb => {
            set("max_bytes_for_level_base", &(LEVEL_FILES * file).to_string());
            set("target_file_size_base", &file.to_string());
            if variant == Variant::Blob {
                set("enable_blob_files", "true");
                set("min_blob_size", &THRESHOLD_BYTES.to_string());
                set("blob_file_size", &(LEVEL_FILES * file).to_string());
                set("enable_blob_garbage_collection", "true");
                set("blob_garbage_collection_age_cutoff", "0.25");
                set("blob_garbage_collection_force_threshold", "0.5");
                set("blob_compaction_readahead_size", &BLOB_READAHEAD_BYTES.to_string());
            }
        }
        Engine::Fjall if variant == Variant::Blob => {
            set("separation_threshold", &THRESHOLD_BYTES.to_string());
            set("blob_file_bytes", &file.to_string());
        }
        Engine::Fjall | Engine::Leveldb | Engine::Lmdb | Engine::Redb => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_default_size_from_2_gib_on_and_shrink_below() {
        let shape = |keys| StoreSize { keys, key_size: 16, value_size: 4096 };
        assert_eq!(file_bytes(shape(DEFAULT_SIZE.0)), 64 << 20);
        assert_eq!(file_bytes(shape(10 * DEFAULT_SIZE.0)), 64 << 20);
        assert_eq!(file_bytes(shape(10_000)), 1_285_000);
        assert_eq!(file_bytes(shape(10)), 1 << 20);
    }

    #[test]
    fn every_engine_has_a_default_and_one_other_variant_if_it_can() {
        let count = |engine| {
            let all = [Variant::Default, Variant::Inline, Variant::Blob];
            all.into_iter().filter(|variant| variant.suits(engine)).count()
        };
        for engine in Engine::ALL {
            let is_alone = engine == Engine::Leveldb || engine.is_tree();
            assert_eq!(count(engine), if is_alone { 1 } else { 2 }, "{engine}");
        }
    }
}
