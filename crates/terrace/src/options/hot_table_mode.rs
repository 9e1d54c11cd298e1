//! The option that says whether a store keeps a hot table, and its text.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Whether keys that are written again and again are kept in memory instead of being flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HotTableMode {
    /// Every memtable is flushed whole.
    #[default]
    Off,
    /// Keys that are written more than once in the life of a memtable stay in memory, within a
    /// quarter of what one memtable may hold, as long as they are.
    Auto,
}

impl fmt::Display for HotTableMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Off => "off",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for HotTableMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Off, Self::Auto];
        all.into_iter().find(|mode| mode.to_string() == text).ok_or_else(|| {
            Error::InvalidArgument(format!("hot_table is \"{text}\"; it must be off or auto"))
        })
    }
}
