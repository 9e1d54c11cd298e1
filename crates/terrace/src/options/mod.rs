//! Options: what a user must know in [`Options`], the rest in [`AdvancedOptions`]; per column
//! family in [`CfOptions`]. RocksDB's words are kept where the meaning is equal.
//!
//! [`FamilyOptions`] is what the verbs work with: everything resolved and checked once, at open.

mod by_name;
mod cf_options;
pub(crate) mod dynamic_options;
mod family;
mod filter_allocator;
mod hot_table_mode;
mod memory_shares;
mod memory_split;
mod model_costs;
pub(crate) mod refuse;
pub(crate) mod stored;
mod stored_options;
pub(crate) mod text;
mod words;
mod write_options;
mod write_tracking;

pub(crate) use by_name::STORED;
pub use by_name::{FAMILY_OPTIONS, LIVE_FAMILY_OPTIONS, LIVE_OPTIONS, OPTIONS};
pub use cf_options::CfOptions;
use family::job_buffer_bytes;
pub(crate) use family::{FamilyOptions, compaction_threads};
pub use filter_allocator::FilterAllocator;
pub use hot_table_mode::HotTableMode;
pub use memory_shares::{DEFAULT_FILTER_SHARE, DEFAULT_MEMTABLE_SHARE, MemoryShares};
pub use memory_split::MemorySplit;
pub use model_costs::ModelCosts;
pub use stored_options::StoredOptions;
pub use text::parse_size;
pub use write_options::WriteOptions;
pub use write_tracking::WriteTracking;

use crate::error::Result;
use crate::listener::EventListener;
use refuse::range;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use terrace_base::value_handle::MAX_SEGMENT_BYTES;
use terrace_base::{Clock, SystemClock};
use terrace_log::LogOptions;
use terrace_sst::{Compression, FilterPolicy};
use terrace_vfs::{PosixVfs, Vfs};

/// Default of [`Options::memory_budget`]: 512 MiB.
pub const DEFAULT_MEMORY_BUDGET: usize = 512 << 20;
/// The smallest memory budget a store opens with: 4 MiB.
pub const MIN_MEMORY_BUDGET: usize = 4 << 20;
/// Least size at which a memtable may be full: 16 KiB.
pub(crate) const MIN_MEMTABLE_BYTES: usize = 16 << 10;
/// Default of [`CfOptions::filter`]: a ribbon of sixteen columns, 2 bytes per key on disk, of which
/// memory holds as many as its budget allows and lookups deserve.
pub const DEFAULT_FILTER: FilterPolicy = FilterPolicy::Ribbon { columns: 16 };
/// Default of [`AdvancedOptions::block_size`].
pub const DEFAULT_BLOCK_SIZE: usize = 4096;
/// Default largest memtable: 64 MiB (smaller if the budget's share is smaller).
pub const DEFAULT_MEMTABLE_BYTES: usize = 64 << 20;
/// Default of [`AdvancedOptions::target_file_bytes`]: 64 MiB.
pub const DEFAULT_TARGET_FILE_BYTES: u64 = 64 << 20;
/// Default of [`AdvancedOptions::level_base_bytes`]: 256 MiB.
pub const DEFAULT_LEVEL_BASE_BYTES: u64 = 256 << 20;

/// Default of [`CfOptions::value_separation_threshold`]: 1 KiB.
pub const DEFAULT_VALUE_SEPARATION_THRESHOLD: usize = 1024;
/// Default of [`AdvancedOptions::segment_bytes`]: 64 MiB.
pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;
/// Default of [`AdvancedOptions::gc_garbage_ratio`].
pub const DEFAULT_GC_GARBAGE_RATIO: f64 = 0.3;

/// Default of [`AdvancedOptions::level_model_files`].
pub const DEFAULT_LEVEL_MODEL_FILES: usize = 32;

/// Of the files that may be open, one in this many is a segment with values.
const VALUE_FILES_SHARE: usize = 4;

/// The shortest interval of [`SyncMode::Interval`]: below it, the thread that syncs would do nothing
/// else.
pub const MIN_SYNC_INTERVAL: Duration = Duration::from_millis(1);

/// When a write is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// The log stays in the process until 64 KiB have gathered: a killed process loses the newest
    /// writes. Fastest.
    Buffered,
    /// Every commit is handed to the kernel before it is acknowledged: survives a killed process,
    /// not a power cut.
    None,
    /// As `None`, and the log is synced in the background at least this often, which is
    /// [`MIN_SYNC_INTERVAL`] or more. A mode of the store, not of single writes.
    Interval(Duration),
    /// Every commit is on the device before it is acknowledged; concurrent writers share a sync. As the mode of a store, also
    /// before it is visible.
    Batch,
}

