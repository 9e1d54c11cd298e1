//! A fresh hot table in the place of one that is full, or with other keys (put).
//!
//! Done by the commit's leader while nothing is being inserted. What a fresh table does not take over
//! goes into a memtable of its own that waits for its flush beside the one that was just rotated:
//! a key that has cooled, or that a range tombstone covers.

use crate::error::Result;
use crate::memtable::MemTable;
use crate::version::family::Family;
use crate::version::hot_keys::{HotPlan, entry_bytes};
use crate::version::hot_table::{HotTable, LogPlace, live_limit_bytes};
use crate::version::read_state::{HotChange, ReadState};
use crate::write::env::CommitEnv;
use crate::write::log_segments::end_segment;
use crate::write::queue::{LogState, Pending};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::checksum::hash_key;
use terrace_base::key::{seek_trailer, trailer_kind, trailer_seqno};
use terrace_base::{MAX_SEQNO, SeqNo, ValueKind};
use terrace_log::format::HEADER_BYTES;
use terrace_skiplist::{Hint, Skiplist};

/// What becomes of the hot table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swap {
    /// What is planned, with a rotation of the mutable memtable.
    AtRotation,
    /// The same keys, in a table that has room for `needed_bytes`.
    Refresh { needed_bytes: usize },
    /// No key is hot any more: everything goes to memtables. With a rotation.
    Dissolve,
}

/// An entry on its way into another memtable: key, trailer, stored value.
type EntryCopy<'a> = (Box<[u8]>, u64, &'a [u8]);

/// Entries of memtables on their way into another one, with the room that they need there.
#[derive(Default)]
struct Copies<'a> {
    /// Key by key; the versions of a key oldest first.
    entries: Vec<EntryCopy<'a>>,
    room_bytes: usize,
}

impl<'a> Copies<'a> {
    fn push(&mut self, key: &[u8], trailer: u64, value: &'a [u8]) {
        self.room_bytes += Skiplist::entry_upper_bound(key.len(), value.len());
        self.entries.push((key.into(), trailer, value));
    }

    fn insert_into(&self, table: &MemTable) -> io::Result<()> {
        let mut hint = Hint::default();
        for (key, trailer, value) in &self.entries {
            let (seqno, kind) = (trailer_seqno(*trailer), trailer_kind(*trailer));
            let kind = kind.unwrap_or(ValueKind::Delete);
            let inserted = table.insert(key, seqno, kind, value, &mut hint);
            inserted.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            table.note_seqno(seqno);
        }
        Ok(())
    }
}

/// Whether the group writes a separated value to a hot key. Such keys leave the hot table: it would
/// refer to values that garbage collection moves.
pub(crate) fn is_separated(family: &Family, group: &[Pending]) -> bool {
    let state = family.state();
    let Some(hot) = &state.hot else { return false };
    group.iter().filter(|pending| pending.batch.separated().0 > 0).any(|pending| {
        let ops = pending.batch.ops().flatten();
        let of_hot = |key: &[u8]| hot.contains(key, hash_key(key));
        ops.filter(|op| op.family == family.id && op.separated.is_some()).any(|op| of_hot(op.key))
    })
}

/// Makes what `swap` says of the hot table of `family` ready; the caller makes it visible together with
/// the rotation, if there is one. Changes nothing that others see but the log, which may get a new
/// segment. `None`: nothing changes.
pub(crate) fn prepare(
    env: &CommitEnv,
    log: &mut LogState,
    family: &Family,
    swap: Swap,
) -> Result<Option<HotChange>> {
    let state = family.hold_state();
    let memtable_bytes = env.base.dynamic.memtable_bytes();
    let log_bytes = env.base.counters.log_bytes.load(Ordering::Relaxed);
    let due =
        state.hot.as_ref().is_some_and(|hot| hot.is_checkpoint_due_at(log_bytes, memtable_bytes));
    let plan = match swap {
        Swap::AtRotation => family.hot_keys.lock().take_plan(),
        Swap::Refresh { .. } | Swap::Dissolve => None,
    };
    match (&state.hot, swap) {
        (None, Swap::AtRotation) if plan.is_none() => return Ok(None),
        (None, Swap::Refresh { .. } | Swap::Dissolve) => return Ok(None),
        // Range tombstones leave it with the memtable that has them too: what that memtable holds of
        // other keys loses its sequence numbers on its way down, and would be covered by them.
        (Some(hot), Swap::AtRotation)
            if plan.is_none() && !due && !hot.is_full() && !hot.table.has_range_tombstones() =>
        {
            return Ok(None);
        }
        _ => {}
    }
    if due && log.writer.len_bytes() > HEADER_BYTES {
        // What a checkpoint makes durable is to lie in full segments, or to be durable.
        end_segment(env, log)?;
    }
    let base = LogPlace { seqno: log.last_seqno, segment: log.writer.segment(), log_bytes };
    let change = sort_out(env, family, &state, plan.unwrap_or_default(), swap, (base, due));
    let no_memory = |e| terrace_base::Error::io("reserve memory for", &env.base.dir, e);
    Ok(Some(change.map_err(no_memory)?))
}

