//! Garbage collection of the value log: which segments are victims, and how much
//! garbage the statistics do not show yet. Compactions do the rest: `compaction/pick` chooses files that refer
//! to victim segments, `compaction/values` moves the values, and a segment that nothing refers to
//! any more is deleted by `install`.
//!
//! Invariants:
//! - Handles change only inside a compaction's edit, in the entry that has the value. A deleted or
//!   overwritten key is dropped by the same rules as ever and is never written again, and what a
//!   snapshot needs is moved like everything else.
//! - A victim is read until its last reference is gone. Which segments are victims is not
//!   stored: after a crash the statistics say which are worth it.
//! - A half-moved segment costs space, never data: old and new values both exist, and live SSTs
//!   refer to exactly one of them.
//!
//! Garbage is known once a compaction has met both versions of a key. What lies above the deepest
//! level hides some, and how much is estimated by looking up a sample of its keys below
//! ([`hidden`]). The house thread and every compaction call [`step`].

mod hidden;
#[cfg(test)]
mod tests;
pub(crate) mod victims;

use crate::background::compaction::pick::{Compaction, MIN_HIDDEN_PART};
use crate::background::env::JobEnv;
use crate::background::full_disk::room_for_writes;
use crate::env::reserve;
use crate::jobs::background_errors::Work;
use crate::values::garbage::{Found, floor_bytes};
use crate::values::open_log::{OpenLog, waited_for_bytes};
use crate::values::value_log::SegmentStats;
use crate::version::family::Family;
use crate::write::room::least_separated_bytes;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_base::SegmentNumber;
use terrace_base::sync::Instant;
use victims::GarbageStats;

/// Collection begins this much below the allowed ratio, as a share of the log: what it moves exists
/// twice for a while, and writers go on.
pub(crate) const HEADROOM: f64 = 0.0125;
/// What a value's record takes beside what its handle counts for: header and lengths.
const RECORD_BYTES: f64 = 16.0;
/// Hidden garbage is looked for from this part of the ratio on, so that enough is known when
/// collection has to begin.
pub(crate) const REVEAL_FROM: f64 = 0.6;

/// On a full disk this many times the room that writes resume with is freed, if there is so much garbage.
const WANTED_ROOMS: u64 = 4;

/// The house thread rests this many times as long as a look at the value log takes it: flushes and merges look as well, and of a hundred
/// thousand segments that would take it a good part of a processor.
const LOOK_RESTS: u32 = 20;
const LONGEST_LOOK_REST: Duration = Duration::from_secs(1);

/// When the house thread takes its next [`step`].
pub(crate) struct NextStep {
    at: Instant,
}

impl NextStep {
    /// At once.
    pub fn now() -> Self {
        Self { at: Instant::now() }
    }

    /// Does what comes `before` and takes a step, if it is time or there is no value any more.
    pub fn take(&mut self, env: &JobEnv, before: impl FnOnce()) {
        let start = Instant::now();
        if start < self.at && env.read.value_log.is_used() {
            return;
        }
        before();
        step(env);
        let took = start.elapsed();
        self.at = start + took + rest_after(took);
    }
}

/// How long to rest after a look that `took` so long.
fn rest_after(took: Duration) -> Duration {
    took.saturating_mul(LOOK_RESTS).min(LONGEST_LOOK_REST)
}

