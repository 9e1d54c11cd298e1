//! What reads did, counted without contention.
//!
//! Every thread owns one cache-line-padded shard, so that counting is a plain load and store of
//! a line no other core writes. Threads beyond the number of shards share shard 0 and pay for an
//! atomic addition.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shards of a [`ReadCounters`]; 0 is shared by the threads that found no other free.
const SHARD_COUNT: usize = 64;

/// What is counted. The order is that of [`ReadCounts`]'s fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Event {
    FilterCheck,
    FilterNegative,
    FilterFalsePositive,
    DataBlockHit,
    DataBlockMiss,
    IndexHit,
    IndexMiss,
    FilterHit,
    FilterMiss,
    FilterAbsent,
    FilterUnitLoad,
    FilterUnitDrop,
    FilterUnitDamage,
    WastedLookup,
    LookupByModel,
    LookupByIndex,
    LookupByLevelModel,
    ModelLoad,
    ModelDamage,
    TrainingNs,
    DeviceRead,
    DeviceReadBytes,
}

const EVENT_COUNT: usize = Event::DeviceReadBytes as usize + 1;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; EVENT_COUNT]);

/// Counters of the reads of any number of SSTs; usually one per store.
#[derive(Debug)]
pub struct ReadCounters {
    shards: Box<[Shard]>,
}

/// A sum of [`ReadCounters`] at about one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Lookups that asked a filter.
    pub filter_checks: u64,
    /// Lookups that a filter ended.
    pub filter_negatives: u64,
    /// Lookups that a filter let pass and that found no version of their key.
    pub filter_false_positives: u64,
    /// Data blocks found in the cache.
    pub data_block_hits: u64,
    /// Data blocks that had to be read.
    pub data_block_misses: u64,
    /// Index partitions found resident.
    pub index_hits: u64,
    /// Index partitions that had to be read.
    pub index_misses: u64,
    /// Filter partitions found resident.
    pub filter_hits: u64,
    /// Filter partitions that had to be read.
    pub filter_misses: u64,
    /// Lookups that went on without a filter, no unit of it being in memory.
    pub filters_absent: u64,
    /// Filter units read into memory by [`crate::load_filter_units`].
    pub filter_unit_loads: u64,
    /// Filter units freed by [`crate::drop_filter_units`].
    pub filter_unit_drops: u64,
    /// Filter units that were damaged and are ignored.
    pub filter_unit_damages: u64,
    /// Lookups that searched a file's data in vain, with or without a filter.
    pub wasted_lookups: u64,
    /// Lookups in a file's data that its learned index answered.
    pub lookups_by_model: u64,
    /// Lookups in a file's data that index partitions answered.
    pub lookups_by_index: u64,
    /// Lookups in a file's data that a model of the level answered.
    pub lookups_by_level_model: u64,
    /// Learned indexes read, or trained, and attached.
    pub model_loads: u64,
    /// Learned indexes that were damaged and are ignored.
    pub model_damages: u64,
    /// Nanoseconds spent on training over files that existed.
    pub training_ns: u64,
    /// Reads handed to the file system.
    pub device_reads: u64,
    /// Bytes of those reads.
    pub device_read_bytes: u64,
}

impl Default for ReadCounters {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadCounters {
    /// Counters at zero.
    pub fn new() -> Self {
        Self { shards: (0..SHARD_COUNT).map(|_| Shard::default()).collect() }
    }

    /// The sums over all threads. Events being counted at this moment may be missing.
    pub fn snapshot(&self) -> ReadCounts {
        let sum = |event: Event| {
            self.shards.iter().map(|shard| shard.0[event as usize].load(Ordering::Relaxed)).sum()
        };
        ReadCounts {
            filter_checks: sum(Event::FilterCheck),
            filter_negatives: sum(Event::FilterNegative),
            filter_false_positives: sum(Event::FilterFalsePositive),
            data_block_hits: sum(Event::DataBlockHit),
            data_block_misses: sum(Event::DataBlockMiss),
            index_hits: sum(Event::IndexHit),
            index_misses: sum(Event::IndexMiss),
            filter_hits: sum(Event::FilterHit),
            filter_misses: sum(Event::FilterMiss),
            filters_absent: sum(Event::FilterAbsent),
            filter_unit_loads: sum(Event::FilterUnitLoad),
            filter_unit_drops: sum(Event::FilterUnitDrop),
            filter_unit_damages: sum(Event::FilterUnitDamage),
            wasted_lookups: sum(Event::WastedLookup),
            lookups_by_model: sum(Event::LookupByModel),
            lookups_by_index: sum(Event::LookupByIndex),
            lookups_by_level_model: sum(Event::LookupByLevelModel),
            model_loads: sum(Event::ModelLoad),
            model_damages: sum(Event::ModelDamage),
            training_ns: sum(Event::TrainingNs),
            device_reads: sum(Event::DeviceRead),
            device_read_bytes: sum(Event::DeviceReadBytes),
        }
    }

