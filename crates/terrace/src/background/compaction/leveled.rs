//! Leveled compaction: one sorted run per level, targets that follow the data.
//!
//! **Levels.** The last level is as large as its data. `batch` is what one L0 merge brings when
//! writes are heavy. While the last level is at most [`DIRECT_RATIO`] batches (or
//! `level_base_bytes`), L0 merges straight into it. Beyond, the fewest levels are put between
//! that keep the ratio of neighbours within `level_multiplier`, and the ratio is the same from the
//! batch to the last level: for a given number of levels that writes least. The shallowest is the
//! base level, into which L0 merges; levels above it stay empty.
//!
//! **L0** is merged as a whole. Its merge rewrites what it meets in the base level, so the more L0
//! files at once the fewer bytes are written; while files come fast, L0 therefore waits until
//! half-way between trigger and slowdown, which counts as twenty triggers at most ([`slowdown`]); when they come slowly
//! only for the trigger. Files that are much smaller than a memtable, since much was overwritten in it or it had to share its memory with a hot
//! table, are waited for a little longer: a batch is bytes ([`heavy_score`]). L0 files that overlap
//! nothing move down as they are.
//!
//! **Levels over their target** give the window of adjacent files that meets the fewest bytes
//! below per byte of its own.
//!
//! **Values in victim segments** move when a merge meets them. Merges of L0 come to the base level
//! by themselves; files of deeper levels are rewritten in place, those of the base level only when
//! it must be now. Merges that would reveal much garbage in the value log are done early.
//!
//! **Files that delete ranges** and hold little else go down while there are writes; one that meets more of the next level
//! than a merge takes is divided in place first, along the files that it meets, and its pieces go down one by one
//! ([`may_sink`] says when).
//!
//! **A file that cannot be read** stays where it is, and what is newer stays above it; everything
//! else goes on ([`around_quarantined`]).
//!
//! **Idle**, whatever costs at most [`IDLE_RATIO`] rewritten bytes per byte moved is merged down.
//!
//! `compaction/simulation` prints what this writes.

use super::pick::{
    Choice, File, LAST_LEVEL, Manual, ManualStep, PickInput, Reason, Span, deletes_ranges,
    is_dense, is_one_range, mostly_deletes_keys, patience, slowdown, total_bytes,
};
use super::windows::{self, Bounds, met_range};
use crate::options::FamilyOptions;
use terrace_manifest::{FileMeta, LEVEL_COUNT, Version};

/// Up to this many L0 batches the last level takes L0 merges itself: a merge then writes at most
/// 1 + this per byte, a level between would cost two further writes and a run.
const DIRECT_RATIO: f64 = 4.0;
/// Neighbouring levels differ by at least this factor.
const MIN_RATIO: f64 = 2.0;
/// Bytes of a file of L0 per byte of the memtable that it is made of, if nothing was overwritten there: the
/// smaller the entries, the less. A little below that of entries of 100 bytes.
const FULL_SHARE: f64 = 0.75;
/// Bytes of the level below that an idle merge may rewrite per byte it moves.
const IDLE_RATIO: f64 = 3.0;
/// Most input bytes of one merge of a level over its target, in target files.
const MAX_MERGE_FILES: u64 = 24;
/// As [`MAX_MERGE_FILES`], when idle.
const MAX_IDLE_FILES: u64 = 64;

/// The base level and the target of every level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Targets {
    pub base: usize,
    pub bytes: [u64; LEVEL_COUNT],
}

/// Targets for the data as it is.
pub(crate) fn targets(version: &Version, options: &FamilyOptions) -> Targets {
    let batch = (patience(options) as f64 * options.memtable_bytes as f64).max(1.0);
    let sizes = version.levels().iter().skip(1).map(|level| level.size_bytes());
    let last = sizes.max().unwrap_or(0) as f64;
    let filled = (1..LEVEL_COUNT).find(|level| !version.level(*level).is_empty());
    let ratio_with = |between: usize| (last / batch).powf(1.0 / (between as f64 + 1.0));
    let mut between = 0;
    if last > (DIRECT_RATIO * batch).max(options.level_base_bytes as f64) {
        between = 1;
        while ratio_with(between) > options.level_multiplier && between < LAST_LEVEL - 1 {
            between += 1;
        }
    }
    let base = (LAST_LEVEL - between).min(filled.unwrap_or(LAST_LEVEL));
    let ratio = ratio_with(LAST_LEVEL - base).max(MIN_RATIO);
    let target = |level: usize| match level {
        0 => 0,
        _ => (last / ratio.powi((LAST_LEVEL - level) as i32)) as u64,
    };
    Targets { base, bytes: std::array::from_fn(target) }
}

