//! The kinds of keys of `learned`.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A kind of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeySet {
    /// All numbers in a row.
    Linear,
    /// A gap after every 100 numbers in a row; gaps are uniform, with a mean of ten times that.
    Segmented1,
    /// A gap after every 10.
    Segmented10,
    /// Numbers drawn from a normal distribution.
    Normal,
    /// Names of packages, of one to 92 bytes.
    Packages,
    /// YCSB's: `user`, then a 63-bit hash of the record's number in decimal digits, not padded.
    Ycsb,
}

impl KeySet {
    /// All.
    pub const ALL: [Self; 6] = [
        Self::Linear,
        Self::Segmented1,
        Self::Segmented10,
        Self::Normal,
        Self::Packages,
        Self::Ycsb,
    ];
}

impl fmt::Display for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linear => "linear",
            Self::Segmented1 => "segmented-1",
            Self::Segmented10 => "segmented-10",
            Self::Normal => "normal",
            Self::Packages => "packages",
            Self::Ycsb => "ycsb",
        })
    }
}

impl FromStr for KeySet {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|set| set.to_string() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(|set| set.to_string()).join(", ");
            anyhow::anyhow!("--set keysets: `{text}` is none of {names}")
        })
    }
}
