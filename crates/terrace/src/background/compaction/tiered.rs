//! Tiered compaction (RocksDB: universal): runs of similar size are merged together, so that a
//! byte is rewritten once per doubling of its run and not once per level and ratio.
//!
//! A run is a file of L0 or the whole of a deeper level, newest first. Only neighbours in age are
//! merged. The output goes as deep as the next older run allows: into the level right above it,
//! the last level if there is none, or L0 (as one file) if the next older run is in L0 or L1. So
//! levels are filled from below and runs stay ordered by age.
//!
//! In this order, once there are `l0_compaction_trigger` runs, or, while writes are heavy, as many as half-way
//! to `l0_slowdown` ([`most_runs`]):
//! 1. *space*: if the runs above the oldest are [`MAX_SPACE_PERCENT`] as large as it, all are
//!    merged;
//! 2. *ratio*: from the newest run on, while the next run is at most as large as what is gathered;
//! 3. *count*: if there are still more runs than that, the newest ones, as many as it takes until there are
//!    no more;
//! 4. *writers*: if those in L0 stop writers, all of L0.
//!
//! Range tombstones count for nothing there, but that a file which lies in one deleted range goes as it is
//! (`under_deletions`): what else they delete goes with the next merge of all runs, when the store is idle, on a full disk,
//! or by `compact_range`. What a snapshot has kept in the oldest run, with the deletions that hide it, goes when the store
//! is idle.
//!
//! If merging the newer runs into the oldest would reveal much garbage in the value log, all are
//! merged whatever their number. Files with values in victim segments are rewritten in place: those
//! of the oldest run, and when it must be now, all.

use super::pick::{
    Choice, File, LAST_LEVEL, Manual, ManualStep, PickInput, Reason, Span, deletes_ranges,
    is_dense, mostly_deletes_keys, patience, total_bytes,
};
use super::under_deletions::pick_covered;
use std::ops::Range;
use terrace_manifest::LEVEL_COUNT;

/// Bytes of the newer runs per 100 bytes of the oldest at which everything is merged.
const MAX_SPACE_PERCENT: u64 = 200;
/// How much larger than the gathered runs the next may be, in percent, and still be taken.
const SLACK_PERCENT: u64 = 1;
/// Bytes of the oldest run that an idle merge may rewrite per byte of the newer ones.
const IDLE_RATIO: u64 = 2;
/// Entries that a merge may rewrite per entry of the files that are the reason for it, which have expired
/// or are tombstones.
const MAX_DUE_RATIO: u64 = 8;
/// Most input bytes of one rewrite in place, in target files.
const MAX_REWRITE_FILES: u64 = 24;
/// A file of the oldest run is rewritten while the store is idle if more than one in this many of its entries is a deletion.
const DENSE_PART: u64 = 8;

/// A sorted run: where it lies and its files.
struct Run<'a> {
    level: usize,
    files: &'a [File],
    bytes: u64,
    busy: bool,
}

/// All runs, newest first.
fn runs<'a>(input: &PickInput<'a>) -> Vec<Run<'a>> {
    let run = |level: usize, files: &'a [File]| Run {
        level,
        files,
        bytes: total_bytes(files),
        busy: input.any_busy(files),
    };
    let level0 = input.files(0).chunks(1).map(|file| run(0, file));
    let deeper = (1..LEVEL_COUNT).map(|level| run(level, input.files(level)));
    level0.chain(deeper.filter(|run| !run.files.is_empty())).collect()
}

/// The most urgent work.
pub(crate) fn pick(input: &PickInput<'_>) -> Choice {
    let runs = runs(input);
    let most = most_runs(input, &runs);
    if runs.len() < most {
        let choice = pick_covered(input).or_else(|| due(input, &runs));
        let choice = choice.or_else(|| reveal_garbage(input, &runs));
        return choice.or_else(|| empty_victims(input)).unwrap_or(Choice::Nothing);
    }
    by_space(input, &runs)
        .or_else(|| by_ratio(input, &runs))
        .or_else(|| by_count(input, &runs, most))
        .or_else(|| for_writers(input, &runs))
        .or_else(|| pick_covered(input))
        .or_else(|| due(input, &runs))
        .or_else(|| reveal_garbage(input, &runs))
        .or_else(|| empty_victims(input))
        .unwrap_or(Choice::Nothing)
}

/// What a `collect_garbage` does next.
pub(crate) fn pick_values(input: &PickInput<'_>) -> Option<Choice> {
    empty_victims(input)
}