/// Copies what stays hot, what becomes hot, and what cools.
fn sort_out(
    env: &CommitEnv,
    family: &Family,
    state: &ReadState,
    plan: HotPlan,
    swap: Swap,
    (base, is_checkpoint_due): (LogPlace, bool),
) -> io::Result<HotChange> {
    let memtable_bytes = env.read.hot_memtable_bytes(family);
    let snapshots = env.read.snapshots.list();
    let cool: HashSet<u64> = plan.cool.iter().copied().collect();
    let (mut stays, mut cools) = (Copies::default(), Copies::default());
    if let Some(hot) = &state.hot {
        // While a snapshot holds many versions, or the budget has shrunk, less stays hot.
        let limit = 2 * live_limit_bytes(memtable_bytes);
        let mut keys = family.hot_keys.lock();
        let counted_to = keys.counted_to().max(hot.base.seqno);
        hot.table.for_each_key(|key, trailers| {
            let (hash, newest) = (hash_key(key), trailers.first().copied().unwrap_or_default());
            let written = trailers.iter().filter(|t| trailer_seqno(**t) > counted_to).count();
            let value_of = |trailer| hot.table.get(key, hash, trailer).map_or(&[][..], |(_, v)| v);
            keys.note(hash, key, written as u32, entry_bytes(key, value_of(newest)));
            let visible = visible_versions(trailers, &snapshots);
            let oldest = visible.last().map(|trailer| trailer_seqno(*trailer));
            let cools_now = match swap {
                Swap::Dissolve => true,
                Swap::AtRotation => {
                    // The fresh table begins without range tombstones.
                    hot.table.covering_seqno(key, MAX_SEQNO) > oldest
                        || cool.contains(&hash)
                        || stays.room_bytes > limit
                }
                // Nothing can cool without a rotation.
                Swap::Refresh { .. } => false,
            };
            let into = if cools_now { &mut cools } else { &mut stays };
            for trailer in visible.into_iter().rev() {
                into.push(key, trailer, value_of(trailer));
            }
        });
        keys.set_counted_to(base.seqno);
    }
    admit(state, &plan, &mut stays);
    let change = finish(env, family, state, (&stays, &cools), swap, (base, is_checkpoint_due))?;
    let hot: HashSet<u64> = stays.entries.iter().map(|(key, _, _)| hash_key(key)).collect();
    family.hot_keys.lock().swapped(|hash| hot.contains(&hash));
    Ok(change)
}

/// The memtables of what stays and what cools.
fn finish(
    env: &CommitEnv,
    family: &Family,
    state: &ReadState,
    (stays, cools): (&Copies<'_>, &Copies<'_>),
    swap: Swap,
    (base, is_checkpoint_due): (LogPlace, bool),
) -> io::Result<HotChange> {
    let memtable_bytes = env.base.dynamic.memtable_bytes();
    let mut change = HotChange { hot: None, cooled: None };
    if !cools.entries.is_empty() {
        let cooled = MemTable::cooled(family.take_memtable_id(), cools.room_bytes)?;
        cools.insert_into(&cooled)?;
        copy_range_tombstones(state, &cooled)?;
        let since = state.hot.as_ref().map_or(base, |hot| hot.log.since());
        // As of now, so that it comes before all that is in L0.
        cooled.note_commit(since.segment, base.seqno);
        change.cooled = Some(Arc::new(cooled));
    }
    if !stays.entries.is_empty() {
        let needed = match swap {
            Swap::Refresh { needed_bytes } => needed_bytes,
            Swap::AtRotation | Swap::Dissolve => 0,
        };
        let table = MemTable::with_capacity(0, stays.room_bytes + memtable_bytes + needed)?;
        stays.insert_into(&table)?;
        if matches!(swap, Swap::Refresh { .. }) {
            copy_range_tombstones(state, &table)?;
        }
        let (before, measure) = (state.hot.as_deref(), env.read.hot_memtable_bytes(family));
        let hot = HotTable::new(table, base, before, is_checkpoint_due, measure);
        change.hot = Some(Arc::new(hot));
    }
    Ok(change)
}

