//! Terrace: an embeddable LSM-tree key-value engine. Give it one memory budget; it spends every
//! byte where it saves the most I/O.
//!
//! ```
//! # fn main() -> terrace::Result<()> {
//! # let dir = std::env::temp_dir().join(format!("terrace-doc-{}", std::process::id()));
//! let db = terrace::Db::open(&dir, terrace::Options::default())?;
//! db.put(b"terrace", b"a field on a hillside")?;
//! assert_eq!(db.get(b"terrace")?.as_deref(), Some(&b"a field on a hillside"[..]));
//! db.delete(b"terrace")?;
//! assert!(db.get(b"terrace")?.is_none());
//! # db.close()?;
//! # std::fs::remove_dir_all(&dir).ok();
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! All of them are on by default; without any, no C compiler is needed.
//!
//! | feature | with it |
//! |---|---|
//! | `io-uring` | the reads of a batch go to the kernel together; without, one after the other |
//! | `lz4` | [`Compression::Lz4`], in Rust |
//! | `metrics` | `Metrics::to_prometheus` |
//! | `zstd` | [`Compression::Zstd`], in C |
//!
//! Compression that is not built in is refused in options by [`Error::InvalidArgument`], and where it is met in a store by
//! [`Error::Unsupported`], which names the feature.
//!
//! Floor 4: uses floors 0-3 and is the one crate an embedder names. Inside, a module uses only
//! those listed above it.

#![forbid(unsafe_code)]

// Lowest first: a module uses only those before it (docs/ARCHITECTURE.md, "Floors").
mod admin;
mod background;
mod batch;
mod compaction_filter;
mod db;
mod env;
mod error;
mod event;
mod ingest;
mod inner;
mod iter;
mod jobs;
mod kill_point;
mod learned;
mod listener;
mod memory;
mod memtable;
mod merge_operator;
mod metrics;
mod observe;
mod open;
mod options;
mod read;
mod repair;
#[cfg(test)]
mod tests;
mod transaction;
mod updates;
mod values;
mod version;
mod write;

pub use background::collect_garbage::GcProgress;
pub use background::compact_range::Progress;
pub use batch::{MAX_BATCH_BYTES, SavePoint, WriteBatch};
pub use compaction_filter::{
    CompactionFilter, FilterContext, FilterDecision, FilterEntry, FilterError, FilterJob,
};
pub use db::{BulkLoader, ColumnFamily, Db, QuarantinedFile};
pub use env::notify::MAX_WAITING_EVENTS;
pub use error::{Error, ErrorSeverity, Result};
pub use ingest::bulk::{BulkOptions, DEFAULT_BULK_MEMORY};
pub use ingest::run::{IngestOptions, IngestPosition, IngestSource, Ingested, IngestedFile};
pub use ingest::sst_writer::{SstFile, SstWriter};
pub use jobs::job_list::{JobKind, JobShape};
#[doc(hidden)]
pub use kill_point::{KILL_POINTS, watch_kill_points};
pub use listener::{
    BackgroundError, CompactionBegun, CompactionEnded, EventListener, FileCreated, FileDeleted,
    FilesIngested, FlushBegun, FlushEnded, MemtableSealed, SstInfo, StallChanged, StallCondition,
};
pub use merge_operator::{
    AppendOperator, CounterOperator, MaxOperator, MergeError, MergeOperator, associative,
    builtin_merge_operator,
};
pub use metrics::written_keys::{TopWritten, WrittenKey};
pub use metrics::{
    LatencySummary, LevelMetrics, MEMORY_POOLS, MODEL_ERROR_SLOTS, Metrics, StallCause,
    StallMetrics,
};
pub use observe::memory_pools::{MemoryShape, PoolShape};
pub use observe::store_shape::{
    FamilyShape, FileShape, FilterHeat, FilterPartitionHeat, ModelSegment, ModelShape, Shape,
};
pub use options::{
    AdvancedOptions, CfOptions, CompactionStyle, DEFAULT_BLOCK_SIZE, DEFAULT_FILTER,
    DEFAULT_FILTER_SHARE, DEFAULT_GC_GARBAGE_RATIO, DEFAULT_LEVEL_BASE_BYTES,
    DEFAULT_LEVEL_MODEL_FILES, DEFAULT_MEMORY_BUDGET, DEFAULT_MEMTABLE_BYTES,
    DEFAULT_MEMTABLE_SHARE, DEFAULT_SEGMENT_BYTES, DEFAULT_TARGET_FILE_BYTES,
    DEFAULT_VALUE_SEPARATION_THRESHOLD, DirectIo, FAMILY_OPTIONS, FilterAllocator, HotTableMode,
    LIVE_FAMILY_OPTIONS, LIVE_OPTIONS, Learning, MIN_MEMORY_BUDGET, MIN_SYNC_INTERVAL,
    MemoryShares, MemorySplit, ModelCosts, OPTIONS, Options, StoredOptions, SyncMode, WriteOptions,
    WriteTracking, parse_size,
};
pub use read::estimate::Estimate;
pub use read::get::explain::{ExplainOutcome, ExplainPart, ExplainStep, Explanation};
pub use read::get::{EntryInfo, Found};
pub use read::scan::{Iter, MAX_STEPPED_OVER_IN_MEMORY, ReadOptions};
pub use repair::{FamilySign, RepairOptions, RepairReport, repair, repair_telling};
pub use terrace_base::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use terrace_base::{Clock, SystemClock};
pub use terrace_buf::Slice;
pub use terrace_sst::{Compression, FilterPolicy, PolicyError, ReadCounts};
pub use transaction::Transaction;
pub use updates::feed::{UpdateOptions, Updates};
pub use updates::update::{Update, UpdateBatch, UpdateOp};
pub use version::snapshots::Snapshot;
pub use write::read_set::ReadSet;

/// The file systems a store can lie on.
pub mod vfs {
    pub use terrace_vfs::{
        Fault, FaultKind, OpClass, PosixVfs, SimVfs, Vfs, open_file_limit, open_file_soft_limit,
    };
}

/// The program of the README, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