/// Everything into one run, if that is cheap.
pub(crate) fn pick_idle(input: &PickInput<'_>) -> Choice {
    let urgent = pick(input);
    if !matches!(urgent, Choice::Nothing) || !input.options.compact_when_idle {
        return urgent;
    }
    let runs = runs(input);
    let Some((oldest, newer)) = runs.split_last() else { return Choice::Nothing };
    let newer_bytes: u64 = newer.iter().map(|run| run.bytes).sum();
    let frees = newer.iter().flat_map(|run| run.files).any(|f| deletes_ranges(f));
    let all = 0..runs.len();
    let whole = (!newer.is_empty() && (frees || oldest.bytes <= IDLE_RATIO * newer_bytes))
        .then(|| merge(input, &runs, all, Reason::Idle));
    // Else as far down as the next run is not too large.
    let part = || {
        let mut gathered = 0;
        let fits = newer.iter().take_while(|run| {
            let fits = gathered == 0 || run.bytes <= IDLE_RATIO * gathered;
            gathered += run.bytes;
            fits
        });
        let count = fits.count();
        (count > 1).then(|| merge(input, &runs, 0..count, Reason::Idle)).flatten()
    };
    let in_place = || clear_deletions(input, oldest);
    whole.flatten().or_else(part).or_else(in_place).unwrap_or(Choice::Nothing)
}

/// Rewrites a file of the oldest run in place that has many deletions: nothing older is there, so that snapshots alone have
/// kept these beside what they hide, and those are gone.
fn clear_deletions(input: &PickInput<'_>, oldest: &Run<'_>) -> Option<Choice> {
    let deletes = |f: &File| deletes_ranges(f) || is_dense(f, DENSE_PART);
    let mut files = oldest.files.iter().filter(|f| deletes(f) && input.is_seen_by_all(f));
    let rewrite =
        |f: &File| input.complete(oldest.level, vec![f.clone()], oldest.level, Reason::Tombstones);
    files.find_map(rewrite)
}

/// See [`super::pick_deleted_ranges`].
pub(crate) fn pick_deleted_ranges(input: &PickInput<'_>) -> Choice {
    let runs = runs(input);
    let deletes = |run: &Run<'_>| run.files.iter().any(|f| deletes_ranges(f));
    // With all older runs: what is deleted may lie in any of them.
    let newest = runs.iter().position(deletes).filter(|first| first + 1 < runs.len());
    newest
        .and_then(|first| merge(input, &runs, first..runs.len(), Reason::Tombstones))
        .unwrap_or(Choice::Nothing)
}

/// Runs that start a merge. With few runs every byte is rewritten again and again, however similar they
/// are in size: 333 flushes into 4 runs cost 5.8 rewritten bytes per byte, into 12 runs 1.5 (simulated, Zipf
/// 0.9). Writes are heavy if the second newest run is young, of what a flush or a merge wrote.
fn most_runs(input: &PickInput<'_>, runs: &[Run<'_>]) -> usize {
    let is_young = |run: &Run<'_>| run.files.iter().any(|file| input.is_young(file));
    match runs.get(1).is_some_and(is_young) {
        true => patience(input.options).max(2),
        false => input.options.l0_compaction_trigger.max(2),
    }
}

fn by_space(input: &PickInput<'_>, runs: &[Run<'_>]) -> Option<Choice> {
    let (oldest, newer) = runs.split_last()?;
    let newer_bytes: u64 = newer.iter().map(|run| run.bytes).sum();
    let over = newer_bytes.saturating_mul(100) >= oldest.bytes.saturating_mul(MAX_SPACE_PERCENT);
    over.then(|| merge(input, runs, 0..runs.len(), Reason::SpaceAmplification)).flatten()
}

fn by_ratio(input: &PickInput<'_>, runs: &[Run<'_>]) -> Option<Choice> {
    (0..runs.len()).find_map(|first| {
        let mut gathered = runs[first].bytes;
        let similar = runs[first + 1..].iter().take_while(|run| {
            let fits = run.bytes <= gathered.saturating_mul(100 + SLACK_PERCENT) / 100;
            gathered += run.bytes;
            fits
        });
        let end = first + 1 + similar.count();
        (end - first > 1).then(|| merge(input, runs, first..end, Reason::SizeRatio)).flatten()
    })
}

fn by_count(input: &PickInput<'_>, runs: &[Run<'_>], bound: usize) -> Option<Choice> {
    let most = (runs.len() + 1).checked_sub(bound)?;
    (0..runs.len()).find_map(|first| {
        let free = runs[first..].iter().take_while(|run| !run.busy).count();
        let count = most.min(free);
        (count > 1).then(|| merge(input, runs, first..first + count, Reason::RunCount)).flatten()
    })
}

/// All of L0 if it stops writers, which nothing else would let go on.
fn for_writers(input: &PickInput<'_>, runs: &[Run<'_>]) -> Option<Choice> {
    let count = input.files(0).len();
    let stops = count >= input.options.l0_stops_at();
    stops.then(|| merge(input, runs, 0..count, Reason::RunCount)).flatten()
}

