//! What a write asks of all families together, kept up to date by what changes it: which of them slow writes, wait for a
//! flush, or have a hot table, and what their memtables take. There may be ten thousand; a group of writes looks only at
//! its own and at those that are named here.

use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use terrace_base::sync::Mutex;

/// The ids of some families, in order; looked at without a lock.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    ids: ArcSwap<Vec<u32>>,
    /// Whether there is any. Nearly always there is none, and each write asks.
    has_any: AtomicBool,
}

impl Ids {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Acquire)
    }

    /// Those that there are now.
    pub fn load(&self) -> Guard<Arc<Vec<u32>>> {
        self.ids.load()
    }

    /// Sees to it that `id` is among them, or is not. One thread at a time.
    fn set(&self, id: u32, is_in: bool) {
        let before = self.ids.load();
        let place = before.binary_search(&id);
        if place.is_ok() == is_in {
            return;
        }
        let mut after = before.to_vec();
        match place {
            Ok(at) => _ = after.remove(at),
            Err(at) => after.insert(at, id),
        }
        let has_any = !after.is_empty();
        self.ids.store(Arc::new(after));
        // Release: who finds that there is one finds it.
        self.has_any.store(has_any, Ordering::Release);
    }
}

/// What one family is to the writes of all.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Standing {
    /// Writes to it are slowed or stopped.
    pub is_slowed: bool,
    /// Some of its memtables wait for their flush.
    pub waits: bool,
    /// It has a hot table.
    pub is_hot: bool,
}

/// What memtables take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemtableBytes {
    /// All of them, hot tables among them.
    pub all: usize,
    /// The mutable ones, as far as they hold anything.
    pub mutable: usize,
}

/// See the module. A family that was dropped is none of them.
#[derive(Debug, Default)]
pub(crate) struct FamilyTotals {
    pub slowed: Ids,
    pub waiting: Ids,
    pub hot: Ids,
    /// Held while these change.
    change: Mutex<()>,
    all_bytes: AtomicUsize,
    mutable_bytes: AtomicUsize,
}

impl FamilyTotals {
    /// The family `id` stands as `look` says from now on. That is asked under the lock: of two threads that have changed
    /// something the later one sees both changes.
    pub fn note(&self, id: u32, look: impl FnOnce() -> Standing) {
        let _change = self.change.lock();
        let Standing { is_slowed, waits, is_hot } = look();
        self.slowed.set(id, is_slowed);
        self.waiting.set(id, waits);
        self.hot.set(id, is_hot);
    }

    /// Some family has `now` what it had `before`.
    pub fn count(&self, before: MemtableBytes, now: MemtableBytes) {
        // Where it has become less this wraps, and so does the sum.
        self.all_bytes.fetch_add(now.all.wrapping_sub(before.all), Ordering::Relaxed);
        self.mutable_bytes.fetch_add(now.mutable.wrapping_sub(before.mutable), Ordering::Relaxed);
    }

    /// What the memtables of all families take. What is being inserted counts once it is in.
    pub fn memtables(&self) -> MemtableBytes {
        let [all, mutable] =
            [&self.all_bytes, &self.mutable_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
        MemtableBytes { all, mutable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_come_and_go_in_the_order_of_their_ids() {
        let totals = FamilyTotals::default();
        let ids = |ids: &Ids| {
            assert_eq!(ids.is_empty(), ids.load().is_empty());
            ids.load().to_vec()
        };
        for id in [5, 2, 9, 2] {
            totals.note(id, || Standing { is_slowed: id > 2, waits: true, is_hot: false });
        }
        assert_eq!(ids(&totals.slowed), [5, 9]);
        assert_eq!(ids(&totals.waiting), [2, 5, 9]);
        totals.note(5, || Standing { is_hot: true, ..Standing::default() });
        totals.note(7, Standing::default);
        assert_eq!(ids(&totals.slowed), [9]);
        assert_eq!(ids(&totals.waiting), [2, 9]);
        assert_eq!(ids(&totals.hot), [5]);
        totals.note(5, Standing::default);
        assert!(ids(&totals.hot).is_empty());
        let bytes = |all, mutable| MemtableBytes { all, mutable };
        totals.count(MemtableBytes::default(), bytes(100, 40));
        totals.count(MemtableBytes::default(), bytes(7, 7));
        totals.count(bytes(100, 40), bytes(60, 0));
        assert_eq!(totals.memtables(), bytes(67, 7));
    }
}
