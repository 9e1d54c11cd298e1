//! Merges of one file with what lies above it and stays where it is. A file of a tiered family that lies in a deleted range
//! goes that way ([`pick_covered`]).
//!
//! On a full disk: one file is rewritten in place, in either style, without what deletions in files above it hide
//! (`hiding`); those stay where they are. Room is needed for what is left of that one file, where a merge of the deletions
//! with all that they meet may find none. What leaves least comes first: what it gives back is room for the next.
//!
//! It comes to an end: of a file that was rewritten it is known up to which sequence number deletions have been applied to
//! it, until the disk is not full any more. Whether a merge finds room shows when it does; those that did not are left out
//! until something else has changed ([`Rewrites`]).

use super::above::Above;
use super::pick::{
    Choice, Compaction, File, LAST_LEVEL, PickInput, Reason, Span, deletes_ranges, is_dense,
    is_one_range, mostly_deletes_keys, mostly_deletes_ranges,
};
use crate::jobs::scheduler::Rewrites;
use std::collections::BTreeMap;
use terrace_base::{FileNumber, SeqNo};
use terrace_manifest::{FileMeta, LEVEL_COUNT};

/// A file deletes something if more than one in this many of its entries does; and a file is rewritten from one in this
/// many on that is deleted.
const DENSE_PART: u64 = 8;

/// A file with deletions above it.
struct Covered<'a> {
    level: usize,
    file: &'a File,
    above: Vec<(u8, Vec<File>)>,
    /// Which part of it is deleted and has not been applied to it, about.
    part: f64,
    /// Whether it lies wholly in one deleted range, so that nothing is left of it for certain.
    goes: bool,
}

/// What leaves least of those that are worth it.
pub(super) fn pick(input: &PickInput<'_>, past: &Rewrites) -> Choice {
    let mut covered: BTreeMap<FileNumber, Covered<'_>> = BTreeMap::new();
    let mut skipped = Vec::new();
    for level in 0..LEVEL_COUNT {
        for (at, file) in input.files(level).iter().enumerate() {
            if !deletes(file) || !input.is_seen_by_all(file) {
                continue;
            }
            match input.is_busy(file) {
                true => skipped.push(file.number),
                false => cover(input, past, (level, at), &mut covered),
            }
        }
    }
    let is_worth_it = |found: &Covered<'_>| {
        found.part * DENSE_PART as f64 >= 1.0
            && !mostly_deletes_keys(found.file)
            && !mostly_deletes_ranges(found.file)
            && !input.is_busy(found.file)
            && !past.is_in_vain(found.file.number)
    };
    let mut found: Vec<Covered<'_>> = covered.into_values().filter(is_worth_it).collect();
    found.sort_by_key(|found| (found.left_bytes(), !found.goes, found.file.number));
    let rewrite = found.into_iter().find_map(|found| found.rewrite(input, &skipped));
    rewrite.unwrap_or(Choice::Nothing)
}

/// A file all keys of which lie in one range that a newer file deletes: it goes, and nothing is written. How much several
/// ranges of a file cover, its bounds do not say.
pub(super) fn pick_covered(input: &PickInput<'_>) -> Option<Choice> {
    for level in 0..LEVEL_COUNT {
        for (at, range) in input.files(level).iter().enumerate() {
            if !is_one_range(range) || !input.is_seen_by_all(range) || input.is_busy(range) {
                continue;
            }
            let below = files_below(input, (level, at)).into_iter();
            let below = below.flat_map(|(below, met)| met.into_iter().map(move |f| (below, f)));
            for (below, file) in below {
                let goes = contains(range, file) && is_newer(range, file);
                if !goes || deletes_ranges(file) || input.is_busy(file) {
                    continue;
                }
                let above = vec![(level as u8, vec![range.clone()])];
                let covered = Covered { level: below, file, above, part: 1.0, goes: true };
                if let Some(choice) = covered.rewrite(input, &[]) {
                    return Some(choice);
                }
            }
        }
    }
    None
}

