//! What a flush of databases means for keys that are watched.

use super::CommandBatch;
use crate::encode::{self, Meta};
use crate::error::Result;
use crate::watch::Watch;
use std::sync::Arc;

impl CommandBatch {
    /// Those who watch, and for whom the flush that is about to be committed changes nothing. All
    /// locks are held.
    pub(crate) fn unmoved_by_flush(&self) -> Vec<Arc<Watch>> {
        let mut all = self.space.watches.live();
        // Who cannot be asked counts as changed.
        all.retain(|watch| self.leaves_as_it_is(watch).unwrap_or(false));
        all
    }

    fn leaves_as_it_is(&self, watch: &Watch) -> Result<bool> {
        if !watch.is_unchanged(&self.space.db)? {
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
            watch.renew(|keys| self.space.reads_of(keys));
        }
    }
}
