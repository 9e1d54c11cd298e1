//! Calls that write files into the store's directory on the caller's thread: ingestions, and what bulk loads do
//! between two of their entries. `close` lets none begin, waits for those that run, and then removes what
//! loads have left there; they look at the stop flag now and then.

use crate::background::env::JobEnv;
use crate::error::{Error, Result};
use crate::version::unpublished::remove_unpublished;

/// Keeps `close` waiting until the caller's files are gone, in force, or known to be temporary ones of a load.
pub(crate) struct RunningCall<'a>(&'a JobEnv);

impl<'a> RunningCall<'a> {
    /// # Errors
    /// `Closed` if the store is being closed.
    pub fn begin(env: &'a JobEnv) -> Result<Self> {
        let mut jobs = env.jobs.scheduler.lock();
        check_runs(env)?;
        jobs.calls += 1;
        Ok(Self(env))
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.0.jobs.scheduler.lock().calls -= 1;
        self.0.jobs.scheduler.job_ended();
    }
}

/// `Closed` if the store is being closed. Costs nothing.
#[inline]
pub(crate) fn check_runs(env: &JobEnv) -> Result<()> {
    match env.jobs.scheduler.is_stopping() {
        true => Err(Error::Closed),
        false => Ok(()),
    }
}

/// Removes the temporary files of loads that were begun and not finished, when the store is closed and no call runs.
pub(crate) fn remove_load_files(env: &JobEnv) {
    let left = std::mem::take(&mut env.jobs.scheduler.lock().load_files);
    remove_unpublished(&env.base.vfs, &env.base.dir, left.into_iter());
}