    /// Device reads that this thread has counted so far. Threads beyond the 63rd of the process
    /// share their counts.
    pub fn own_device_reads(&self) -> u64 {
        let shard = OWN_SHARD.try_with(Cell::get).unwrap_or(0);
        let own = self.shards.get(shard as usize);
        own.map_or(0, |shard| shard.0[Event::DeviceRead as usize].load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn count(&self, event: Event) {
        self.add(event, 1);
    }

    #[inline]
    pub(crate) fn add(&self, event: Event, amount: u64) {
        let own = OWN_SHARD.try_with(|shard| shard.get()).unwrap_or(0);
        let own = if own == UNASSIGNED { assign_shard() } else { own };
        let counter = &self.shards[own as usize].0[event as usize];
        if own == 0 {
            counter.fetch_add(amount, Ordering::Relaxed);
        } else {
            // No other thread writes this shard while we own it, so nothing is lost.
            counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        }
    }
}

/// Lookups with an outcome that costs next to nothing are counted one by one up to this many in
/// one filter partition, so that rarely used partitions are known exactly.
pub(crate) const EXACT_COUNTS: u32 = 64;
/// From there on one in this many is counted, as this many: threads share the count.
pub(crate) const SAMPLE: u32 = 8;

/// Whether this thread's next lookup is one of the sampled: drawn, since lookups may alternate.
#[inline]
pub(crate) fn is_sampled() -> bool {
    let drawn = SAMPLE_STATE.try_with(|state| {
        // Knuth's multiplier for 64 bits; the upper bits of the state are as good as random.
        state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        state.get() >> 32
    });
    drawn.unwrap_or(0).is_multiple_of(u64::from(SAMPLE))
}

const UNASSIGNED: u32 = u32::MAX;

thread_local! {
    /// The shard of this thread; kept apart from its guard so that reading it needs no
    /// registration check.
    static OWN_SHARD: Cell<u32> = const { Cell::new(UNASSIGNED) };
    static SAMPLE_STATE: Cell<u64> = const { Cell::new(0) };
    static SHARD_GUARD: Cell<Option<ShardGuard>> = const { Cell::new(None) };
}

/// Shards in use, one bit each; bit 0 is always set. The lock orders the writes of one owner of
/// a shard before those of the next.
static SHARDS_TAKEN: Mutex<u64> = Mutex::new(1);

const _: () = assert!(SHARD_COUNT == u64::BITS as usize);

struct ShardGuard(u32);

impl Drop for ShardGuard {
    fn drop(&mut self) {
        let _ = OWN_SHARD.try_with(|own| own.set(0));
        if let Ok(mut taken) = SHARDS_TAKEN.lock() {
            *taken &= !(1 << self.0);
        }
    }
}

#[cold]
fn assign_shard() -> u32 {
    let shard = match SHARDS_TAKEN.lock() {
        Ok(mut taken) if *taken != u64::MAX => {
            let free = taken.trailing_ones();
            *taken |= 1 << free;
            free
        }
        _ => 0,
    };
    let _ = OWN_SHARD.try_with(|own| own.set(shard));
    if shard != 0 {
        // If the thread is already past this destructor, the guard dropped here frees the shard.
        let guard = ShardGuard(shard);
        let kept = SHARD_GUARD.try_with(|slot| slot.set(Some(guard)));
        if kept.is_err() {
            return 0;
        }
    }
    shard
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn nothing_is_lost_with_more_threads_than_shards() {
        let counters = Arc::new(ReadCounters::new());
        let start = std::sync::Barrier::new(2 * SHARD_COUNT);
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARD_COUNT {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..1000 {
                        counters.count(Event::IndexHit);
                        counters.add(Event::DeviceReadBytes, 3);
                    }
                });
            }
        });
        let counts = counters.snapshot();
        assert_eq!(counts.index_hits, 2000 * SHARD_COUNT as u64);
        assert_eq!(counts.device_read_bytes, 6000 * SHARD_COUNT as u64);
        assert_eq!(counts.filter_checks, 0);
    }

    #[test]
    fn a_thread_gives_its_shard_back() {
        let counters = ReadCounters::new();
        for _ in 0..3 * SHARD_COUNT {
            let own = std::thread::scope(|scope| {
                scope
                    .spawn(|| {
                        counters.count(Event::FilterHit);
                        OWN_SHARD.get()
                    })
                    .join()
            });
            assert_ne!(own.unwrap(), UNASSIGNED);
        }
        assert_eq!(counters.snapshot().filter_hits, 3 * SHARD_COUNT as u64);
    }
}