/// Looks at the stats, decides what is a victim, and wakes the compaction threads if that changed.
/// Cheap: files whose hidden garbage is not known yet are sampled, each once. Returns at once if
/// another thread is at it.
pub(crate) fn step(env: &JobEnv) {
    let allowed = env.base.dynamic.gc_garbage_ratio();
    let ratio = allowed - HEADROOM;
    if env.base.read_only {
        return;
    }
    let gc = &env.garbage;
    let Some(_turn) = gc.turn.try_lock() else { return };
    if !env.read.value_log.is_used() {
        gc.note_none();
        return;
    }
    let unreadable = env.jobs.errors.unreadable();
    let unreadable = unreadable.into_iter().map(|(number, _)| number).collect();
    let estimate = hidden::estimate(env, &gc.known(&unreadable), &unreadable);
    let segments = stats(env);
    let sealed_bytes: u64 = segments.iter().map(|segment| segment.size_bytes).sum();
    let open = open_log(env);
    let held_bytes = open.held_bytes();
    let open_bytes = open.bytes() - held_bytes;
    let open_garbage = (open.unflushed_bytes as f64 * estimate.newest_share) as u64;
    let floor = Floor::look(env);
    let before = env.read.value_log.victims().clone();
    let full = full_disk(env);
    let asked = gc.asked.lock().clone();
    let of_none = asked.iter().filter(|(_, callers)| **callers == 0);
    let left: HashSet<SegmentNumber> = of_none.map(|(number, _)| *number).collect();
    // Those that were taken for their room are chosen anew when there is some, and so are those that nobody asks for
    // any more.
    let kept: Arc<HashSet<SegmentNumber>> = match gc.note_full(full.is_some()) && full.is_none() {
        true => Arc::default(),
        false => Arc::new(before.difference(&left).copied().collect()),
    };
    let stats = GarbageStats {
        segments: &segments,
        victims: &kept,
        open_bytes,
        unknown_bytes: estimate.files.values().sum::<u64>() + open_garbage,
        tree_bytes: tree_bytes(env),
        least_moving_bytes: floor.unflushed_bytes.min(floor.bytes / 2),
        ratio,
    };
    let mut victims = match &full {
        _ if allowed >= 1.0 => HashSet::new(),
        Some(full) => victims::choose_fitting(&segments, full.room_bytes, full.wanted_bytes),
        None => victims::choose(&stats),
    };
    // There may be tens of thousands of both; they are sorted.
    let there = |number: &&SegmentNumber| {
        segments.binary_search_by_key(*number, |segment| segment.number).is_ok()
    };
    let wanted = asked.iter().filter(|(_, callers)| **callers > 0);
    victims.extend(wanted.map(|(number, _)| number).filter(there));
    let share = stats.garbage_share(false);
    let collecting = allowed < 1.0 && (share > ratio * REVEAL_FROM || !victims.is_empty());
    let garbage: u64 = segments.iter().map(SegmentStats::garbage_bytes).sum();
    let waited_for = waited_for_bytes(held_bytes, floor.bytes, is_stuck(env, &open));
    gc.note_found(Found {
        log_bytes: sealed_bytes + open_bytes + waited_for,
        garbage_bytes: garbage + stats.unknown_bytes + waited_for,
        written_bytes: open.written_bytes,
        growth_permille: (estimate.newest_share * 1e3) as u64,
        floor_bytes: floor.bytes,
        unflushed_bytes: floor.unflushed_bytes,
    });
    let hidden: u64 = estimate.files.values().sum();
    gc.set_due(share > ratio && hidden >= env.read.value_log.live_bytes() / MIN_HIDDEN_PART);
    gc.note_waiting(&victims, env.base.clock.monotonic_us());
    gc.set_hidden(estimate.files, collecting);
    if victims != *before {
        env.read.value_log.set_victims(victims);
        env.jobs.scheduler.wake();
    }
    gc.asked.lock().retain(|number, callers| *callers > 0 || !left.contains(number));
}

/// Whether `merge` reads values of segments that somebody asks for, or did until a step comes to it.
pub(crate) fn is_asked_for(env: &JobEnv, merge: &Compaction) -> bool {
    let asked = env.garbage.asked.lock();
    let mut references = merge.files().flat_map(|file| &file.value_refs);
    !asked.is_empty() && references.any(|reference| asked.contains_key(&reference.segment))
}

/// A full disk.
struct FullDisk {
    /// What values may take while they move: the merges that move them need some as well.
    room_bytes: u64,
    /// What is to be freed: some more than what writes wait for.
    wanted_bytes: u64,
}

/// `None` if the disk is not full, or has room by now, or it is unknown how much there is.
fn full_disk(env: &JobEnv) -> Option<FullDisk> {
    if !env.base.health.has_no_room() || env.base.health.makes_way() {
        return None;
    }
    let room = Some(reserve::room_bytes(&*env.base.vfs, &env.base.dir));
    let room_bytes = room.filter(|room| *room < u64::MAX)? / 2;
    let need = room_for_writes(env).saturating_add(env.base.dynamic.reserve_bytes());
    Some(FullDisk { room_bytes, wanted_bytes: need.saturating_mul(WANTED_ROOMS) })
}

