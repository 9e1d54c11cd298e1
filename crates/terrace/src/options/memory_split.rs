//! The option that says whether the memory budget moves between its pools, and its text.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

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

impl fmt::Display for MemorySplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fixed => "fixed",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for MemorySplit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Fixed, Self::Auto];
        all.into_iter().find(|split| split.to_string() == text).ok_or_else(|| {
            Error::InvalidArgument(format!("memory_split is \"{text}\"; it must be fixed or auto"))
        })
    }
}
