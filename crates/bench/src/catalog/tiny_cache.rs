//! The variants of `tiny-cache`, and its memory.

use serde::{Deserialize, Serialize};

/// What the metadata of the store is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TinyCache {
    /// Index and filters in partitions, in the cache.
    Partitioned,
    /// One index and one filter a file, in the cache.
    Whole,
    /// Index in partitions, filters as Terrace has them by default.
    ElasticFilters,
}

/// The cache, unless the user says otherwise.
pub const CACHE_BYTES: usize = 8 << 20;
/// Memtables beside the tiny cache.
pub const WRITE_BYTES: usize = 8 << 20;
/// One of them.
pub const MEMTABLE_BYTES: usize = 2 << 20;
