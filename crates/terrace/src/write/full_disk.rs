//! What the leader does for writes that only remove while the disk is full: the reserve is theirs, but for what the
//! flush of what they have written needs, and for a last part.
//!
//! - A removal of keys takes some bytes of the log, and of the SST that its flush writes; what it removes comes back only
//!   with merges after that. So it is taken as long as the memtables can be flushed afterwards, with itself. If the log
//!   has used up what it may, the memtables are flushed at once, which gives back the segments.
//! - The last part is for deleted ranges: with them the memtables and all files that they cover go without room for
//!   anything but the flush of the ranges. And for the manifest. Batches of few bytes that may use the reserve
//!   ([`WriteBatch::use_reserve`]) go as removals of keys do, and may have most of that part besides.
//!
//! Called by `commit`.

use crate::batch::WriteBatch;
use crate::env::health::Health;
use crate::env::reserve;
use crate::error::{Error, Result};
use crate::jobs::background_errors::Work;
use crate::jobs::scheduler::SchedulerState;
use crate::version::family::Family;
use crate::write::env::CommitEnv;
use crate::write::log_segments::{retire_segments_under_lead, settle};
use crate::write::queue::{Lead, LogState, Pending};
use crate::write::room;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use terrace_base::sync::Instant;
use terrace_log::format::RECORD_HEADER_BYTES;

/// How often it is tried to find room for what only removes.
pub(super) const TRIES: u32 = 5;

/// One part in this many of the reserve is the last one, for deleted ranges and the manifest.
const LAST_PART: u64 = 8;
/// And one part in this many of it is left by few bytes that may use the reserve.
const LEAST_PART: u64 = 32;
/// Removals of keys wait so long for jobs to end before they are refused: a merge may take minutes, and others wait behind.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// And so long in all whatever only removes and the log has not found room for: a usual job ends in that time, and who is
/// refused comes again. What the house thread does for room waits behind.
const LONGEST_SEARCH: Duration = Duration::from_secs(1);
/// A log of at least one part in this many of the reserve is worth a flush that gives it back.
const WORTH_PART: u64 = 16;
/// What a log segment takes without its records, at most one part in this many of the reserve.
const SEGMENT_BYTES: u64 = 4 << 10;
const SEGMENT_PART: u64 = 16;

/// Says whether the removals of keys in `group` are taken, and looks for room for them before it refuses them. What may be
/// taken without that does not wait for jobs behind them.
///
/// # Errors
/// `DiskFull`: the rest of the reserve is for others. `Closed`.
pub(super) fn admit(env: &CommitEnv, lead: &Lead<'_>, group: &[Pending]) -> Result<()> {
    let taken = || group.iter().map(|p| &p.batch).filter(|batch| batch.is_taken_when_full());
    if taken().all(|batch| batch.is_taken_to_the_last()) {
        return Ok(());
    }
    let bytes = taken().map(log_bytes_of).sum();
    let is_other = |batch: &WriteBatch| batch.is_taken_to_the_last() || batch.may_use_reserve();
    let waits = !taken().any(is_other);
    let least_bytes = match taken().all(is_other) {
        // They may be taken without the flush, so that it has to be worth it.
        true => env.base.dynamic.reserve_bytes() / WORTH_PART,
        false => 0,
    };
    let (until, end) = (Instant::now() + LONGEST_WAIT, end_of_search());
    for _ in 1..TRIES {
        if has_room(env, lead, bytes) {
            return Ok(());
        }
        settle(env, &mut lead.log())?;
        let goes_on =
            flush_log(env, lead, least_bytes, end)? || (waits && wait_for_jobs(env, lead, until)?);
        if !goes_on {
            break;
        }
    }
    if has_room(env, lead, bytes) {
        return Ok(());
    }
    let why =
        "the rest of the reserve is for deleted ranges and the flush of what was deleted before";
    let error = io::Error::new(io::ErrorKind::StorageFull, why);
    let error = terrace_base::Error::io("append to the log in", &env.base.dir, error);
    Err(Error::DiskFull(Arc::new(error)))
}

/// Whether the batches of `group` that may use the reserve are taken although it has no room for removals of keys: as long
/// as they leave the least part.
pub(super) fn takes_few_bytes(env: &CommitEnv, group: &[Pending]) -> bool {
    let few = group.iter().map(|p| &p.batch).filter(|batch| batch.may_use_reserve());
    let bytes: u64 = few.map(log_bytes_of).sum();
    leaves_least_part(room_bytes(env), bytes, env.base.dynamic.reserve_bytes())
}

