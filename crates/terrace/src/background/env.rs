//! What background work needs.

use crate::env::BaseEnv;
use crate::jobs::Jobs;
use crate::memory::arbiter::ArbiterState;
use crate::values::garbage::Garbage;
use crate::version::install;
use crate::version::read_env::ReadEnv;
use crate::version::version_set::VersionSet;
use crate::write::env::CommitEnv;
use std::sync::Arc;
use terrace_base::sync::Mutex;

/// What flushes, compactions, collections and trainings need.
pub(crate) struct JobEnv {
    pub base: Arc<BaseEnv>,
    pub read: Arc<ReadEnv>,
    pub versions: Arc<VersionSet>,
    pub jobs: Arc<Jobs>,
    pub garbage: Arc<Garbage>,
    /// What moves memory between pools.
    pub arbiter: Mutex<ArbiterState>,
    /// A flush rotates memtables and syncs the log first.
    pub commit: Arc<CommitEnv>,
}

impl JobEnv {
    /// Deletes obsolete files as far as that works, for work whose result does not depend on that: what stays is
    /// reported, and the house thread goes on trying.
    pub fn purge(&self) {
        if let Err(error) = install::purge(&self.versions) {
            self.base.report("delete obsolete files", &error);
        }
    }
}
