//! What an object looks at: a column family, now or at a snapshot. It can be let go of before the object.

use crate::callbacks::{free, wait};
use crate::errors::{ended, raise};
use parking_lot::{RwLock, RwLockReadGuard};
use pyo3::prelude::*;
use std::sync::Arc;
use terrace::{ColumnFamily, ReadOptions, Snapshot};
use terrace_binding::{Failure, Kept, guard};

/// A family and how it is read.
pub struct Seen {
    pub db: terrace::Db,
    pub family: ColumnFamily,
    /// At the snapshot, if it is one.
    pub reading: ReadOptions,
    /// As `reading`, of what is in memory only.
    pub in_memory: ReadOptions,
}

/// A family that an object looks at until it is released.
pub struct View {
    /// Nothing once it is released. A forked process must not wait for the lock, which may be held there for ever.
    seen: Kept<RwLock<Option<Arc<Seen>>>>,
    what: &'static str,
}

impl View {
    /// The family as of now, or as of `snapshot`.
    pub fn new(db: terrace::Db, family: ColumnFamily, snapshot: Option<Snapshot>) -> Self {
        let what = if snapshot.is_some() { "snapshot" } else { "store" };
        let reading = ReadOptions { snapshot, ..ReadOptions::default() };
        let in_memory = ReadOptions { in_memory: true, ..reading.clone() };
        let seen = Arc::new(Seen { db, family, reading, in_memory });
        Self { seen: Kept::new(RwLock::new(Some(seen))), what }
    }

    /// Looks, for a moment in which nothing waits for the device. A panic is a failure.
    #[inline]
    pub fn look<T>(&self, look: impl FnOnce(&Seen) -> PyResult<T>) -> PyResult<T> {
        let seen: RwLockReadGuard<'_, _> = self.seen.get().map_err(raise)?.read();
        let seen = seen.as_ref().ok_or_else(|| ended(self.what))?;
        guard(|| Ok(look(seen))).map_err(raise)?
    }

    /// Works while other threads of Python go on.
    pub fn work<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Seen) -> terrace::Result<T> + Send,
    ) -> PyResult<T> {
        let seen = self.seen.get().map_err(raise)?.read().clone();
        let seen = seen.ok_or_else(|| ended(self.what))?;
        // The store is closed by its last user, and that may call Python: not while this holds the interpreter.
        let work = move || work(&seen).map_err(Failure::from);
        wait(py, work, raise)
    }

    /// Lets go of what it looks at. The caller does not hold the interpreter, since that may close the store. In a
    /// forked process it does nothing.
    pub fn release(&self) {
        if let Ok(shared) = self.seen.get() {
            let seen = shared.write().take();
            drop(seen);
        }
    }
}

/// The last object of a store closes it.
impl Drop for View {
    fn drop(&mut self) {
        if let Ok(seen) = self.seen.get_mut()
            && let Some(seen) = seen.get_mut().take()
        {
            free(seen);
        }
    }
}
