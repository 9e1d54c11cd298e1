//! What the engine counts: cheap counters inside, a plain struct outside, with a text form for
//! people (`metrics/text.rs`) and one for Prometheus (`metrics/prometheus.rs`).

mod histogram;
#[cfg(feature = "metrics")]
mod prometheus;
mod stalls;
mod text;
pub(crate) mod training;
pub(crate) mod trends;
pub(crate) mod written_keys;

pub(crate) use stalls::Stalls;
pub use stalls::{StallCause, StallMetrics};

use histogram::Histogram;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use terrace_base::sync::Mutex;
use terrace_manifest::LEVEL_COUNT;
use terrace_sst::ReadCounts;

/// Shards of a counter that every read bumps.
const SHARDS: usize = 16;

/// One of this many point reads and commits is timed, on average, and one of this many point reads is
/// followed through the files.
pub(crate) const SAMPLE_EVERY: u32 = 64;
/// Operations between two that are timed: from this many, this many more at random, since kinds of
/// operations may take turns.
const MIN_GAP: u32 = 48;
const GAP_BITS: u32 = 5;
/// Where between two that are timed one is followed.
const FOLLOWED: u32 = 24;

/// The parts of the memory budget that memory moves between, in the order of
/// [`Metrics::memory_gains_us`].
pub const MEMORY_POOLS: [&str; 3] = ["memtables", "blocks", "filters"];

/// Slots of [`Metrics::model_errors`].
pub const MODEL_ERROR_SLOTS: usize = terrace_learned::ERROR_SLOTS;

#[repr(align(128))]
#[derive(Debug, Default)]
struct Padded(AtomicU64);

/// A counter whose cache lines threads do not share (up to [`SHARDS`] of them).
#[derive(Debug, Default)]
pub(crate) struct Sharded([Padded; SHARDS]);

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
    static COUNTDOWN: Cell<u32> = const { Cell::new(SAMPLE_EVERY) };
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

impl Sharded {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        SHARD.with(|shard| self.0[*shard].0.fetch_add(n, Ordering::Relaxed));
    }

    /// The sum.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}

/// Latencies of one kind of operation.
#[derive(Debug)]
pub(crate) struct Latency(Mutex<Histogram>);

impl Default for Latency {
    fn default() -> Self {
        Self(Mutex::new(Histogram::default()))
    }
}

impl Latency {
    /// Records one duration; skipped when another thread is just recording.
    pub fn record_ns(&self, ns: u64) {
        if let Some(mut histogram) = self.0.try_lock() {
            histogram.record(ns);
        }
    }

    /// How many durations were recorded, and their sum in nanoseconds.
    pub fn total(&self) -> (u64, u64) {
        let histogram = self.0.lock();
        (histogram.count(), histogram.sum_ns())
    }

    fn summary(&self) -> LatencySummary {
        let histogram = self.0.lock();
        let us = |ns: u64| ns as f64 / 1000.0;
        LatencySummary {
            samples: histogram.count(),
            mean_us: us(histogram.sum_ns()) / histogram.count().max(1) as f64,
            p50_us: us(histogram.quantile_ns(0.5)),
            p99_us: us(histogram.quantile_ns(0.99)),
            p999_us: us(histogram.quantile_ns(0.999)),
            max_us: us(histogram.max_ns()),
        }
    }
}

/// What becomes of the operation that starts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sampled {
    /// Most of them.
    No,
    /// It is timed.
    Timed,
    /// If it is a point read, it is followed through the files.
    Followed,
}

/// What becomes of the operation that starts now.
#[inline]
pub(crate) fn sample() -> Sampled {
    COUNTDOWN.with(|left| {
        let now = left.get() - 1;
        left.set(if now == 0 { next_gap() } else { now });
        match now {
            0 => Sampled::Timed,
            FOLLOWED => Sampled::Followed,
            _ => Sampled::No,
        }
    })
}

