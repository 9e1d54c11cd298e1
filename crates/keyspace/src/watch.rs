//! Keys that somebody watches: whether one of them has been written since.
//!
//! The engine tells whether a key was written, and what a flush removed counts as written, also
//! where nothing was. In Redis a flush changes only keys that are there: so the commit of a flush
//! looks at who watches, while it holds all locks, and those whose keys were not there and were not
//! written watch from then on. The sweep of collections that have expired does the same.

use crate::error::Result;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use terrace::{Db, ReadSet};

/// Keys, with their databases.
pub type Keys = BTreeSet<(u8, Vec<u8>)>;

/// The keys that one client watches.
pub struct Watch(Mutex<State>);

struct State {
    /// Each key from when it was watched first.
    reads: ReadSet,
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
    /// No keys yet; `reads` is of now.
    pub(crate) fn new(reads: ReadSet) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { reads, keys: Keys::new() })))
    }

    /// Watches `keys` too; `take_in` is called for those that are new, and watches one from now on.
    pub(crate) fn add<'k>(
        &self,
        keys: impl Iterator<Item = (u8, &'k [u8])>,
        mut take_in: impl FnMut(&mut ReadSet, u8, &[u8]),
    ) {
        let State { reads, keys: known } = &mut *self.0.lock();
        for (db, key) in keys {
            if known.insert((db, key.to_vec())) {
                take_in(reads, db, key);
            }
        }
    }

    /// Watches the same keys from a later moment on, if they are those of `keys` still.
    pub(crate) fn renew(&self, keys: &Keys, reads_of: impl FnOnce(&Keys) -> ReadSet) {
        let mut state = self.0.lock();
        // None is ever taken out.
        if state.keys.len() == keys.len() {
            state.reads = reads_of(&state.keys);
        }
    }

    /// What is watched.
    pub fn keys(&self) -> Keys {
        self.0.lock().keys.clone()
    }

    /// Whether it watches one of these keys.
    pub(crate) fn has_any<'k>(&self, mut keys: impl Iterator<Item = (u8, &'k [u8])>) -> bool {
        let state = self.0.lock();
        !state.keys.is_empty() && keys.any(|(db, key)| state.keys.contains(&(db, key.to_vec())))
    }

    /// Whether none of the keys has been written.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn is_unchanged(&self, db: &Db) -> Result<bool> {
        Ok(db.is_unchanged(&self.0.lock().reads)?)
    }
}
