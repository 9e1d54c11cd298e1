//! What a transaction has written, by key, so that it sees its own writes; can be cut back.
//!
//! Values are not copied: they lie in the batch, which encodes them as they are until it is sealed.

use crate::batch::WriteBatch;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The last write to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Own {
    Deleted,
    /// Where the value lies in the encoded batch.
    Value(Range<usize>),
}

/// The last write to every key, and the way back.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    families: HashMap<u32, HashMap<Arc<[u8]>, Own>>,
    /// One for every operation of the batch: its key, and the write to it before.
    before: Vec<(u32, Arc<[u8]>, Option<Own>)>,
}

impl OwnWrites {
    /// The last write to `key`.
    pub fn get(&self, family: u32, key: &[u8]) -> Option<&Own> {
        self.families.get(&family)?.get(key)
    }

    /// Notes the put of a value of `len` bytes that `batch` has just got, unless it refused it.
    pub fn note_put(&mut self, batch: &WriteBatch, family: u32, key: &[u8], len: usize) {
        self.note(batch, family, key, Own::Value(batch.last_value(len)));
    }

    /// Notes the delete that `batch` has just got, unless it refused it.
    pub fn note_delete(&mut self, batch: &WriteBatch, family: u32, key: &[u8]) {
        self.note(batch, family, key, Own::Deleted);
    }

    fn note(&mut self, batch: &WriteBatch, family: u32, key: &[u8], own: Own) {
        if batch.len() == self.before.len() {
            return;
        }
        let key: Arc<[u8]> = key.into();
        let before = self.families.entry(family).or_default().insert(key.clone(), own);
        self.before.push((family, key, before));
    }

    /// Goes back to the first `count` operations.
    pub fn cut(&mut self, count: usize) {
        for (family, key, before) in self.before.drain(count.min(self.before.len())..).rev() {
            let Some(writes) = self.families.get_mut(&family) else { continue };
            match before {
                Some(own) => writes.insert(key, own),
                None => writes.remove(&key),
            };
        }
    }
}