/// The targets of the levels that are merged down by their size: not of L0, nor of the levels above the
/// base, which stay empty, nor of the last one.
pub(crate) fn level_targets(
    version: &Version,
    options: &FamilyOptions,
) -> [Option<u64>; LEVEL_COUNT] {
    let targets = targets(version, options);
    let by_size = targets.base..LAST_LEVEL;
    std::array::from_fn(|level| by_size.contains(&level).then(|| targets.bytes[level]))
}

/// The most urgent work.
pub(crate) fn pick(input: &PickInput<'_>) -> Choice {
    let targets = targets(input.version, input.options);
    if input.files(0).len() > 1
        && let Some(choice) = move_l0(input, &targets, false)
    {
        return choice;
    }
    let mut scored: Vec<(f64, usize)> = (0..LAST_LEVEL)
        .map(|level| (score(input, &targets, level), level))
        .filter(|(score, _)| *score >= 1.0)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut l0_waits = false;
    let by_score = scored.iter().find_map(|(_, level)| match *level {
        0 => {
            let few = input.files(0).len() < input.options.l0_compaction_trigger;
            let reason = if few { Reason::Values } else { Reason::L0Files };
            let merge = merge_l0(input, &targets, reason);
            // For a file that cannot be read nobody waits.
            l0_waits = merge.is_none() && input.quarantined.is_empty();
            merge
        }
        // A merge out of the base level would keep L0 waiting even longer.
        level if level == targets.base && l0_waits => None,
        level => {
            let over = input.version.level(level).size_bytes() - targets.bytes[level];
            merge_level(input, level, over, Reason::LevelSize, f64::INFINITY, MAX_MERGE_FILES)
        }
    });
    by_score
        .or_else(|| merge_backlog(input))
        .or_else(|| rewrite(input, Reason::Ttl, |f| is_due(f, input.now_ms)))
        .or_else(|| rewrite(input, Reason::Tombstones, |f| has_many_tombstones(input, f)))
        .or_else(|| reveal_garbage(input, &targets))
        .or_else(|| empty_victims(input, &targets))
        .unwrap_or(Choice::Nothing)
}

/// What a `collect_garbage` does next.
pub(crate) fn pick_values(input: &PickInput<'_>) -> Option<Choice> {
    empty_victims(input, &targets(input.version, input.options))
}

/// Fewer runs, while nothing else is to do; see the module's head.
pub(crate) fn pick_idle(input: &PickInput<'_>) -> Choice {
    let urgent = pick(input);
    if !matches!(urgent, Choice::Nothing) || !input.options.compact_when_idle {
        return urgent;
    }
    let targets = targets(input.version, input.options);
    let smaller = |f: &FileMeta| deletes_ranges(f) || is_dense(f, 8) || is_due(f, input.now_ms);
    idle_l0(input, &targets, smaller)
        .or_else(|| rewrite(input, Reason::Tombstones, smaller))
        .or_else(|| {
            (1..LAST_LEVEL).find_map(|level| {
                let all = input.version.level(level).size_bytes();
                merge_level(input, level, all, Reason::Idle, IDLE_RATIO, MAX_IDLE_FILES)
            })
        })
        .unwrap_or(Choice::Nothing)
}

/// See [`super::pick_deleted_ranges`].
pub(crate) fn pick_deleted_ranges(input: &PickInput<'_>) -> Choice {
    let from_l0 = || {
        let deletes = input.files(0).iter().any(|f| deletes_ranges(f));
        deletes.then(|| merge_l0(input, &targets(input.version, input.options), Reason::Tombstones))
    };
    from_l0()
        .flatten()
        // Whole: to divide a file would take room before any is freed.
        .or_else(|| rewrite_with(input, Reason::Tombstones, deletes_ranges, false))
        .unwrap_or(Choice::Nothing)
}

