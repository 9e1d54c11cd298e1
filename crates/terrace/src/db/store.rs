//! What the handles of a store share, and how it is closed.

use crate::background::flush;
use crate::background::worker::Workers;
use crate::env::own_threads;
use crate::error::{Error, Result};
use crate::ingest::calls;
use crate::inner::Inner;
use crate::kill_point::kill_point;
use crate::open::read_only;
use crate::version::install;
use crate::write::log_segments;
use std::sync::Arc;
use terrace_base::sync::{Mutex, thread};

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
    ///
    /// # Errors
    /// Those of the last flush or sync; `InvalidArgument` if a thread calls it that works for the store.
    pub fn close(&self) -> Result<()> {
        let mut stage = match self.stage.try_lock() {
            Some(stage) => stage,
            // The thread that closes waits for this one to end.
            None if self.is_called_by_own() => return Ok(()),
            None => self.stage.lock(),
        };
        if self.has_as_worker() && matches!(*stage, Stage::Open(_)) {
            let text = "a store is not closed in a call of its compaction filter or merge operator, which the close waits for";
            return Err(Error::InvalidArgument(text.into()));
        }
        let closing = Stage::Closed(Err(Error::Closed));
        let closed = match std::mem::replace(&mut *stage, closing) {
            Stage::Open(workers) => close_now(&self.inner, workers),
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
            None if self.is_called_by_own() => return Err(Error::Closed),
            None => self.stage.lock(),
        };
        match &mut *stage {
            Stage::Open(workers) => workers.fit(&self.inner.background),
            Stage::Closed(_) => Err(Error::Closed),
        }
    }

    /// Whether a thread of the store calls this, which a close waits for.
    fn is_called_by_own(&self) -> bool {
        self.has_as_worker() || self.inner.base.events.is_told_here()
    }

    /// Whether this is a thread that does the store's work.
    fn has_as_worker(&self) -> bool {
        own_threads::store_here() == Some(self.inner.base.open_id)
    }

    /// Has another thread close the store, which waits for this one.
    fn close_elsewhere(&mut self) {
        let closed = Stage::Closed(Err(Error::Closed));
        let Stage::Open(workers) = std::mem::replace(self.stage.get_mut(), closed) else { return };
        let inner = self.inner.clone();
        let work = move || {
            let _nobody_asks = close_now(&inner, workers);
        };
        if thread::Builder::new().name("terrace-close".into()).spawn(work).is_err() {
            // The threads end all the same, and nobody knows when: until the process does, no other open may have the directory.
            self.inner.jobs.scheduler.stop();
            std::mem::forget(self.inner.lock.lock().take());
        }
    }
}

fn close_now(inner: &Inner, workers: Workers) -> Result<()> {
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

impl Drop for Store {
    fn drop(&mut self) {
        if self.has_as_worker() {
            return self.close_elsewhere();
        }
        // Errors are given by `close`; the log keeps what a failed flush leaves.
        let _ = self.close();
    }
}