impl SyncMode {
    /// Refuses an interval that is too short.
    pub(crate) fn check(self) -> Result<()> {
        let Self::Interval(interval) = self else { return Ok(()) };
        let (ok, got) = (interval >= MIN_SYNC_INTERVAL, format!("an interval of {interval:?}"));
        range(ok, "sync", &got, "an interval of at least 1 ms, or batch")
    }
}

/// How SSTs are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionStyle {
    /// One sorted run per level, each level a multiple of the one above: fewest runs to read.
    #[default]
    Leveled,
    /// Runs of similar size are merged together (RocksDB: universal): fewest bytes written.
    Tiered,
}

/// When SSTs get a model that replaces their index in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Learning {
    /// Trained while the SST is written.
    #[default]
    Build,
    /// Trained later, in the background, for files that live long enough and are read often
    /// enough for it to pay (Bourbon, OSDI 2020, section 4.4).
    Analyze,
    /// Never.
    Off,
}

/// Which files bypass the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectIo {
    /// SST reads use `O_DIRECT`.
    pub reads: bool,
    /// Flush and compaction output uses `O_DIRECT`.
    pub writes: bool,
}

/// What a user must know about a store. Build one with struct update syntax:
///
/// ```
/// use terrace::Options;
/// let options = Options { memory_budget: 64 << 20, ..Options::default() };
/// assert!(options.create_if_missing);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// The cap in bytes on everything the store holds in memory ([`DEFAULT_MEMORY_BUDGET`]).
    pub memory_budget: usize,
    /// Create the store if the directory holds none.
    pub create_if_missing: bool,
    /// When a write is durable ([`SyncMode::None`]).
    pub sync: SyncMode,
    /// Most files the store keeps open; 0 takes three quarters of the process limit.
    pub max_open_files: u64,
    /// Threads for flush and compaction together (2).
    pub background_jobs: usize,
    /// Which files bypass the page cache (none).
    pub direct_io: DirectIo,
    /// Options of the default column family, and of those not named in `column_families` that have none stored. Its merge
    /// operator and its compaction filter are not for those ([`CfOptions`]).
    pub default_family: CfOptions,
    /// Options by column family name; a family named here that does not exist is created. Whether they count for one that
    /// does, [`CfOptions`] says.
    pub column_families: Vec<(String, CfOptions)>,
    /// What becomes of the options that families were stored with ([`StoredOptions::Keep`]).
    pub stored_options: StoredOptions,
    /// Everything else.
    pub advanced: AdvancedOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_budget: DEFAULT_MEMORY_BUDGET,
            create_if_missing: true,
            sync: SyncMode::None,
            max_open_files: 0,
            background_jobs: 2,
            direct_io: DirectIo::default(),
            default_family: CfOptions::default(),
            column_families: Vec::new(),
            stored_options: StoredOptions::default(),
            advanced: AdvancedOptions::default(),
        }
    }
}