/// How urgent `level` is; 1 and above is work.
fn score(input: &PickInput<'_>, targets: &Targets, level: usize) -> f64 {
    if level == 0 {
        let files = input.files(0);
        let trigger = input.options.l0_compaction_trigger;
        let heavy = files.get(trigger - 1).is_some_and(|file| input.is_young(file));
        let score = match heavy {
            true => heavy_score(input.options, files),
            false => files.len() as f64 / trigger as f64,
        };
        let reveals = || {
            let met = Span::of(files).map(|span| input.overlapping(targets.base, &span));
            let bytes = total_bytes(files) + met.map_or(0, total_bytes);
            input.values.reveals(files, bytes)
        };
        return if score < 1.0 && reveals() { 1.0 } else { score };
    }
    let free = input.files(level).iter().filter(|f| !input.is_busy(f));
    let bytes = total_bytes(free);
    match bytes > targets.bytes[level] {
        true => bytes as f64 / targets.bytes[level].max(1) as f64,
        false => 0.0,
    }
}

/// How urgent L0 is while writes are heavy: it is merged when it has the bytes of as many full memtables as
/// it waits for, at the latest half-way between that number of files and the slowdown.
fn heavy_score(options: &FamilyOptions, files: &[File]) -> f64 {
    let (count, enough) = (files.len() as f64, patience(options));
    let batch = enough as f64 * options.memtable_bytes as f64 * FULL_SHARE;
    let most = enough.midpoint(slowdown(options)).max(enough);
    let by_bytes = total_bytes(files) as f64 / batch.max(1.0);
    by_bytes.max(count / most as f64).min(count / enough as f64)
}

/// Moves an L0 file that overlaps no other L0 file (idle: no older one) and nothing down to the
/// base level.
fn move_l0(input: &PickInput<'_>, targets: &Targets, idle: bool) -> Option<Choice> {
    let files = input.files(0);
    files.iter().enumerate().rev().find_map(|(at, file)| {
        let span = Span::of([file])?;
        let others = if idle { &files[at + 1..] } else { files };
        let alone = others.iter().all(|f| f.number == file.number || !span.overlaps(f));
        let choice =
            alone.then(|| input.complete(0, vec![file.clone()], targets.base, Reason::L0Files));
        choice.flatten().filter(|choice| matches!(choice, Choice::Move(_)))
    })
}

/// All of L0 into the base level, or what can be merged of it around files that cannot be read.
fn merge_l0(input: &PickInput<'_>, targets: &Targets, reason: Reason) -> Option<Choice> {
    let all = input.complete(0, input.files(0).to_vec(), targets.base, reason);
    match input.quarantined.is_empty() {
        true => all,
        false => all.or_else(|| around_quarantined(input, targets, reason)),
    }
}

/// Merges L0 while some file cannot be read. The files of L0 that may sink go down to the base
/// level, or, if the unreadable file lies there, into an empty level above it: those that overlap
/// no older file which stays. The others are merged among themselves when neighbours are similar,
/// so that their number grows with the logarithm of what is written.
fn around_quarantined(input: &PickInput<'_>, targets: &Targets, reason: Reason) -> Option<Choice> {
    let files = input.files(0);
    if files.iter().any(|f| input.in_progress.contains(&f.number)) {
        return None;
    }
    let mut stays: Vec<&File> = Vec::new();
    let mut sinks: Vec<File> = Vec::new();
    for file in files.iter().rev() {
        let above = |older: &&File| Span::of([*older]).is_some_and(|span| span.overlaps(file));
        match input.is_busy(file) || stays.iter().any(above) {
            true => stays.push(file),
            false => sinks.insert(0, file.clone()),
        }
    }
    let least = if reason == Reason::L0Files { input.options.l0_compaction_trigger } else { 1 };
    let sunk = (sinks.len() >= least).then(|| {
        (1..=targets.base).rev().find_map(|to| input.complete(0, sinks.clone(), to, reason))
    });
    sunk.flatten().or_else(|| merge_similar(input))
}

