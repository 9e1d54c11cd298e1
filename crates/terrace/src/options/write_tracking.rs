//! The option that says whether a store counts which keys are written most.

use std::time::Duration;

/// Whether a store counts which keys are written most ([`Db::top_written`](crate::Db::top_written)). Counted
/// are the operations in segments of the log that are needed no more, by a thread in the background that reads them
/// once again; writes cost nothing for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteTracking {
    /// How many keys have a counter; 0 (the default) counts nothing. With 1,000 it takes less than
    /// 1 MiB, outside the memory budget.
    pub keys: usize,
    /// Column families whose keys are not counted.
    pub except_families: Vec<String>,
    /// Counts are halved in this interval (a minute), so that keys that have cooled leave.
    pub halved_every: Duration,
}

impl Default for WriteTracking {
    fn default() -> Self {
        Self { keys: 0, except_families: Vec::new(), halved_every: Duration::from_secs(60) }
    }
}
