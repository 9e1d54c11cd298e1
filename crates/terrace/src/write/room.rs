//! Room in memtables for what is about to be written (put): before a group goes into the log, the leader
//! makes room for all of it, by rotations of memtables and fresh hot tables.

use crate::error::Result;
use crate::kill_point::kill_point;
use crate::listener::{Event, MemtableSealed};
use crate::memtable::MemTable;
use crate::metrics::add;
use crate::options::HotTableMode;
use crate::version::family::Family;
use crate::version::read_env::family_of;
use crate::write::env::CommitEnv;
use crate::write::flush_room;
use crate::write::hot_swap::{self, Swap};
use crate::write::log_segments::end_segment;
use crate::write::queue::{Lead, LogState, Pending};
use crate::write::stall;
use std::sync::Arc;

/// A memtable is full when it refers to one part in this many of the live bytes of the value log.
const UNFLUSHED_SHARE: u64 = 64;
/// Bytes of separated values that a memtable may always refer to, or two segments if that is less.
const MIN_UNFLUSHED_BYTES: u64 = 4 << 20;

/// Sees to it that the memtables of all families that the group writes to can take it whole. Whatever
/// rotates here gives the new memtable the room that the group needs there, so it does not matter what
/// rotates, and in which order. A failure is harmless: nothing of the group is in the log yet.
pub(crate) fn make_room(
    env: &CommitEnv,
    lead: &Lead<'_>,
    log: &mut LogState,
    families: &[Arc<Family>],
    group: &[Pending],
) -> Result<()> {
    let most = MostBytes {
        separated: most_separated_bytes(env),
        flushed: log.flush_room.most_bytes(&env.base),
    };
    let mut rotated = false;
    for family in written_to(families, group) {
        rotated |= rotate_if_full(env, lead, log, family, group, most)?;
    }
    if families.len() > 1
        && let Some(largest) = largest_over_bound(env, families, most.flushed)
    {
        lead.drain();
        rotate(env, log, largest, needed_bytes(largest, group))?;
        rotated = true;
    }
    // Comes last: a rotation may begin a hot table.
    let hot = &env.read.table_cache.totals().hot;
    if !hot.is_empty() {
        for family in hot.load().iter().filter_map(|id| family_of(families, *id)) {
            rotated |= make_hot_room(env, lead, log, family, group)?;
        }
    }
    take_memory_back(env);
    match rotated {
        true => check_room(env, families, group),
        false => Ok(()),
    }
}

/// Those of `families` that the group writes to, each once. Costs no look at the others.
fn written_to<'a>(
    families: &'a [Arc<Family>],
    group: &'a [Pending],
) -> impl Iterator<Item = &'a Arc<Family>> {
    group.iter().enumerate().flat_map(move |(at, pending)| {
        let is_first = move |id: &u32| !group[..at].iter().any(|before| before.batch.touches(*id));
        pending.batch.families().filter(is_first).filter_map(move |id| family_of(families, id))
    })
}

/// What a memtable may have.
#[derive(Clone, Copy)]
struct MostBytes {
    /// Of separated values.
    separated: u64,
    /// Of what is flushed, for want of room.
    flushed: usize,
}

/// Rotates the memtable of a family that the group writes to, if it is full or cannot take its part of the group. Whether
/// it did.
fn rotate_if_full(
    env: &CommitEnv,
    lead: &Lead<'_>,
    log: &mut LogState,
    family: &Family,
    group: &[Pending],
    most: MostBytes,
) -> Result<bool> {
    let needed = needed_bytes(family, group);
    let full = || {
        let state = family.state();
        let table = &state.memtable;
        let hot_bytes = state.hot.as_ref().map_or(0, |hot| hot.full_bytes());
        let memtable_bytes = env.base.dynamic.memtable_bytes();
        !has_room(needed, || lead.in_flight_bytes(), || table.room_bytes())
            || table.size_bytes() >= full_bytes(memtable_bytes, hot_bytes, most.flushed)
            || table.separated_bytes() >= most.separated
    };
    // What is left of a group that is still being inserted says more.
    let is_full = full() && {
        lead.drain();
        full()
    };
    if is_full {
        rotate(env, log, family, needed)?;
    }
    Ok(is_full)
}

