//! What a workload asks of an engine, and the settings that all engines share.
//!
//! An adapter translates [`EngineConfig`] as an expert of its engine would and prints what it
//! set. It adds nothing to a call: no copy the engine's own API does not make, no lock.

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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

    /// Waits until no flush or compaction is running or due.
    fn settle(&self) -> Result<()>;

    /// Bytes of filters and indexes on disk, where the engine tells.
    fn metadata_bytes(&self) -> Result<MetadataBytes>;

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

/// Sizes on disk, `None` where the engine does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MetadataBytes {
    /// All filters.
    pub filters: Option<u64>,
    /// All indexes, of every level of a tree of them.
    pub indexes: Option<u64>,
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
    /// The filters to build.
    pub filter: FilterSpec,
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

/// `--filter KIND:BITS`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilterSpec {
    /// Which construction.
    pub kind: FilterKind,
    /// Bits per key; 0 builds none.
    pub bits_per_key: f64,
}

/// Filter constructions; which engine has which is known to the adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterKind {
    /// The engine's Bloom filter (blocked where it has that).
    Bloom,
    /// Ribbon (RocksDB, Speedb).
    Ribbon,
    /// Paired Bloom (Speedb).
    Paired,
}

impl FilterKind {
    const NAMES: [(&'static str, Self); 3] =
        [("bloom", Self::Bloom), ("ribbon", Self::Ribbon), ("paired", Self::Paired)];
}

impl fmt::Display for FilterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for FilterSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self { kind: FilterKind::Bloom, bits_per_key: 0.0 });
        }
        let known = || {
            anyhow::anyhow!(
                "--filter {text}: want KIND:BITS, KIND one of bloom, ribbon, paired; or none"
            )
        };
        let (name, bits) = text.split_once(':').ok_or_else(known)?;
        let kind = FilterKind::NAMES.iter().find(|(known, _)| *known == name);
        let bits_per_key: f64 = bits.parse().map_err(|_| known())?;
        ensure!((0.0..=64.0).contains(&bits_per_key), "--filter {text}: BITS must be 0 to 64");
        Ok(Self { kind: kind.ok_or_else(known)?.1, bits_per_key })
    }
}

impl fmt::Display for FilterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.bits_per_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_parse_and_print() {
        for text in ["bloom:10", "ribbon:9.5", "paired:23.4"] {
            assert_eq!(text.parse::<FilterSpec>().unwrap().to_string(), text);
        }
        assert_eq!("none".parse::<FilterSpec>().unwrap().bits_per_key, 0.0);
        for bad in ["bloom", "cuckoo:10", "bloom:x", "bloom:-1", "bloom:65", "bloom:NaN"] {
            assert!(bad.parse::<FilterSpec>().is_err(), "{bad} was accepted");
        }
    }
}
