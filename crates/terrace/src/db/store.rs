//! What the handles of a store share, and how it is closed.

use crate::background::flush;
use crate::background::worker::Workers;
use crate::error::{Error, Result};
use crate::ingest::calls;
use crate::inner::Inner;
use crate::kill_point::kill_point;
use crate::open::read_only;
use crate::version::install;
use crate::write::log_segments;
use std::sync::Arc;
use terrace_base::sync::Mutex;

/// What the handles share; dropping it closes the store.
pub(super) struct Store {
    pub inner: Arc<Inner>,
    stage: Mutex<Stage>,
}

/// Open, or closed with what the close gave.
enum Stage {
    Open(Workers),
    Closed(Result<()>),
}

impl Store {
    /// Of an open store.
    pub fn new(inner: Arc<Inner>, workers: Workers) -> Self {
        Self { inner, stage: Mutex::new(Stage::Open(workers)) }
    }

    /// Flushes, stops the threads, refuses writes, releases the lock. A later call gives the same, one at
    /// the same time waits for it.
    pub fn close(&self) -> Result<()> {
        let mut stage = match self.stage.try_lock() {
            Some(stage) => stage,
            // The thread that closes waits for this one to end.
            None if self.inner.base.events.is_told_here() => return Ok(()),
            None => self.stage.lock(),
        };
        let closing = Stage::Closed(Err(Error::Closed));
        let closed = match std::mem::replace(&mut *stage, closing) {
            Stage::Open(workers) => self.close_now(workers),
            Stage::Closed(closed) => closed,
        };
        *stage = Stage::Closed(closed.clone());
        closed
    }

    /// Has as many threads merge as the options ask for now.
    ///
    /// # Errors
    /// The system has no thread to give; `Closed`.
    pub fn fit_workers(&self) -> Result<()> {
        let mut stage = match self.stage.try_lock() {
            Some(stage) => stage,
            // The thread that closes waits for this one to end.
            None if self.inner.base.events.is_told_here() => return Err(Error::Closed),
            None => self.stage.lock(),
        };
        match &mut *stage {
            Stage::Open(workers) => workers.fit(&self.inner.background),
            Stage::Closed(_) => Err(Error::Closed),
        }
    }

    fn close_now(&self, workers: Workers) -> Result<()> {
        let inner = &self.inner;
        // Nobody is served any more whom the writes of flushes would slow down.
        inner.base.limiter.set_rate(0);
        let flushed = match inner.base.health.check_writable() {
            _ if inner.base.read_only => Ok(()),
            Ok(()) => flush::all(&inner.background),
            // The log holds everything; whether the device does too can still be seen to.
            Err(Error::DiskFull(_)) => Ok(()),
            // What was acknowledged may be lost, which its writers have not been told.
            Err(error) => Err(error),
        };
        kill_point("close:flushed");
        inner.jobs.scheduler.stop();
        workers.join();
        // What stays loses nothing: the next open removes it.
        inner.background.purge();
        kill_point("close:stopped");
        let synced = if inner.base.read_only {
            inner.base.health.close();
            read_only::let_go(inner);
            Ok(())
        } else {
            // What was written since the flush began is durable, or it is refused.
            log_segments::end(&inner.commit)
        };
        install::wait_for_last(&inner.versions);
        calls::remove_load_files(&inner.background);
        if !inner.base.read_only {
            inner.versions.evidence.settle();
        }
        inner.base.events.end();
        *inner.lock.lock() = None;
        flushed.and(synced)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Errors are given by `close`; the log keeps what a failed flush leaves.
        let _ = self.close();
    }
}
