//! How many keys and bytes a range holds, without reading it.
//!
//! Every file counts with the part of it that lies in the range: all of it if its bounds do, else by
//! the place of the range's ends among its data blocks, exact to a block. Memtables are walked, up
//! to a bound; beyond it the keys of a sample say how many of them are there. What a newer range tombstone covers is left
//! out: of a memtable key by key, of a file if the tombstone is newer than all of it. A point tombstone takes back one
//! version besides itself.
//!
//! So a key is counted once for each file, and for the memtables, in which it has a version: too much by as many keys as were
//! overwritten and have not been merged yet, and by those that were inserted and deleted within one file's time.

use crate::error::{Error, Result};
use crate::memtable::MemTable;
use crate::version::family::Family;
use crate::version::read_env::ReadEnv;
use std::ops::Bound;
use terrace_base::checksum::hash_key;
use terrace_base::key::{seek_trailer, trailer_kind, trailer_seqno};
use terrace_base::{InternalIter, MAX_SEQNO, SeqNo, ValueKind};
use terrace_manifest::FileMeta;

/// Entries of a memtable that are walked at most from one place.
const MAX_WALKED: u64 = 1 << 14;

/// About what a range holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// Keys.
    pub keys: u64,
    /// Bytes on the device and in memtables: of SSTs, as compressed, of separated values, and of
    /// memtables.
    pub bytes: u64,
}

/// Range tombstones of one source that are looked at.
const MAX_SPANS: usize = 64;

/// Sums over memtables and files.
#[derive(Default)]
struct Sums {
    entries: f64,
    tombstones: f64,
    bytes: f64,
}

/// A range that a range tombstone covers.
struct Span {
    start: Vec<u8>,
    end: Vec<u8>,
    seqno: SeqNo,
}

