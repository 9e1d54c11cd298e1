//! Which store a thread works for: it is one of its background threads, or one that these have started. They call what the program has
//! given (compaction filters, merge operators), which may let the last handle of the store go, or close it: no thread waits for its own
//! end.

use std::cell::Cell;

thread_local! {
    static WORKS_FOR: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The [`BaseEnv::open_id`](super::BaseEnv::open_id) of the store that this thread works for.
pub(crate) fn store_here() -> Option<u64> {
    WORKS_FOR.get()
}

/// This thread works for that store, until it ends.
pub(crate) fn work_for(store: Option<u64>) {
    WORKS_FOR.set(store);
}
