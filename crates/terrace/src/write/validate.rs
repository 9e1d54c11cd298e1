//! Whether keys that were read have changed since (commit of a transaction).
//!
//! A read set is checked twice. Its writer does it before it queues, up to what is visible then,
//! with whatever I/O that takes. What is committed after that, only the leader of the write group
//! can tell, and it finds it in the newest memtables, and in the batches that stand earlier in its
//! own group. So the leader reads an SST only if a memtable was flushed between the two checks.
//!
//! Nothing is a conflict because of a hash: keys are compared. Sequence numbers decide where to
//! look: once a memtable that is not empty has nothing newer, nothing below it has; an SST is asked
//! only if its newest entry is newer.

use crate::batch::WriteBatch;
use crate::error::{Error, Result};
use crate::memtable::MemTable;
use crate::metrics::add;
use crate::version::read_env::{ReadEnv, family_of};
use crate::version::read_state::ReadState;
use crate::write::changed_range;
use crate::write::queue::Pending;
use crate::write::read_set::{KeyRange, ReadSet, Reads, Watched};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use terrace_base::checksum::hash_key;
use terrace_base::key::{seek_trailer, trailer_seqno};
use terrace_base::{MAX_SEQNO, SeqNo, ValueKind};
use terrace_manifest::FileMeta;
use terrace_sst::Lookup;

/// Whether no key of `reads` has a newer version now.
pub(crate) fn is_unchanged(env: &ReadEnv, reads: &ReadSet) -> Result<bool> {
    env.base.health.check_open()?;
    Ok(check(env, reads)?.is_some())
}

/// Checks `reads` as far as it can be done before queueing; gives what the leader needs for the
/// rest.
pub(crate) fn ahead(env: &ReadEnv, reads: &ReadSet) -> Result<Reads> {
    check(env, reads)?.ok_or_else(|| conflict(env))
}

/// `None` if a key has changed.
fn check(env: &ReadEnv, reads: &ReadSet) -> Result<Option<Reads>> {
    if !reads.snapshot().is_of(&env.snapshots) {
        return Err(Error::InvalidArgument("the read set is of another store".into()));
    }
    // Before any read state is taken: each then has everything up to this number.
    let checked = env.visible_seqno();
    match any_changed(env, reads.watched(), |since| since)? {
        true => Ok(None),
        false => Ok(Some(Reads { watched: reads.watched().clone(), checked })),
    }
}

/// The batches of a group that must not be written, by ascending index, and why: a key of their
/// read set has changed, be it by a batch before them in the group that is written: not by one that is refused for
/// another reason, as `is_refused` says by its index. Called by the leader; costs one look at every batch if none has a read set.
pub(crate) fn refusals(
    env: &ReadEnv,
    group: &[Pending],
    is_refused: impl Fn(usize) -> bool,
) -> Vec<(usize, Error)> {
    let mut refused = Vec::new();
    let Some(last) = group.iter().rposition(|pending| pending.reads.is_some()) else {
        return refused;
    };
    let ranges_matter = group.iter().any(|pending| {
        let reads = pending.reads.as_ref();
        reads.is_some_and(|reads| reads.watched.iter().any(|w| !w.ranges.is_empty()))
    });
    let mut written = Written { in_order: ranges_matter.then(BTreeSet::new), ..Written::default() };
    for (index, pending) in group[..=last].iter().enumerate() {
        match pending.reads.as_ref().map(|reads| check_in_turn(env, reads, &written)) {
            Some(Err(error)) => refused.push((index, error)),
            _ if index < last && !is_refused(index) => written.add(&pending.batch),
            _ => {}
        }
    }
    refused
}

/// What is left to check when the lead has come.
fn check_in_turn(env: &ReadEnv, reads: &Reads, written: &Written<'_>) -> Result<()> {
    let by_group = |watched: &Watched| {
        let family = watched.family.id;
        watched.keys.keys().any(|key| written.contains(family, key))
            || watched.ranges.iter().any(|(range, _)| written.touches(family, range))
    };
    let has_changed = (!written.is_empty() && reads.watched.iter().any(by_group))
        || any_changed(env, &reads.watched, |_| reads.checked)?;
    if has_changed { Err(conflict(env)) } else { Ok(()) }
}

fn conflict(env: &ReadEnv) -> Error {
    add(&env.base.counters.conflicts, 1);
    Error::Conflict
}