/// Size at which a memtable is full: a hot table of `hot_bytes` takes some of its memory, but nothing of what may be flushed.
fn full_bytes(memtable_bytes: usize, hot_bytes: usize, most_flushed: usize) -> usize {
    memtable_bytes.saturating_sub(hot_bytes).max(memtable_bytes / 4).min(most_flushed)
}

/// What the block cache has of the memtables' memory goes back to them before those who have claimed it need it.
fn take_memory_back(env: &CommitEnv) {
    let table_cache = &env.read.table_cache;
    if table_cache.memtable_loan_bytes() == 0 {
        return;
    }
    let used = table_cache.claimed_bytes() + env.read.memtable_bytes();
    let share = env.base.dynamic.memtables_bytes();
    table_cache.give_back_to_memtables(used, share);
}

/// Sees to it that the hot table of `family`, if there is one, can take its part of the group. Whether
/// something was changed.
fn make_hot_room(
    env: &CommitEnv,
    lead: &Lead<'_>,
    log: &mut LogState,
    family: &Family,
    group: &[Pending],
) -> Result<bool> {
    let Some(hot) = family.state().hot.clone() else { return Ok(false) };
    let is_off = family.hot_table(env.base.dynamic.hot_table()) == HotTableMode::Off;
    if is_off || hot_swap::is_separated(family, group) {
        lead.drain();
        rotate_with(env, log, family, needed_bytes(family, group), Swap::Dissolve)?;
        return Ok(true);
    }
    let needed = needed_bytes(family, group);
    let has_room = has_room(needed, || lead.in_flight_bytes(), || hot.table.room_bytes());
    if !hot.is_full() && has_room {
        return Ok(false);
    }
    lead.drain();
    if hot.is_full() && hot.is_oversized(env.read.hot_memtable_bytes(family)) {
        // Only with a rotation some of it can cool.
        rotate(env, log, family, needed)?;
        // The group may have a separated value for a key that has become hot with it.
        if hot_swap::is_separated(family, group) {
            rotate_with(env, log, family, needed, Swap::Dissolve)?;
            return Ok(true);
        }
        let has_room =
            family.state().hot.as_ref().is_none_or(|hot| hot.table.room_bytes() >= needed);
        if has_room {
            return Ok(true);
        }
    }
    let swap = Swap::Refresh { needed_bytes: needed };
    let Some(change) = hot_swap::prepare(env, log, family, swap)? else { return Ok(false) };
    family.swap_hot(log.last_seqno, change, &env.read.table_cache);
    add(&env.base.counters.hot_swaps, 1);
    kill_point("hot:swapped");
    env.jobs.scheduler.wake();
    Ok(true)
}

/// Whether a table with `room` bytes can take `needed` beside the group that is still being inserted, which takes `in_flight` at
/// most. That is asked for first: a group that ends in between is counted twice then. The other way round it would not be counted
/// at all, and what is appended to the log would not fit.
fn has_room(
    needed: usize,
    in_flight: impl FnOnce() -> usize,
    room: impl FnOnce() -> usize,
) -> bool {
    let in_flight = in_flight();
    room() >= needed + in_flight
}

/// Bytes that the group takes in the memtable of `family`, at most.
fn needed_bytes(family: &Family, group: &[Pending]) -> usize {
    group.iter().map(|p| p.batch.room_bytes(family.id)).sum()
}

/// Refuses the group, while that is harmless, if a memtable cannot take its part of it.
fn check_room(env: &CommitEnv, families: &[Arc<Family>], group: &[Pending]) -> Result<()> {
    for family in written_to(families, group) {
        let state = family.state();
        let hot = state.hot.as_ref().map(|hot| hot.table.room_bytes());
        let room = state.memtable.room_bytes().min(hot.unwrap_or(usize::MAX));
        let needed = needed_bytes(family, group);
        if room < needed {
            let text = format!("the memtable of `{}` has {room} bytes of {needed}", family.name);
            let error = std::io::Error::other(text);
            return Err(terrace_base::Error::io("make room in", &env.base.dir, error).into());
        }
    }
    Ok(())
}