/// Merges neighbours in age within L0, the newest that are many enough and of similar size.
fn merge_similar(input: &PickInput<'_>) -> Option<Choice> {
    let files = input.files(0);
    let hurry = files.len() + 2 >= slowdown(input.options);
    let least = if hurry { 2 } else { input.options.l0_compaction_trigger.max(2) };
    (0..files.len()).find_map(|first| {
        let mut gathered = 0;
        let similar = files[first..].iter().take_while(|f| {
            let fits = !input.is_busy(f) && (gathered == 0 || f.size_bytes <= gathered);
            gathered += f.size_bytes;
            fits
        });
        let similar: Vec<File> = similar.cloned().collect();
        let many = similar.len() >= least;
        many.then(|| input.complete(0, similar, 0, Reason::L0Backlog)).flatten()
    })
}

/// L0 near the slowdown while a running compaction is in the way of merging it: its newest files
/// become one, so that writers need not wait. Neighbours in age only, which keeps L0's order.
fn merge_backlog(input: &PickInput<'_>) -> Option<Choice> {
    let files = input.files(0);
    if files.len() + 2 < slowdown(input.options) {
        return None;
    }
    let memtable_bytes = input.options.memtable_bytes as u64;
    let most = memtable_bytes.saturating_mul(patience(input.options) as u64);
    let small = 2 * memtable_bytes;
    let mut bytes = 0;
    let newest = files.iter().take_while(|f| {
        bytes += f.size_bytes;
        !input.is_busy(f) && f.size_bytes <= small && bytes <= most
    });
    let newest: Vec<File> = newest.cloned().collect();
    match newest.len() >= input.options.l0_compaction_trigger.max(2) {
        true => input.complete(0, newest, 0, Reason::L0Backlog),
        false => None,
    }
}

/// Merges a window of adjacent files of `level` into the next filled level (or the next one): the
/// window of at most about `wanted_bytes` that meets the fewest bytes per byte, if these are at
/// most `most_ratio`.
fn merge_level(
    input: &PickInput<'_>,
    level: usize,
    wanted_bytes: u64,
    reason: Reason,
    most_ratio: f64,
    most_files: u64,
) -> Option<Choice> {
    let files = input.files(level);
    if files.is_empty() {
        return None;
    }
    let filled = (level + 1..LEVEL_COUNT).find(|l| !input.version.level(*l).is_empty());
    let below = match reason {
        // Into an empty level nothing is merged: runs would not become fewer.
        Reason::Idle => filled?,
        _ => level + 1,
    };
    let most_bytes = input.options.target_file_bytes.saturating_mul(most_files);
    let bounds = Bounds { wanted_bytes, most_bytes, most_ratio };
    windows::best_first(input, level, below, bounds)
        .find_map(|window| input.complete(level, files[window].to_vec(), below, reason))
}

/// Brings down a file that a rewrite would make smaller: into the next level, piece by piece if it deletes ranges and meets
/// much there, or in place if nothing below overlaps it. L0 is left alone: its merges come by themselves.
fn rewrite(
    input: &PickInput<'_>,
    reason: Reason,
    wants: impl Fn(&FileMeta) -> bool,
) -> Option<Choice> {
    rewrite_with(input, reason, wants, true)
}

/// As [`rewrite`]; without `divides` a file goes down whole, whatever it meets.
fn rewrite_with(
    input: &PickInput<'_>,
    reason: Reason,
    wants: impl Fn(&FileMeta) -> bool,
    divides: bool,
) -> Option<Choice> {
    (1..LEVEL_COUNT).find_map(|level| {
        input.files(level).iter().filter(|f| wants(f)).find_map(|file| {
            let span = Span::of([file])?;
            let deeper = (level + 1..LEVEL_COUNT).any(|l| !input.overlapping(l, &span).is_empty());
            // Tombstones that a snapshot needs survive in place: rewriting would never end.
            let free = input.is_seen_by_all(file);
            match deeper {
                true if divides && is_to_be_divided(input, level, file, &span) => {
                    input.complete(level, vec![file.clone()], level, reason)
                }
                true => input.complete(level, vec![file.clone()], level + 1, reason),
                false if free || reason == Reason::Ttl => {
                    input.complete(level, vec![file.clone()], level, reason)
                }
                false => None,
            }
        })
    })
}

