//! When writers outrun flush and compaction: first they are slowed, smoothly, then they stop.
//! Every stall has a cause that the metrics count and an event names.

use crate::env::health::Health;
use crate::error::{Error, Result};
use crate::event;
use crate::jobs::background_errors::Work;
use crate::jobs::scheduler::SchedulerState;
use crate::listener::StallCondition;
use crate::metrics::StallCause;
use crate::version::family::Family;
use crate::version::read_env::family_of;
use crate::write::env::CommitEnv;
use crate::write::log_segments;
use crate::write::queue::{Lead, LogState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_base::sync::{Instant, thread};

/// Bytes per second that pass when the slowdown begins.
const SLOW_RATE_START: f64 = 64e6;
/// Bytes per second that pass just before writes stop.
const SLOW_RATE_END: f64 = 2e6;
/// Longest single sleep of one group: a slowed writer never waits longer at a time.
const MAX_SLEEP: Duration = Duration::from_millis(20);
/// Bytes per second that pass when garbage collection begins to be behind, and when it is far
/// behind. Between the two the rate falls by the same factor for every step, so that it finds the
/// rate at which collection keeps up, whatever the device.
const GC_RATE_START: f64 = 256e6;
const GC_RATE_END: f64 = 1e6;
/// Waits for garbage collection are gathered until they are worth a sleep.
const MIN_SLEEP_US: u64 = 1000;
/// Small memtables that may wait for their flush: a flush takes all that wait, so that a slow one does
/// not stop writers.
const MAX_SMALL: usize = 4;

/// Holds back a group of `bytes`: returns at once, after a short sleep, or when a stop is over.
/// Called by the leader, so that those behind it wait too.
pub(crate) fn admit(
    env: &CommitEnv,
    lead: &Lead<'_>,
    families: &[Arc<Family>],
    bytes: usize,
) -> Result<()> {
    if env.base.health.has_no_room() {
        // What only removes is let through, and nothing else is.
        return Ok(());
    }
    wait_for_collection(env, bytes);
    let hold_back = |family: &Arc<Family>| {
        let Some((pressure, cause)) = note_condition(env, family) else { return Ok(()) };
        if pressure < 1.0 {
            slow(env, family, pressure, cause, bytes);
            return Ok(());
        }
        let settle = || log_segments::settle(env, &mut lead.log());
        wait_while(env, family, StallCause::L0Files, || is_l0_full(family), settle)
    };
    // Listeners are to learn of it when a family is slowed no longer.
    if env.base.events.has_stalls() {
        return families.iter().try_for_each(hold_back);
    }
    let slowed = &env.read.table_cache.totals().slowed;
    if slowed.is_empty() {
        return Ok(());
    }
    let slowed = slowed.load();
    slowed.iter().filter_map(|id| family_of(families, *id)).try_for_each(hold_back)
}

/// Whether L0 of `family` has the files at which writes stop. Nobody waits for one that was dropped: its files are not merged.
pub(crate) fn is_l0_full(family: &Family) -> bool {
    let file_count = family.state().version.level(0).len();
    file_count >= family.options().l0_stops_at() && !family.is_dropped()
}

/// Waits as a writer does while L0 of `family` is full. For those without the lead: who has it sees to the log.
///
/// # Errors
/// Those of a writer.
pub(crate) fn wait_for_l0(env: &CommitEnv, family: &Family) -> Result<()> {
    env.base.health.check_writable()?;
    wait_while(env, family, StallCause::L0Files, || is_l0_full(family), || Ok(()))
}

/// The pressure of `family`; tells listeners what that means for writes.
fn note_condition(env: &CommitEnv, family: &Family) -> Option<(f64, StallCause)> {
    let pressure = family.pressure();
    if env.base.events.is_heard() {
        let condition = match pressure {
            None => StallCondition::Normal,
            Some((pressure, _)) if pressure < 1.0 => StallCondition::Slowed,
            Some(_) => StallCondition::Stopped,
        };
        let cause = pressure.map(|(_, cause)| cause.name());
        env.base.events.stall(&family.name, condition, cause);
    }
    pressure
}

/// Whether a write may have to wait now: because writes are slowed or stopped, or would be if a
/// memtable that is half full were full.
pub(crate) fn may_hold_back(env: &CommitEnv) -> bool {
    collection_pressure(env) > 0.0
        || !env.read.table_cache.totals().slowed.is_empty()
        || some_are_about_to_stop(env)
}

/// Waits until `family` may have one more immutable memtable, and what waits already finds room.
pub(crate) fn wait_for_memtable(
    env: &CommitEnv,
    log: &mut LogState,
    family: &Family,
) -> Result<()> {
    if env.base.health.has_no_room() {
        // A flush may have no room before the deletions of this memtable are flushed with it. There
        // are no more of them than the log has room for.
        return Ok(());
    }
    let most_flushed = log.flush_room.most_bytes(&env.base).saturating_mul(2);
    let is_short = || some_wait(env) && to_flush_bytes(env) > most_flushed;
    let full = || has_all_memtables(env, family) || are_over_share(env) || is_short();
    if !full() {
        return Ok(());
    }
    wait_while(env, family, StallCause::Memtables, full, || log_segments::settle(env, log))
}

/// Whether the memtables of all families together have their share of the budget, and some of them wait for their flush.
fn are_over_share(env: &CommitEnv) -> bool {
    env.read.memtable_bytes() > env.base.dynamic.memtables_bytes() && some_wait(env)
}

/// Bytes of all memtables that are flushed. What is hot does not become less with that.
fn to_flush_bytes(env: &CommitEnv) -> usize {
    env.read.families.load().iter().map(|family| family.flushed_memtable_bytes()).sum()
}

/// Whether memtables wait for their flush.
fn some_wait(env: &CommitEnv) -> bool {
    !env.read.table_cache.totals().waiting.is_empty()
}

/// Whether a family whose memtable is half full would have to wait for a flush before it has another one.
fn some_are_about_to_stop(env: &CommitEnv) -> bool {
    if !some_wait(env) {
        return false;
    }
    let waiting = env.read.table_cache.totals().waiting.load();
    let families = env.read.families.load();
    let most = env.base.dynamic.memtable_bytes() / 2;
    let is_half_full = |family: &Arc<Family>| family.state().memtable.size_bytes() >= most;
    if are_over_share(env) {
        return families.iter().any(is_half_full);
    }
    let mut waiting = waiting.iter().filter_map(|id| family_of(&families, *id));
    waiting.any(|family| is_half_full(family) && has_all_memtables(env, family))
}

/// Whether `family` has as many immutable memtables as it may have.
fn has_all_memtables(env: &CommitEnv, family: &Family) -> bool {
    let most = env.base.dynamic.max_immutables();
    let state = family.state();
    let waiting = &state.immutables;
    let bytes: usize = waiting.iter().map(|memtable| memtable.size_bytes()).sum();
    // Memtables that ended early, for the values they refer to, take little memory.
    let small = bytes < most * env.base.dynamic.memtable_bytes() / 2;
    waiting.len() >= if small { most.max(MAX_SMALL) } else { most }
}

/// Bytes per second at a pressure from 0 to 1. The rate falls along a square: gently at first, so
/// that a short burst costs little.
fn rate(pressure: f64) -> f64 {
    let left = 1.0 - pressure.clamp(0.0, 1.0);
    SLOW_RATE_END + (SLOW_RATE_START - SLOW_RATE_END) * left * left
}

fn slow(env: &CommitEnv, family: &Family, pressure: f64, cause: StallCause, bytes: usize) {
    let rate = rate(pressure);
    let wait = Duration::from_secs_f64(bytes as f64 / rate).min(MAX_SLEEP);
    // Sleeping costs at least 50 us whatever is asked; below that, spinning keeps the rate smooth.
    let start = Instant::now();
    if wait > Duration::from_micros(200) {
        thread::sleep(wait);
    } else {
        while start.elapsed() < wait {
            thread::yield_now();
        }
    }
    let before = env.base.counters.stalls.slowed(cause, start.elapsed());
    if before.is_multiple_of(4096) {
        event::stalled(&family.name, cause.text(), false);
    }
}

/// How far garbage collection is behind: above 0 it slows writers.
fn collection_pressure(env: &CommitEnv) -> f64 {
    let written_bytes = env.base.counters.separated_bytes.load(Ordering::Relaxed);
    env.garbage.pressure(written_bytes, env.base.dynamic.gc_garbage_ratio())
}

/// Slows writers while there is more garbage than garbage collection keeps up with; never stops
/// them.
fn wait_for_collection(env: &CommitEnv, bytes: usize) {
    let pressure = collection_pressure(env);
    if pressure <= 0.0 {
        return;
    }
    let wait = Duration::from_secs_f64(bytes as f64 / gc_rate(pressure)).min(MAX_SLEEP);
    let owed = env.garbage.owe_us(wait.as_micros() as u64, MIN_SLEEP_US);
    if owed == 0 {
        return;
    }
    let start = Instant::now();
    thread::sleep(Duration::from_micros(owed).min(MAX_SLEEP));
    let cause = StallCause::GarbageCollection;
    let before = env.base.counters.stalls.slowed(cause, start.elapsed());
    if before.is_multiple_of(256) {
        event::stalled("all", cause.text(), false);
    }
}

/// Bytes per second at a pressure from 0 to 1.
fn gc_rate(pressure: f64) -> f64 {
    GC_RATE_START * (GC_RATE_END / GC_RATE_START).powf(pressure.clamp(0.0, 1.0))
}

/// Why what a writer waits for does not happen, if it failed again and again.
fn why_hopeless(env: &CommitEnv, family: &Family, cause: StallCause) -> Option<Error> {
    let errors = &env.jobs.errors;
    match cause {
        StallCause::L0Files => errors.why_stuck(family.id),
        _ => {
            let now_us = env.base.clock.monotonic_us();
            let why = |family: &Family| {
                errors.why_not(Work::Flush, family.id, std::iter::empty(), now_us)
            };
            if has_all_memtables(env, family) {
                return why(family);
            }
            // The flush of any family that waits makes room.
            let families = env.read.families.load();
            let mut waiting = families.iter().filter(|f| !f.state().immutables.is_empty());
            let first = why(waiting.next()?)?;
            waiting.all(|family| why(family).is_some()).then_some(first)
        }
    }
}

/// Whether a writer goes on although what it waits for has not happened; `removes`: it only removes. On a full disk that is
/// so where there is no room, and where no job begins: who allows that again waits for the lead, which the writer has.
fn goes_on_without(health: &Health, removes: bool) -> Result<bool> {
    if !removes {
        return health.check_writable().map(|()| false);
    }
    health.check_may_free().map(|()| health.has_no_room() || health.makes_way())
}

/// Waits while `stopped`; what it waits is counted as it goes, so that a long stop shows. `settle` sees to the log
/// now and then meanwhile.
fn wait_while(
    env: &CommitEnv,
    family: &Family,
    cause: StallCause,
    mut stopped: impl FnMut() -> bool,
    settle: impl FnMut() -> Result<()>,
) -> Result<()> {
    let (stalls, health) = (&env.base.counters.stalls, &env.base.health);
    let scheduler = &env.jobs.scheduler;
    let is_for_merge = cause == StallCause::L0Files;
    // Then it only removes, and waits as long as there is some room.
    let removes = health.is_disk_full();
    let mut since = Instant::now();
    let mut told = false;
    let look = |jobs: &mut SchedulerState| {
        if told {
            let now = Instant::now();
            stalls.waited(cause, now - since);
            since = now;
        }
        // Work that cannot go on will not make room: say so instead of waiting for ever.
        if !stopped() || goes_on_without(health, removes)? {
            return Ok(Some(()));
        }
        if let Some(why) = why_hopeless(env, family, cause) {
            return Err(Error::WriteStopped(Box::new(why)));
        }
        if !told {
            told = true;
            if is_for_merge {
                scheduler.hurry(jobs);
            }
            stalls.stopped(cause);
            event::stalled(&family.name, cause.text(), true);
            env.base.events.stall(&family.name, StallCondition::Stopped, Some(cause.name()));
        }
        Ok(None)
    };
    let waited = scheduler.wait_until_with(look, settle);
    if told {
        scheduler.lock().stopped -= usize::from(is_for_merge);
        note_condition(env, family);
    }
    waited
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::path::Path;

    #[test]
    fn who_removes_does_not_wait_for_jobs_while_none_may_begin() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let error = || terrace_base::Error::io("append", Path::new("x.log"), full());
        let health = Health::default();
        assert!([true, false].iter().all(|removes| !goes_on_without(&health, *removes).unwrap()));
        health.reserve_is_short(error());
        assert!(!goes_on_without(&health, true).unwrap());
        assert!(matches!(goes_on_without(&health, false), Err(Error::DiskFull(_))));
        // A flush is waited for, and the thread that waits for jobs to end would wait for the waiter's lead.
        health.set_makes_way(true);
        assert!(goes_on_without(&health, true).unwrap());
        health.set_makes_way(false);
        health.fail("append to the log", error());
        assert!(goes_on_without(&health, true).unwrap());
        health.poison("sync the log", error());
        assert!(matches!(goes_on_without(&health, true), Err(Error::Poisoned(_))));
    }

    #[test]
    fn the_rate_falls_smoothly_from_slowdown_to_stop() {
        let rates: Vec<f64> = (0..=16).map(|step| rate(f64::from(step) / 16.0)).collect();
        assert_eq!(rates[0], SLOW_RATE_START);
        assert_eq!(rates[16], SLOW_RATE_END);
        assert!(rates.windows(2).all(|pair| pair[1] < pair[0] && pair[1] > pair[0] / 3.0));
        let rates: Vec<f64> = (0..=16).map(|step| gc_rate(f64::from(step) / 16.0)).collect();
        assert_eq!(rates[0], GC_RATE_START);
        assert!((rates[16] - GC_RATE_END).abs() < 1.0);
        assert!(rates.windows(2).all(|pair| pair[1] < pair[0] && pair[1] > pair[0] / 3.0));
    }
}
