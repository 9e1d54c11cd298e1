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
//! Floor 4: uses floors 0-3 and is the one crate an embedder names. Inside, a module uses only
//! those listed above it.

#![forbid(unsafe_code)]

// Vocabulary.
mod error;
mod event;
mod kill_point;
mod metrics;
mod options;
// Nouns.
mod background_errors;
mod batch;
mod evidence;
mod family;
mod file_numbers;
mod filter_budget;
mod garbage;
mod health;
mod iter;
mod job_list;
mod level_model;
mod live;
mod memtable;
mod models;
mod rate_limit;
mod read_set;
mod read_state;
mod reader_pins;
mod reserve;
mod scheduler;
mod snapshots;
mod table_cache;
mod trends;
mod value_log;
mod write_queue;
// The nouns gathered.
mod inner;
// Verbs.
mod checkpoint;
mod collect;
mod commit;
mod compact;
mod compaction;
mod estimate;
mod families;
mod flush;
mod gc;
mod get;
mod install;
mod learn;
mod memory;
mod orphans;
mod output;
mod recover;
mod retain;
mod scan;
mod shape;
mod stall;
mod validate;
mod verify;
// The loop and the top.
mod db;
mod open;
mod read_only;
mod repair;
mod transaction;
mod worker;

pub use batch::{MAX_BATCH_BYTES, SavePoint, WriteBatch};
pub use collect::GcProgress;
pub use compact::Progress;
pub use db::{ColumnFamily, Db, LIVE_OPTIONS, QuarantinedFile};
pub use error::{Error, ErrorSeverity, Result};
pub use estimate::Estimate;
pub use get::Found;
pub use get::explain::{ExplainOutcome, ExplainPart, ExplainStep, Explanation};
pub use job_list::{JobKind, JobShape};
#[doc(hidden)]
pub use kill_point::{KILL_POINTS, watch_kill_points};
pub use memory::{MemoryShape, PoolShape};
pub use metrics::{
    LatencySummary, LevelMetrics, MODEL_ERROR_SLOTS, Metrics, StallCause, StallMetrics,
};
pub use options::{
    AdvancedOptions, CfOptions, CompactionStyle, DEFAULT_BLOCK_SIZE, DEFAULT_FILTER,
    DEFAULT_FILTER_SHARE, DEFAULT_GC_GARBAGE_RATIO, DEFAULT_LEVEL_BASE_BYTES,
    DEFAULT_LEVEL_MODEL_FILES, DEFAULT_MEMORY_BUDGET, DEFAULT_MEMTABLE_BYTES,
    DEFAULT_MEMTABLE_SHARE, DEFAULT_SEGMENT_BYTES, DEFAULT_TARGET_FILE_BYTES,
    DEFAULT_VALUE_SEPARATION_THRESHOLD, DirectIo, FilterAllocator, Learning, MIN_MEMORY_BUDGET,
    MIN_SYNC_INTERVAL, MemoryShares, ModelCosts, Options, SyncMode, WriteOptions,
};
pub use read_set::ReadSet;
pub use repair::{RepairOptions, RepairReport, repair};
pub use scan::{Iter, ReadOptions};
pub use shape::{
    FamilyShape, FileShape, FilterHeat, FilterPartitionHeat, ModelSegment, ModelShape, Shape,
};
pub use snapshots::Snapshot;
pub use terrace_base::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use terrace_base::{Clock, SystemClock};
pub use terrace_sst::{Compression, FilterPolicy, PolicyError};
pub use terrace_vfs::Slice;
pub use transaction::Transaction;

/// The file systems a store can lie on.
pub mod vfs {
    pub use terrace_vfs::{Fault, FaultKind, OpClass, PosixVfs, SimVfs, Vfs};
}
