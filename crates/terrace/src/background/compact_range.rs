//! `compact_range`: everything between two keys is merged down to the last level, on the caller's thread.

use crate::background::choose::{Job, Shared, input};
use crate::background::compact::{Claim, execute};
use crate::background::compaction::pick::{Choice, Manual, ManualStep as Next};
use crate::background::compaction::pick_manual;
use crate::background::env::JobEnv;
use crate::background::flush;
use crate::error::Result;
use crate::jobs::background_errors::Work;
use crate::jobs::scheduler::{ManualStep, SchedulerState};
use crate::version::family::Family;
use std::ops::Bound;
use std::sync::Arc;

/// How far a `compact_range` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Merges and moves done so far.
    pub steps: u64,
    /// Bytes read so far.
    pub read_bytes: u64,
    /// Bytes written so far.
    pub written_bytes: u64,
    /// Level whose files the next step takes down.
    pub level: usize,
}

/// Wakes the background when a call ends that it made way for.
struct Call<'a>(&'a JobEnv);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.jobs.scheduler.wake();
    }
}

/// A step that is to come or runs: the background makes way for it.
struct Step<'a> {
    env: &'a JobEnv,
    id: u64,
}

impl<'a> Step<'a> {
    fn new(env: &'a JobEnv, family: u32) -> Self {
        let mut jobs = env.jobs.scheduler.lock();
        let id = jobs.next_id();
        jobs.manual.push(ManualStep { id, family, waits: false });
        Self { env, id }
    }

    /// Notes whether it waits for what runs.
    fn note_waits(&self, jobs: &mut SchedulerState, waits: bool) {
        jobs.manual.iter_mut().filter(|s| s.id == self.id).for_each(|s| s.waits = waits);
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        // Nobody is woken: between two steps the background is to find no gap.
        self.env.jobs.scheduler.lock().manual.retain(|step| step.id != self.id);
    }
}

/// Merges everything of `family` in `[start, end)` down to its last level, on the caller's thread.
pub(crate) fn range(
    env: &JobEnv,
    family: &Arc<Family>,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    flush::all(env)?;
    let bound = |key: &[u8]| key.to_vec();
    let mut manual = Manual::new(
        start.map_or(Bound::Unbounded, |key| Bound::Included(bound(key))),
        end.map_or(Bound::Unbounded, |key| Bound::Excluded(bound(key))),
    );
    let _call = Call(env);
    let mut step = Step::new(env, family.id);
    if family.compaction_filter.is_some() {
        // Those that run may have begun when there were other snapshots.
        let runs = |jobs: &SchedulerState| jobs.running.iter().any(|r| r.family == family.id);
        env.jobs.scheduler.wait_until(|jobs| {
            step.note_waits(jobs, true);
            Ok((!runs(jobs)).then_some(()))
        })?;
        manual.rewrites_before = Some(env.versions.file_numbers.next());
    }
    let mut told = Progress { steps: 0, read_bytes: 0, written_bytes: 0, level: 0 };
    while let Some((choice, claim)) = next_step(env, family, &step, &mut manual)? {
        let job = Job { family: family.clone(), choice, is_attempt: true };
        let (read, written) = execute(env, &job)?;
        drop(job);
        drop(claim);
        env.purge();
        // What shows the progress may wait for the background.
        drop(step);
        told.steps += 1;
        told.read_bytes += read;
        told.written_bytes += written;
        told.level = manual.level;
        progress(told);
        step = Step::new(env, family.id);
    }
    Ok(())
}

/// The next step, with its inputs claimed, once it may be taken; `None` after the last.
fn next_step<'a>(
    env: &'a JobEnv,
    family: &Arc<Family>,
    turn: &Step<'_>,
    manual: &mut Manual,
) -> Result<Option<(Choice, Option<Claim<'a>>)>> {
    env.jobs.scheduler.wait_until(|jobs| {
        env.base.health.check_writable()?;
        family.check_exists()?;
        let (version, options) = (family.state().version.clone(), family.options());
        let force = env.garbage.is_overdue(env.base.clock.monotonic_us());
        let shared = Shared::asked_for(env, force);
        let input = input(env, family, (&version, &options), jobs, &shared);
        let next = pick_manual(&input, manual);
        let waits = matches!(next, Next::Wait);
        turn.note_waits(jobs, waits);
        match next {
            Next::Done => Ok(Some(None)),
            Next::Do(choice) => {
                let claim = Claim::new(env, jobs, &choice);
                Ok(Some(Some((choice, claim))))
            }
            Next::Wait => {
                let runs = jobs.running.iter().any(|running| running.family == family.id);
                let files = version.files().map(|(_, file)| file.number);
                // Once nothing runs, only a damaged file is in the way.
                let why_not =
                    || env.jobs.errors.why_not(Work::Compaction, family.id, files, u64::MAX);
                let why_not = if runs { None } else { why_not() };
                why_not.map_or(Ok(None), Err)
            }
        }
    })
}
