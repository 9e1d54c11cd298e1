//! Where walks through sorted sets began with many steps over deleted rows: a client polls for the first
//! member and removes it by name. The next removal from the set, which has its lock, clears them by one range deletion.
//!
//! Only hints: what is there is looked at again. Called by `sorted_sets.rs`.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Most sets that are remembered; of more, any are forgotten.
const MAX_RUNS: usize = 1024;

/// Where a walk began; `None` is the end that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadRun {
    pub from: Option<Vec<u8>>,
    pub is_down: bool,
}

/// By the ids of the sets.
#[derive(Default)]
pub(crate) struct DeadRuns(Mutex<HashMap<u64, DeadRun>>);

impl DeadRuns {
    pub fn note(&self, id: u64, run: DeadRun) {
        let mut runs = self.0.lock();
        if runs.len() >= MAX_RUNS && !runs.contains_key(&id) {
            runs.clear();
        }
        runs.insert(id, run);
    }

    pub fn take(&self, id: u64) -> Option<DeadRun> {
        self.0.lock().remove(&id)
    }
}
