//! What is done for the log in the background: it is synced as often as [`SyncMode::Interval`] says, and what a buffered one holds is
//! handed over. By a thread of its own: removals of files, the blocks of a large cache that are moved, and a pause after an error
//! take the house thread longer than the log may wait.

use crate::background::env::JobEnv;
use crate::error::Result;
use crate::options::SyncMode;
use crate::write::env::CommitEnv;
use crate::write::log_segments;
use std::time::Duration;
use terrace_base::sync::Instant;

/// How often the thread looks at least: a mode may have been changed.
const TICK: Duration = Duration::from_millis(100);

/// What is to be done, in words, and how.
type LogJob = (&'static str, fn(&CommitEnv) -> Result<()>);

/// When the log was synced last.
#[derive(Debug)]
struct LogCare {
    last_sync: Instant,
}

impl LogCare {
    /// As of now.
    fn new() -> Self {
        Self { last_sync: Instant::now() }
    }

    /// What is due now, if anything is.
    fn due(&mut self, env: &JobEnv) -> Option<LogJob> {
        let job: LogJob = match env.base.dynamic.sync() {
            SyncMode::Interval(interval) if self.last_sync.elapsed() >= interval => {
                self.last_sync = Instant::now();
                ("sync the log", log_segments::sync)
            }
            // Whatever the mode is now: a write may have said it, or been acknowledged before.
            _ if env.base.options.sync == SyncMode::Buffered => {
                ("write the log", log_segments::hand_over_now_and_then)
            }
            _ => return None,
        };
        Some(job)
    }
}

/// Looks after the log until the store stops. Also while the disk is full: what was acknowledged is to become durable.
pub(super) fn run(env: &JobEnv) {
    let mut log_care = LogCare::new();
    while !env.jobs.scheduler.is_stopping() {
        env.pause(pause(env));
        if env.base.health.check_may_free().is_err() {
            continue;
        }
        if let Some((doing, job)) = log_care.due(env) {
            env.attempt(doing, || job(&env.commit));
        }
    }
}

/// How long the log may wait for the next look.
fn pause(env: &JobEnv) -> Duration {
    match env.base.dynamic.sync() {
        SyncMode::Interval(interval) => TICK.min(interval),
        _ => TICK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::until;
    use crate::{Db, Options};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use terrace_vfs::{BeforeCalls, Call, SimVfs};

    #[test]
    fn the_log_is_seen_to_as_the_mode_says() {
        let tick = Duration::from_millis(1);
        let hour = Duration::from_secs(3600);
        let modes = [
            (SyncMode::Interval(tick), Some("sync the log")),
            (SyncMode::Interval(hour), None),
            (SyncMode::Buffered, Some("write the log")),
            (SyncMode::None, None),
        ];
        for (sync, doing) in modes {
            let mut options = Options { memory_budget: 16 << 20, sync, ..Options::default() };
            options.advanced.vfs = Arc::new(SimVfs::new(1));
            let db = Db::open("/store", options).unwrap();
            let env = &db.inner().background;
            let mut log_care = LogCare::new();
            let mut job = log_care.due(env);
            while job.is_none() && doing.is_some() {
                thread::yield_now();
                job = log_care.due(env);
            }
            assert_eq!(job.map(|(doing, _)| doing), doing);
            job.map_or(Ok(()), |(_, job)| job(&env.commit)).unwrap();
            db.close().unwrap();
        }
    }

    /// Whether removals by the house thread are held, and whether one is.
    #[derive(Default)]
    struct Gate {
        is_held: AtomicBool,
        has_come: AtomicBool,
    }

    /// Lets go when it is dropped, so that a test that fails ends.
    struct LetGo(Arc<Gate>);

    impl Drop for LetGo {
        fn drop(&mut self) {
            self.0.is_held.store(false, Ordering::SeqCst);
        }
    }

    #[test]
    fn an_interval_holds_while_the_house_thread_removes_a_file() {
        let gate = Arc::new(Gate::default());
        gate.is_held.store(true, Ordering::SeqCst);
        let held = gate.clone();
        let vfs = BeforeCalls::new(SimVfs::new(1), move |call, _| {
            let is_house = || thread::current().name() == Some("terrace-house");
            while matches!(call, Call::Remove) && held.is_held.load(Ordering::SeqCst) && is_house()
            {
                held.has_come.store(true, Ordering::SeqCst);
                thread::yield_now();
            }
            Ok(())
        });
        let sync = SyncMode::Interval(Duration::from_millis(1));
        let mut options = Options { memory_budget: 16 << 20, sync, ..Options::default() };
        options.advanced.vfs = Arc::new(vfs);
        let db = Db::open("/store", options).unwrap();
        let _lets_go = LetGo(gate.clone());
        until("a log segment is removed", || {
            db.put(b"key", b"value").unwrap();
            db.flush().unwrap();
            gate.has_come.load(Ordering::SeqCst)
        });
        for _ in 0..3 {
            let before = db.metrics().log_syncs;
            db.put(b"key", b"value").unwrap();
            until("the log is synced", || db.metrics().log_syncs > before);
        }
    }
}
