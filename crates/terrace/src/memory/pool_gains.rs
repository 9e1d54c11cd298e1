//! What one MiB more would save in each pool, in microseconds of device time per second, from counters of
//! the store: for the arbiter, which moves memory by it, and for `Db::memory`, which shows it.
//!
//! The formulas are those of [`terrace_arbiter::gains`]; here is what they are fed with.
//!
//! - **blocks**: the ghost list of the block cache, one key in eight.
//! - **filters**: the price of filter memory (`filter_budget::price`) times the lookups whose blocks are not
//!   in memory. Unknown unless the allocator is [`FilterAllocator::Budget`]. While filters lend some of
//!   their memory to the block cache, a MiB of theirs is worth what one of the cache is.
//! - **memtables**: bytes that are written and not separated, times what merging each has cost since the
//!   open, times the derivative of that by the size of memtables.

use crate::metrics::trends::{Counts, Growth};
use crate::options::FilterAllocator;
use terrace_arbiter::gains::{self, WriteFlow};

/// A read of the device, until it was measured.
const USUAL_READ_US: f64 = 90.0;
const LEAST_READ_US: f64 = 10.0;
const MOST_READ_US: f64 = 20_000.0;
/// Reads of the device per lookup from which on lookups say what a read takes: with fewer, memory counts.
const TELLING_READS: f64 = 0.05;
/// A byte of a merge, read or written, until it was measured: 250 MB/s.
const USUAL_MERGE_US: f64 = 0.004;
const LEAST_MERGE_US: f64 = 0.0005;
const MOST_MERGE_US: f64 = 0.1;
/// Bytes that are merged before their time is believed.
const TELLING_MERGE_BYTES: u64 = 16 << 20;
/// What merging is taken to cost, in bytes per byte flushed, and for how many memtables' worth of flushes
/// that counts beside what is measured.
const USUAL_AMPLIFICATION: f64 = 8.0;
const USUAL_MEMTABLES: f64 = 1.0;

/// What the device takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeviceCosts {
    pub read_us: f64,
    pub us_per_merged_byte: f64,
}

impl Default for DeviceCosts {
    fn default() -> Self {
        Self { read_us: USUAL_READ_US, us_per_merged_byte: USUAL_MERGE_US }
    }
}

impl DeviceCosts {
    /// As far as `all` that was counted since the open, and the growth lately, say. Lookups are sampled, so
    /// their time is that of hits and misses together: where at least one in twenty reads the device, and
    /// hardly anybody scans, it is the time of those reads.
    pub fn measured(all: &Counts, growth: &Counts) -> Self {
        let mut costs = Self::default();
        let lookups = growth.lookups as f64;
        let reads = growth.block_misses as f64;
        if growth.get_samples > 0
            && reads >= TELLING_READS * lookups
            && growth.seeks * 10 <= growth.lookups
        {
            let per_lookup = growth.get_ns as f64 / growth.get_samples as f64 / 1000.0;
            costs.read_us = (per_lookup * lookups / reads).clamp(LEAST_READ_US, MOST_READ_US);
        }
        if all.compaction_bytes >= TELLING_MERGE_BYTES {
            let us = all.compaction_ns as f64 / 1000.0 / all.compaction_bytes as f64;
            costs.us_per_merged_byte = us.clamp(LEAST_MERGE_US, MOST_MERGE_US);
        }
        costs
    }
}

/// What is so now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolFacts {
    /// Bytes for memtables, and of one that is full.
    pub memtables_bytes: u64,
    pub memtable_bytes: u64,
    pub largest_level_bytes: u64,
    pub ghost_bytes: u64,
    pub evictions: u64,
    pub allocator: FilterAllocator,
    pub lambda: f64,
    /// Bytes of filter memory that the cache has.
    pub lent_bytes: u64,
    pub costs: DeviceCosts,
}

/// Microseconds per second that one MiB more would save; `None` where that is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PoolGains {
    pub memtables: Option<f64>,
    pub blocks: Option<f64>,
    pub filters: Option<f64>,
}