/// Whether all keys of `file` lie in the one range that `range` is.
fn contains(range: &FileMeta, file: &FileMeta) -> bool {
    let ends_inside = match file.largest_exclusive {
        true => file.largest <= range.largest,
        false => file.largest < range.largest,
    };
    range.largest_exclusive && range.smallest <= file.smallest && ends_inside
}

/// Whether what `range` deletes is newer than everything in `file`. The order of L0 alone does not say so.
fn is_newer(range: &FileMeta, file: &FileMeta) -> bool {
    file.largest_seqno < range.smallest_seqno
}

/// The older files that the one at this level and place overlaps, by level.
fn files_below<'a>(
    input: &PickInput<'a>,
    (level, at): (usize, usize),
) -> Vec<(usize, Vec<&'a File>)> {
    let Some(span) = Span::of([&input.files(level)[at]]) else { return Vec::new() };
    let met = |below: usize| -> Vec<&'a File> {
        match below {
            0 => input.files(0)[at + 1..].iter().filter(|older| span.overlaps(older)).collect(),
            _ if below == level => Vec::new(),
            _ => input.overlapping(below, &span).iter().collect(),
        }
    };
    (level..LEVEL_COUNT).map(|below| (below, met(below))).collect()
}

fn deletes(file: &FileMeta) -> bool {
    mostly_deletes_ranges(file) || is_dense(file, DENSE_PART)
}

/// Notes which files lie below the one at this level and place, which deletes something.
fn cover<'a>(
    input: &PickInput<'a>,
    past: &Rewrites,
    (level, at): (usize, usize),
    covered: &mut BTreeMap<FileNumber, Covered<'a>>,
) {
    let file = &input.files(level)[at];
    for (below, met) in files_below(input, (level, at)) {
        let entries: u64 = met.iter().map(|older| older.entry_count).sum();
        for older in met {
            // Files of L0 overlap: each has its own part of the deletions.
            let entries = if below == 0 { older.entry_count } else { entries };
            let found = covered.entry(older.number).or_insert_with(|| Covered {
                level: below,
                file: older,
                above: Vec::new(),
                part: 0.0,
                goes: false,
            });
            let part = deleted_part(file, past.applied(older.number, file.number), entries);
            found.part += part;
            found.goes |= part > 0.0 && is_one_range(file) && contains(file, older);
            match found.above.last_mut() {
                Some((last, files)) if usize::from(*last) == level => files.push(file.clone()),
                _ => found.above.push((level as u8, vec![file.clone()])),
            }
        }
    }
}

/// Which part of `entries` what `file` deletes is, as far as it is newer than `applied`. How much a range covers is not known:
/// all of it.
fn deleted_part(file: &FileMeta, applied: SeqNo, entries: u64) -> f64 {
    if file.largest_seqno <= applied {
        return 0.0;
    }
    if mostly_deletes_ranges(file) {
        return 1.0;
    }
    let (first, last) = (file.smallest_seqno.get(), file.largest_seqno.get());
    let fresh = last + 1 - first.max(applied.get() + 1);
    let share = fresh as f64 / (last + 1 - first) as f64;
    file.tombstone_count as f64 * share / entries.max(1) as f64
}

impl Covered<'_> {
    fn left_bytes(&self) -> u64 {
        (self.file.size_bytes as f64 * (1.0 - self.part).max(0.0)) as u64
    }

    fn rewrite(self, input: &PickInput<'_>, skipped: &[FileNumber]) -> Option<Choice> {
        let span = Span::of([self.file])?;
        if !input.may_write(self.level, &span) {
            return None;
        }
        let grandparents = match self.level {
            LAST_LEVEL => Vec::new(),
            level => input.overlapping(level + 1, &span).to_vec(),
        };
        let (level, left_bytes) = (self.level as u8, self.left_bytes());
        Some(Choice::Merge(Compaction {
            family: input.family,
            start_level: level,
            output_level: level,
            inputs: vec![(level, vec![self.file.clone()])],
            grandparents,
            above: Some(Above { runs: self.above, skipped: skipped.to_vec(), left_bytes }),
            reason: Reason::Tombstones,
        }))
    }
}
