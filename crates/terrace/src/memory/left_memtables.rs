//! Memtables that have left the read state of their family: who took a state before, an iterator or a snapshot, holds
//! them until it is dropped. Their memory has been given out again by then, so the house thread takes it from the block
//! cache; no write waits for it, since an iterator may be kept for ever.

use crate::memtable::MemTable;
use std::sync::{Arc, Weak};
use terrace_base::sync::Mutex;

/// Those that left, as far as anybody may hold them.
#[derive(Default)]
pub(crate) struct LeftMemtables {
    all: Mutex<Vec<Weak<MemTable>>>,
}

impl LeftMemtables {
    /// No read state has `memtable` any more.
    pub fn note(&self, memtable: &Arc<MemTable>) {
        let mut all = self.all.lock();
        all.retain(|left| left.strong_count() > 0);
        all.push(Arc::downgrade(memtable));
    }

    /// Bytes of those that somebody holds.
    pub fn held_bytes(&self) -> usize {
        let mut all = self.all.lock();
        all.retain(|left| left.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).map(|memtable| memtable.size_bytes()).sum()
    }
}
