//! `collect_garbage`: chooses segments of the value log whatever the ratio, and waits until they are
//! empty. See [`crate::background::gc`] for how they are emptied.

use crate::background::compact;
use crate::background::compaction::pick_values;
use crate::background::env::JobEnv;
use crate::background::flush;
use crate::background::gc;
use crate::background::settle;
use crate::error::{Error, Result};
use crate::values::value_log::SegmentStats;
use crate::version::install;
use crate::write::log_segments;
use std::collections::{BTreeMap, BTreeSet};
use terrace_base::SegmentNumber;

/// How far a `collect_garbage` is. Steps that the background does for it are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcProgress {
    /// Compactions done so far on the caller's thread.
    pub steps: u64,
    /// Bytes of SSTs and of values read so far.
    pub read_bytes: u64,
    /// Bytes of SSTs and of values written so far.
    pub written_bytes: u64,
    /// Segments that still have to go.
    pub segments_left: usize,
}

/// Chooses every segment with a garbage share of at least `min_share`, whatever the ratio, and waits
/// until they are gone; 0.0 takes all, and so puts all values into the order of their keys.
pub(crate) fn run(
    env: &JobEnv,
    min_share: f64,
    progress: &mut dyn FnMut(GcProgress),
) -> Result<()> {
    if !(0.0..=1.0).contains(&min_share) {
        return Err(Error::InvalidArgument(format!(
            "a garbage share of {min_share}; it must be from 0 to 1"
        )));
    }
    flush::all(env)?;
    log_segments::retire_segments(&env.commit)?;
    env.read.value_log.retry_excluded();
    let stats = gc::stats_of_all(env);
    let enough = |segment: &&SegmentStats| segment.garbage_share() >= min_share;
    let wanted: BTreeSet<SegmentNumber> =
        stats.iter().filter(enough).map(|segment| segment.number).collect();
    let asked = Asked::new(env, &wanted);
    let result = empty(env, &wanted, progress);
    drop(asked);
    // What is still there is a victim no more: merges for other reasons need no room for its values.
    gc::step(env);
    install::drop_dead_segments(&env.versions)?;
    env.purge();
    result
}

/// Segments asked for, until this is dropped.
struct Asked<'a> {
    env: &'a JobEnv,
    wanted: &'a BTreeSet<SegmentNumber>,
}

impl<'a> Asked<'a> {
    fn new(env: &'a JobEnv, wanted: &'a BTreeSet<SegmentNumber>) -> Self {
        let mut asked = env.garbage.asked.lock();
        wanted.iter().for_each(|number| *asked.entry(*number).or_default() += 1);
        drop(asked);
        Self { env, wanted }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // A step lets go of those with no caller left.
        let mut asked = self.env.garbage.asked.lock();
        let asked = asked.iter_mut().filter(|(number, _)| self.wanted.contains(*number));
        asked.for_each(|(_, callers)| *callers = callers.saturating_sub(1));
    }
}

/// Rewrites files, on the caller's thread and those of the background, until none refers to the
/// segments, but for those with values that cannot be read.
///
/// # Errors
/// Why such a value cannot be read, once all others are moved; what keeps the store from working.
fn empty(
    env: &JobEnv,
    wanted: &BTreeSet<SegmentNumber>,
    progress: &mut dyn FnMut(GcProgress),
) -> Result<()> {
    let values = &env.read.value_log;
    // Once it is in here a segment is waited for no more, even if others try again.
    let mut unreadable = BTreeMap::new();
    let mut left = || {
        for number in wanted {
            if let Some(why) = values.why_excluded(*number) {
                unreadable.entry(*number).or_insert_with(|| Error::from(why));
            }
        }
        let refers = |number: &&SegmentNumber| values.live_bytes_of(**number) > 0;
        let stays = wanted.iter().filter(refers);
        let why = stays.clone().find_map(|number| unreadable.get(number)).cloned();
        (stays.filter(|number| !unreadable.contains_key(number)).count(), why)
    };
    let mut told =
        GcProgress { steps: 0, read_bytes: 0, written_bytes: 0, segments_left: left().0 };
    loop {
        env.base.health.check_writable()?;
        let victims = env.read.value_log.victims();
        if !wanted.iter().all(|number| victims.contains(number)) {
            gc::step(env);
        }
        let step = compact::run_for_values(env, pick_values)?;
        let (left, why_not_all) = left();
        if let Some((read, written)) = step {
            told.steps += 1;
            told.read_bytes += read;
            told.written_bytes += written;
        }
        if step.is_some() || left < told.segments_left {
            told.segments_left = left;
            progress(told);
            install::drop_dead_segments(&env.versions)?;
            env.purge();
        }
        if left == 0 {
            // All that can be read has been moved.
            return why_not_all.map_or(Ok(()), Err);
        }
        if step.is_none() {
            let mut has_waited = false;
            env.jobs.scheduler.wait_until(|jobs| {
                // Once nothing runs, only a file that cannot be read is in the way.
                if jobs.is_quiet()
                    && let Some(error) = settle::why_unsettled(env)
                {
                    return Err(error);
                }
                Ok(std::mem::replace(&mut has_waited, true).then_some(()))
            })?;
        }
    }
}
