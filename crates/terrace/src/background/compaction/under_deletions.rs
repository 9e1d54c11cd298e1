//! Merges of one file with what lies above it and stays where it is. A file of a tiered family that lies in a deleted range
//! goes that way ([`pick_covered`]).
//!
//! On a full disk, and for want of room while nothing is written: one file is rewritten in place, in either style, without what deletions in files above it hide
//! (`hiding`); those stay where they are. Room is needed for what is left of that one file, where a merge of the deletions
//! with all that they meet may find none. What leaves least comes first: what it gives back is room for the next.
//!
//! Who chooses has the scheduler's lock: the pairs of files that are looked at are bounded ([`MOST_PAIRS`] for all families), and
//! the files that delete most have theirs first. What is chosen loses what all hide of it.
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
use std::cmp::Reverse;
use terrace_base::SeqNo;
use terrace_manifest::{FileMeta, LEVEL_COUNT};

/// A file deletes something if more than one in this many of its entries does; and a file is rewritten from one in this
/// many on that is deleted.
const DENSE_PART: u64 = 8;

/// Pairs of a file that deletes something and an older one that are looked at for one choice, about. Some milliseconds.
pub(crate) const MOST_PAIRS: usize = 1 << 16;

/// Files that leave least of which it is asked whether there is room for what is left.
const MOST_TRIES: usize = 16;

/// What is known of the deletions above a file.
#[derive(Debug, Clone, Copy, Default)]
struct Deleted {
    /// Which part of it is deleted and has not been applied to it, about.
    part: f64,
    /// Whether it lies wholly in one deleted range, so that nothing is left of it for certain.
    goes: bool,
}

/// A file with deletions above it.
struct Covered<'a> {
    level: usize,
    file: &'a File,
    deleted: Deleted,
}

/// What leaves least of those that are worth it, and fits; `past` says what has been done, and `fits` for which there is room.
/// Looks at about `pairs` pairs of files at most, and takes those off that it has looked at.
pub(crate) fn pick(
    input: &PickInput<'_>,
    past: &Rewrites,
    pairs: &mut usize,
    fits: impl FnMut(&Compaction) -> bool,
) -> Choice {
    let is_worth_it = |found: &Covered<'_>| {
        found.deleted.part * DENSE_PART as f64 >= 1.0
            && !mostly_deletes_keys(found.file)
            && !mostly_deletes_ranges(found.file)
            && !input.is_busy(found.file)
            && !past.is_in_vain(found.file.number)
    };
    let mut found = covered(input, past, pairs);
    found.retain(is_worth_it);
    found.sort_by_key(|found| (found.left_bytes(), !found.deleted.goes, found.file.number));
    let found = found.iter().filter(|found| found.may_be_written(input));
    let rewrites = found.filter_map(|found| found.rewrite(input, above(input, found)?));
    rewrites.take(MOST_TRIES).find(fits).map_or(Choice::Nothing, Choice::Merge)
}

/// The files that have something above them that deletes, as far as that is found within `pairs`.
fn covered<'a>(input: &PickInput<'a>, past: &Rewrites, pairs: &mut usize) -> Vec<Covered<'a>> {
    let files = |level: usize| input.files(level).iter().enumerate();
    let mut deleted: Vec<Vec<Deleted>> =
        (0..LEVEL_COUNT).map(|level| vec![Deleted::default(); files(level).len()]).collect();
    let mut deleting: Vec<(usize, usize)> = Vec::new();
    for level in 0..LEVEL_COUNT {
        let of_level = files(level).filter(|(_, file)| is_usable(input, file));
        deleting.extend(of_level.map(|(at, _)| (level, at)));
    }
    deleting.sort_by_key(|(level, at)| {
        let file = &input.files(*level)[*at];
        Reverse((mostly_deletes_ranges(file), file.tombstone_count))
    });
    for place in deleting {
        if *pairs == 0 {
            break;
        }
        *pairs = pairs.saturating_sub(cover(input, past, place, &mut deleted));
    }
    let of_level = |level: usize| {
        let deleted = deleted[level].iter().copied();
        files(level).zip(deleted).map(move |((_, file), deleted)| Covered { level, file, deleted })
    };
    (0..LEVEL_COUNT).flat_map(of_level).filter(|covered| covered.deleted.part > 0.0).collect()
}

/// Whether `file` deletes something of files below it, and may be read for that.
fn is_usable(input: &PickInput<'_>, file: &FileMeta) -> bool {
    deletes(file) && input.is_seen_by_all(file) && !input.is_busy(file)
}