/// About what `family` holds from `start` on and below `end`. Opens files that an end of the
/// range cuts, two of a level below L0 at most, and reads an index partition of each; and those with range tombstones.
pub(crate) fn of(
    env: &ReadEnv,
    family: &Family,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<Estimate> {
    env.base.health.check_open()?;
    family.check_exists()?;
    if let (Some(start), Some(end)) = (start, end)
        && start >= end
    {
        return Ok(Estimate::default());
    }
    let state = family.hold_state();
    let memtables: Vec<&MemTable> = state.memtables().map(|memtable| &**memtable).collect();
    let mut sums = Sums::default();
    let mut covers: Vec<Vec<Span>> = Vec::new();
    for memtable in &memtables {
        let part = part_of_memtable(memtable, &memtables, start, end)?;
        sums.entries += part.keys;
        sums.tombstones += part.tombstones;
        sums.bytes +=
            part.entries * (memtable.size_bytes() as u64 + memtable.separated_bytes()) as f64;
        covers.push(spans_of_memtable(memtable, start, end));
    }
    // A tombstone of a memtable hides a version of a file, and is no entry here.
    let mut keys = sums.entries - sums.tombstones;
    let lower = start.map_or(Bound::Unbounded, Bound::Included);
    let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
    let of_files = state.version.levels().iter().flat_map(|level| {
        level.overlapping(lower, upper).iter().filter(|f| f.overlaps(lower, upper))
    });
    let files: Vec<_> = of_files.collect();
    for file in files.iter().filter(|file| file.range_tombstone_count > 0) {
        let reader = env.table_cache.reader(file)?;
        let fragments = reader.range_tombstones().fragments_in(start, end).take(MAX_SPANS);
        let spans = fragments.map(|fragment| Span {
            start: fragment.start.to_vec(),
            end: fragment.end.to_vec(),
            seqno: fragment.seqnos.first().copied().unwrap_or_default(),
        });
        covers.push(spans.collect());
    }
    for file in files {
        let part = part_of_file(env, file, start, end)?;
        let values: u64 = file.value_refs.iter().map(|reference| reference.bytes).sum();
        sums.bytes += part * (file.size_bytes + values) as f64;
        let live = (part - covered_part(env, file, &covers)?).max(0.0);
        keys += live * (file.entry_count as f64 - 2.0 * file.tombstone_count as f64);
    }
    Ok(Estimate { keys: keys.max(0.0).round() as u64, bytes: sums.bytes.round() as u64 })
}

/// The part of a file that range tombstones cover which are newer than all of it: those of the source that covers most.
fn covered_part(env: &ReadEnv, file: &FileMeta, covers: &[Vec<Span>]) -> Result<f64> {
    let mut most: f64 = 0.0;
    for spans in covers {
        let mut part = 0.0;
        for span in spans.iter().filter(|span| span.seqno > file.largest_seqno) {
            let bounds = (Bound::Included(&span.start[..]), Bound::Excluded(&span.end[..]));
            if file.overlaps(bounds.0, bounds.1) {
                part += part_of_file(env, file, Some(&span.start), Some(&span.end))?;
            }
        }
        most = most.max(part);
    }
    Ok(most)
}

/// What the range tombstones of a memtable cover in the range.
fn spans_of_memtable(memtable: &MemTable, start: Option<&[u8]>, end: Option<&[u8]>) -> Vec<Span> {
    let mut spans = Vec::new();
    if !memtable.has_range_tombstones() {
        return spans;
    }
    let mut at = start.unwrap_or_default().to_vec();
    for _ in 0..MAX_SPANS {
        let span = memtable.cover_span(&at, MAX_SEQNO);
        let to = match (span.end, end) {
            (Some(to), Some(end)) => to.min(end).to_vec(),
            (Some(to), None) | (None, Some(to)) => to.to_vec(),
            // Nothing covers all keys there can be.
            (None, None) => break,
        };
        if to <= at {
            break;
        }
        let next = to.clone();
        if span.seqno > SeqNo::default() {
            spans.push(Span { start: at, end: to, seqno: span.seqno });
        }
        if end.is_some_and(|end| &next[..] >= end) {
            break;
        }
        at = next;
    }
    spans
}

/// The part of a file's data that lies in the range.
fn part_of_file(
    env: &ReadEnv,
    file: &FileMeta,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<f64> {
    let cut_below = start.filter(|start| file.smallest.as_slice() < *start);
    let cut_above = end.filter(|end| file.largest.as_slice() >= *end);
    if cut_below.is_none() && cut_above.is_none() {
        return Ok(1.0);
    }
    let reader = env.table_cache.reader(file)?;
    let properties = reader.properties();
    let whole = properties.data_bytes;
    // A key lies somewhere in its block: in the middle, for all that is known.
    let half_a_block = whole / (2 * properties.data_block_count).max(1);
    let place = |key: &[u8]| Ok::<_, Error>(reader.offset_of(key)? + half_a_block);
    let from = cut_below.map_or(Ok(0), place)?;
    let to = cut_above.map_or(Ok(whole), place)?.min(whole);
    Ok(to.saturating_sub(from) as f64 / whole.max(1) as f64)
}

/// What a range holds of a memtable.
struct MemtablePart {
    /// The part of all its entries.
    entries: f64,
    /// Keys that are there.
    keys: f64,
    /// Keys that are deleted, and have no older version in it.
    tombstones: f64,
}

/// What lies of a memtable in the range: exact if it is no more than [`MAX_WALKED`] entries, else its keys within some
/// hundredths. `all` are the memtables, whose range tombstones cover keys of each other.
fn part_of_memtable(
    memtable: &MemTable,
    all: &[&MemTable],
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<MemtablePart> {
    let count = memtable.entry_count() as f64;
    if count == 0.0 {
        return Ok(MemtablePart { entries: 0.0, keys: 0.0, tombstones: 0.0 });
    }
    if let Some(walked) = walk(memtable, all, start, end)? {
        let entries = (walked.entries as f64 / count).min(1.0);
        let (keys, tombstones) = (walked.keys as f64, walked.tombstones as f64);
        return Ok(MemtablePart { entries, keys, tombstones });
    }
    let outside = |from: Option<&[u8]>, to: Option<&[u8]>| {
        Ok::<_, Error>(walk(memtable, &[], from, to)?.map(|walked| walked.entries))
    };
    let below = start.map_or(Ok(Some(0)), |start| outside(None, Some(start)))?;
    let above = end.map_or(Ok(Some(0)), |end| outside(Some(end), None))?;
    let entries = match (below, above) {
        (Some(below), Some(above)) => 1.0 - ((below + above) as f64 / count).min(1.0),
        // More than it is worth counting on both sides of an end.
        _ => {
            let from = start.map_or(0.0, |start| memtable.part_below(start));
            let to = end.map_or(1.0, |end| memtable.part_below(end));
            (to - from).max(0.0)
        }
    };
    let (mut sampled, mut keys, mut tombstones) = (0_u32, 0_u32, 0_u32);
    memtable.for_each_sampled(|key| {
        if start.is_some_and(|start| key < start) || end.is_some_and(|end| key >= end) {
            return;
        }
        sampled += 1;
        let newest = memtable.get(key, hash_key(key), seek_trailer(MAX_SEQNO));
        let Some((trailer, _)) = newest else { return };
        match state_of(all, key, trailer) {
            KeyState::There => keys += 1,
            KeyState::Deleted => {
                // What was written and deleted here hides nothing that is older than the memtable.
                let before = seek_trailer(trailer_seqno(trailer).previous());
                let is_older = memtable.get(key, hash_key(key), before).is_some();
                tombstones += u32::from(!is_older);
            }
            KeyState::Covered => {}
        }
    });
    let scale = entries * memtable.keys() as f64 / f64::from(sampled.max(1));
    let (keys, tombstones) = (f64::from(keys) * scale, f64::from(tombstones) * scale);
    Ok(MemtablePart { entries, keys, tombstones })
}

/// What the newest version of a key in a memtable says.
#[derive(PartialEq)]
enum KeyState {
    There,
    Deleted,
    /// A range tombstone covers it.
    Covered,
}

fn state_of(memtables: &[&MemTable], key: &[u8], trailer: u64) -> KeyState {
    let covers = |memtable: &&MemTable| {
        memtable.has_range_tombstones()
            && memtable.covering_seqno(key, MAX_SEQNO) > Some(trailer_seqno(trailer))
    };
    if memtables.iter().any(covers) {
        return KeyState::Covered;
    }
    match trailer_kind(trailer) {
        Some(ValueKind::Delete) => KeyState::Deleted,
        _ => KeyState::There,
    }
}

/// What was met in a memtable.
#[derive(Default)]
struct Walked {
    entries: u64,
    keys: u64,
    tombstones: u64,
}

/// Entries from `from` on and below `to`; `None` if they are too many to walk.
fn walk(
    memtable: &MemTable,
    all: &[&MemTable],
    from: Option<&[u8]>,
    to: Option<&[u8]>,
) -> Result<Option<Walked>> {
    let mut iter = memtable.iter();
    match from {
        Some(from) => iter.seek(from, seek_trailer(MAX_SEQNO))?,
        None => iter.seek_to_first()?,
    }
    let mut walked = Walked::default();
    let mut last: Vec<u8> = Vec::new();
    // The key at hand is deleted, so far by its only version.
    let mut is_only_deleted = false;
    while iter.valid() && to.is_none_or(|to| iter.user_key() < to) {
        let is_first = walked.entries == 0 || iter.user_key() != &last[..];
        walked.entries += 1;
        if walked.entries > MAX_WALKED {
            return Ok(None);
        }
        if is_first {
            let state = state_of(all, iter.user_key(), iter.trailer());
            walked.keys += u64::from(state == KeyState::There);
            is_only_deleted = state == KeyState::Deleted;
            walked.tombstones += u64::from(is_only_deleted);
            last.clear();
            last.extend_from_slice(iter.user_key());
        } else if std::mem::take(&mut is_only_deleted) {
            // It was inserted and deleted here: nothing of it needs to be in a file.
            walked.tombstones -= 1;
        }
        iter.next()?;
    }
    Ok(Some(walked))
}