/// Gives `table` the range tombstones of the hot table, which cover some of what it was given.
fn copy_range_tombstones(state: &ReadState, table: &MemTable) -> io::Result<()> {
    let Some(hot) = &state.hot else { return Ok(()) };
    for tombstone in hot.table.range_tombstones() {
        let (start, end, seqno) = (tombstone.start, tombstone.end, tombstone.seqno);
        let added = table.insert(start, seqno, ValueKind::RangeDelete, end, &mut Hint::default());
        added.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        table.note_seqno(seqno);
    }
    Ok(())
}

/// The newest of a key's versions (newest first), and of the others those that a snapshot sees.
fn visible_versions(trailers: &[u64], snapshots: &[SeqNo]) -> Vec<u64> {
    let mut visible = Vec::with_capacity(1);
    let mut newer = None;
    for trailer in trailers {
        let seqno = trailer_seqno(*trailer);
        let first_that_sees = snapshots.partition_point(|snapshot| *snapshot < seqno);
        let sees = |newer: SeqNo| snapshots.get(first_that_sees).is_some_and(|s| *s < newer);
        if newer.is_none_or(sees) {
            visible.push(*trailer);
        }
        newer = Some(seqno);
    }
    visible
}

/// Adds the newest versions of the keys that become hot, as far as memtables have them.
fn admit<'a>(state: &'a ReadState, plan: &'a HotPlan, stays: &mut Copies<'a>) {
    let mut fresh: Vec<_> = plan
        .admit
        .iter()
        .filter(|key| state.hot.as_ref().is_none_or(|hot| !hot.contains(key, hash_key(key))))
        .filter_map(|key| newest_in_memory(state, key))
        .collect();
    fresh.sort_unstable();
    fresh.into_iter().for_each(|(key, trailer, value)| stays.push(key, trailer, value));
}

/// The newest version of `key`, if memtables have it, it is no handle, and no range tombstone covers it.
fn newest_in_memory<'a>(state: &'a ReadState, key: &'a [u8]) -> Option<(&'a [u8], u64, &'a [u8])> {
    let mut covered = SeqNo::ZERO;
    for memtable in std::iter::once(&state.memtable).chain(&state.immutables) {
        if memtable.has_range_tombstones() {
            covered = covered.max(memtable.covering_seqno(key, MAX_SEQNO).unwrap_or_default());
        }
        if let Some((trailer, value)) = memtable.get(key, hash_key(key), seek_trailer(MAX_SEQNO)) {
            let is_plain = trailer_kind(trailer).is_some_and(|kind| !kind.is_handle());
            return (is_plain && trailer_seqno(trailer) > covered).then_some((key, trailer, value));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::key::pack_trailer;

    #[test]
    fn the_newest_version_and_what_snapshots_see_stay() {
        let versions = [9, 7, 5, 2].map(|seqno| pack_trailer(SeqNo::new(seqno), ValueKind::Put));
        let seen = |snapshots: &[u64]| -> Vec<u64> {
            let snapshots: Vec<SeqNo> = snapshots.iter().copied().map(SeqNo::new).collect();
            let seen = visible_versions(&versions, &snapshots).into_iter();
            seen.map(|trailer| trailer_seqno(trailer).get()).collect()
        };
        assert_eq!(seen(&[]), [9]);
        assert_eq!(seen(&[9]), [9]);
        assert_eq!(seen(&[8]), [9, 7]);
        assert_eq!(seen(&[1, 3, 4, 6]), [9, 5, 2]);
        assert_eq!(seen(&[2, 5, 7, 20]), [9, 7, 5, 2]);
    }
}
