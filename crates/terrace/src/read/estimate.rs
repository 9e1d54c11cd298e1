//! How many keys and bytes a range holds, without reading it.
//!
//! Every file counts with the part of it that lies in the range: all of it if its bounds do, else by
//! the place of the range's ends among its data blocks, exact to a block. Memtables are walked, up
//! to a bound. Every version counts, also one that a newer version hides; point
//! tombstones take back one version each besides themselves. So a store that is all in one level
//! is counted well, and one with many overwrites in several levels is overestimated.

use crate::error::{Error, Result};
use crate::memtable::MemTable;
use crate::version::family::Family;
use crate::version::read_env::ReadEnv;
use std::ops::Bound;
use terrace_base::InternalIter;
use terrace_base::MAX_SEQNO;
use terrace_base::key::seek_trailer;
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

/// Sums over memtables and files.
#[derive(Default)]
struct Sums {
    entries: f64,
    tombstones: f64,
    bytes: f64,
}

/// About what `family` holds from `start` on and below `end`. Opens files that an end of the
/// range cuts, two of a level below L0 at most, and reads an index partition of each.
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
    let mut sums = Sums::default();
    for memtable in state.memtables() {
        let part = part_of_memtable(memtable, start, end)?;
        sums.entries += part * memtable.entry_count() as f64;
        sums.bytes += part * (memtable.size_bytes() as u64 + memtable.separated_bytes()) as f64;
    }
    let lower = start.map_or(Bound::Unbounded, Bound::Included);
    let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
    for level in state.version.levels() {
        for file in level.overlapping(lower, upper).iter().filter(|f| f.overlaps(lower, upper)) {
            let part = part_of_file(env, file, start, end)?;
            let values: u64 = file.value_refs.iter().map(|reference| reference.bytes).sum();
            sums.entries += part * file.entry_count as f64;
            sums.tombstones += part * file.tombstone_count as f64;
            sums.bytes += part * (file.size_bytes + values) as f64;
        }
    }
    let keys = (sums.entries - 2.0 * sums.tombstones).max(0.0);
    Ok(Estimate { keys: keys.round() as u64, bytes: sums.bytes.round() as u64 })
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

/// The part of a memtable's entries that lies in the range: exact if it, or what is outside, is
/// less than [`MAX_WALKED`] entries on either side, else within some hundredths.
fn part_of_memtable(memtable: &MemTable, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<f64> {
    let count = memtable.entry_count() as u64;
    if count == 0 || (start.is_none() && end.is_none()) {
        return Ok(1.0);
    }
    let count_to = |from: Option<&[u8]>, to: Option<&[u8]>| walk(memtable, from, to);
    if let Some(inside) = count_to(start, end)? {
        return Ok((inside as f64 / count as f64).min(1.0));
    }
    let below = start.map_or(Ok(Some(0)), |start| count_to(None, Some(start)))?;
    let above = end.map_or(Ok(Some(0)), |end| count_to(Some(end), None))?;
    Ok(match (below, above) {
        (Some(below), Some(above)) => 1.0 - ((below + above) as f64 / count as f64).min(1.0),
        // More than it is worth counting on both sides of an end.
        _ => {
            let from = start.map_or(0.0, |start| memtable.part_below(start));
            let to = end.map_or(1.0, |end| memtable.part_below(end));
            (to - from).max(0.0)
        }
    })
}

/// Entries from `from` on and below `to`; `None` if they are too many to walk.
fn walk(memtable: &MemTable, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<Option<u64>> {
    let mut iter = memtable.iter();
    match from {
        Some(from) => iter.seek(from, seek_trailer(MAX_SEQNO))?,
        None => iter.seek_to_first()?,
    }
    let mut count = 0;
    while iter.valid() && to.is_none_or(|to| iter.user_key() < to) {
        count += 1;
        if count > MAX_WALKED {
            return Ok(None);
        }
        iter.next()?;
    }
    Ok(Some(count))
}
