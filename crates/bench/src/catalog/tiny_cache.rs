//! The variants of `tiny-cache`, and its memory.

use crate::engine::Engine;
use serde::{Deserialize, Serialize};

/// What the metadata of the store is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TinyCache {
    /// Index and filters in partitions, in the cache.
    Partitioned,
    /// One index and one filter a file, in the cache.
    Whole,
    /// Terrace as it is by default, with the memory for everything.
    Default,
}

impl TinyCache {
    /// As in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Partitioned => "partitions-on",
            Self::Whole => "partitions-off",
            Self::Default => "",
        }
    }

    /// Whether the engine has something to do with it.
    pub fn suits(self, engine: Engine) -> bool {
        self != Self::Default || engine == Engine::Terrace
    }
}

/// The cache, unless the user says otherwise.
pub const CACHE_BYTES: usize = 8 << 20;
/// Memtables beside the tiny cache.
pub const WRITE_BYTES: usize = 8 << 20;
/// One of them.
pub const MEMTABLE_BYTES: usize = 2 << 20;
