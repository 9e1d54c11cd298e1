//! The option that says whether the memory budget moves between its pools, and its text.

use super::words::spelled;

/// How the memory budget is divided between memtables, block cache and filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemorySplit {
    /// As [`MemoryShares`](crate::MemoryShares) say, but that block cache and filters lend each other what
    /// the other one saves more reads with.
    #[default]
    Fixed,
    /// As they say at first; then a small part of the budget moves every second or so to where it saves
    /// the most device time. Sizes that were asked for, as a `memtable_bytes` above 0, stay.
    Auto,
}

spelled!(MemorySplit, "memory_split", Fixed = "fixed", Auto = "auto");