/// Bytes of separated values at which a memtable is full, however small their handles are: what is
/// overwritten in memtables is garbage that nobody knows of yet, and recovery reads all of it.
fn most_separated_bytes(env: &CommitEnv) -> u64 {
    let least = least_separated_bytes(env.base.options.advanced.segment_bytes);
    least.max(env.read.value_log.live_bytes() / UNFLUSHED_SHARE)
}

/// Bytes of separated values that a memtable may always refer to.
pub(crate) fn least_separated_bytes(segment_bytes: u64) -> u64 {
    MIN_UNFLUSHED_BYTES.min(2 * segment_bytes)
}

/// The family with the largest mutable memtable, if all of them together are over half of the budget of
/// memtables (the other half is for those that wait for their flush), or over `most_flushed` and it is not too short.
fn largest_over_bound<'a>(
    env: &CommitEnv,
    families: &'a [Arc<Family>],
    most_flushed: usize,
) -> Option<&'a Arc<Family>> {
    let all_bytes = env.read.table_cache.totals().memtables().mutable;
    let most = env.base.dynamic.memtables_bytes() / 2;
    if all_bytes <= most.min(most_flushed) {
        return None;
    }
    let size = |family: &Arc<Family>| family.state().memtable.rotatable_bytes();
    let largest = families.iter().max_by_key(|family| size(family))?;
    let bounds = Bounds { most, most_flushed, reserve: env.base.dynamic.reserve_bytes() };
    bounds.are_over(all_bytes, size(largest)).then_some(largest)
}

/// What the mutable memtables of all families may have together.
struct Bounds {
    most: usize,
    /// For want of room.
    most_flushed: usize,
    reserve: u64,
}

impl Bounds {
    /// Whether the largest memtable, of `largest_bytes`, is flushed while all have `all_bytes`. Where only room is short it is
    /// let grow to the least that is worth a file: of many families each would be flushed with a few entries again and again.
    /// But not beyond half of the reserve, so that the flush of all fits into it.
    fn are_over(&self, all_bytes: usize, largest_bytes: usize) -> bool {
        let is_worth_it = || largest_bytes as u64 >= flush_room::least_bytes(self.reserve);
        let fits = || self.reserve == 0 || all_bytes as u64 <= self.reserve / 2;
        all_bytes > self.most || (all_bytes > self.most_flushed && (is_worth_it() || !fits()))
    }
}

/// Makes the family's memtable immutable and starts the next log segment, so that a segment
/// seldom outlives the memtables it feeds. Waits while too many memtables wait for their flush.
pub(crate) fn rotate(
    env: &CommitEnv,
    log: &mut LogState,
    family: &Family,
    capacity_bytes: usize,
) -> Result<()> {
    rotate_with(env, log, family, capacity_bytes, Swap::AtRotation).map(drop)
}

