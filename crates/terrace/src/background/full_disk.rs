//! What the house thread does while the disk is full.

use crate::background::env::JobEnv;
use crate::env::reserve;
use crate::error::Result;
use crate::event;
use crate::jobs::background_errors::Work;
use crate::version::install;
use crate::write::room;
use std::sync::atomic::Ordering;

/// Free bytes at which writes resume after a full disk, besides one memtable.
const ROOM_BYTES: u64 = 16 << 20;

/// What the house thread remembers of its looks: how many groups of writes had been committed.
#[derive(Debug, Default)]
pub(super) struct LastLook {
    /// When it last made the memtables immutable, or the disk was not full.
    pub rotated: u64,
    /// When it last looked.
    seen: u64,
    /// Looks since that found more of them.
    looks: u32,
}

/// While there is some room, the memtables of a stream of deletions are made immutable by one look in this many.
const LOOKS_WHILE_WRITTEN: u32 = 16;

/// Gives most of the reserve back, and lets writes resume when the disk has room for a memtable again.
pub(super) fn look_for_room(env: &JobEnv, last: &mut LastLook) -> Result<()> {
    let reserve_bytes = env.base.options.advanced.reserve_bytes;
    // By turns: a flush may use up what it gets, so it gets the reserve without the part for the log.
    // A merge gives back more than it takes: it gets all of it, while no flush runs.
    let merges_only = {
        let jobs = env.jobs.scheduler.lock();
        // Where there is some room, writers wait for flushes, which therefore go on.
        let may_turn = !env.base.health.wants_reserve_only();
        let merges_only = may_turn && jobs.is_quiet() && !env.base.health.merges_only();
        env.base.health.set_merges_only(merges_only);
        merges_only
    };
    match merges_only {
        true => {
            reserve::release(&*env.base.vfs, &env.base.dir)?;
            env.jobs.errors.hurry(Work::Compaction);
            env.jobs.scheduler.wake();
        }
        false => reserve::keep_for_log(&*env.base.vfs, &env.base.dir, reserve_bytes)?,
    }
    install::purge(&env.versions)?;
    install::settle_manifest(&env.versions)?;
    // Costs one small edit and may be what makes room.
    install::drop_dead_segments(&env.versions)?;
    install::purge(&env.versions)?;
    let written = env.base.counters.groups.load(Ordering::Relaxed);
    // Where there is some room, deletions are flushed when they fill memtables, or when there are no more for now.
    let goes_on = last.seen != written && last.looks < LOOKS_WHILE_WRITTEN;
    last.seen = written;
    last.looks += 1;
    if last.rotated != written && (env.base.health.has_no_room() || !goes_on) {
        // Deletions: what they delete goes with their flush, and with the merges after it.
        room::rotate_all(&env.commit, &env.read.families.load_full())?;
        (last.rotated, last.looks) = (written, 0);
        env.jobs.errors.retry_jobs();
    }
    let need = match env.base.health.wants_reserve_only() {
        true => 0,
        false => ROOM_BYTES.min(env.base.dynamic.memtable_bytes() as u64 * 2),
    };
    let free = env.base.vfs.free_space_bytes(&env.base.dir)?;
    let kept = reserve::kept_bytes(&*env.base.vfs, &env.base.dir)?;
    let room = match free {
        // It is not known: there is as much as can be set aside.
        u64::MAX if kept < reserve_bytes => kept,
        free => kept.saturating_add(free),
    };
    // A job that met the full disk would say so once more if it ended after this.
    let is_quiet = env.jobs.scheduler.lock().is_quiet();
    if room >= need + reserve_bytes
        && is_quiet
        && reserve::take(&*env.base.vfs, &env.base.dir, reserve_bytes)?
    {
        event::disk_has_room(free);
        env.base.health.resume();
        env.jobs.errors.retry_jobs();
        env.jobs.scheduler.job_ended();
    }
    Ok(())
}
