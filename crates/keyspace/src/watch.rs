//! Keys that somebody watches: whether one of them has been written since.
//!
//! The engine tells whether a key was written, and what a flush removed counts as written, also
//! where nothing was. In Redis a flush changes only keys that are there: so the commit of a flush
//! looks at who watches, while it holds all locks, and those whose keys were not there and were not
//! written watch from then on.

use crate::error::Result;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use terrace::{Db, ReadSet};

/// Keys, with their databases.
pub type Keys = Vec<(u8, Vec<u8>)>;

/// The keys that one client watches.
pub struct Watch(Mutex<State>);

struct State {
    /// The keys as the engine knew them at the latest look.
    reads: ReadSet,
    /// One of them was written before that, and after it was watched.
    has_changed: bool,
    keys: Keys,
}

/// All that watch.
#[derive(Default)]
pub(crate) struct Watches(Mutex<Vec<Weak<Watch>>>);

impl Watches {
    pub fn add(&self, watch: &Arc<Watch>) {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|watch| watch.strong_count() > 0);
        }
        all.push(Arc::downgrade(watch));
    }

    pub fn live(&self) -> Vec<Arc<Watch>> {
        let mut all = self.0.lock();
        all.retain(|watch| watch.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Watch {
    /// Keys as `reads` has them. `has_changed`: one of them was written before.
    pub(crate) fn new(keys: Keys, reads: ReadSet, has_changed: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { reads, has_changed, keys })))
    }

    /// Watches the same keys from a later moment on.
    pub(crate) fn renew(&self, reads_of: impl FnOnce(&Keys) -> ReadSet) {
        let mut state = self.0.lock();
        state.reads = reads_of(&state.keys);
    }

    /// What is watched.
    pub fn keys(&self) -> Keys {
        self.0.lock().keys.clone()
    }

    /// Whether none of the keys has been written.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn is_unchanged(&self, db: &Db) -> Result<bool> {
        let state = self.0.lock();
        Ok(!state.has_changed && db.is_unchanged(&state.reads)?)
    }
}
