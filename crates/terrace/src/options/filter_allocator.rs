//! The option that names an allocator of filter memory, and its text.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Who decides which units of filters are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilterAllocator {
    /// Memory goes where a byte saves the most reads, by one price for all filter partitions.
    #[default]
    Budget,
    /// The multi-queue of ElasticBF (Li et al., USENIX ATC 2019), for comparison.
    Mq,
    /// The block cache: filter partitions are read whole when they are wanted, and evicted like
    /// other metadata, as in engines without elastic filters.
    Cached,
}

impl fmt::Display for FilterAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Budget => "budget",
            Self::Mq => "mq",
            Self::Cached => "cached",
        })
    }
}

impl FromStr for FilterAllocator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Budget, Self::Mq, Self::Cached];
        all.into_iter().find(|allocator| allocator.to_string() == text).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "filter_allocator is \"{text}\"; it must be budget, mq or cached"
            ))
        })
    }
}
