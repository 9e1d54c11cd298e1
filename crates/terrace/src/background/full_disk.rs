//! What the house thread does while the disk is full.

use crate::background::choose;
use crate::background::env::JobEnv;
use crate::env::reserve;
use crate::error::Result;
use crate::event;
use crate::jobs::background_errors::Work;
use crate::jobs::scheduler::Rewrites;
use crate::version::install;
use crate::write::room;
use std::sync::atomic::Ordering;
use terrace_manifest::names;
use terrace_vfs::CreateOptions;

/// Most free bytes, besides the reserve, that writes wait for after a full disk.
const ROOM_BYTES: u64 = 16 << 20;
/// The same in reserves, if there is one.
const ROOM_RESERVES: u64 = 4;

/// Room that writes resume with, besides the reserve: that of two memtables, or less, since memtables are short where room
/// is (`write/flush_room`).
pub(super) fn room_for_writes(env: &JobEnv) -> u64 {
    let by_reserve = match env.base.dynamic.reserve_bytes() {
        0 => ROOM_BYTES,
        reserve_bytes => ROOM_BYTES.min(ROOM_RESERVES.saturating_mul(reserve_bytes)),
    };
    by_reserve.min(env.base.dynamic.memtable_bytes() as u64 * 2)
}

/// What the house thread remembers of its looks: how many groups of writes had been committed.
#[derive(Debug, Default)]
pub(super) struct LastLook {
    /// When it last made the memtables immutable, or the disk was not full.
    rotated: u64,
    /// When it last looked.
    seen: u64,
    /// Looks since the memtables were made immutable last.
    looks: u32,
    /// Looks that there are to be between two times while deletions go on and there is no room at all.
    pause: u32,
    /// Looks in a row that found room, and jobs.
    waited: u32,
    unsized_room: UnsizedRoom,
}

impl LastLook {
    /// The disk is not full.
    pub fn not_full(&mut self, env: &JobEnv) {
        self.rotated = env.base.counters.groups.load(Ordering::Relaxed);
        (self.waited, self.pause) = (0, 0);
        env.versions.evidence.may_be_long(env.base.dynamic.reserve_bytes());
        self.unsized_room.not_full(env.base.clock.monotonic_us());
    }

    /// Whether a look that finds `written` groups of writes makes the memtables immutable. Where there is some room,
    /// deletions are flushed when they fill memtables, or when there are no more for now. Where there is none, they are
    /// what makes some: the first at once, more that follow at pauses that double, so that a stream of them leaves few
    /// files in L0.
    fn rotates(&mut self, written: u64, has_no_room: bool) -> bool {
        let goes_on = self.seen != written;
        self.seen = written;
        self.looks = self.looks.saturating_add(1);
        let pause = if has_no_room { self.pause } else { LOOKS_WHILE_WRITTEN };
        if self.rotated == written || (goes_on && self.looks <= pause) {
            return false;
        }
        self.pause = if goes_on { (2 * self.pause).clamp(1, LOOKS_WHILE_WRITTEN) } else { 0 };
        (self.rotated, self.looks) = (written, 0);
        true
    }

    /// A look finds room, or too little, jobs, or none. Whether no job is to begin, and whether writes may resume. Without
    /// `is_known` there may be room, which is looked for when nothing runs: jobs begin meanwhile, but not for ever.
    fn judge(&mut self, is_enough: bool, is_known: bool, is_quiet: bool) -> (bool, bool) {
        self.waited = if is_enough && !is_quiet { self.waited.saturating_add(1) } else { 0 };
        let has_waited = self.waited > LOOKS_FOR_JOBS;
        let makes_way = if is_known { self.waited > 0 } else { has_waited };
        (makes_way, is_enough && (is_quiet || has_waited))
    }
}

/// Looks in a row that find room while jobs run. If these have not ended by then, writes resume beside them: a job that
/// meets the full disk says so again.
const LOOKS_FOR_JOBS: u32 = 20;

/// The memtables of a stream of deletions are made immutable by one look in about this many.
const LOOKS_WHILE_WRITTEN: u32 = 16;

/// The first and the longest pause before writes are let through where nobody can know whether there is room.
const FIRST_PAUSE_US: u64 = 100_000;
const LONGEST_PAUSE_US: u64 = 10_000_000;

/// Looking for room where the file system does not say how much is free: there is as much as can be set aside. Where
/// nothing can, writes are let through after a pause, which doubles: one that finds no room says so again.
#[derive(Debug, Default)]
struct UnsizedRoom {
    /// Whether anything could ever be set aside.
    sets_aside: bool,
    /// The pause before the next time; 0 at first.
    pause_us: u64,
    /// When it is over; set by the first look on a full disk.
    over_us: Option<u64>,
    /// When writes were last let through.
    resumed_us: u64,
}