fn leaves_least_part(room: u64, bytes: u64, reserve_bytes: u64) -> bool {
    room.saturating_sub(bytes) >= reserve_bytes / LEAST_PART
}

fn log_bytes_of(batch: &WriteBatch) -> u64 {
    (batch.size_bytes() + RECORD_HEADER_BYTES) as u64
}

fn room_bytes(env: &CommitEnv) -> u64 {
    reserve::room_bytes(&*env.base.vfs, &env.base.dir)
}

/// Whether `bytes` more of log leave the room that is for others. Unknown room does.
fn has_room(env: &CommitEnv, lead: &Lead<'_>, bytes: u64) -> bool {
    let reserve_bytes = env.base.dynamic.reserve_bytes();
    let room = room_bytes(env);
    if room == u64::MAX {
        return true;
    }
    let log = lead.log();
    let segment = if log.broken { SEGMENT_BYTES.min(reserve_bytes / SEGMENT_PART) } else { 0 };
    let flush = unflushed_bytes(env).min(log_bytes(&log));
    // What a job has written so far is room again if it gives up.
    let is_quiet = env.jobs.scheduler.lock().is_quiet();
    let for_flush = if is_quiet { room } else { room.max(reserve_bytes) };
    is_enough((room.saturating_sub(segment), for_flush), bytes, flush, reserve_bytes)
}

/// Whether `bytes` may be taken of `room` where a flush writes `flush` bytes before that: they leave the last part of the
/// reserve and, if that flush can be had at all with `for_flush` bytes of room, twice what it writes with them. Jobs leave a
/// quarter of the reserve to the log. That flushes have failed for now is no reason to use up the room for them.
fn is_enough((room, for_flush): (u64, u64), bytes: u64, flush: u64, reserve_bytes: u64) -> bool {
    let (left, last) = (room.saturating_sub(bytes), reserve_bytes / LAST_PART);
    let can_be_had = for_flush > 0 && last.saturating_add(flush) <= for_flush / 4 * 3;
    let for_flush = if can_be_had { 2 * (flush + bytes) } else { 0 };
    last.saturating_add(for_flush) <= left
}

/// Bytes of the memtables that hold something: a flush writes less.
fn unflushed_bytes(env: &CommitEnv) -> u64 {
    let of_family = |family: &Arc<Family>| -> usize {
        let state = family.state();
        state.memtables().filter(|m| !m.is_empty()).map(|m| m.size_bytes()).sum()
    };
    env.read.families.load().iter().map(of_family).sum::<usize>() as u64
}

/// Bytes of the log in force.
fn log_bytes(log: &LogState) -> u64 {
    log.segments.iter().map(|(_, bytes)| bytes).sum::<u64>() + log.writer.len_bytes()
}

/// Whether flushes have failed again and again.
fn is_hopeless(env: &CommitEnv) -> bool {
    let (errors, now_us) = (&env.jobs.errors, env.base.clock.monotonic_us());
    let families = env.read.families.load();
    families.iter().any(|f| errors.why_not(Work::Flush, f.id, std::iter::empty(), now_us).is_some())
}

/// When a search for room that begins now is over: that of all tries together.
pub(super) fn end_of_search() -> Instant {
    Instant::now() + LONGEST_SEARCH
}

/// Looks for room for what only removes, which the log has just not found: flushes what the log has of it, if that is
/// worth it, or lets a job end. False if none has by `until`.
pub(super) fn find_room(env: &CommitEnv, lead: &Lead<'_>, until: Instant) -> Result<bool> {
    settle(env, &mut lead.log())?;
    Ok(flush_log(env, lead, env.base.dynamic.reserve_bytes() / WORTH_PART, until)?
        || wait_for_jobs(env, lead, until)?)
}

/// Lets a job that is writing end, since it either frees room or gives up what it has taken. Once nothing runs, the whole
/// reserve is given back, and no flush takes it. Such jobs need no lead. False if none has ended by `until`.
fn wait_for_jobs(env: &CommitEnv, lead: &Lead<'_>, until: Instant) -> Result<bool> {
    let ended = env.jobs.scheduler.lock().ended;
    let look = |jobs: &mut SchedulerState| {
        let gives_back = gives_back(&env.base.health, jobs);
        if gives_back {
            env.base.health.set_merges_only(true);
        }
        let has_ended = jobs.is_quiet() || jobs.ended != ended;
        let is_over = has_ended || Instant::now() >= until;
        Ok(is_over.then_some((has_ended, gives_back)))
    };
    let meanwhile = || settle(env, &mut lead.log());
    let (has_ended, gives_back) = env.jobs.scheduler.wait_until_with(look, meanwhile)?;
    if gives_back {
        reserve::release(&*env.base.vfs, &env.base.dir)?;
        env.jobs.errors.hurry(Work::Compaction);
        env.jobs.scheduler.wake();
    }
    Ok(has_ended)
}