/// The stats of the sealed segments that can be collected, as [`stats_of_all`].
fn stats(env: &JobEnv) -> Vec<SegmentStats> {
    let mut stats = stats_of_all(env);
    if env.read.value_log.excluded_count() > 0 {
        stats.retain(|segment| env.read.value_log.why_excluded(segment.number).is_none());
    }
    stats
}

/// The stats of the sealed segments, with what its record takes beside a value counted as live: a
/// move would not free it.
pub(crate) fn stats_of_all(env: &JobEnv) -> Vec<SegmentStats> {
    let (mut referred, mut entries) = (0, 0);
    for family in env.read.families.load().iter() {
        // Entries whose values are inline are no records; where separation is off, nothing says how many.
        let least_bytes = match family.options().value_separation_threshold {
            usize::MAX => 1,
            threshold => threshold.max(1) as u64,
        };
        for (_, file) in family.state().version.files().filter(|(_, f)| !f.value_refs.is_empty()) {
            let bytes = file.value_refs.iter().map(|reference| reference.bytes).sum::<u64>();
            referred += bytes;
            entries += file.entry_count.min(bytes / least_bytes);
        }
    }
    let record = 1.0 + RECORD_BYTES * entries as f64 / referred.max(1) as f64;
    let mut stats = env.read.value_log.segment_stats();
    let as_collected = env.read.value_log.as_collected();
    for segment in &mut stats {
        let bytes = (segment.live_bytes as f64 * record) as u64;
        // What a file of its own costs counts for more the fewer values there are.
        segment.live_bytes = match as_collected.contains(&segment.number) {
            true => segment.size_bytes,
            false => bytes.min(segment.size_bytes),
        };
    }
    stats
}

/// The log segments with values that are not sealed yet. What is flushed or retired meanwhile counts as less garbage than
/// there is; a group that is written meanwhile may be counted as garbage.
pub(crate) fn open_log(env: &JobEnv) -> OpenLog {
    let written_bytes = env.base.counters.separated_bytes.load(Ordering::Relaxed);
    let families = env.read.families.load();
    let of_use = families.iter().filter(|family| !family.is_dropped());
    let separated =
        |family: &Arc<Family>| family.state().memtables().map(|m| m.separated_bytes()).sum::<u64>();
    let unflushed_bytes = of_use.map(separated).sum();
    // Comes last: what an SST refers to is counted before its memtables go.
    OpenLog { segments: env.read.value_log.open_segments(), written_bytes, unflushed_bytes }
}

/// Whether the oldest segments of `open` stay for now, whatever writers do: a memtable that needs them cannot be flushed now, a
/// hot table has them until its checkpoint, or somebody copies the store.
fn is_stuck(env: &JobEnv, open: &OpenLog) -> bool {
    let Some(oldest) = open.segments.first().map(|segment| segment.number) else { return false };
    let now_us = env.base.clock.monotonic_us();
    let families = env.read.families.load();
    let needs = |family: &Family| family.first_segment().is_some_and(|first| first <= oldest);
    let mut holders = families.iter().filter(|family| !family.is_dropped() && needs(family));
    env.versions.deletions_held.load(Ordering::SeqCst) > 0
        || holders.any(|family| {
            let may_flush = env.jobs.errors.may_begin(Work::Flush, family.id, now_us);
            !may_flush || family.state().hot.is_some()
        })
}

/// What garbage is let be, whatever the ratio.
struct Floor {
    bytes: u64,
    /// Bytes of values that a memtable may always refer to.
    unflushed_bytes: u64,
}

impl Floor {
    fn look(env: &JobEnv) -> Self {
        let unflushed_bytes = least_separated_bytes(env.base.options.advanced.segment_bytes);
        let memtable_bytes = env.base.dynamic.memtable_bytes() as u64;
        // Unknown room is no reason for little.
        let free_bytes = env.base.vfs.free_space_bytes(&env.base.dir).unwrap_or(u64::MAX);
        Self { bytes: floor_bytes(memtable_bytes, unflushed_bytes, free_bytes), unflushed_bytes }
    }
}

fn tree_bytes(env: &JobEnv) -> u64 {
    env.read.families.load().iter().map(|family| family.state().version.size_bytes()).sum()
}