#[cold]
fn next_gap() -> u32 {
    DRAWN.with(|drawn| {
        // Knuth's multiplier for 64 bits; the upper bits are as good as random.
        drawn.set(drawn.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        MIN_GAP + (drawn.get() >> (64 - GAP_BITS)) as u32
    })
}

/// What a counter has counted, as [`Metrics`] show it.
trait Counted {
    type Shown;
    fn shown(&self) -> Self::Shown;
}

impl Counted for AtomicU64 {
    type Shown = u64;

    fn shown(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
}

impl Counted for Sharded {
    type Shown = u64;

    fn shown(&self) -> u64 {
        self.get()
    }
}

impl Counted for Latency {
    type Shown = LatencySummary;

    fn shown(&self) -> LatencySummary {
        self.summary()
    }
}

/// Defines [`Counters`]: first what [`Metrics`] show under the same name.
macro_rules! counters {
    ($($name:ident: $counter:ty,)* ; $($other:ident: $other_counter:ty,)*) => {
        /// Everything the verbs count.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub $name: $counter,)*
            $(pub $other: $other_counter,)*
        }

        impl Metrics {
            /// Takes over what the verbs counted.
            pub(crate) fn fill(&mut self, counters: &Counters) {
                $(self.$name = counters.$name.shown();)*
                self.stalls = counters.stalls.table();
                self.slowdowns = self.stalls.iter().map(|row| row.slowdowns).sum();
                self.stops = self.stalls.iter().map(|row| row.stops).sum();
                self.stall_us = self.stalls.iter().map(|row| row.stall_us).sum();
                for (row, written) in self.levels.iter_mut().zip(&counters.level_written_bytes) {
                    row.written_bytes = written.shown();
                }
            }
        }
    };
}

counters! {
    gets: Sharded,
    gets_found: Sharded,
    gets_in_memtable: Sharded,
    batches: AtomicU64,
    ops_written: AtomicU64,
    user_bytes: AtomicU64,
    log_bytes: AtomicU64,
    log_syncs: AtomicU64,
    groups: AtomicU64,
    conflicts: AtomicU64,
    flushes: AtomicU64,
    flush_bytes: AtomicU64,
    hot_swaps: AtomicU64,
    hot_checkpoints: AtomicU64,
    hot_checkpoint_bytes: AtomicU64,
    compactions: AtomicU64,
    trivial_moves: AtomicU64,
    compaction_read_bytes: AtomicU64,
    compaction_written_bytes: AtomicU64,
    entries_dropped: AtomicU64,
    compaction_filter_removed: AtomicU64,
    compaction_filter_changed: AtomicU64,
    compaction_filter_failures: AtomicU64,
    values_separated: AtomicU64,
    separated_bytes: AtomicU64,
    gc_moved_values: AtomicU64,
    gc_moved_bytes: AtomicU64,
    gc_freed_bytes: AtomicU64,
    background_errors: AtomicU64,
    get_latency: Latency,
    commit_latency: Latency,
    flush_latency: Latency,
    compaction_latency: Latency,
    ;
    level_written_bytes: [AtomicU64; LEVEL_COUNT],
    stalls: Stalls,
}

/// Adds to a counter that only sums.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Latencies of one kind of operation, in microseconds. Point reads and commits are sampled
/// (one in about 64).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LatencySummary {
    /// Operations timed.
    pub samples: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Slowest.
    pub max_us: f64,
}

/// One row of the level table.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LevelMetrics {
    /// SSTs.
    pub file_count: u64,
    /// Their bytes.
    pub size_bytes: u64,
    /// Entries in them, tombstones included.
    pub entry_count: u64,
    /// Point tombstones in them.
    pub tombstone_count: u64,
    /// Keys and values in them before compression, in bytes.
    pub raw_bytes: u64,
    /// Bytes that flush and compaction wrote into this level since the open.
    pub written_bytes: u64,
    /// Lookups that a filter ended: true negatives. Estimated, as all counts per level; 0 with
    /// [`FilterAllocator::Cached`](crate::FilterAllocator::Cached).
    pub filter_stopped: u64,
    /// Lookups that went on to the data and did not find their key: false positives, and what no
    /// filter in memory could answer.
    pub filter_vain: u64,
    /// Lookups that found their key: true positives.
    pub filter_found: u64,
    /// Filter units loaded since the open.
    pub filter_units_loaded: u64,
    /// Filter units dropped since the open.
    pub filter_units_dropped: u64,
    /// Bytes of filter units in memory.
    pub filter_memory_bytes: u64,
    /// SSTs that are open and have a learned index.
    pub model_files: u64,
    /// Families whose files of this level have one model together.
    pub level_models: u64,
}

impl LevelMetrics {
    /// Lookups that reached a filter partition of the level.
    pub fn filter_lookups(&self) -> u64 {
        self.filter_stopped + self.filter_vain + self.filter_found
    }
}