/// Files of which enough has expired, or that are mostly tombstones: those of the oldest run one by one, in
/// place; another run with all older ones, so that what it hides goes as well, once it has a share of their
/// entries that is worth it.
fn due(input: &PickInput<'_>, runs: &[Run<'_>]) -> Option<Choice> {
    let is_due = |f: &File| f.ttl_due_ms.is_some_and(|due| due <= input.now_ms);
    let is_dense = |f: &File| mostly_deletes_keys(f);
    let (oldest, newer) = runs.split_last()?;
    let entries = |run: &Run<'_>| run.files.iter().map(|f| f.entry_count).sum::<u64>();
    let mut rest: u64 = runs.iter().map(entries).sum();
    let of_newer = newer.iter().enumerate().find_map(|(at, run)| {
        let pays = |wants: &dyn Fn(&File) -> bool| {
            let wanted = run.files.iter().filter(|f| wants(f)).map(|f| f.entry_count);
            let wanted = wanted.sum::<u64>();
            wanted > 0 && wanted.saturating_mul(MAX_DUE_RATIO) >= rest
        };
        let reason = match (pays(&is_due), pays(&is_dense)) {
            (true, _) => Some(Reason::Ttl),
            (false, true) => Some(Reason::Tombstones),
            (false, false) => None,
        };
        rest -= entries(run);
        merge(input, runs, at..runs.len(), reason?)
    });
    // Tombstones that a snapshot needs survive in place: rewriting would never end.
    of_newer.or_else(|| {
        oldest.files.iter().find_map(|file| {
            let reason = match is_due(file) {
                true => Reason::Ttl,
                false if is_dense(file) && input.is_seen_by_all(file) => Reason::Tombstones,
                false => return None,
            };
            input.complete(oldest.level, vec![file.clone()], oldest.level, reason)
        })
    })
}

/// Merges all runs if that reveals much garbage.
fn reveal_garbage(input: &PickInput<'_>, runs: &[Run<'_>]) -> Option<Choice> {
    let (_, newer) = runs.split_last().filter(|(_, newer)| !newer.is_empty())?;
    let files = newer.iter().flat_map(|run| run.files);
    let pays = input.values.reveals(files, runs.iter().map(|run| run.bytes).sum());
    pays.then(|| merge(input, runs, 0..runs.len(), Reason::Values)).flatten()
}

/// Rewrites files with values in victim segments in place: a file of L0 is one run and stays one.
fn empty_victims(input: &PickInput<'_>) -> Option<Choice> {
    let filled = (0..LEVEL_COUNT).rev().find(|level| !input.files(*level).is_empty())?;
    let first = if input.values.force { 0 } else { filled.max(1) };
    let most_bytes = input.options.target_file_bytes.saturating_mul(MAX_REWRITE_FILES);
    (first..LEVEL_COUNT).find_map(|level| input.empty_victims(level, most_bytes))
}

/// Merges neighbouring runs; `None` if something running is in the way.
fn merge(
    input: &PickInput<'_>,
    runs: &[Run<'_>],
    which: Range<usize>,
    reason: Reason,
) -> Option<Choice> {
    let chosen = &runs[which.clone()];
    if chosen.iter().any(|run| run.busy) {
        return None;
    }
    let output_level = match runs.get(which.end) {
        None => LAST_LEVEL,
        Some(older) => older.level.saturating_sub(1),
    };
    let start_level = chosen.first()?.level;
    // The chosen runs below the first level come along whole, whether they overlap or not: the
    // levels they lie in must be empty afterwards.
    let mut inputs: Vec<(u8, Vec<File>)> = Vec::new();
    for run in chosen {
        match inputs.last_mut() {
            Some((level, files)) if usize::from(*level) == run.level => {
                files.extend(run.files.iter().cloned());
            }
            _ => inputs.push((run.level as u8, run.files.to_vec())),
        }
    }
    let span = Span::of(inputs.iter().flat_map(|(_, files)| files))?;
    if !input.may_write(output_level, &span) {
        return None;
    }
    Some(input.merge_or_move(start_level, inputs, output_level, Vec::new(), reason))
}

/// `compact_range`: all runs into one, whatever the range, since runs are merged whole; nothing if
/// there is one run already that holds no tombstones and that a filter has seen.
pub(crate) fn pick_manual(input: &PickInput<'_>, manual: &mut Manual) -> ManualStep {
    if manual.level >= LEVEL_COUNT {
        return ManualStep::Done;
    }
    let runs = runs(input);
    let wanted = runs.iter().flat_map(|run| run.files).any(|f| manual.wants(f));
    let garbage = |f: &File| f.tombstone_count > 0 || deletes_ranges(f) || f.ttl_due_ms.is_some();
    let single = runs.len() == 1
        && !runs[0].files.iter().any(|f| garbage(f) || (manual.wants(f) && manual.rewrites(f)));
    if !wanted || single {
        return ManualStep::Done;
    }
    match merge(input, &runs, 0..runs.len(), Reason::Manual) {
        Some(choice) => {
            // After a move a filter has seen nothing.
            let again = matches!(choice, Choice::Move(_)) && manual.rewrites_before.is_some();
            manual.level = if again { manual.level } else { LEVEL_COUNT };
            ManualStep::Do(choice)
        }
        None => ManualStep::Wait,
    }
}

/// Bytes of the runs beyond the trigger.
pub(crate) fn pending_bytes(input: &PickInput<'_>) -> u64 {
    let runs = runs(input);
    let over = (runs.len() + 1).saturating_sub(input.options.l0_compaction_trigger.max(2));
    if over > 1 { runs.iter().take(over).map(|run| run.bytes).sum() } else { 0 }
}