impl UnsizedRoom {
    /// Whether there are `need` bytes and the reserve, which is then set aside.
    fn find(&mut self, env: &JobEnv, need: u64, reserve_bytes: u64) -> Result<bool> {
        let (vfs, dir) = (&*env.base.vfs, &*env.base.dir);
        let kept_before = reserve::kept_bytes(vfs, dir)?;
        reserve::take(vfs, dir, need + reserve_bytes)?;
        let kept = reserve::kept_bytes(vfs, dir)?;
        self.sets_aside |= kept_before.max(kept) > 0;
        if kept >= need + reserve_bytes {
            reserve::release(vfs, dir)?;
            reserve::take(vfs, dir, reserve_bytes)?;
            return Ok(reserve::kept_bytes(vfs, dir)? >= reserve_bytes);
        }
        reserve::keep_for_log(vfs, dir, reserve_bytes)?;
        Ok(!self.sets_aside && self.is_over(env.base.clock.monotonic_us()))
    }

    /// Whether the pause is over. It begins with the first of these calls.
    fn is_over(&mut self, now_us: u64) -> bool {
        self.pause_us = self.pause_us.max(FIRST_PAUSE_US);
        if now_us < *self.over_us.get_or_insert(now_us.saturating_add(self.pause_us)) {
            return false;
        }
        (self.over_us, self.resumed_us) = (None, now_us);
        self.pause_us = (2 * self.pause_us).min(LONGEST_PAUSE_US);
        true
    }

    /// Writes go on: once they have for longer than the pause, the next one begins with the shortest.
    fn not_full(&mut self, now_us: u64) {
        self.over_us = None;
        if now_us.saturating_sub(self.resumed_us) > self.pause_us {
            self.pause_us = 0;
        }
    }
}

/// Gives most of the reserve back, and lets writes resume when the disk has room for a memtable again.
pub(super) fn look_for_room(env: &JobEnv, last: &mut LastLook) -> Result<()> {
    let looked = look(env, last);
    if looked.is_err() {
        // It is not known whether there is room: jobs may make some.
        let _jobs = env.jobs.scheduler.lock();
        env.base.health.set_makes_way(false);
    }
    looked
}

fn look(env: &JobEnv, last: &mut LastLook) -> Result<()> {
    let reserve_bytes = env.base.dynamic.reserve_bytes();
    lend_reserve(env, reserve_bytes)?;
    env.versions.evidence.keep_short(reserve_bytes);
    env.purge();
    match env.base.health.has_no_room() {
        true => install::shrink_manifest(&env.versions)?,
        false => install::settle_manifest(&env.versions)?,
    }
    // Costs one small edit and may be what makes room.
    install::drop_dead_segments(&env.versions)?;
    env.purge();
    flush_deletions(env, last)?;
    if has_room(env, last, reserve_bytes)? {
        let free = env.base.vfs.free_space_bytes(&env.base.dir)?;
        event::disk_has_room(free);
        // Before writers ask why their flush does not happen. Where it is not known, merges that found no room keep their
        // pauses.
        env.jobs.errors.room_came(if free == u64::MAX { 0 } else { free });
        {
            let mut jobs = env.jobs.scheduler.lock();
            jobs.rewrites = Rewrites::default();
            env.base.health.resume();
        }
        last.waited = 0;
        env.jobs.scheduler.job_ended();
    }
    Ok(())
}

/// Gives the reserve to background jobs, by turns: a flush may use up what it gets, so it gets the reserve without the
/// part for the log. A merge gives back more than it takes: it gets all of it, while no flush runs.
fn lend_reserve(env: &JobEnv, reserve_bytes: u64) -> Result<()> {
    let merges_only = {
        let jobs = env.jobs.scheduler.lock();
        let health = &env.base.health;
        // Where there is some room, writers wait for flushes, which therefore go on.
        let may_turn = !health.wants_reserve_only();
        if may_turn && health.merges_only() && !jobs.is_quiet() && jobs.flushing.is_empty() {
            // The merges' turn is not over.
            return Ok(());
        }
        let merges_only = may_turn && jobs.is_quiet() && !health.merges_only();
        health.set_merges_only(merges_only);
        merges_only
    };
    match merges_only {
        true => {
            reserve::release(&*env.base.vfs, &env.base.dir)?;
            env.jobs.errors.hurry(Work::Compaction);
        }
        false => {
            reserve::keep_for_log(&*env.base.vfs, &env.base.dir, reserve_bytes)?;
            // What the reserve has no room for is tried at its own pauses.
            if env.read.memtable_bytes() as u64 <= reserve_bytes {
                env.jobs.errors.hurry(Work::Flush);
            }
        }
    }
    env.jobs.scheduler.wake();
    Ok(())
}

/// Makes memtables with deletions immutable: what they delete goes with their flush, and with the merges after it.
fn flush_deletions(env: &JobEnv, last: &mut LastLook) -> Result<()> {
    let written = env.base.counters.groups.load(Ordering::Relaxed);
    if last.rotates(written, env.base.health.has_no_room()) {
        // If that fails, the next look is to try it again.
        room::rotate_all(&env.commit, &env.read.families.load_full())
            .inspect_err(|_| last.rotated = u64::MAX)?;
        env.jobs.errors.hurry(Work::Flush);
        env.jobs.errors.hurry(Work::Compaction);
    }
    Ok(())
}