/// The gains, by how the counters grew lately and by `all` that was counted since the open.
pub(crate) fn of(all: &Counts, growth: &Growth, facts: &PoolFacts) -> PoolGains {
    if growth.seconds <= 0.0 {
        return PoolGains::default();
    }
    let (counts, read_us) = (&growth.counts, facts.costs.read_us);
    let ghost_hits = growth.per_second(counts.ghost_hits);
    let blocks = gains::of_cache(ghost_hits, facts.ghost_bytes, facts.evictions, read_us);
    let accesses = counts.block_hits + counts.block_misses;
    let missed = if accesses == 0 { 0.0 } else { counts.block_misses as f64 / accesses as f64 };
    let lookups = growth.per_second(counts.lookups);
    let own = gains::of_filters(facts.lambda, lookups, missed, read_us);
    let filters = match facts.allocator {
        FilterAllocator::Budget if facts.lent_bytes > 0 => blocks.map(|blocks| blocks.max(own)),
        FilterAllocator::Budget => Some(own),
        _ => None,
    };
    let usual_bytes = USUAL_MEMTABLES * facts.memtable_bytes as f64;
    let merged = all.compaction_bytes as f64 + USUAL_AMPLIFICATION * usual_bytes;
    let memtables = gains::of_write_memory(&WriteFlow {
        written_bytes_per_s: growth.per_second(counts.memtable_bytes),
        merged_per_byte: merged / (all.flush_bytes as f64 + usual_bytes).max(1.0),
        us_per_merged_byte: facts.costs.us_per_merged_byte,
        memory_bytes: facts.memtables_bytes,
        largest_level_bytes: facts.largest_level_bytes,
    });
    PoolGains { memtables: Some(memtables), blocks, filters }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> PoolFacts {
        PoolFacts {
            memtables_bytes: 64 << 20,
            memtable_bytes: 16 << 20,
            largest_level_bytes: 8 << 30,
            ghost_bytes: 2 << 20,
            evictions: 9,
            allocator: FilterAllocator::Budget,
            lambda: 1e-6,
            lent_bytes: 0,
            costs: DeviceCosts { read_us: 100.0, us_per_merged_byte: 0.01 },
        }
    }

    fn lately(counts: Counts) -> Growth {
        Growth { counts, seconds: 10.0 }
    }

    #[test]
    fn each_pool_gains_by_what_is_counted_for_it() {
        let reads = Counts {
            ghost_hits: 500,
            lookups: 10_000,
            block_hits: 300,
            block_misses: 100,
            ..Counts::default()
        };
        let gains = of(&reads, &lately(reads), &facts());
        assert_eq!(gains.blocks, Some(50.0 * 100.0 / 2.0));
        let wasted = 1e-6 * 1000.0 * gains::MIB * 0.25;
        assert!((gains.filters.unwrap() - wasted * 100.0).abs() < 1e-6, "{gains:?}");
        assert_eq!(gains.memtables, Some(0.0));
        let written = Counts { memtable_bytes: 10_000_000, ..Counts::default() };
        let all = Counts { flush_bytes: 1 << 30, compaction_bytes: 20 << 30, ..Counts::default() };
        let of_writes = of(&all, &lately(written), &facts()).memtables.unwrap();
        // 1 MB/s, 20 bytes merged for each, 0.01 us a byte; less by 1 / (64 * ln 128) for a MiB more.
        let expected = 1e6 * 19.8 * 0.01 / (64.0 * 128f64.ln());
        assert!((of_writes / expected - 1.0).abs() < 0.01, "{of_writes} {expected}");
    }

    #[test]
    fn what_is_lent_is_worth_what_it_is_to_the_cache() {
        let reads = Counts { ghost_hits: 500, ..Counts::default() };
        let lent = of(&reads, &lately(reads), &PoolFacts { lent_bytes: 1, ..facts() });
        assert_eq!(lent.filters, lent.blocks);
        let cached = PoolFacts { allocator: FilterAllocator::Cached, ..facts() };
        assert_eq!(of(&reads, &lately(reads), &cached).filters, None);
        assert_eq!(
            of(&reads, &Growth::default(), &facts()),
            PoolGains::default(),
            "no time has passed"
        );
    }

    #[test]
    fn the_device_is_measured_where_it_is_what_takes_the_time() {
        let usual = DeviceCosts::default();
        let none = Counts::default();
        assert_eq!(DeviceCosts::measured(&none, &none), usual);
        // Half of the lookups read, in 200 us on average.
        let reads = Counts {
            lookups: 6400,
            block_misses: 3200,
            get_samples: 100,
            get_ns: 100 * 100_000,
            ..Counts::default()
        };
        assert_eq!(DeviceCosts::measured(&reads, &reads).read_us, 200.0);
        let cached = Counts { block_misses: 10, ..reads };
        assert_eq!(DeviceCosts::measured(&cached, &cached).read_us, usual.read_us);
        let scans = Counts { seeks: 6400, ..reads };
        assert_eq!(DeviceCosts::measured(&scans, &scans).read_us, usual.read_us);
        let merges = Counts { compaction_bytes: 1 << 30, compaction_ns: 10 << 30, ..none };
        assert_eq!(DeviceCosts::measured(&merges, &none).us_per_merged_byte, 0.01);
    }
}