/// Whether any key, or any key of a range, has a version above what `since` makes of its own sequence number.
fn any_changed(env: &ReadEnv, watched: &[Watched], since: impl Fn(SeqNo) -> SeqNo) -> Result<bool> {
    if watched.is_empty() {
        return Ok(false);
    }
    let visible = env.visible_seqno();
    let families = env.families.load();
    for Watched { family, keys, ranges } in watched {
        if family_of(&families, family.id).is_none_or(|open| !Arc::ptr_eq(open, family)) {
            // With a family go its keys.
            return match family.is_dropped() {
                true => Ok(true),
                false => Err(Error::InvalidArgument(format!(
                    "the read set has keys of the column family `{}` of another store",
                    family.name
                ))),
            };
        }
        let state = family.state();
        for (key, own) in keys {
            let since = since(*own);
            if since < visible && has_changed(env, &state, key, since)? {
                return Ok(true);
            }
        }
        for (range, own) in ranges {
            let since = since(*own);
            if since < visible && changed_range::has_changed(env, &state, range, since)? {
                return Ok(true);
            }
        }
        if family.is_dropped() {
            // Meanwhile, and then its state may have been empty.
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether `key` has a version newer than `since`, or a range tombstone newer than `since` covers
/// it. Asks for the newest of all, whatever is visible: a version at hand that came later may have
/// taken the place, in a flush, of one that was due.
fn has_changed(env: &ReadEnv, state: &ReadState, key: &[u8], since: SeqNo) -> Result<bool> {
    let in_memory = |memtable: &MemTable| Ok(has_newer(memtable, key, since));
    if let Some(known) = state.newer_in_memory(since, in_memory)? {
        return Ok(known);
    }
    for (number, level) in state.version.levels().iter().enumerate() {
        let candidates = match number {
            0 => 0..level.len(),
            _ => level.find(key).map_or(0..0, |index| index..index + 1),
        };
        for index in candidates {
            let file = &level.files()[index];
            if file.largest_seqno > since
                && file.contains(key)
                && has_newer_in_sst(env, state, (number, index), file, key, since)?
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn has_newer(memtable: &MemTable, key: &[u8], since: SeqNo) -> bool {
    let covering = || memtable.covering_seqno(key, MAX_SEQNO);
    let newest = || {
        let found = memtable.get(key, hash_key(key), seek_trailer(MAX_SEQNO));
        found.map(|(trailer, _)| trailer_seqno(trailer))
    };
    (memtable.has_range_tombstones() && covering() > Some(since))
        || (!memtable.has_no_entries() && newest() > Some(since))
}

fn has_newer_in_sst(
    env: &ReadEnv,
    state: &ReadState,
    (level, index): (usize, usize),
    file: &FileMeta,
    key: &[u8],
    since: SeqNo,
) -> Result<bool> {
    let guard = env.table_cache.enter(state.slots.at(level, index), file, false)?;
    let Some(reader) = guard.as_ref() else { return Ok(false) };
    if file.range_tombstone_count > 0
        && reader.range_tombstones().covering_seqno(key, MAX_SEQNO) > Some(since)
    {
        return Ok(true);
    }
    let newest = reader.get(&Lookup::new(key, MAX_SEQNO))?;
    Ok(newest.map(|entry| trailer_seqno(entry.trailer)) > Some(since))
}

/// What the batches of a group write that are known to be written.
#[derive(Default)]
struct Written<'a> {
    keys: HashSet<(u32, &'a [u8])>,
    /// The keys once more, if ranges of keys are asked for.
    in_order: Option<BTreeSet<(u32, &'a [u8])>>,
    /// The deleted ranges, joined where they meet: by family and start, the end.
    ranges: BTreeMap<(u32, &'a [u8]), &'a [u8]>,
}

impl<'a> Written<'a> {
    fn add(&mut self, batch: &'a WriteBatch) {
        // A batch of our own encoding: its ops are all sound.
        for op in batch.ops().flatten() {
            match op.kind {
                ValueKind::RangeDelete => self.add_range(op.family, op.key, op.value),
                _ => {
                    self.keys.insert((op.family, op.key));
                    if let Some(in_order) = &mut self.in_order {
                        in_order.insert((op.family, op.key));
                    }
                }
            }
        }
    }

    fn add_range(&mut self, family: u32, mut start: &'a [u8], mut end: &'a [u8]) {
        if start >= end {
            return;
        }
        if let Some((before, until)) = self.range_at(family, start).filter(|(_, e)| *e >= start) {
            (start, end) = (before, end.max(until));
        }
        while let Some((&(of, next), &until)) = self.ranges.range((family, start)..).next()
            && of == family
            && next <= end
        {
            end = end.max(until);
            self.ranges.remove(&(of, next));
        }
        self.ranges.insert((family, start), end);
    }

    /// The last deleted range that begins at or before `key`.
    fn range_at<'k>(&self, family: u32, key: &'k [u8]) -> Option<(&'k [u8], &'a [u8])>
    where
        'a: 'k,
    {
        let ((of, start), end) = self.ranges.range(..=(family, key)).next_back()?;
        (*of == family).then_some((*start, *end))
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    fn contains(&self, family: u32, key: &[u8]) -> bool {
        self.keys.contains(&(family, key))
            || self.range_at(family, key).is_some_and(|(_, end)| key < end)
    }

    /// Costs three searches in what the group writes.
    fn touches(&self, family: u32, range: &KeyRange) -> bool {
        let from = (family, &*range.start);
        let in_order = self.in_order.as_ref();
        let key = in_order.and_then(|keys| keys.range(from..).next());
        let next = self.ranges.range(from..).next().map(|(at, _)| at);
        key.is_some_and(|(of, key)| *of == family && range.contains(key))
            || next.is_some_and(|(of, start)| *of == family && range.contains(start))
            || self.range_at(family, &range.start).is_some_and(|(_, end)| *range.start < *end)
    }
}

#[cfg(test)]
mod tests;
