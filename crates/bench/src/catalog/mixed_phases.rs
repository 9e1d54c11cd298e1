//! The variants of `mixed-phases`: memory that the engine moves between its pools, and fixed splits of it.

use crate::store::{EngineConfig, FilterMemory};
use serde::{Deserialize, Serialize};

/// How the memory is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// It moves.
    Auto,
    /// The default shares, for good.
    Fixed,
    /// Most of it for the block cache.
    FixedReads,
    /// Most of it for filters.
    FixedFilters,
    /// Most of it for memtables.
    FixedWrites,
}

/// Keys and bytes of their values.
pub const DEFAULT_SIZE: (u64, usize) = (1_000_000, 400);
/// All memory, unless the user says otherwise: about a twelfth of the data.
pub const MEMORY_BYTES: usize = 32 << 20;

impl Variant {
    /// As in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fixed => "fixed-default",
            Self::FixedReads => "fixed-reads",
            Self::FixedFilters => "fixed-filters",
            Self::FixedWrites => "fixed-writes",
        }
    }

    /// Shares of memtables, cache and filters.
    fn shares(self) -> &'static str {
        match self {
            Self::Auto | Self::Fixed => "0.25,0.55,0.2",
            Self::FixedReads => "0.05,0.9,0.05",
            Self::FixedFilters => "0.05,0.35,0.6",
            Self::FixedWrites => "0.7,0.25,0.05",
        }
    }
}

/// Terrace's settings for a variant, with `memory_bytes` for all of it.
pub fn configure(config: &mut EngineConfig, variant: Variant, memory_bytes: usize) {
    config.direct_io = true;
    config.filter = None;
    config.filter_memory = FilterMemory::Default;
    // Shares are of all of it; they are set below.
    config.write_bytes = memory_bytes / 4;
    config.cache_bytes = memory_bytes - config.write_bytes;
    let split = if variant == Variant::Auto { "auto" } else { "fixed" };
    let set =
        [("memory_split", split), ("memory_shares", variant.shares()), ("memtable_bytes", "0")];
    config.extra.extend(set.map(|(name, value)| (name.to_owned(), value.to_owned())));
}
