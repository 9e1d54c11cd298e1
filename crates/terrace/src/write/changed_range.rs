//! Whether anything was written into a range of keys that was read (commit of a transaction).
//!
//! What is newer than the read is looked for where it can be: memtables and SSTs that have nothing newer are left
//! out by their newest sequence number. The others are walked within the range, so the cost is
//! the number of their entries in it. Range tombstones count if they overlap the range.

use crate::error::Result;
use crate::memtable::MemTable;
use crate::version::read_env::ReadEnv;
use crate::version::read_state::ReadState;
use crate::write::read_set::KeyRange;
use std::ops::Bound;
use terrace_base::key::{seek_trailer, trailer_seqno};
use terrace_base::{InternalIter, MAX_SEQNO, SeqNo};
use terrace_manifest::FileMeta;
use terrace_sst::ScanOptions;

/// Whether a key of `range` has a version newer than `since`, or a range tombstone newer than `since` overlaps it.
pub(super) fn has_changed(
    env: &ReadEnv,
    state: &ReadState,
    range: &KeyRange,
    since: SeqNo,
) -> Result<bool> {
    if let Some(known) =
        state.newer_in_memory(since, |memtable| in_memtable(memtable, range, since))?
    {
        return Ok(known);
    }
    let (start, end) = (&*range.start, range.end.as_deref());
    let bounds = (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded));
    for (number, level) in state.version.levels().iter().enumerate() {
        for index in level.overlapping_range(bounds.0, bounds.1) {
            let file = &level.files()[index];
            if file.largest_seqno > since
                && file.overlaps(bounds.0, bounds.1)
                && in_sst(env, state, (number, index), file, range, since)?
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn in_memtable(memtable: &MemTable, range: &KeyRange, since: SeqNo) -> Result<bool> {
    if memtable.max_seqno() <= since {
        return Ok(false);
    }
    let mut tombstones = memtable.range_tombstones_since(since);
    if tombstones.any(|t| range.overlaps(t.start, t.end)) {
        return Ok(true);
    }
    match memtable.has_no_entries() {
        true => Ok(false),
        false => any_newer(&mut memtable.iter(), range, since),
    }
}

fn in_sst(
    env: &ReadEnv,
    state: &ReadState,
    (level, index): (usize, usize),
    file: &FileMeta,
    range: &KeyRange,
    since: SeqNo,
) -> Result<bool> {
    let guard = env.table_cache.enter(state.slots.at(level, index), file, false)?;
    let Some(reader) = guard.as_ref() else { return Ok(false) };
    if file.range_tombstone_count > 0 {
        let tombstones = reader.range_tombstones();
        let mut within = tombstones.fragments_in(Some(&range.start), range.end.as_deref());
        if within.any(|fragment| fragment.seqnos.iter().any(|seqno| *seqno > since)) {
            return Ok(true);
        }
    }
    any_newer(&mut reader.iter(ScanOptions::default()), range, since)
}

/// Whether any version of a key in `range` is newer than `since`.
fn any_newer(iter: &mut impl InternalIter, range: &KeyRange, since: SeqNo) -> Result<bool> {
    iter.seek(&range.start, seek_trailer(MAX_SEQNO))?;
    while iter.valid() && range.contains(iter.user_key()) {
        if trailer_seqno(iter.trailer()) > since {
            return Ok(true);
        }
        iter.next()?;
    }
    Ok(false)
}
