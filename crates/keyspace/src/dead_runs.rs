//! Which walks through collections stepped over many deleted rows that lie next to each other: a client polls for the first
//! member and removes it by name, or a score grows and grows. The next command that writes to the collection, which has
//! its lock, clears them by range deletions.
//!
//! Only hints: what is there is looked at again. Called by `command_batch/dead_rows.rs`.

use crate::encode::ELEMENT_PREFIX_BYTES;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most collections that are remembered; of more, any are forgotten.
const MAX_RUNS: usize = 1024;

/// What the keys of all elements of a collection begin with.
type Collection = [u8; ELEMENT_PREFIX_BYTES];

/// A walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadRun {
    /// What all keys that it could show begin with.
    pub prefix: Vec<u8>,
    /// Where it began; `None` is the end that it came from.
    pub from: Option<Vec<u8>>,
    pub is_down: bool,
    /// After as many rows that live it was past the last deleted ones that are many; above all numbers if they are at the end.
    pub rows: u64,
}

/// One of each collection.
#[derive(Default)]
pub(crate) struct DeadRuns {
    runs: Mutex<HashMap<Collection, DeadRun>>,
    /// How many there are, for who would look in vain.
    count: AtomicUsize,
}

impl DeadRuns {
    pub fn note(&self, run: DeadRun) {
        let Some(collection) = run.prefix.first_chunk::<ELEMENT_PREFIX_BYTES>().copied() else {
            return;
        };
        let mut runs = self.runs.lock();
        if runs.len() >= MAX_RUNS && !runs.contains_key(&collection) {
            runs.clear();
        }
        runs.insert(collection, run);
        self.count.store(runs.len(), Ordering::Relaxed);
    }

    pub fn take(&self, collection: &Collection) -> Option<DeadRun> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut runs = self.runs.lock();
        let run = runs.remove(collection);
        self.count.store(runs.len(), Ordering::Relaxed);
        run
    }
}