/// Whether so much of the file is tombstones that it is brought down while there are writes.
fn has_many_tombstones(input: &PickInput<'_>, file: &FileMeta) -> bool {
    mostly_deletes_keys(file) || (is_dense(file, 2) && may_sink(input, file))
}

/// Whether no level of files that `file` overlaps is more than a merge takes while there are writes, or what it deletes is
/// worth more. A file of a few range tombstones may span everything, and delete little of that; and nothing of it while
/// an older snapshot needs that.
fn may_sink(input: &PickInput<'_>, file: &FileMeta) -> bool {
    let span =
        Span { start: &file.smallest, end: &file.largest, end_exclusive: file.largest_exclusive };
    let met_bytes = |level| total_bytes(input.overlapping(level, &span));
    let is_little = (1..LEVEL_COUNT).all(|level| met_bytes(level) <= most_merge_bytes(input));
    let is_worth_it =
        || is_one_range(file) || input.has_waited_for(file, (1..LEVEL_COUNT).map(met_bytes).sum());
    input.is_seen_by_all(file) && (is_little || is_worth_it())
}

/// Most input bytes of one merge while there are writes, or of one step of a `compact_range`.
fn most_merge_bytes(input: &PickInput<'_>) -> u64 {
    input.options.target_file_bytes.saturating_mul(MAX_MERGE_FILES)
}

/// Whether `file` deletes ranges and meets more of the next level than a merge takes: a rewrite in place divides it along
/// the files that it meets (`output`), and each piece is brought down by itself.
fn is_to_be_divided(input: &PickInput<'_>, level: usize, file: &FileMeta, span: &Span<'_>) -> bool {
    let met = input.overlapping(level + 1, span);
    deletes_ranges(file) && met.len() > 1 && total_bytes(met) > most_merge_bytes(input)
}

/// Merges down a level below L0 whose files hide much garbage.
fn reveal_garbage(input: &PickInput<'_>, targets: &Targets) -> Option<Choice> {
    (targets.base..LAST_LEVEL).find_map(|level| {
        let files = input.files(level);
        let met = Span::of(files).map(|span| input.overlapping(level + 1, &span));
        let bytes = total_bytes(files) + met.map_or(0, total_bytes);
        let all = || {
            let all = input.version.level(level).size_bytes();
            merge_level(input, level, all, Reason::Values, f64::INFINITY, MAX_MERGE_FILES)
        };
        input.values.reveals(files, bytes).then(all).flatten()
    })
}

/// Rewrites files with values in victim segments: those of L0 by merging it down, the others in
/// place.
fn empty_victims(input: &PickInput<'_>, targets: &Targets) -> Option<Choice> {
    let values = &input.values;
    if values.victims.is_empty() {
        return None;
    }
    if values.force && input.files(0).iter().any(|f| values.victim_bytes(f) > 0) {
        // Nothing below is rewritten before it, since this may come to the same files.
        return merge_l0(input, targets, Reason::Values);
    }
    let first = if values.force { 1 } else { targets.base + 1 };
    (first..LEVEL_COUNT).find_map(|level| input.empty_victims(level, most_merge_bytes(input)))
}

/// Whether enough of the file has expired.
fn is_due(file: &FileMeta, now_ms: u64) -> bool {
    file.ttl_due_ms.is_some_and(|due| due <= now_ms)
}

/// L0 when idle: down to the base level if that is cheap or frees space; else, two files and more,
/// into the empty level above it, where they wait as one run.
fn idle_l0(
    input: &PickInput<'_>,
    targets: &Targets,
    smaller: impl Fn(&FileMeta) -> bool,
) -> Option<Choice> {
    let files = input.files(0);
    let span = Span::of(files)?;
    if let Some(choice) = move_l0(input, targets, true) {
        return Some(choice);
    }
    let met = total_bytes(input.overlapping(targets.base, &span)) as f64;
    let cheap = met <= IDLE_RATIO * total_bytes(files) as f64;
    if cheap || files.iter().any(|f| smaller(f)) {
        return merge_l0(input, targets, Reason::Idle);
    }
    match files.len() > 1 && targets.base > 1 {
        true => input.complete(0, files.to_vec(), targets.base - 1, Reason::Idle),
        false => None,
    }
}