/// The files above `found` that delete something, and those that may not be read now; `None` if there is none to read.
fn above(input: &PickInput<'_>, found: &Covered<'_>) -> Option<Above> {
    let span = Span::of([found.file])?;
    let (mut runs, mut skipped) = (Vec::new(), Vec::new());
    for level in 0..=found.level {
        let met: &[File] = match level {
            0 => input.files(0),
            _ if level == found.level => &[],
            _ => input.overlapping(level, &span),
        };
        // Newest first in L0: the others are older than the file itself.
        let newer = met.iter().take_while(|file| file.number != found.file.number);
        let deleting = newer.filter(|f| deletes(f) && input.is_seen_by_all(f) && span.overlaps(f));
        let (busy, free): (Vec<&File>, Vec<&File>) = deleting.partition(|f| input.is_busy(f));
        skipped.extend(busy.into_iter().map(|file| file.number));
        if !free.is_empty() {
            runs.push((level as u8, free.into_iter().cloned().collect()));
        }
    }
    let left_bytes = found.left_bytes();
    (!runs.is_empty()).then_some(Above { runs, skipped, left_bytes })
}

/// A file all keys of which lie in one range that a newer file deletes: it goes, and nothing is written. How much several
/// ranges of a file cover, its bounds do not say.
pub(super) fn pick_covered(input: &PickInput<'_>) -> Option<Choice> {
    for level in 0..LEVEL_COUNT {
        for (at, range) in input.files(level).iter().enumerate() {
            if !is_one_range(range) || !input.is_seen_by_all(range) || input.is_busy(range) {
                continue;
            }
            for (below, met) in files_below(input, (level, at)) {
                for file in met.into_iter().map(|at| &input.files(below)[at]) {
                    let goes = contains(range, file) && is_newer(range, file);
                    let deleted = Deleted { part: 1.0, goes: true };
                    let covered = Covered { level: below, file, deleted };
                    if !goes
                        || deletes_ranges(file)
                        || input.is_busy(file)
                        || !covered.may_be_written(input)
                    {
                        continue;
                    }
                    let runs = vec![(level as u8, vec![range.clone()])];
                    let above = Above { runs, skipped: Vec::new(), left_bytes: 0 };
                    return covered.rewrite(input, above).map(Choice::Merge);
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

/// The places of the older files that the one at this level and place overlaps, by level.
fn files_below(input: &PickInput<'_>, (level, at): (usize, usize)) -> Vec<(usize, Vec<usize>)> {
    let Some(span) = Span::of([&input.files(level)[at]]) else { return Vec::new() };
    let (start, end) = span.bounds();
    let met = |below: usize| -> Vec<usize> {
        let files = input.files(below);
        match below {
            0 => (at + 1..files.len()).filter(|at| span.overlaps(&files[*at])).collect(),
            _ if below == level => Vec::new(),
            _ => input.version.level(below).overlapping_range(start, end).collect(),
        }
    };
    (level..LEVEL_COUNT).map(|below| (below, met(below))).collect()
}

fn deletes(file: &FileMeta) -> bool {
    mostly_deletes_ranges(file) || is_dense(file, DENSE_PART)
}

/// Notes what the file at this level and place, which deletes something, deletes of those below it; how many these are.
fn cover(
    input: &PickInput<'_>,
    past: &Rewrites,
    (level, at): (usize, usize),
    deleted: &mut [Vec<Deleted>],
) -> usize {
    let file = &input.files(level)[at];
    let mut pairs = 0;
    for (below, met) in files_below(input, (level, at)) {
        let older = input.files(below);
        let entries: u64 = met.iter().map(|at| older[*at].entry_count).sum();
        pairs += met.len();
        for at in met {
            let (older, deleted) = (&older[at], &mut deleted[below][at]);
            // Files of L0 overlap: each has its own part of the deletions.
            let entries = if below == 0 { older.entry_count } else { entries };
            let part = deleted_part(file, past.applied(older.number, file.number), entries);
            deleted.part += part;
            deleted.goes |= part > 0.0 && is_one_range(file) && contains(file, older);
        }
    }
    pairs
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
        (self.file.size_bytes as f64 * (1.0 - self.deleted.part).max(0.0)) as u64
    }

    /// Whether nothing that runs writes its keys into its level.
    fn may_be_written(&self, input: &PickInput<'_>) -> bool {
        Span::of([self.file]).is_some_and(|span| input.may_write(self.level, &span))
    }

    fn rewrite(&self, input: &PickInput<'_>, above: Above) -> Option<Compaction> {
        let span = Span::of([self.file])?;
        let grandparents = match self.level {
            LAST_LEVEL => Vec::new(),
            level => input.overlapping(level + 1, &span).to_vec(),
        };
        let level = self.level as u8;
        Some(Compaction {
            family: input.family,
            start_level: level,
            output_level: level,
            inputs: vec![(level, vec![self.file.clone()])],
            grandparents,
            above: Some(above),
            reason: Reason::Tombstones,
        })
    }
}