/// As [`rotate`], and what is to become of the hot table. Gives the largest id of a memtable that waits
/// for its flush then.
fn rotate_with(
    env: &CommitEnv,
    log: &mut LogState,
    family: &Family,
    capacity_bytes: usize,
    swap: Swap,
) -> Result<u64> {
    let swap = match family.hot_table(env.base.dynamic.hot_table()) {
        HotTableMode::Off => Swap::Dissolve,
        HotTableMode::Auto => swap,
    };
    // What cools is flushed, and the log that has it must be durable before: a full segment is.
    let may_cool = family.state().hot.is_some();
    let ends_segment = may_cool || !family.state().memtable.is_empty();
    if ends_segment {
        stall::wait_for_memtable(env, log, family)?;
    }
    // Before the segment: a write that is refused for want of memory leaves no empty one.
    let capacity = capacity_bytes.max(env.base.dynamic.memtable_bytes());
    let no_memory = |e| terrace_base::Error::io("reserve memory for", &env.base.dir, e);
    let fresh = MemTable::with_capacity(0, capacity).map_err(no_memory)?;
    // A segment without records ends behind everything that the memtable has, as after the rotation of another family.
    if ends_segment && (log.broken || !log.writer.is_empty()) {
        // What is carried over is of this memtable and others.
        end_segment(env, log)?;
    }
    let change = hot_swap::prepare(env, log, family, swap)?;
    let changes_hot = change.is_some();
    // Before the flush thread can see it, and tell that its flush begins.
    let sealed = family.hold_state();
    if !sealed.memtable.is_empty() {
        env.base.events.tell(|| {
            Event::MemtableSealed(MemtableSealed {
                family: family.name.clone(),
                entry_count: sealed.memtable.entry_count() as u64,
                size_bytes: sealed.memtable.size_bytes() as u64,
            })
        });
    }
    drop(sealed);
    let upto = family.rotate(fresh, log.last_seqno, change, &env.read.table_cache);
    if changes_hot {
        add(&env.base.counters.hot_swaps, 1);
        kill_point("hot:swapped");
    }
    env.jobs.scheduler.wake();
    Ok(upto)
}

/// Makes every non-empty memtable of `families` immutable, with what is hot. Gives, per family, the id up
/// to which (inclusive) its memtables must be flushed for everything written before to be in SSTs.
pub(crate) fn rotate_all(env: &CommitEnv, families: &[Arc<Family>]) -> Result<Vec<u64>> {
    let lead = env.queue()?.lead();
    let mut log = lead.log();
    families.iter().map(|family| rotate_under_lead(env, &mut log, family)).collect()
}

/// As [`rotate_all`] for one family, for the leader once what is in the log is in the memtables.
pub(crate) fn rotate_under_lead(
    env: &CommitEnv,
    log: &mut LogState,
    family: &Family,
) -> Result<u64> {
    let state = family.hold_state();
    let waits = state.immutables.iter().map(|m| m.id).max().unwrap_or(0);
    let upto = state.memtable.id.max(waits);
    match !state.memtable.is_empty() || state.hot.is_some() {
        true => Ok(upto.max(rotate_with(env, log, family, 0, Swap::Dissolve)?)),
        false => Ok(upto),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_group_that_ends_during_a_look_at_the_room_is_counted() {
        let (room, in_flight) = (Cell::new(100_usize), Cell::new(60_usize));
        // The group ends after the first of the two was read.
        let look = |at: &Cell<usize>| {
            let seen = at.get();
            room.set(room.get() - in_flight.take());
            seen
        };
        assert!(!has_room(50, || look(&in_flight), || look(&room)));
        assert!(has_room(40, || look(&in_flight), || look(&room)));
    }

    #[test]
    fn of_many_families_none_is_flushed_with_a_few_entries_for_want_of_room() {
        let reserve = 400_000;
        let bounds = |most, most_flushed| Bounds { most, most_flushed, reserve };
        let is_over = |largest| bounds(1_000_000, 100_000).are_over(200_000, largest);
        assert!(!is_over(99_999) && is_over(100_000));
        // Memory is memory.
        assert!(bounds(199_999, usize::MAX).are_over(200_000, 1));
        assert!(!bounds(1_000_000, 100_000).are_over(100_000, 100_000));
        // The flush of all of them is to fit into the reserve.
        assert!(bounds(1_000_000, 100_000).are_over(200_001, 1));
        assert!(!bounds(1_000_000, 200_001).are_over(200_001, 1));
        assert!(
            !Bounds { most: 1_000_000, most_flushed: 100_000, reserve: 0 }.are_over(200_001, 1)
        );
    }

    #[test]
    fn a_hot_table_takes_of_a_memtables_memory_and_not_of_what_may_be_flushed() {
        assert_eq!(full_bytes(1000, 0, usize::MAX), 1000);
        assert_eq!(full_bytes(1000, 600, usize::MAX), 400);
        assert_eq!(full_bytes(1000, 900, usize::MAX), 250);
        assert_eq!(full_bytes(1000, 600, 300), 300);
        assert_eq!(full_bytes(1000, 900, 100), 100);
    }
}
