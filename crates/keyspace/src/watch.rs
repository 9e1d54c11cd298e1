//! Keys that somebody watches: whether one of them has been written since.
//!
//! The engine tells whether a key was written, and what a flush removed counts as written, also
//! where nothing was. In Redis a flush changes only keys that are there: so the commit of a flush
//! looks at who watches, while it holds all locks, and those whose keys were not there and were not
//! written watch from then on.

use crate::encode::{self, Meta};
use crate::error::Result;
use crate::space::Keyspace;
use crate::turn::Turn;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use terrace::ReadSet;

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
    fn add(&self, watch: &Arc<Watch>) {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|watch| watch.strong_count() > 0);
        }
        all.push(Arc::downgrade(watch));
    }

    fn live(&self) -> Vec<Arc<Watch>> {
        let mut all = self.0.lock();
        all.retain(|watch| watch.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Keyspace {
    /// Watches keys from now on, besides those that were watched before from then on.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn watch_keys<'k>(
        &self,
        before: Option<&Watch>,
        keys: impl Iterator<Item = (u8, &'k [u8])>,
    ) -> Result<Arc<Watch>> {
        // All keys as they are now, and whether the earlier ones were as they had been, asked
        // afterwards so that no write is between.
        let mut all = before.map(Watch::keys).unwrap_or_default();
        all.extend(keys.map(|(db, key)| (db, key.to_vec())));
        let reads = self.reads_of(&all);
        let has_changed = match before {
            Some(before) => !before.is_unchanged(self)?,
            None => false,
        };
        let watch = Arc::new(Watch(Mutex::new(State { reads, has_changed, keys: all })));
        self.watches.add(&watch);
        Ok(watch)
    }

    fn reads_of(&self, keys: &Keys) -> ReadSet {
        let mut reads = self.db.read_set();
        for (db, key) in keys {
            self.watch(&mut reads, *db, key);
        }
        reads
    }
}

impl Watch {
    /// What is watched.
    pub fn keys(&self) -> Keys {
        self.0.lock().keys.clone()
    }

    /// Whether none of the keys has been written.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn is_unchanged(&self, space: &Keyspace) -> Result<bool> {
        let state = self.0.lock();
        Ok(!state.has_changed && space.db.is_unchanged(&state.reads)?)
    }
}

impl Turn {
    /// Those who watch, and for whom the flush that is about to be committed changes nothing. All
    /// locks are held.
    pub(crate) fn unmoved_by_flush(&self) -> Vec<Arc<Watch>> {
        let mut all = self.space.watches.live();
        // Who cannot be asked counts as changed.
        all.retain(|watch| self.leaves_as_it_is(watch).unwrap_or(false));
        all
    }

    fn leaves_as_it_is(&self, watch: &Watch) -> Result<bool> {
        if !watch.is_unchanged(&self.space)? {
            return Ok(false);
        }
        for (db, key) in watch.keys() {
            let user_key = encode::user_key(db, &key);
            if self.has_written(&user_key) {
                return Ok(false);
            }
            if self.is_flushed(db) && self.is_stored(&user_key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_stored(&self, user_key: &[u8]) -> Result<bool> {
        if self.space.strings.get(user_key)?.is_some() {
            return Ok(true);
        }
        let meta = self.space.collections.get(user_key)?;
        let meta = meta.map(|bytes| Meta::read(&bytes)).transpose()?;
        Ok(meta.is_some_and(|meta| !meta.is_expired(self.now_ms())))
    }

    /// The flush is committed, and all locks are still held: they watch from now on.
    pub(crate) fn watch_anew(&self, watches: &[Arc<Watch>]) {
        for watch in watches {
            let mut state = watch.0.lock();
            state.reads = self.space.reads_of(&state.keys);
        }
    }
}