/// Knobs that most users leave alone.
#[derive(Clone)]
pub struct AdvancedOptions {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// The clock that expiries and statistics use.
    pub clock: Arc<dyn Clock>,
    /// How the budget is divided, at first or for good.
    pub memory_shares: MemoryShares,
    /// Whether the division follows the workload ([`MemorySplit::Fixed`]).
    pub memory_split: MemorySplit,
    /// Who decides which units of filters are in memory ([`FilterAllocator::Budget`]).
    pub filter_allocator: FilterAllocator,
    /// A memtable is full at this many bytes; 0 derives it from the budget
    /// (a quarter of the memtables' share, at most [`DEFAULT_MEMTABLE_BYTES`]). Half of that share is the most, and a 32nd of
    /// the room that is free on the disk, down to 256 KiB or a quarter of the reserve.
    pub memtable_bytes: usize,
    /// Whether keys that are written again and again stay in memory instead of being flushed
    /// ([`HotTableMode::Off`]).
    pub hot_table: HotTableMode,
    /// Whether the store counts which keys are written most.
    pub write_tracking: WriteTracking,
    /// Uncompressed size at which a data block is cut ([`DEFAULT_BLOCK_SIZE`]); above 4 KiB in whole pages.
    pub block_size: usize,
    /// Size at which index and filter partitions are cut (4096).
    pub metadata_block_size: usize,
    /// Cut index and filters into partitions; off is for comparison.
    pub partitioned_metadata: bool,
    /// L0 files that start a compaction (4).
    pub l0_compaction_trigger: usize,
    /// L0 files at which writes are slowed (20).
    pub l0_slowdown: usize,
    /// L0 files at which writes stop (36); one more if that is [`Self::l0_slowdown`].
    pub l0_stop: usize,
    /// Target size of the first non-empty level below L0.
    pub level_base_bytes: u64,
    /// Size ratio of neighbouring levels (10).
    pub level_multiplier: f64,
    /// Size at which compaction cuts its output files; less where room is short: a 16th of what is free, down to 128 KiB.
    pub target_file_bytes: u64,
    /// Pieces one compaction may be split into, run in parallel (2).
    pub max_subcompactions: usize,
    /// Bound on bytes written per second by flush and compaction; 0 is unbounded.
    pub rate_limit_bytes_per_s: u64,
    /// Compact leftovers when the store is idle, so that reads meet few sorted runs.
    pub compact_when_idle: bool,
    /// Bytes of pending compaction at which writes are slowed (64 GiB).
    pub pending_compaction_slowdown_bytes: u64,
    /// Bytes kept in a reserve file so that a full disk still lets deletes and the manifest
    /// through (1 MiB); 0 keeps none. A store that opens without room for it only takes what
    /// removes until there is.
    pub reserve_bytes: u64,
    /// A segment of the log that holds separated values ends at this size
    /// ([`DEFAULT_SEGMENT_BYTES`]).
    pub segment_bytes: u64,
    /// Share of garbage in the value log that garbage collection allows
    /// ([`DEFAULT_GC_GARBAGE_RATIO`]): above it the worst segments are collected. 1 turns
    /// collection off.
    pub gc_garbage_ratio: f64,
    /// A level of at least this many files may get one learned model over all of them
    /// ([`DEFAULT_LEVEL_MODEL_FILES`]). With few files, finding the right one costs less than the
    /// model does.
    pub level_model_files: usize,
    /// What lookups and training are taken to cost when it is decided what gets a model; `None`
    /// (the default) measures it.
    pub model_costs: Option<ModelCosts>,
    /// Bytes of log segments that are kept after their writes are in SSTs, for
    /// [`Db::updates_since`](crate::Db::updates_since) (0; RocksDB: `WAL_size_limit_MB`). Segments that stay anyway,
    /// for their separated values, do not count. Whole segments go, the oldest first, so less than this is kept; all
    /// of them go when the disk is full. Other than 0, a flush syncs the log before its file is in force.
    pub log_retention_bytes: u64,
    /// What read-only stores of other processes may keep on disk that this one needs no more; above
    /// it the oldest files go, and a reader that misses one gets
    /// [`Error::Outdated`](crate::Error::Outdated). `None` (the default) keeps all of them until the
    /// readers refresh, close or end, or the disk is full.
    pub max_reader_pinned_bytes: Option<u64>,
    /// Listeners for flushes, compactions, stalls, errors and files (none).
    pub event_listeners: Vec<Arc<dyn EventListener>>,
}

impl Default for AdvancedOptions {
    fn default() -> Self {
        Self {
            vfs: PosixVfs::shared(),
            clock: Arc::new(SystemClock::default()),
            memory_shares: MemoryShares::default(),
            memory_split: MemorySplit::default(),
            filter_allocator: FilterAllocator::default(),
            memtable_bytes: 0,
            hot_table: HotTableMode::default(),
            write_tracking: WriteTracking::default(),
            block_size: DEFAULT_BLOCK_SIZE,
            metadata_block_size: DEFAULT_BLOCK_SIZE,
            partitioned_metadata: true,
            l0_compaction_trigger: 4,
            l0_slowdown: 20,
            l0_stop: 36,
            level_base_bytes: DEFAULT_LEVEL_BASE_BYTES,
            level_multiplier: 10.0,
            target_file_bytes: DEFAULT_TARGET_FILE_BYTES,
            max_subcompactions: 2,
            rate_limit_bytes_per_s: 0,
            compact_when_idle: true,
            pending_compaction_slowdown_bytes: 64 << 30,
            reserve_bytes: 1 << 20,
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            gc_garbage_ratio: DEFAULT_GC_GARBAGE_RATIO,
            level_model_files: DEFAULT_LEVEL_MODEL_FILES,
            model_costs: None,
            log_retention_bytes: 0,
            max_reader_pinned_bytes: None,
            event_listeners: Vec::new(),
        }
    }
}

