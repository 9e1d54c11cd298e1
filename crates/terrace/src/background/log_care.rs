//! What the house thread does for the log: it syncs it as often as [`SyncMode::Interval`] says, and hands over what a buffered
//! one holds. Also in the midst of what takes that thread long, as to move the blocks of a large cache.

use crate::background::env::JobEnv;
use crate::error::Result;
use crate::options::SyncMode;
use crate::write::env::CommitEnv;
use crate::write::log_segments;
use std::time::Duration;
use terrace_base::sync::Instant;

/// What is to be done, in words, and how.
pub(super) type LogJob = (&'static str, fn(&CommitEnv) -> Result<()>);

/// When the log was seen to last.
#[derive(Debug)]
pub(super) struct LogCare {
    last_sync: Instant,
    last_look: Instant,
}

impl LogCare {
    /// As of now.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { last_sync: now, last_look: now }
    }

    /// What is due now, if anything is.
    pub fn due(&mut self, env: &JobEnv) -> Option<LogJob> {
        self.last_look = Instant::now();
        let job: LogJob = match env.base.dynamic.sync() {
            SyncMode::Interval(interval) if self.last_sync.elapsed() >= interval => {
                self.last_sync = self.last_look;
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

    /// As [`Self::due`], for one who does something else: nothing until a [`pause`] has gone by.
    pub fn overdue(&mut self, env: &JobEnv, most: Duration) -> Option<LogJob> {
        let is_time = self.last_look.elapsed() >= pause(env, most);
        if is_time && env.base.health.check_may_free().is_ok() { self.due(env) } else { None }
    }
}

/// How long the log may wait for the next look, `most` at most.
pub(super) fn pause(env: &JobEnv, most: Duration) -> Duration {
    match env.base.dynamic.sync() {
        SyncMode::Interval(interval) => most.min(interval),
        _ => most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Options};
    use std::sync::Arc;
    use terrace_vfs::SimVfs;

    #[test]
    fn who_does_something_else_sees_to_the_log_as_the_mode_says() {
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
            assert!(log_care.overdue(env, hour).is_none() || sync == SyncMode::Interval(tick));
            let mut job = log_care.overdue(env, Duration::ZERO);
            while job.is_none() && doing.is_some() {
                std::thread::yield_now();
                job = log_care.overdue(env, tick);
            }
            assert_eq!(job.map(|(doing, _)| doing), doing);
            job.map_or(Ok(()), |(_, job)| job(&env.commit)).unwrap();
            db.close().unwrap();
        }
    }
}
