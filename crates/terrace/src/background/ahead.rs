//! The thread that waits for the system in place of writers and readers: see [`crate::jobs::ahead`]. It needs no lead.

use crate::background::env::JobEnv;
use crate::write::log_segments;
use std::sync::Arc;
use terrace_buf::ahead::{self, Ask};
use terrace_skiplist::MemoryAhead;

/// Does what they ask for until the store stops.
pub(crate) fn run(env: &JobEnv) {
    let jobs = env.jobs.clone();
    let asker: Arc<Ask> = Arc::new(move || jobs.scheduler.ahead.ask_for_buffers());
    // Buffers are those of the process, and would wake a thread of a simulation by what ran before it.
    if !cfg!(feature = "simulation") {
        ahead::ask_when_short(&asker);
    }
    while let Some(wanted) = env.jobs.scheduler.ahead.next() {
        wanted.memory.iter().for_each(MemoryAhead::touch);
        // A memtable that is flushed meanwhile is not held.
        drop(wanted.memory);
        if wanted.buffers {
            ahead::provide();
        }
        if wanted.names && env.base.health.check_may_free().is_ok() {
            // What fails is tried again by the next who needs it, and reported there.
            let _ = log_segments::name_segments(&env.commit);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Db, Options};
    use std::sync::Arc;
    use std::time::Duration;
    use terrace_buf::{BufMut, ahead};
    use terrace_vfs::SimVfs;

    /// Buffers are taken as a cache takes them that fills; the thread of the store sees to it that the next huge page is there.
    #[test]
    fn a_store_has_huge_pages_at_hand_while_buffers_take_them() {
        let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
        options.advanced.vfs = Arc::new(SimVfs::new(1));
        let db = Db::open("/db", options).unwrap();
        let mut kept = Vec::new();
        while ahead::at_hand() == 0 {
            kept.push(BufMut::for_overwrite(8_000));
            // It has been asked after 64 MiB, and has all the time it needs.
            if kept.len() > 16 << 10 {
                assert!(kept.len() < 100_000, "nobody saw to it");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        db.close().unwrap();
    }
}
