//! What an object looks at: a column family, now or at a snapshot. It can be let go of before the object.

use crate::callbacks::{free, wait};
use crate::errors::{ended, raise};
use parking_lot::RwLock;
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

/// A family that an object looks at until it is released, if it can be.
pub struct View {
    seen: Kept<Held>,
    what: &'static str,
}

/// What an object looks at.
enum Held {
    /// As of now, as long as the object is there: reads take no lock.
    Always(Arc<Seen>),
    /// As of a snapshot; nothing once it is released. A forked process must not wait for the lock, which may be held there
    /// for ever.
    UntilReleased(RwLock<Option<Arc<Seen>>>),
}

impl View {
    /// The family as of now, or as of `snapshot`, which can be released.
    pub fn new(db: terrace::Db, family: ColumnFamily, snapshot: Option<Snapshot>) -> Self {
        let is_snapshot = snapshot.is_some();
        let reading = ReadOptions { snapshot, ..ReadOptions::default() };
        let in_memory = ReadOptions { in_memory: true, ..reading.clone() };
        let seen = Arc::new(Seen { db, family, reading, in_memory });
        let (seen, what) = match is_snapshot {
            false => (Held::Always(seen), "store"),
            true => (Held::UntilReleased(RwLock::new(Some(seen))), "snapshot"),
        };
        Self { seen: Kept::new(seen), what }
    }

    /// Looks, for a moment in which nothing waits for the device. A panic is a failure.
    #[inline]
    pub fn look<T>(&self, look: impl FnOnce(&Seen) -> PyResult<T>) -> PyResult<T> {
        match self.seen.get().map_err(raise)? {
            Held::Always(seen) => guarded(seen, look),
            Held::UntilReleased(held) => {
                let held = held.read();
                let seen = held.as_ref().ok_or_else(|| ended(self.what))?;
                guarded(seen, look)
            }
        }
    }

    /// Whether it is of this process, and not of the one that this was forked from.
    pub fn is_own(&self) -> bool {
        self.seen.get().is_ok()
    }

    /// Works while other threads of Python go on.
    pub fn work<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Seen) -> terrace::Result<T> + Send,
    ) -> PyResult<T> {
        let seen = match self.seen.get().map_err(raise)? {
            Held::Always(seen) => Some(seen.clone()),
            Held::UntilReleased(held) => held.read().clone(),
        };
        let seen = seen.ok_or_else(|| ended(self.what))?;
        // The store is closed by its last user, and that may call Python: not while this holds the interpreter.
        let work = move || work(&seen).map_err(Failure::from);
        wait(py, work, raise)
    }

    /// Lets go of the snapshot that it looks at. The caller does not hold the interpreter, since that may close the store. In a
    /// forked process it does nothing.
    pub fn release(&self) {
        if let Ok(Held::UntilReleased(held)) = self.seen.get() {
            let seen = held.write().take();
            drop(seen);
        }
    }
}

/// A panic is a failure.
#[inline]
fn guarded<T>(seen: &Seen, look: impl FnOnce(&Seen) -> PyResult<T>) -> PyResult<T> {
    guard(|| Ok(look(seen))).map_err(raise)?
}

/// The last object of a store closes it.
impl Drop for View {
    fn drop(&mut self) {
        let Ok(held) = self.seen.get_mut() else { return };
        let held = std::mem::replace(held, Held::UntilReleased(RwLock::new(None)));
        let seen = match held {
            Held::Always(seen) => Some(seen),
            Held::UntilReleased(held) => held.into_inner(),
        };
        if let Some(seen) = seen {
            free(seen);
        }
    }
}
