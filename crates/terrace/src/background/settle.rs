//! `wait_idle`: waits until no flush, compaction or collection is running or wanted.

use crate::background::choose::{Next, Occasion, choose};
use crate::background::env::JobEnv;
use crate::background::gc;
use crate::error::{Error, Result};
use crate::jobs::background_errors::Work;
use crate::jobs::scheduler::SchedulerState;
use crate::version::family::Family;
use std::sync::Arc;
use std::time::Duration;
use terrace_base::sync::Instant;

/// How long settling waits for filters, and how often it looks.
const MAX_FILTER_WAIT: Duration = Duration::from_secs(2);
const FILTER_RECHECK: Duration = Duration::from_millis(10);

/// Waits until no flush and no compaction is running or wanted.
pub(crate) fn wait_idle(env: &JobEnv) -> Result<()> {
    env.commit.queue()?;
    env.jobs.scheduler.lock().settling += 1;
    env.jobs.scheduler.wake();
    let result = wait_until_settled(env);
    env.jobs.scheduler.lock().settling -= 1;
    result
}

fn wait_until_settled(env: &JobEnv) -> Result<()> {
    loop {
        env.jobs.scheduler.wait_until(|jobs| is_settled(env, jobs))?;
        // What the last of the jobs revealed may be worth collecting.
        gc::step(env);
        let mut jobs = env.jobs.scheduler.lock();
        if !matches!(choose(env, &mut jobs, Occasion::Idle), Next::Job(..)) {
            drop(jobs);
            env.purge();
            wait_for_filters(env);
            return Ok(());
        }
    }
}

/// Something, once nothing runs and nothing is wanted.
///
/// # Errors
/// Why what is wanted will not be done.
fn is_settled(env: &JobEnv, jobs: &mut SchedulerState) -> Result<Option<()>> {
    env.base.health.check_writable()?;
    let now_us = env.base.clock.monotonic_us();
    let errors = &env.jobs.errors;
    let families = env.read.families.load();
    let waiting = |f: &&Arc<Family>| !f.is_dropped() && !f.state().immutables.is_empty();
    let may_flush = |f: &Arc<Family>| errors.may_begin(Work::Flush, f.id, now_us);
    let flushing = families.iter().filter(waiting).any(may_flush);
    let runs = !jobs.is_quiet() || !jobs.manual.is_empty();
    let next = choose(env, jobs, Occasion::Idle);
    if flushing || runs || matches!(next, Next::Job(..)) {
        return Ok(None);
    }
    if let Next::NoRoom(no_room) = next {
        return Err(Error::DiskFull(no_room.cause));
    }
    if let Some(error) = why_unsettled(env) {
        return Err(error);
    }
    let is_hopeful = families.iter().any(|f| waiting(&f)) || errors.hopes(now_us);
    Ok((!is_hopeful).then_some(()))
}

/// Why the store does not settle, if nothing is about to be tried again that may still succeed.
pub(crate) fn why_unsettled(env: &JobEnv) -> Option<Error> {
    let errors = &env.jobs.errors;
    let now_us = env.base.clock.monotonic_us();
    if errors.is_empty() || errors.hopes(now_us) {
        return None;
    }
    env.read.families.load().iter().filter(|f| !f.is_dropped()).find_map(|family| {
        let version = family.state().version.clone();
        let files = version.files().map(|(_, file)| file.number);
        let flush = errors.why_not(Work::Flush, family.id, std::iter::empty(), now_us);
        flush.or_else(|| errors.why_not(Work::Compaction, family.id, files, now_us))
    })
}

/// Waits until new files have their filters in memory, as far as there is room; a while at most,
/// since lookups that go on may move units for ever.
fn wait_for_filters(env: &JobEnv) {
    let start = Instant::now();
    env.jobs.scheduler.job_ended();
    while env.read.filters.has_work(true)
        && start.elapsed() < MAX_FILTER_WAIT
        && !env.jobs.scheduler.is_stopping()
    {
        let mut jobs = env.jobs.scheduler.lock();
        env.jobs.scheduler.wait_for_end(&mut jobs, FILTER_RECHECK);
    }
}
