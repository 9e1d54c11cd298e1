//! Where the memory budget is, and what a little more of it would save in each pool.
//!
//! One currency: device reads saved per second by one more MiB. All of them are estimates from
//! counters that exist; rates are over the last half minute, or since the last look before that.
//!
//! - **blocks**: `ghost hits/s / ghost MiB`. The cache remembers a sample of the keys that it
//!   evicted last, up to an eighth of its capacity (`ghost` of `terrace-cache`); a block that is read again
//!   while its key is remembered would still be there in a cache larger by that much. A cache that
//!   never evicted anything gains nothing.
//! - **filters**: `lambda * lookups/s * 2^20 * (block misses / block accesses)`. Lambda is the price
//!   of the allocator: wasted lookups saved per lookup and byte by the unit that just deserves
//!   memory. A wasted lookup costs a device read where the block is not in memory. Unknown unless
//!   the allocator is [`FilterAllocator::Budget`](crate::FilterAllocator::Budget).
//! - **memtables**: `C / (M * ln(L / M)) * 2^20 / block size`, `C` being the bytes that compactions
//!   read and wrote per second, `M` the bytes of memtables, `L` those of the largest level.
//!   Compaction of a leveled tree costs about `k * ln(L / M)` bytes per byte written; with `k` from
//!   what is measured, this is its derivative by `M` (Luo and Carey, "Breaking Down Memory Walls",
//!   VLDB 2021). A saved data block of sequential compaction counts as a saved read, which flatters
//!   memtables on devices that seek. Unknown while the tree is no larger than the memtables.
//! - **pinned**: what open files cannot do without; nothing to gain.

use crate::inner::Inner;
use crate::metrics::trends::Growth;
use crate::observe::current_metrics;
use crate::observe::store_shape::counts;
use crate::options::FilterAllocator;

const MIB: f64 = (1 << 20) as f64;

/// Where the memory of a store is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryShape {
    /// [`Options::memory_budget`](crate::Options::memory_budget).
    pub budget_bytes: u64,
    /// What it is spent on: `memtables`, `blocks`, `filters`, `pinned`.
    pub pools: Vec<PoolShape>,
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
    /// Device reads per second that one more MiB would save; `None` where that is not known.
    pub saved_reads_per_mib_s: Option<f64>,
}

/// Where the memory is.
pub(crate) fn of(inner: &Inner) -> MemoryShape {
    let growth = inner.trends.look(inner.base.clock.monotonic_us(), counts(inner));
    let m = current_metrics::of(inner);
    let pool = |name, used_bytes, limit_bytes, saved_reads_per_mib_s| PoolShape {
        name,
        used_bytes,
        limit_bytes,
        saved_reads_per_mib_s,
    };
    let memtables = inner.base.dynamic.memtables_bytes() as u64;
    let largest = m.levels.iter().map(|level| level.size_bytes).max().unwrap_or(0);
    let block_size = inner.base.options.advanced.block_size as f64;
    let lambda = match inner.base.options.advanced.filter_allocator {
        FilterAllocator::Budget => Some(m.filter_lambda),
        _ => None,
    };
    let cache = inner.read.table_cache.cache().stats();
    MemoryShape {
        budget_bytes: inner.base.dynamic.memory_budget() as u64,
        pools: vec![
            pool(
                "memtables",
                m.memtable_bytes,
                memtables,
                memtable_gain(&growth, memtables, largest, block_size),
            ),
            pool(
                "blocks",
                m.cache_used_bytes,
                m.cache_capacity_bytes,
                block_gain(&growth, cache.ghost_bytes, cache.evictions),
            ),
            pool(
                "filters",
                m.filter_memory_bytes,
                m.filter_budget_bytes,
                lambda.and_then(|lambda| filter_gain(&growth, lambda)),
            ),
            pool("pinned", m.pinned_bytes, m.pinned_bytes, None),
        ],
    }
}

/// See the module's head.
fn block_gain(growth: &Growth, ghost_bytes: u64, evictions: u64) -> Option<f64> {
    if evictions == 0 {
        return Some(0.0);
    }
    let gain = growth.per_second(growth.counts.ghost_hits) / (ghost_bytes as f64 / MIB);
    (ghost_bytes > 0 && growth.seconds > 0.0).then_some(gain)
}

fn filter_gain(growth: &Growth, lambda: f64) -> Option<f64> {
    let counts = &growth.counts;
    let accesses = counts.block_hits + counts.block_misses;
    let missed = match accesses {
        0 => 0.0,
        _ => counts.block_misses as f64 / accesses as f64,
    };
    let gain = lambda * growth.per_second(counts.lookups) * MIB * missed;
    (growth.seconds > 0.0).then_some(gain)
}

fn memtable_gain(growth: &Growth, memtables: u64, largest: u64, block_size: f64) -> Option<f64> {
    let (m, l) = (memtables as f64, largest as f64);
    if growth.seconds <= 0.0 || memtables == 0 || largest <= memtables {
        return None;
    }
    let bytes = growth.per_second(growth.counts.compaction_bytes) / (m * (l / m).ln());
    Some(bytes * MIB / block_size.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::trends::Counts;

    fn growth(counts: Counts) -> Growth {
        Growth { counts, seconds: 10.0 }
    }

    #[test]
    fn blocks_gain_what_the_ghosts_say() {
        let hits = growth(Counts { ghost_hits: 500, ..Counts::default() });
        assert_eq!(block_gain(&hits, 2 << 20, 9), Some(25.0));
        assert_eq!(block_gain(&hits, 0, 0), Some(0.0), "it never was full");
        assert_eq!(block_gain(&hits, 0, 3), None);
        assert_eq!(block_gain(&Growth::default(), 2 << 20, 9), None, "no time has passed");
    }

    #[test]
    fn filters_gain_the_price_times_the_lookups_that_miss() {
        let (lookups, block_hits, block_misses) = (10_000, 300, 100);
        let busy = growth(Counts { lookups, block_hits, block_misses, ..Counts::default() });
        let gain = filter_gain(&busy, 1e-6).unwrap();
        assert!((gain - 1e-6 * 1000.0 * MIB * 0.25).abs() < 1e-9, "{gain}");
        assert_eq!(filter_gain(&busy, 0.0), Some(0.0));
        let idle = growth(Counts { lookups, ..Counts::default() });
        assert_eq!(filter_gain(&idle, 1e-6), Some(0.0), "everything is in memory");
    }

    #[test]
    fn memtables_gain_as_the_derivative_of_the_cost_says() {
        // A cost of k * ln(L / M) bytes per byte, at 1 MB/s.
        let (k, l, written) = (5.0, (8u64 << 30) as f64, 1e6);
        let cost = |m: f64| written * k * (l / m).ln();
        let m = (64 << 20) as f64;
        let measured =
            growth(Counts { compaction_bytes: (cost(m) * 10.0) as u64, ..Counts::default() });
        let gain = memtable_gain(&measured, 64 << 20, 8 << 30, 4096.0).unwrap();
        let saved = (cost(m) - cost(m + MIB)) / 4096.0;
        assert!((gain / saved - 1.0).abs() < 0.02, "{gain} {saved}");
        assert_eq!(memtable_gain(&measured, 64 << 20, 1 << 20, 4096.0), None);
    }
}
