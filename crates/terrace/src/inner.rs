//! An open store: one environment for each kind of work, and what is there once.
//! The order of its locks is in `docs/ARCHITECTURE.md`, "Locks".

use crate::background::env::JobEnv;
use crate::env::BaseEnv;
use crate::jobs::Jobs;
use crate::memory::table_cache::Pinned;
use crate::metrics::trends::Trends;
use crate::options::Options;
use crate::version::read_env::ReadEnv;
use crate::version::version_set::VersionSet;
use crate::write::env::CommitEnv;
use std::sync::Arc;
use terrace_base::sync::Mutex;
use terrace_base::{FileNumber, SegmentNumber};
use terrace_log::LogPosition;

/// The manifest that a store is opened with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ManifestInForce {
    pub number: u64,
    pub bytes: u64,
}

/// A look at the directory of a store that another process may be writing to.
#[derive(Default)]
pub(crate) struct Look {
    /// The manifest that was in force.
    pub manifest: ManifestInForce,
    /// Numbers from here on were free, as the manifest said.
    pub next_file_number: FileNumber,
    /// The newest log segment that there was.
    pub newest_log: Option<SegmentNumber>,
    /// Where the log ended.
    pub log_end: Option<LogPosition>,
    /// What replayed memtables take beyond the share of memtables.
    pub _memory: Option<Pinned>,
}

/// An open store.
pub(crate) struct Inner {
    /// As they were given: those of `base` have the file system that this store sees.
    pub given: Options,
    pub base: Arc<BaseEnv>,
    pub read: Arc<ReadEnv>,
    pub versions: Arc<VersionSet>,
    pub jobs: Arc<Jobs>,
    pub commit: Arc<CommitEnv>,
    pub background: Arc<JobEnv>,
    /// Growth of counters over the last seconds.
    pub trends: Trends,
    /// In a read-only store: what the last look at the directory found. Held during a refresh.
    pub last_look: Mutex<Option<Look>>,
    /// Held until the store is closed.
    pub lock: Mutex<Option<Box<dyn Send + Sync>>>,
}
