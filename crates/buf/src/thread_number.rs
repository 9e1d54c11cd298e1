//! Threads by number, for counters and free lists that are sharded by thread.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: usize = NEXT.fetch_add(1, Relaxed);
}

/// A small number of the calling thread, dense from 0; for choosing a shard. Threads in their
/// last moments all answer 0.
pub fn thread_number() -> usize {
    NUMBER.try_with(|number| *number).unwrap_or(0)
}
