//! How the memory budget is divided at first.

/// Default share of the budget for filters; what they do not need goes to the cache.
pub const DEFAULT_FILTER_SHARE: f64 = 0.2;
/// Default share of the budget for memtables; the rest is cache and filters.
pub const DEFAULT_MEMTABLE_SHARE: f64 = 0.25;

/// Shares of the memory budget. They need not add up to 1; what is left stays unused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryShares {
    /// For memtables, mutable and immutable together.
    pub memtables: f64,
    /// For data blocks and index partitions.
    pub cache: f64,
    /// For filters, of all column families together; may be 0, and then there are none. What they do not
    /// need the cache has meanwhile, and they have some of its where they save more reads with it. With [`FilterAllocator::Cached`](crate::FilterAllocator::Cached) the cache has all of it.
    pub filters: f64,
}

impl Default for MemoryShares {
    fn default() -> Self {
        let (memtables, filters) = (DEFAULT_MEMTABLE_SHARE, DEFAULT_FILTER_SHARE);
        Self { memtables, cache: 1.0 - memtables - filters, filters }
    }
}
