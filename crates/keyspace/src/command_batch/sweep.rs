//! The commit of a sweep of what has expired. In Redis that is no change for those who watch such a key: what nobody sees
//! any more goes. The engine calls it one, so those who have seen none watch the key from the commit on.
//!
//! Only the locks of these keys are held, and only these keys are asked about. `WATCH` takes no lock: who begins to watch one
//! of them after the look, which comes when the locks are held, has seen no other write of it than the sweep's.

#[cfg(test)]
mod tests;

use super::CommandBatch;
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::watch::{Keys, Watch};
use std::collections::HashMap;
use std::sync::Arc;
use terrace::{ReadSet, WriteOptions};

/// Of those who watch, by where they are in memory, and stay while this is held: the swept keys that were written since they
/// are watched.
type Written = HashMap<*const Watch, (Arc<Watch>, Keys)>;

impl CommandBatch {
    /// As [`Self::commit`], of a batch that removes only what has expired, all of it under `keys`. Their locks are held.
    pub(crate) fn commit_sweep(&mut self, keys: &Keys) -> Result<()> {
        let space = self.space.clone();
        // One that began before the commit and ended behind it would take that for a change.
        let _renewals = space.watches.hold_renewals();
        let written = space.written_of(keys);
        self.commit_then(&WriteOptions::default(), |_| space.watch_swept(keys, &written))
    }
}

impl Keyspace {
    /// Which of these keys have been written for whom. Their locks are held.
    fn written_of(&self, keys: &Keys) -> Written {
        let mut written = Written::new();
        for watch in self.watches.live() {
            let mut own = watch.among(keys);
            if own.is_empty() {
                continue;
            }
            if let Some(reads) = watch.reads() {
                // What cannot be asked about counts as written.
                own.retain(|(db, key)| !self.key_is_unchanged(&reads, *db, key).unwrap_or(false));
            }
            if !own.is_empty() {
                written.insert(Arc::as_ptr(&watch), (watch, own));
            }
        }
        written
    }

    fn key_is_unchanged(&self, reads: &ReadSet, db: u8, key: &[u8]) -> Result<bool> {
        let user_key = self.layout.user_key(db, key);
        for family in [&self.strings, &self.collections] {
            if !self.db.is_unchanged(&reads.of_key(family, &user_key))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The sweep of these keys is committed, and their locks are still held: who watches one for whom it is not `written`
    /// does so from now on.
    fn watch_swept(&self, keys: &Keys, written: &Written) {
        for watch in self.watches.live() {
            let mut own = watch.among(keys);
            if let Some((_, before)) = written.get(&Arc::as_ptr(&watch)) {
                own.retain(|key| !before.contains(key));
            }
            watch.watch_anew(&own, |reads, db, key| {
                let user_key = self.layout.user_key(db, key);
                reads.watch_anew(&self.strings, &user_key);
                reads.watch_anew(&self.collections, &user_key);
            });
        }
    }
}
