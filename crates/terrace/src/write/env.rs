//! What a commit needs.

use crate::env::BaseEnv;
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::values::garbage::Garbage;
use crate::version::read_env::ReadEnv;
use crate::version::version_set::VersionSet;
use crate::write::queue::WriteQueue;
use std::sync::Arc;

/// What a commit needs: the queue of writers with the log, the memtables it fills, the jobs that make
/// room for it.
pub(crate) struct CommitEnv {
    pub base: Arc<BaseEnv>,
    pub read: Arc<ReadEnv>,
    pub versions: Arc<VersionSet>,
    pub jobs: Arc<Jobs>,
    pub garbage: Arc<Garbage>,
    /// `None` in a read-only store.
    pub queue: Option<WriteQueue>,
}

impl CommitEnv {
    /// The write queue, or the reason why there is none.
    pub fn queue(&self) -> Result<&WriteQueue> {
        self.queue.as_ref().ok_or_else(|| Error::ReadOnly(self.base.dir.clone()))
    }

    /// Whether a write would be taken now.
    pub fn check_writable(&self) -> Result<()> {
        self.queue()?;
        self.base.health.check_writable()
    }
}
