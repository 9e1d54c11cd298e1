//! The thread that waits for the system in place of the writers: see [`crate::jobs::ahead`]. It needs no lead.

use crate::background::env::JobEnv;
use crate::write::log_segments;
use terrace_skiplist::MemoryAhead;

/// Does what writers ask for until the store stops.
pub(crate) fn run(env: &JobEnv) {
    while let Some(wanted) = env.jobs.scheduler.ahead.next() {
        wanted.memory.iter().for_each(MemoryAhead::touch);
        // A memtable that is flushed meanwhile is not held.
        drop(wanted.memory);
        if wanted.names && env.base.health.check_may_free().is_ok() {
            // What fails is tried again by the next who needs it, and reported there.
            let _ = log_segments::name_segments(&env.commit);
        }
    }
}