/// The state of a store and what it did since it was opened. All counters start at 0 at open.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Point reads.
    pub gets: u64,
    /// Point reads that found their key.
    pub gets_found: u64,
    /// Point reads that a memtable answered.
    pub gets_in_memtable: u64,
    /// Iterator seeks.
    pub seeks: u64,
    /// Batches committed.
    pub batches: u64,
    /// Operations committed.
    pub ops_written: u64,
    /// Bytes of keys and values committed.
    pub user_bytes: u64,
    /// Groups in which the batches were logged.
    pub groups: u64,
    /// Batches that were refused because a key of their read set had changed.
    pub conflicts: u64,
    /// Bytes appended to the commit log.
    pub log_bytes: u64,
    /// Bytes of log segments that must be kept now.
    pub live_log_bytes: u64,
    /// Bytes of log segments that are kept for change feeds only.
    pub retained_log_bytes: u64,
    /// Syncs of the commit log.
    pub log_syncs: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes flushed.
    pub flush_bytes: u64,
    /// Keys that are hot now: they stay in memory instead of being flushed.
    pub hot_keys: u64,
    /// Memory of hot tables, with what is overwritten in them and what is known of keys that may become
    /// hot.
    pub hot_bytes: u64,
    /// Times that a hot table took the place of the one before.
    pub hot_swaps: u64,
    /// Checkpoints of hot tables.
    pub hot_checkpoints: u64,
    /// Bytes of checkpoints of hot tables.
    pub hot_checkpoint_bytes: u64,
    /// Compactions that rewrote data.
    pub compactions: u64,
    /// Files moved down without rewriting.
    pub trivial_moves: u64,
    /// Bytes compactions read.
    pub compaction_read_bytes: u64,
    /// Bytes compactions wrote.
    pub compaction_written_bytes: u64,
    /// Entries that flush and compaction dropped.
    pub entries_dropped: u64,
    /// Entries that compaction filters removed.
    pub compaction_filter_removed: u64,
    /// Entries that compaction filters changed.
    pub compaction_filter_changed: u64,
    /// Entries that stayed because a compaction filter failed or panicked.
    pub compaction_filter_failures: u64,
    /// Values that were left in the log instead of being copied into SSTs.
    pub values_separated: u64,
    /// Their stored bytes.
    pub separated_bytes: u64,
    /// Values read from the log.
    pub value_reads: u64,
    /// Their stored bytes.
    pub value_read_bytes: u64,
    /// Values found in the block cache instead.
    pub value_cache_hits: u64,
    /// Files of the log that only SSTs need.
    pub value_segments: u64,
    /// Their length.
    pub value_segment_bytes: u64,
    /// Bytes in the log that live SSTs refer to.
    pub value_live_bytes: u64,
    /// Values that garbage collection moved.
    pub gc_moved_values: u64,
    /// Bytes that garbage collection wrote.
    pub gc_moved_bytes: u64,
    /// Bytes of value segments that were given back.
    pub gc_freed_bytes: u64,
    /// Value segments that are being collected now.
    pub gc_victim_segments: u64,
    /// Value segments that are not collected, since a value in them could not be read when it was last tried.
    pub gc_excluded_segments: u64,
    /// Times that writes were slowed, whatever for.
    pub slowdowns: u64,
    /// Times that writes stopped, whatever for.
    pub stops: u64,
    /// Time writers spent stalled, whatever for, in microseconds.
    pub stall_us: u64,
    /// Stalls by cause, in the order of [`StallCause::ALL`].
    pub stalls: [StallMetrics; StallCause::ALL.len()],
    /// Failed flushes, compactions and background syncs.
    pub background_errors: u64,
    /// What reads of SSTs found and did.
    pub reads: ReadCounts,
    /// Bytes of filter units in memory or on the way there, outside the block cache.
    pub filter_memory_bytes: u64,
    /// Bytes that they may take now.
    pub filter_budget_bytes: u64,
    /// Bytes of the filters' share that the block cache has, since filters do not need them.
    pub filter_lent_bytes: u64,
    /// Bytes of the block cache's share that filters have, since they save more reads with them.
    pub filter_borrowed_bytes: u64,
    /// Bytes of the memtables' share that the block cache has, since memtables do not use them now.
    pub memtable_lent_bytes: u64,
    /// Moves of memory between pools ([`MemorySplit::Auto`](crate::MemorySplit)).
    pub memory_moves: u64,
    /// Bytes of these moves.
    pub memory_moved_bytes: u64,
    /// Moves against the direction in which the same pool was moved last.
    pub memory_turns: u64,
    /// Microseconds of device time per second that one more MiB would save in memtables, blocks and
    /// filters, smoothed: what moves are decided by. 0 where nothing moves.
    pub memory_gains_us: [f64; MEMORY_POOLS.len()],
    /// Wasted lookups saved per lookup and byte by the filter unit that just deserves memory.
    pub filter_lambda: f64,
    /// Wasted lookups to be expected per lookup, from the heat of all filter partitions and the
    /// units that they have.
    pub filter_expected_waste: f64,
    /// Bytes of learned indexes and level models in memory.
    pub model_bytes: u64,
    /// Time spent training, in nanoseconds.
    pub model_training_ns: u64,
    /// SSTs that got a learned index, when they were written or later.
    pub models_built: u64,
    /// SSTs and levels whose keys could not be learned, or not for what it costs.
    pub models_refused: u64,
    /// Of these: too many keys tie.
    pub models_refused_ties: u64,
    /// Of these: the keys are too hard to predict.
    pub models_refused_segments: u64,
    /// Of these: the model would take too much memory beside the index.
    pub models_refused_bytes: u64,
    /// Models of whole levels, of all column families, now.
    pub level_models: u64,
    /// Those made since the open.
    pub level_models_built: u64,
    /// How far models were off over the keys that they were trained on, in data blocks: the mean.
    pub model_error_mean: f64,
    /// The most.
    pub model_error_max: u64,
    /// Keys by how far off the model is: exact, then by eighths of the model's error bound.
    pub model_errors: [u64; MODEL_ERROR_SLOTS],
    /// Bytes the block cache holds.
    pub cache_used_bytes: u64,
    /// Bytes the block cache may hold.
    pub cache_capacity_bytes: u64,
    /// Bytes of memtables.
    pub memtable_bytes: u64,
    /// Bytes that they may take together now.
    pub memtable_limit_bytes: u64,
    /// Bytes that open SST readers and level models pin outside the cache, with memtables that only iterators and snapshots
    /// hold, the references of files to value segments, and the registry of filters.
    pub pinned_bytes: u64,
    /// Open SST readers.
    pub open_files: u64,
    /// Files that are kept for read-only stores only.
    pub reader_pinned_files: u64,
    /// Bytes of these.
    pub reader_pinned_bytes: u64,
    /// Live snapshots.
    pub snapshots: u64,
    /// Writes wait for disk room.
    pub disk_full: bool,
    /// SSTs that compactions are picked around because they could not be read when last tried.
    pub quarantined_files: u64,
    /// Writes are refused until the store is reopened.
    pub poisoned: bool,
    /// What was synced could not be written down: until it is, fewer lost or cut files are noticed.
    pub evidence_stale: bool,
    /// The levels, all column families together.
    pub levels: [LevelMetrics; LEVEL_COUNT],
    /// Point reads.
    pub get_latency: LatencySummary,
    /// Commits, waiting included.
    pub commit_latency: LatencySummary,
    /// Flushes.
    pub flush_latency: LatencySummary,
    /// Compactions.
    pub compaction_latency: LatencySummary,
}

