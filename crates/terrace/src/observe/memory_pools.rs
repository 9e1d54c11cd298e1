//! Where the memory budget is, and what a little more of it would save in each pool.
//!
//! One currency: microseconds of device time saved per second by one more MiB, also told as the device
//! reads that take as long. All of them are estimates from counters that exist
//! ([`pool_gains`](crate::memory::pool_gains)); rates are over the last half minute, or since the last look
//! before that. The arbiter reckons with the same formulas, over a second.

use crate::background::rebalance;
use crate::inner::Inner;
use crate::observe::current_metrics;
use crate::options::MemorySplit;

/// Where the memory of a store is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryShape {
    /// [`Options::memory_budget`](crate::Options::memory_budget).
    pub budget_bytes: u64,
    /// What it is spent on: `memtables`, `blocks`, `filters`, `pinned`.
    pub pools: Vec<PoolShape>,
    /// Whether it moves between them.
    pub split: MemorySplit,
    /// What the last step decided, in words: what moves, or why nothing does. `None` before the first one,
    /// and where the budget does not move.
    pub decision: Option<String>,
    /// The last move and its reason, in words.
    pub last_move: Option<String>,
    /// Moves since the open.
    pub moves: u64,
}

/// One part of the memory of a store.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolShape {
    /// `memtables`; `blocks`: the cache of data blocks, index partitions, models and values (and of
    /// filters with [`FilterAllocator::Cached`](crate::FilterAllocator::Cached)); `filters`;
    /// `pinned`: top-level indexes, range tombstones and level models, taken from the share of
    /// `blocks`.
    pub name: &'static str,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that it may use now. Of `pinned`, what it uses.
    pub limit_bytes: u64,
    /// Bytes of them that `blocks` may use as well, until a write needs them: of `memtables` only.
    pub lent_bytes: u64,
    /// Device time, as reads per second, that one more MiB would save; `None` where that is not known.
    pub saved_reads_per_mib_s: Option<f64>,
    /// The same, as microseconds per second.
    pub saved_us_per_mib_s: Option<f64>,
}

/// Where the memory is.
pub(crate) fn of(inner: &Inner) -> MemoryShape {
    let counts = rebalance::counts(&inner.read);
    let growth = inner.trends.look(inner.base.clock.monotonic_us(), counts);
    let (gains, facts) = rebalance::measure(&inner.read, &counts, &growth);
    let m = current_metrics::of(inner);
    let pool = |name, used_bytes, limit_bytes, gain: Option<f64>| PoolShape {
        name,
        used_bytes,
        limit_bytes,
        lent_bytes: 0,
        saved_reads_per_mib_s: gain.map(|us| us / facts.costs.read_us),
        saved_us_per_mib_s: gain,
    };
    // Limits change under this lock only, so those of one moment are seen together; but what memtables lend, which
    // a write takes back.
    let arbiter = inner.background.arbiter.lock();
    let (cache_most, lent) = inner.read.table_cache.cache_limits();
    let cache_most = cache_most as u64;
    let memtables_most = inner.base.dynamic.memtables_bytes() as u64;
    let cache_used = inner.read.table_cache.cache().used_bytes() as u64;
    let filters = inner.read.filters.memory();
    let filters_used = filters.used_bytes as u64;
    let filters_most = filters.limit_bytes() as u64;
    // After what is lent: a flush that ends in between makes it less.
    let memtables_used = inner.read.memtable_bytes() as u64;
    let memtables = pool("memtables", memtables_used, memtables_most, gains.memtables);
    MemoryShape {
        budget_bytes: inner.base.dynamic.memory_budget() as u64,
        pools: vec![
            PoolShape { lent_bytes: lent as u64, ..memtables },
            pool("blocks", cache_used, cache_most, gains.blocks),
            pool("filters", filters_used, filters_most, gains.filters),
            pool("pinned", m.pinned_bytes, m.pinned_bytes, None),
        ],
        split: inner.base.dynamic.memory_split(),
        decision: arbiter.decision_in_words(),
        last_move: arbiter.last_move_in_words(),
        moves: arbiter.moves,
    }
}
