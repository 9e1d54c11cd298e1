//! Items that clients insert, and which of them a lookup must find.

use anyhow::Result;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The items of a store that grows. All below [`Inserts::complete`] are there; of the others, at most one for each
/// thread is under way.
#[derive(Debug)]
pub struct Inserts {
    state: Mutex<State>,
    /// All items below are there. Written under the lock, and read without.
    complete: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// The next item to insert.
    next: u64,
    under_way: BTreeSet<u64>,
}

impl Inserts {
    /// The first `count` items are there.
    pub fn new(count: u64) -> Self {
        let state = State { next: count, under_way: BTreeSet::new() };
        Self { state: Mutex::new(state), complete: AtomicU64::new(count) }
    }

    /// Items that are there or under way.
    pub fn count(&self) -> u64 {
        self.state().next
    }

    /// How many items are there for certain: a lookup of one below that begins now must find it.
    #[inline]
    pub fn complete(&self) -> u64 {
        // Acquire: a thread that sees the number sees the inserts that it counts.
        self.complete.load(Ordering::Acquire)
    }

    /// Inserts the next item by `put`, which must return once it is there; gives the item.
    pub fn insert(&self, put: impl FnOnce(u64) -> Result<()>) -> Result<u64> {
        let item = {
            let mut state = self.state();
            let item = state.next;
            state.next += 1;
            state.under_way.insert(item);
            item
        };
        // One that fails stays under way: nothing is known of it.
        put(item)?;
        let mut state = self.state();
        state.under_way.remove(&item);
        let complete = state.under_way.first().copied().unwrap_or(state.next);
        // Release: see `complete`.
        self.complete.store(complete, Ordering::Release);
        Ok(item)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_there_once_it_and_all_before_it_are_inserted() {
        let inserts = Inserts::new(10);
        let first = inserts.insert(|outer| {
            assert_eq!((outer, inserts.count(), inserts.complete()), (10, 11, 10));
            // Another thread's, which overtakes it.
            assert_eq!(inserts.insert(|_| Ok(()))?, 11);
            assert_eq!(inserts.complete(), 10);
            Ok(())
        });
        assert_eq!((first.unwrap(), inserts.complete()), (10, 12));
        assert!(inserts.insert(|_| anyhow::bail!("as asked")).is_err());
        assert_eq!(inserts.insert(|_| Ok(())).unwrap(), 13);
        assert_eq!((inserts.complete(), inserts.count()), (12, 14));
    }
}