impl fmt::Debug for AdvancedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvancedOptions")
            .field("memory_shares", &self.memory_shares)
            .field("memory_split", &self.memory_split)
            .field("filter_allocator", &self.filter_allocator)
            .field("memtable_bytes", &self.memtable_bytes)
            .field("hot_table", &self.hot_table)
            .field("write_tracking", &self.write_tracking)
            .field("block_size", &self.block_size)
            .field("metadata_block_size", &self.metadata_block_size)
            .field("partitioned_metadata", &self.partitioned_metadata)
            .field("l0_compaction_trigger", &self.l0_compaction_trigger)
            .field("l0_slowdown", &self.l0_slowdown)
            .field("l0_stop", &self.l0_stop)
            .field("level_base_bytes", &self.level_base_bytes)
            .field("level_multiplier", &self.level_multiplier)
            .field("target_file_bytes", &self.target_file_bytes)
            .field("max_subcompactions", &self.max_subcompactions)
            .field("rate_limit_bytes_per_s", &self.rate_limit_bytes_per_s)
            .field("compact_when_idle", &self.compact_when_idle)
            .field("pending_compaction_slowdown_bytes", &self.pending_compaction_slowdown_bytes)
            .field("reserve_bytes", &self.reserve_bytes)
            .field("segment_bytes", &self.segment_bytes)
            .field("gc_garbage_ratio", &self.gc_garbage_ratio)
            .field("level_model_files", &self.level_model_files)
            .field("model_costs", &self.model_costs)
            .field("log_retention_bytes", &self.log_retention_bytes)
            .field("max_reader_pinned_bytes", &self.max_reader_pinned_bytes)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Bytes for all memtables together.
    pub(crate) fn memtables_bytes(&self) -> usize {
        (self.memory_budget as f64 * self.advanced.memory_shares.memtables) as usize
    }

    /// Bytes for the block cache.
    pub(crate) fn cache_bytes(&self) -> usize {
        let shares = &self.advanced.memory_shares;
        let share = match self.advanced.filter_allocator {
            FilterAllocator::Cached => shares.cache + shares.filters,
            _ => shares.cache,
        };
        (self.memory_budget as f64 * share) as usize
    }

    /// Most bytes for filter units outside the block cache.
    pub(crate) fn filter_bytes(&self) -> usize {
        match self.advanced.filter_allocator {
            FilterAllocator::Cached => 0,
            _ => (self.memory_budget as f64 * self.advanced.memory_shares.filters) as usize,
        }
    }

    /// Bytes at which one memtable is full.
    pub(crate) fn memtable_bytes(&self) -> usize {
        memtable_bytes(self.memtables_bytes(), self.advanced.memtable_bytes)
    }

    /// Most SSTs, and most segments with values, that are kept open.
    pub(crate) fn open_files(&self) -> (usize, usize) {
        let max_open = match self.max_open_files {
            0 => terrace_vfs::open_file_limit() / 4 * 3,
            files => files,
        };
        let max_open = usize::try_from(max_open).unwrap_or(usize::MAX);
        let value_files = max_open / VALUE_FILES_SHARE;
        (max_open - value_files, value_files)
    }

    /// How log segments are written.
    pub(crate) fn log(&self) -> LogOptions {
        let syncs = matches!(self.sync, SyncMode::Batch | SyncMode::Interval(_));
        LogOptions {
            preallocate_bytes: if syncs { self.memtable_bytes() as u64 } else { 0 },
            // A sync would write them out, and what replaces them again.
            zeros_ahead: self.sync != SyncMode::Batch,
            buffered: self.sync == SyncMode::Buffered,
        }
    }

    /// Refuses values that cannot work, naming the field, the value and the range.
    pub(crate) fn check(&self) -> Result<()> {
        self.sync.check()?;
        let a = &self.advanced;
        let MemoryShares { memtables, cache, filters } = a.memory_shares;
        let shares = [memtables, cache, filters];
        range(
            self.memory_budget >= MIN_MEMORY_BUDGET,
            "memory_budget",
            &self.memory_budget,
            "at least 4 MiB",
        )?;
        range(
            memtables > 0.0 && cache > 0.0 && filters >= 0.0,
            "memory_shares",
            &format_args!("{memtables}, {cache}, {filters}"),
            "positive parts (0 is allowed for filters)",
        )?;
        range(
            shares.iter().sum::<f64>() <= 1.0 + 1e-9,
            "memory_shares (sum)",
            &shares.iter().sum::<f64>(),
            "at most 1",
        )?;
        range(
            (1..=64).contains(&self.background_jobs),
            "background_jobs",
            &self.background_jobs,
            "1 to 64",
        )?;
        range(
            a.memtable_bytes == 0 || a.memtable_bytes >= MIN_MEMTABLE_BYTES,
            "memtable_bytes",
            &a.memtable_bytes,
            "0 (derived) or at least 16 KiB",
        )?;
        range(
            (128..=4 << 20).contains(&a.block_size),
            "block_size",
            &a.block_size,
            "128 bytes to 4 MiB",
        )?;
        range(
            (128..=4 << 20).contains(&a.metadata_block_size),
            "metadata_block_size",
            &a.metadata_block_size,
            "128 bytes to 4 MiB",
        )?;
        range(
            a.l0_compaction_trigger >= 1,
            "l0_compaction_trigger",
            &a.l0_compaction_trigger,
            "at least 1",
        )?;
        range(
            a.l0_slowdown >= a.l0_compaction_trigger,
            "l0_slowdown",
            &a.l0_slowdown,
            "at least l0_compaction_trigger",
        )?;
        range(a.l0_stop >= a.l0_slowdown, "l0_stop", &a.l0_stop, "at least l0_slowdown")?;
        range(
            a.level_base_bytes >= 4096,
            "level_base_bytes",
            &a.level_base_bytes,
            "at least 4096",
        )?;
        range(
            (2.0..=100.0).contains(&a.level_multiplier),
            "level_multiplier",
            &a.level_multiplier,
            "2 to 100",
        )?;
        range(
            a.target_file_bytes >= 4096,
            "target_file_bytes",
            &a.target_file_bytes,
            "at least 4096",
        )?;
        range(
            (1..=64).contains(&a.max_subcompactions),
            "max_subcompactions",
            &a.max_subcompactions,
            "1 to 64",
        )?;
        range(
            (4096..=MAX_SEGMENT_BYTES / 2).contains(&a.segment_bytes),
            "segment_bytes",
            &a.segment_bytes,
            "4096 bytes to 512 GiB",
        )?;
        let ratio = &a.gc_garbage_ratio;
        range((0.05..=1.0).contains(ratio), "gc_garbage_ratio", ratio, "0.05 to 1")?;
        self.default_family.check()?;
        self.column_families.iter().try_for_each(|(name, family)| {
            refuse::family_name(name)?;
            family.check()
        })
    }

    /// Everything the verbs need to know for one family.
    pub(crate) fn family(&self, cf: &CfOptions) -> FamilyOptions {
        let a = &self.advanced;
        let last = cf.compression.last().copied().unwrap_or(Compression::None);
        let most_pieces = compaction_threads(self.background_jobs) * a.max_subcompactions;
        FamilyOptions {
            compression: std::array::from_fn(|level| {
                cf.compression.get(level).copied().unwrap_or(last)
            }),
            filter: std::array::from_fn(|level| {
                cf.filter.get(level).or(cf.filter.last()).copied().unwrap_or(FilterPolicy::None)
            }),
            prefix_len: cf.prefix_len.unwrap_or(0),
            style: cf.compaction,
            block_size: a.block_size,
            metadata_block_size: a.metadata_block_size,
            partitioned_metadata: a.partitioned_metadata,
            direct_write: self.direct_io.writes,
            memtable_bytes: self.memtable_bytes(),
            l0_compaction_trigger: a.l0_compaction_trigger,
            l0_slowdown: a.l0_slowdown,
            l0_stop: a.l0_stop,
            level_base_bytes: a.level_base_bytes,
            level_multiplier: a.level_multiplier,
            target_file_bytes: a.target_file_bytes,
            job_buffer_bytes: job_buffer_bytes(self.memory_budget, most_pieces),
            most_pieces,
            max_subcompactions: a.max_subcompactions,
            compact_when_idle: a.compact_when_idle,
            pending_compaction_slowdown_bytes: a.pending_compaction_slowdown_bytes,
            value_separation_threshold: cf.value_separation_threshold,
            value_compression: cf.value_compression,
            learning: cf.learning,
            merge_operator: cf.merge_operator.clone(),
            compaction_filter: cf.compaction_filter.clone(),
            keeps_seqnos: cf.merge_operator.is_some(),
            model_costs: a.model_costs,
            family: None,
            as_old_as: None,
        }
    }
}

/// Bytes at which a memtable is full where all of them together have `memtables_bytes`; `asked` is what was asked
/// for, or 0. Two fit, unless that is less than a memtable may have.
pub(crate) fn memtable_bytes(memtables_bytes: usize, asked: usize) -> usize {
    let one = match asked {
        0 => (memtables_bytes / 4).clamp(256 << 10, DEFAULT_MEMTABLE_BYTES),
        asked => asked,
    };
    one.min((memtables_bytes / 2).max(MIN_MEMTABLE_BYTES))
}