/// Whether writes may resume: there is room for a memtable besides the reserve, which is set aside, and nothing runs,
/// or has run for long enough. While there is room no job begins, so that the ones that run are the last.
fn has_room(env: &JobEnv, last: &mut LastLook, reserve_bytes: u64) -> Result<bool> {
    let need = match env.base.health.wants_reserve_only() {
        true => 0,
        false => room_for_writes(env),
    };
    let free = env.base.vfs.free_space_bytes(&env.base.dir)?;
    let kept = reserve::kept_bytes(&*env.base.vfs, &env.base.dir)?;
    let is_known = free < u64::MAX;
    let stops_writes = || {
        let jobs = env.jobs.scheduler.lock();
        choose::has_no_room_for_writes(env, &jobs)
    };
    let is_enough =
        kept.saturating_add(free) >= need + reserve_bytes && !(is_known && stops_writes());
    let (makes_way, may_resume) = {
        let jobs = env.jobs.scheduler.lock();
        // A job that met the full disk would say so once more if it ended after this.
        let (makes_way, may_resume) = last.judge(is_enough, is_known, jobs.is_quiet());
        // No job begins from now until writes have resumed.
        env.base.health.set_makes_way(makes_way || may_resume);
        (makes_way, may_resume)
    };
    if !may_resume {
        return Ok(false);
    }
    let is_found = match is_known {
        // In this order: the reserve is a file, too.
        true => reserve::take(&*env.base.vfs, &env.base.dir, reserve_bytes)? && can_create(env)?,
        false => last.unsized_room.find(env, need, reserve_bytes)?,
    };
    if !is_found {
        let _jobs = env.jobs.scheduler.lock();
        env.base.health.set_makes_way(makes_way);
    }
    Ok(is_found)
}

/// Whether one more file can be created: a file system can have room and no inode for it.
fn can_create(env: &JobEnv) -> Result<bool> {
    let path = names::temp_path(&env.base.dir, env.versions.next_file_number());
    match env.base.vfs.create(&path, &CreateOptions::default()) {
        Err(error) if error.is_no_space() => Ok(false),
        created => {
            drop(created?);
            env.base.vfs.remove(&path)?;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_there_is_room_no_job_begins_and_writes_resume_after_the_last_one() {
        let mut last = LastLook::default();
        assert_eq!(last.judge(true, true, true), (false, true));
        assert_eq!(last.judge(false, true, true), (false, false));
        assert_eq!(last.judge(false, true, false), (false, false));
        assert_eq!(last.judge(true, true, false), (true, false));
        assert_eq!(last.judge(true, true, true), (false, true));
        // One that takes long is not waited for for ever; neither is one that began again and again.
        for is_known in [true, false] {
            for _ in 0..LOOKS_FOR_JOBS {
                assert_eq!(last.judge(true, is_known, false), (is_known, false));
            }
            assert_eq!(last.judge(true, is_known, false), (true, true));
            // It was not enough.
            assert_eq!(last.judge(false, is_known, false), (false, false));
        }
    }

    #[test]
    fn a_stream_of_deletions_on_a_full_disk_is_flushed_ever_less_often() {
        let mut last = LastLook::default();
        let looks = 100;
        let stream: Vec<u64> = (1..=looks).filter(|n| last.rotates(*n, true)).collect();
        assert_eq!(stream[..4], [1, 3, 6, 11], "the first at once");
        assert!(stream.len() <= 10, "{stream:?}");
        assert!(stream.windows(2).all(|pair| pair[1] - pair[0] <= 17), "{stream:?}");
        // What is left when it ends is flushed by the next look, and what comes then by the first.
        assert!(last.rotates(looks + 1, true) || last.rotates(looks + 1, true));
        assert!(!last.rotates(looks + 1, true));
        let stream: Vec<u64> = (1..=looks).filter(|n| last.rotates(2 * looks + n, false)).collect();
        assert_eq!(stream.len(), 5, "some room: {stream:?}");
    }

    #[test]
    fn a_pause_doubles_until_writes_go_on_for_longer_than_it() {
        let mut room = UnsizedRoom::default();
        let (mut now_us, mut pauses) = (7, Vec::new());
        for _ in 0..9 {
            let since_us = now_us;
            assert!(!room.is_over(now_us));
            while !room.is_over(now_us) {
                now_us += 1000;
            }
            pauses.push(now_us - since_us);
            // A write finds no room at once.
            room.not_full(now_us);
        }
        assert_eq!(pauses[..3], [FIRST_PAUSE_US, 2 * FIRST_PAUSE_US, 4 * FIRST_PAUSE_US]);
        assert_eq!(pauses[8], LONGEST_PAUSE_US);
        room.not_full(now_us + LONGEST_PAUSE_US + 1);
        assert!(!room.is_over(now_us));
        assert!(!room.is_over(now_us + FIRST_PAUSE_US - 1));
        assert!(room.is_over(now_us + FIRST_PAUSE_US));
    }
}