impl Metrics {
    /// Bytes written to the device per byte the user wrote; 0 before the first write.
    pub fn write_amplification(&self) -> f64 {
        let tables = self.flush_bytes + self.hot_checkpoint_bytes + self.compaction_written_bytes;
        let written = self.log_bytes + tables + self.gc_moved_bytes;
        ratio(written, self.user_bytes)
    }

    /// Bytes in SSTs and value segments per byte of keys and inline values in the deepest non-empty
    /// level and of values that SSTs refer to, an estimate of disk space per live byte; 0 for an
    /// empty store.
    pub fn space_amplification(&self) -> f64 {
        let stored: u64 = self.levels.iter().map(|level| level.size_bytes).sum();
        let live = self.levels.iter().rev().find(|level| level.raw_bytes > 0);
        let live = live.map_or(0, |level| level.raw_bytes) + self.value_live_bytes;
        ratio(stored + self.value_segment_bytes, live)
    }

    /// Reads of SSTs per point read.
    pub fn device_reads_per_get(&self) -> f64 {
        ratio(self.reads.device_reads, self.gets)
    }

    /// Every cause of stalls and what was counted under it.
    pub fn stalls_by_cause(&self) -> impl Iterator<Item = (StallCause, StallMetrics)> {
        StallCause::ALL.into_iter().zip(self.stalls)
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_every_magnitude_are_kept() {
        let latency = Latency::default();
        for ns in [700, 40_000, 3_000_000_000] {
            latency.record_ns(ns);
        }
        let summary = latency.summary();
        assert_eq!(summary.samples, 3);
        assert!((summary.p50_us - 40.0).abs() < 1.0, "{summary:?}");
        assert!((summary.max_us - 3e6).abs() < 3e4, "{summary:?}");
    }

    #[test]
    fn samples_are_evenly_many_and_do_not_follow_a_rhythm() {
        std::thread::spawn(|| {
            // Two kinds of operations that take turns.
            let mut counts = [[0u32; 2]; 2];
            for n in 0..64_000 {
                match sample() {
                    Sampled::No => {}
                    Sampled::Timed => counts[0][n % 2] += 1,
                    Sampled::Followed => counts[1][n % 2] += 1,
                }
            }
            for count in counts.iter().flatten() {
                assert!((400..600).contains(count), "{counts:?}");
            }
        })
        .join()
        .unwrap();
    }
}
