//! What background work needs.

use crate::env::BaseEnv;
use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::memory::arbiter::ArbiterState;
use crate::values::garbage::Garbage;
use crate::version::install;
use crate::version::read_env::ReadEnv;
use crate::version::version_set::VersionSet;
use crate::write::env::CommitEnv;
use std::sync::Arc;
use std::time::Duration;
use terrace_base::sync::Mutex;

/// How long a thread that does small jobs waits after one that failed before it goes on.
pub(crate) const AFTER_ERROR: Duration = Duration::from_millis(500);

/// The pause after the first report of a file that cannot be removed. It doubles: what is tried twice a second, as long as the
/// store is open, is not reported as often.
const FIRST_PAUSE_US: u64 = 1_000_000;
/// The longest pause between two reports of one.
const LONGEST_PAUSE_US: u64 = 600_000_000;

/// What flushes, compactions, collections and trainings need.
pub(crate) struct JobEnv {
    pub base: Arc<BaseEnv>,
    pub read: Arc<ReadEnv>,
    pub versions: Arc<VersionSet>,
    pub jobs: Arc<Jobs>,
    pub garbage: Arc<Garbage>,
    /// What moves memory between pools.
    pub arbiter: Mutex<ArbiterState>,
    /// A flush rotates memtables and syncs the log first.
    pub commit: Arc<CommitEnv>,
    /// What was reported of obsolete files that cannot be deleted.
    pub undeleted: Mutex<LastReport>,
}

impl JobEnv {
    /// Runs a small job of a thread that has others, too; reports and pauses if it failed.
    pub fn attempt(&self, doing: &str, job: impl FnOnce() -> Result<()>) {
        let Err(error) = job() else { return };
        self.base.report(doing, &error);
        self.pause(AFTER_ERROR);
    }

    /// Waits until some job ends, at most this long; not at all if the store stops.
    pub fn pause(&self, most: Duration) {
        let mut jobs = self.jobs.scheduler.lock();
        if !self.jobs.scheduler.is_stopping() {
            self.jobs.scheduler.wait_for_end(&mut jobs, most);
        }
    }

    /// Deletes obsolete files as far as that works, for work whose result does not depend on that: what stays is
    /// reported, now and then, and the house thread goes on trying. Whether none stays that is to go.
    pub fn purge(&self) -> bool {
        let purged = install::purge(&self.versions);
        let is_due = {
            let now_us = self.base.clock.monotonic_us();
            self.undeleted.lock().is_due(purged.as_ref().err(), now_us)
        };
        if let Err(error) = &purged
            && is_due
        {
            self.base.report("delete obsolete files", error);
        }
        purged.is_ok()
    }
}

/// What was reported last of something that is tried again and again.
#[derive(Debug, Default)]
pub(crate) struct LastReport {
    /// Empty once it has succeeded.
    text: String,
    pause_us: u64,
    next_at_us: u64,
}

impl LastReport {
    /// Notes how a try went; whether its error is to be reported: it is another one than the last, or the pause is over.
    fn is_due(&mut self, error: Option<&Error>, now_us: u64) -> bool {
        let Some(error) = error else {
            self.text.clear();
            return false;
        };
        let text = error.to_string();
        let is_other = self.text != text;
        if !is_other && now_us < self.next_at_us {
            return false;
        }
        self.pause_us = match is_other {
            true => FIRST_PAUSE_US,
            false => (2 * self.pause_us).min(LONGEST_PAUSE_US),
        };
        (self.text, self.next_at_us) = (text, now_us.saturating_add(self.pause_us));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::path::Path;

    fn stays(file: &str) -> Error {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        terrace_base::Error::io("remove", Path::new(file), denied).into()
    }

    #[test]
    fn a_file_that_stays_is_reported_at_once_and_then_after_pauses_that_double() {
        let mut last = LastReport::default();
        let one = stays("000001.sst");
        let mut now_us = 7;
        let mut reports = Vec::new();
        // An hour of tries, two a second.
        for _ in 0..7200 {
            if last.is_due(Some(&one), now_us) {
                reports.push(now_us);
            }
            now_us += 500_000;
        }
        let pauses: Vec<u64> = reports.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses[..3], [FIRST_PAUSE_US, 2 * FIRST_PAUSE_US, 4 * FIRST_PAUSE_US]);
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE_US));
        assert_eq!(reports.len(), 15);
        let other = stays("000002.sst");
        assert!(last.is_due(Some(&other), now_us) && !last.is_due(Some(&other), now_us));
        // It went, and another time it does not.
        assert!(!last.is_due(None, now_us));
        assert!(last.is_due(Some(&other), now_us));
    }
}