/// `compact_range`: all of L0, then level by level in windows of bounded size, each into the next
/// filled level; at the bottom, files that a rewrite in place makes smaller, or that a filter has not seen.
pub(crate) fn pick_manual(input: &PickInput<'_>, manual: &mut Manual) -> ManualStep {
    if manual.level == 0 {
        if !input.files(0).iter().any(|f| manual.wants(f)) {
            manual.next_level();
        } else {
            let targets = targets(input.version, input.options);
            // All of it, or nothing: the caller gets the error that is in the way.
            let files = input.files(0).to_vec();
            let Some(choice) = input.complete(0, files, targets.base, Reason::Manual) else {
                return ManualStep::Wait;
            };
            manual.next_level();
            return ManualStep::Do(choice);
        }
    }
    while manual.level < LEVEL_COUNT {
        let level = manual.level;
        let wanted: Vec<File> =
            input.files(level).iter().filter(|f| manual.wants(f)).cloned().collect();
        let below = (level + 1..LEVEL_COUNT).find(|l| !input.version.level(*l).is_empty());
        let window = match below {
            Some(below) => manual_window(input, &wanted, below),
            None => {
                let smaller = |f: &&File| {
                    deletes_ranges(f)
                        || f.tombstone_count > 0
                        || is_due(f, input.now_ms)
                        || manual.rewrites(f)
                };
                wanted.iter().find(smaller).map_or_else(Vec::new, |f| vec![f.clone()])
            }
        };
        let Some(span) = Span::of(&window) else {
            manual.next_level();
            continue;
        };
        // Every file of the level up to the window's end has had its turn; the next one starts
        // after it, or at it if the end is exclusive.
        let done_before = match span.end_exclusive {
            true => span.end.to_vec(),
            false => [span.end, &[0]].concat(),
        };
        let output = below.unwrap_or(level);
        let Some(choice) = input.complete(level, window.clone(), output, Reason::Manual) else {
            return ManualStep::Wait;
        };
        manual.done_before = Some(done_before);
        return ManualStep::Do(choice);
    }
    ManualStep::Done
}

/// The first of `wanted`, in their order, that together with what they meet in `below` stay within bounds; at least one.
/// There may be a hundred thousand.
fn manual_window(input: &PickInput<'_>, wanted: &[File], below: usize) -> Vec<File> {
    let most = most_merge_bytes(input);
    let below_files = input.files(below);
    // Files of `below` before this one are counted, or end before the window.
    let mut counted = None;
    let mut bytes = 0;
    let window = wanted.iter().enumerate().take_while(|(at, file)| {
        let met = met_range(input, below, file);
        let from = counted.unwrap_or(met.start);
        let to = met.end.max(from);
        bytes += file.size_bytes + total_bytes(&below_files[from..to]);
        counted = Some(to);
        *at == 0 || bytes <= most
    });
    let count = window.count();
    wanted[..count].to_vec()
}

/// Bytes to write before L0 is below its trigger and every level within its target.
pub(crate) fn pending_bytes(input: &PickInput<'_>) -> u64 {
    let targets = targets(input.version, input.options);
    let level_bytes = |level: usize| input.version.level(level).size_bytes();
    let mut pending = 0;
    let mut coming = 0;
    if input.files(0).len() >= input.options.l0_compaction_trigger {
        coming = level_bytes(0);
        pending += coming + level_bytes(targets.base);
    }
    for level in targets.base..LAST_LEVEL {
        let over = (level_bytes(level) + coming).saturating_sub(targets.bytes[level]);
        let ratio = level_bytes(level + 1) as f64 / targets.bytes[level].max(1) as f64;
        pending += (over as f64 * (1.0 + ratio)) as u64;
        coming = over;
    }
    pending
}