/// Whether the whole reserve is given back, and flushes wait. Not where only the reserve is short: writers wait for flushes
/// there.
fn gives_back(health: &Health, jobs: &SchedulerState) -> bool {
    jobs.is_quiet() && health.has_no_room()
}

/// Flushes all memtables and lets go of the log that they needed, if that is at least `least_bytes`. False if there is
/// nothing to flush, or it cannot be flushed now, or not by `until`.
fn flush_log(env: &CommitEnv, lead: &Lead<'_>, least_bytes: u64, until: Instant) -> Result<bool> {
    let families = env.read.families.load_full();
    lead.drain();
    let is_worth_it = || unflushed_bytes(env) > 0 && log_bytes(&lead.log()) >= least_bytes;
    if is_hopeless(env) || !is_worth_it() {
        return Ok(false);
    }
    {
        // The flush may begin, also one that the rotation waits for, and leaves the log what it needs.
        let _jobs = env.jobs.scheduler.lock();
        env.base.health.set_merges_only(false);
    }
    if !rotate(env, lead, &families) {
        return Ok(false);
    }
    reserve::keep_for_log(&*env.base.vfs, &env.base.dir, env.base.dynamic.reserve_bytes())?;
    env.jobs.errors.hurry(Work::Flush);
    env.jobs.scheduler.wake();
    let waits =
        |family: &Arc<Family>| !family.is_dropped() && !family.state().immutables.is_empty();
    let may_begin = |family: &Arc<Family>| {
        let now_us = env.base.clock.monotonic_us();
        waits(family) && env.jobs.errors.may_begin(Work::Flush, family.id, now_us)
    };
    let health = &env.base.health;
    let look = |jobs: &mut SchedulerState| {
        let goes_on = health.check_may_free().is_ok() && health.may_flush();
        let is_over = jobs.flushing.is_empty() && !(goes_on && families.iter().any(may_begin));
        Ok((is_over || Instant::now() >= until).then_some(()))
    };
    env.jobs.scheduler.wait_until_with(look, || settle(env, &mut lead.log()))?;
    if families.iter().any(waits) {
        return Ok(false);
    }
    retire_segments_under_lead(env, lead)?;
    Ok(true)
}

/// Makes the memtables immutable, if the log finds room for another segment; whether it did.
fn rotate(env: &CommitEnv, lead: &Lead<'_>, families: &[Arc<Family>]) -> bool {
    let mut log = lead.log();
    families.iter().all(|family| room::rotate_under_lead(env, &mut log, family).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn flushes_go_on_where_only_the_reserve_is_short() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let error = || terrace_base::Error::io("append", Path::new("x.log"), full());
        let (health, mut jobs) = (Health::default(), SchedulerState::default());
        assert!(!gives_back(&health, &jobs));
        health.reserve_is_short(error());
        assert!(!gives_back(&health, &jobs));
        health.fail("append to the log", error());
        assert!(gives_back(&health, &jobs));
        jobs.flushing.insert(1);
        assert!(!gives_back(&health, &jobs));
    }

    #[test]
    fn few_bytes_that_may_use_the_reserve_leave_some_of_it_to_deleted_ranges() {
        let takes = |room, bytes| leaves_least_part(room, bytes, 32_000);
        assert!(takes(2000, 1000) && !takes(2000, 1001) && !takes(999, 0));
        assert!(leaves_least_part(0, 100, 0));
    }

    #[test]
    fn removals_leave_the_last_part_of_the_reserve_and_what_a_flush_takes_that_can_be_had() {
        let enough = |room, bytes, flush| is_enough((room, room), bytes, flush, 8000);
        // What is taken is flushed as well.
        assert!(enough(8000, 2333, 0) && !enough(8000, 2334, 0));
        assert!(enough(8000, 333, 3000) && !enough(8000, 334, 3000));
        // It is flushed before it is too much for that.
        assert!(!enough(8000, 0, 4000) && !enough(8000, 0, 5000));
        // It cannot be had anyway.
        assert!(enough(8000, 7000, 5001) && !enough(8000, 7001, 5001));
        assert!(!enough(999, 0, 0));
        // A job has what it takes for now.
        assert!(enough(4000, 3000, 3000) && !is_enough((4000, 8000), 0, 3000, 8000));
        // Without a reserve the log says whether there is room.
        assert!(is_enough((0, 0), 0, 0, 0) && is_enough((0, 0), 100, 0, 0));
    }
}
