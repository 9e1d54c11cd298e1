//! Runs a compaction: reads its inputs in merged order, keeps what `retain` says, moves values out
//! of victim segments (`values`), writes the rest through `output` (compact).
//! Nothing becomes visible here; `install` does that with the edit that comes out.
//!
//! A large merge is cut at keys of about even distance into pieces that run on threads of their
//! own, or on that of the job if the system has none; each piece sees the range tombstones of all inputs, clipped to its keys.
//!
//! With files above a rewrite in place, what these hide of the input is dropped (`hiding`).
//!
//! Every entry is accounted for: what the pieces read must be as many entries as the inputs hold,
//! and what the outputs hold as many as were kept; and of every value segment the outputs must
//! refer to what the inputs did, less what was dropped or moved away. Otherwise the job fails and
//! changes nothing. A job that fails or is cancelled leaves no file behind.

use super::hiding::Hiding;
use super::kept_room::KeptRoom;
use super::pick::{Compaction, File, Span, deletes_ranges};
use super::values::{Moved, Moving, References, Stage, StageContext, remove_segments};
use crate::background::filter::{Filter, FilterCounts, Filtering};
use crate::background::fold::{Fold, Folding, Sink};
use crate::background::output::{Output, OutputContext};
use crate::background::retain::{Below, Retain, collapse_tombstones, surviving_tombstones};
use crate::env::rate_limit::RateLimiter;
use crate::iter::RunIter;
use crate::iter::level::LevelIter;
use crate::iter::merge::MergingIter;
use crate::jobs::job_list::JobProgress;
use crate::memory::table_cache::TableCache;
use crate::options::FamilyOptions;
use crate::values::segment_length::longest_bytes;
use crate::version::unpublished::remove_unpublished;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_base::caught::message_of;
use terrace_base::range_tombstone::Fragment;
use terrace_base::sync::thread;
use terrace_base::{
    Clock, Error, FileNumber, InternalIter, RangeTombstones, Result, SeqNo, ValueHandle,
};
use terrace_buf::Slice;
use terrace_manifest::{FamilyEdit, FileMeta, SegmentMeta, Version, names};
use terrace_sst::{ScanOptions, SstOptions, SstReader};
use terrace_vfs::Vfs;

/// The name of the threads that work on pieces; it begins as those of the threads that start them.
const PIECE_THREAD: &str = "terrace-compact-piece";
/// Entries between two looks at the cancel flag.
const LOOK_ENTRIES: u64 = 1024;
/// A piece of its own pays off from this many input bytes on (or a target file, if that is less).
const MIN_PIECE_BYTES: u64 = 8 << 20;
/// Cuts looked for in one input file.
const CUTS_PER_FILE: usize = 15;
/// Bounds of the bytes read ahead in one input.
const MIN_READAHEAD_BYTES: usize = 128 << 10;
const MAX_READAHEAD_BYTES: usize = 1 << 20;
/// Of small buffers one input has this part at least ...
const LEAST_PART: usize = 8;
/// ... as long as all of them together do not take this many times the buffers, nor one less than this.
const MOST_BUFFERS: usize = 2;
const LEAST_READAHEAD_BYTES: usize = 4 << 10;

/// What a job works with.
pub(crate) struct JobContext<'a> {
    pub vfs: &'a Arc<dyn Vfs>,
    pub dir: &'a Path,
    pub table_cache: &'a Arc<TableCache>,
    pub next_file_number: &'a (dyn Fn() -> FileNumber + Sync),
    pub options: &'a FamilyOptions,
    /// Every write of the family up to here is in its SSTs.
    pub flushed_seqno: SeqNo,
    /// Live snapshots, ascending, listed after the compaction was chosen.
    pub snapshots: Vec<SeqNo>,
    pub clock: &'a dyn Clock,
    pub limiter: &'a RateLimiter,
    /// Ends the job early.
    pub cancel: &'a AtomicBool,
    /// The version the compaction was chosen from.
    pub version: &'a Version,
    /// Where the job counts what it does.
    pub progress: &'a JobProgress,
    /// Which values to move; `None` in a store without separated values.
    pub moving: Option<Moving<'a>>,
    /// The family's compaction filter, if it applies.
    pub filtering: Option<Filtering<'a>>,
    /// What the job leaves free; `None`: nothing.
    pub kept_room: Option<&'a KeptRoom<'a>>,
}

/// What a finished job asks to be installed, and what it did.
#[derive(Debug)]
pub(crate) struct JobOutput {
    pub edit: FamilyEdit,
    /// Value segments that the edit's files refer to and that are new.
    pub segments: Vec<SegmentMeta>,
    pub stats: JobStats,
}

/// What a job did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JobStats {
    /// Length of the input files.
    pub read_bytes: u64,
    /// Length of the output files.
    pub written_bytes: u64,
    pub read_entries: u64,
    pub dropped_entries: u64,
    /// Values that left victim segments, and the length of the segments they are in now.
    pub moved_values: u64,
    pub moved_bytes: u64,
    /// Threads that worked on it.
    pub pieces: u64,
    /// What the compaction filter did.
    pub filtered: FilterCounts,
}

/// Merges; `None` if it was cancelled. The outputs are synced; the directory is the caller's to sync, once they have their names.
pub(crate) fn run(ctx: &JobContext<'_>, compaction: &Compaction) -> Result<Option<JobOutput>> {
    if let Some(moving) = &ctx.moving {
        moving.check_inputs(compaction.files())?;
    }
    let plan = Plan::new(ctx, compaction)?;
    let bounds: Vec<Option<&[u8]>> = [None]
        .into_iter()
        .chain(plan.cuts.iter().map(|cut| Some(cut.as_slice())))
        .chain([None])
        .collect();
    let ranges: Vec<_> = bounds.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let mut results: Vec<Result<Option<Piece>>> = Vec::new();
    thread::scope(|scope| {
        let (first, others) = ranges.split_at(1);
        let plan = &plan;
        let start = |range: &(Option<&'_ [u8]>, Option<&'_ [u8]>)| {
            let (lower, upper) = (range.0.map(<[u8]>::to_vec), range.1.map(<[u8]>::to_vec));
            let piece = move || run_piece(plan, lower.as_deref(), upper.as_deref());
            // A panic's own payload might panic once more where nobody joins.
            let work = || catch_unwind(AssertUnwindSafe(piece)).map_err(message_of);
            has_thread().and_then(|()| thread::spawn_scoped(scope, PIECE_THREAD, work)).ok()
        };
        let threads: Vec<_> = others.iter().map(start).collect();
        results.extend(first.iter().map(|range| run_piece(plan, range.0, range.1)));
        for (thread, range) in threads.into_iter().zip(others) {
            match thread.map(|thread| thread.join()) {
                Some(Ok(Ok(result))) => results.push(result),
                Some(Ok(Err(said))) => resume_unwind(Box::new(said)),
                Some(Err(panic)) => resume_unwind(panic),
                // The system had no thread for it.
                None => results.push(run_piece(plan, range.0, range.1)),
            }
        }
    });
    let pieces = gather(ctx, results)?;
    let Some(pieces) = pieces else { return Ok(None) };
    let done = conclude(ctx, compaction, &pieces);
    if done.is_err() {
        remove_outputs(ctx, &pieces);
    }
    done.map(Some)
}

#[cfg(not(test))]
fn has_thread() -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// Whether the jobs of this thread find no thread for their pieces.
    static NO_THREADS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
fn has_thread() -> std::io::Result<()> {
    match NO_THREADS.get() {
        true => Err(std::io::ErrorKind::WouldBlock.into()),
        false => Ok(()),
    }
}

/// What all pieces share.
struct Plan<'a> {
    ctx: &'a JobContext<'a>,
    compaction: &'a Compaction,
    /// Of inputs that delete ranges.
    readers: Vec<Arc<SstReader>>,
    /// Of files above that delete ranges.
    readers_above: Vec<Arc<SstReader>>,
    below: Below,
    /// Keys at which the merge is cut into pieces, ascending.
    cuts: Vec<Vec<u8>>,
    now_ms: u64,
    readahead_bytes: usize,
    /// Which values move, if any do.
    moving: Option<&'a Moving<'a>>,
}

impl<'a> Plan<'a> {
    fn new(ctx: &'a JobContext<'a>, compaction: &'a Compaction) -> Result<Self> {
        let above = &compaction.above;
        let readers_of = |file: &File| ctx.table_cache.reader_for_work(file);
        let (inputs, files_above) =
            (compaction.files(), above.iter().flat_map(|above| above.files()));
        let readers = inputs.filter(|f| deletes_ranges(f)).map(readers_of);
        let readers_above = files_above.filter(|f| deletes_ranges(f)).map(readers_of);
        let levels = compaction.inputs.iter().chain(above.iter().flat_map(|above| &above.runs));
        let runs: usize =
            levels.map(|(level, files)| if *level == 0 { files.len() } else { 1 }).sum();
        Ok(Self {
            ctx,
            compaction,
            readers: readers.collect::<Result<_>>()?,
            readers_above: readers_above.collect::<Result<_>>()?,
            below: below(ctx.version, compaction),
            cuts: piece_cuts(ctx, compaction)?,
            now_ms: ctx.clock.wall_ms(),
            readahead_bytes: readahead_bytes(ctx.options.job_buffer_bytes, runs),
            moving: ctx.moving.as_ref().filter(|moving| moving.moves(compaction)),
        })
    }
}

/// Bytes to read ahead in each of `runs` inputs that share buffers of `buffer_bytes`, which are not of the budget.
fn readahead_bytes(buffer_bytes: usize, runs: usize) -> usize {
    let runs = runs.max(1);
    let least = MIN_READAHEAD_BYTES.min(buffer_bytes / LEAST_PART);
    let least = least.min(MOST_BUFFERS * buffer_bytes / runs).max(LEAST_READAHEAD_BYTES);
    (buffer_bytes / runs).clamp(least, MAX_READAHEAD_BYTES)
}

/// What one piece did.
#[derive(Default)]
struct Piece {
    files: Vec<FileMeta>,
    moved: Moved,
    references: References,
    read: u64,
    kept: u64,
}

/// The files that may hold versions older than the inputs' of keys that the inputs hold: all in
/// deeper levels than the first one read, and of L0 those older than the newest input, as far as
/// they are not inputs.
pub(crate) fn below(version: &Version, compaction: &Compaction) -> Below {
    let inputs: HashSet<FileNumber> = compaction.files().map(|f| f.number).collect();
    let Some(span) = Span::of(compaction.files()) else { return Below::everywhere() };
    let level0 = version.level(0).files().iter();
    let older = level0.skip_while(|f| !inputs.contains(&f.number));
    let deeper = version.levels().iter().skip(usize::from(compaction.start_level) + 1);
    let all = older.chain(deeper.flat_map(|level| level.files()));
    Below::files(all.filter(|f| !inputs.contains(&f.number) && span.overlaps(f)).map(|f| &**f))
}

/// Keys that cut the inputs into pieces of about equal size; none if one piece is enough.
fn piece_cuts(ctx: &JobContext<'_>, compaction: &Compaction) -> Result<Vec<Vec<u8>>> {
    let bytes = compaction.input_bytes();
    let least = MIN_PIECE_BYTES.min(ctx.options.target_file_bytes).max(1);
    let most = (bytes / least).min(ctx.options.max_subcompactions as u64);
    // An output in L0 is one run, so it is one file.
    if most < 2 || compaction.output_level == 0 {
        return Ok(Vec::new());
    }
    let mut steps: Vec<(Vec<u8>, u64)> = Vec::new();
    for file in compaction.files() {
        let keys = ctx.table_cache.reader_for_work(file)?.index_separators(CUTS_PER_FILE)?;
        let part = file.size_bytes / (keys.len() as u64 + 1);
        steps.push((file.smallest.clone(), 0));
        steps.extend(keys.into_iter().map(|key| (key, part)));
        steps.push((file.largest.clone(), part));
    }
    steps.sort();
    let mut cuts: Vec<Vec<u8>> = Vec::new();
    let mut passed = 0;
    for (key, part) in steps {
        passed += part;
        let due = bytes / most * (cuts.len() as u64 + 1);
        if passed >= due && cuts.len() as u64 + 1 < most && cuts.last() != Some(&key) {
            cuts.push(key);
        }
    }
    Ok(cuts)
}

/// The runs of `levels`, newest first, as far as they may hold keys of `[start, end)`.
fn open_runs(
    plan: &Plan<'_>,
    levels: &[(u8, Vec<File>)],
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<Vec<RunIter>> {
    let options =
        ScanOptions { readahead_bytes: plan.readahead_bytes, ..ScanOptions::compaction() };
    let table_cache = plan.ctx.table_cache;
    let inside = |f: &&File| {
        start.is_none_or(|start| !f.ends_before(start))
            && end.is_none_or(|end| f.smallest.as_slice() < end)
    };
    let mut runs = Vec::new();
    for (level, files) in levels {
        let files = files.iter().filter(inside);
        if *level == 0 {
            for file in files {
                runs.push(RunIter::Sst(table_cache.reader_for_work(file)?.iter(options)));
            }
        } else {
            let files: Vec<File> = files.cloned().collect();
            if !files.is_empty() {
                runs.push(RunIter::Level(LevelIter::new(table_cache.clone(), files, options)));
            }
        }
    }
    Ok(runs)
}

/// The range tombstones of files, as far as they cover keys of `[start, end)`.
fn range_tombstones(
    readers: &[Arc<SstReader>],
    snapshots: &[SeqNo],
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> RangeTombstones {
    let sets = readers.iter().map(|reader| reader.range_tombstones());
    let fragments = sets.flat_map(|set| set.fragments_in(start, end));
    collapse_tombstones(fragments.flat_map(Fragment::tombstones), snapshots)
}

/// What files above hide of the keys of `[start, end)`, if there are any.
fn hiding<'p>(
    plan: &'p Plan<'_>,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<Option<Hiding<'p>>> {
    let Some(above) = &plan.compaction.above else { return Ok(None) };
    let snapshots = &plan.ctx.snapshots;
    let tombstones = range_tombstones(&plan.readers_above, snapshots, start, end);
    let entries = MergingIter::new(open_runs(plan, &above.runs, start, end)?);
    Hiding::new(entries, tombstones, snapshots, start).map(Some)
}

/// Merges the keys of `[start, end)`; `None` if it was cancelled.
fn run_piece(plan: &Plan<'_>, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Option<Piece>> {
    let (ctx, compaction) = (plan.ctx, plan.compaction);
    let tombstones = range_tombstones(&plan.readers, &ctx.snapshots, start, end);
    let mut hiding = hiding(plan, start, end)?;
    let mut below = plan.below.clone();
    let survivors = surviving_tombstones(&tombstones, &ctx.snapshots, &below);
    let zero_seqnos = compaction.output_level > 0 && !ctx.options.keeps_seqnos;
    let retain = Retain::new(&ctx.snapshots, &tombstones, plan.now_ms, &mut below, zero_seqnos);
    let operator = ctx.options.merge_operator.as_deref();
    let read_value = |key: &[u8], handle| read_value(ctx, key, handle);
    let to_fold = |key: &[u8], handle| read_value(key, handle).ok();
    let filter =
        ctx.filtering.as_ref().map(|filtering| Filter { filtering, read_value: &read_value });
    let mut fold =
        Fold::new(retain, Folding { operator, read_value: &to_fold }).with_filter(filter);
    let mut output = Output::new(output_context(plan), survivors).cancelable(ctx.cancel);
    if compaction.output_level > 0 {
        output = output.aligned_to(&compaction.grandparents);
    }
    let stage = Stage::new(stage_context(ctx), plan.moving, output);
    let mut staged =
        Staged { stage, kept: 0, moving: plan.moving, room: ctx.kept_room, unlooked_bytes: 0 };
    let mut merge = MergingIter::new(open_runs(plan, &compaction.inputs, start, end)?);
    match start {
        Some(start) => merge.seek(start, u64::MAX)?,
        None => merge.seek_to_first()?,
    }
    let mut piece = Piece::default();
    let mut raw_bytes = 0;
    while merge.valid() {
        let (user_key, value) = (merge.user_key(), merge.value());
        if end.is_some_and(|end| user_key >= end) {
            break;
        }
        piece.read += 1;
        raw_bytes += (user_key.len() + value.len()) as u64;
        let is_hidden = match &mut hiding {
            Some(hiding) => hiding.hides(user_key, merge.trailer())?,
            None => false,
        };
        match is_hidden {
            true => staged.drop(user_key, merge.trailer(), value),
            false => fold.next(user_key, merge.trailer(), value, &mut staged)?,
        }
        if piece.read.is_multiple_of(LOOK_ENTRIES) {
            ctx.progress.read.fetch_add(std::mem::take(&mut raw_bytes), Ordering::Relaxed);
            if ctx.cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        merge.next()?;
    }
    ctx.progress.read.fetch_add(raw_bytes, Ordering::Relaxed);
    if ctx.cancel.load(Ordering::Relaxed) {
        return Ok(None);
    }
    fold.finish(&mut staged)?;
    piece.kept = staged.kept;
    (piece.files, piece.moved, piece.references) = staged.stage.finish()?;
    Ok(Some(piece))
}

/// The stage that moves values, with a count of what goes through it.
struct Staged<'a> {
    stage: Stage<'a>,
    kept: u64,
    moving: Option<&'a Moving<'a>>,
    room: Option<&'a KeptRoom<'a>>,
    /// Bytes kept since the last look at what is free: what is dropped takes no room.
    unlooked_bytes: u64,
}

impl Staged<'_> {
    /// Looks at what is free, once enough is kept.
    fn look(&mut self, room: &KeptRoom<'_>, bytes: u64) -> Result<()> {
        self.unlooked_bytes += bytes;
        if self.unlooked_bytes >= room.look_bytes() {
            self.unlooked_bytes = 0;
            room.look()?;
        }
        Ok(())
    }
}

impl Sink for Staged<'_> {
    #[inline]
    fn keep(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        self.kept += 1;
        if let Some(room) = self.room {
            let moved = self.moving.map_or(0, |moving| moving.moved_bytes(trailer, value));
            self.look(room, (user_key.len() + value.len()) as u64 + moved)?;
        }
        self.stage.add(user_key, trailer, value)
    }

    #[inline]
    fn drop(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) {
        self.stage.note_dropped(user_key, trailer, value);
    }
}

/// A separated value, for the merge operator or the compaction filter.
fn read_value(ctx: &JobContext<'_>, key: &[u8], handle: ValueHandle) -> Result<Slice> {
    let value = ctx.moving.as_ref().map(|moving| {
        let value = moving.log.get_held(&moving.held, key, handle, false).transpose();
        value.unwrap_or_else(|| Err(moving.log.missing(&handle)))
    });
    value.unwrap_or_else(|| {
        let path = names::log_path(ctx.dir, handle.segment);
        Err(Error::corruption(&path, handle.offset, "the store has no segments with values"))
    })
}

fn stage_context<'p>(ctx: &'p JobContext<'_>) -> StageContext<'p> {
    StageContext {
        vfs: ctx.vfs,
        dir: ctx.dir,
        next_file_number: ctx.next_file_number,
        limiter: ctx.limiter,
        cancel: ctx.cancel,
    }
}

fn output_context<'p>(plan: &'p Plan<'_>) -> OutputContext<'p> {
    let ctx = plan.ctx;
    let level = usize::from(plan.compaction.output_level);
    OutputContext {
        vfs: ctx.vfs,
        dir: ctx.dir,
        next_file_number: ctx.next_file_number,
        sst_options: SstOptions {
            flushed_seqno: ctx.flushed_seqno,
            ..ctx.options.sst(level, plan.now_ms)
        },
        target_file_bytes: match level {
            0 => u64::MAX,
            // Short where room is: one file can be rewritten where a long one could not.
            _ => longest_bytes(
                &**ctx.vfs,
                ctx.dir,
                ctx.options.target_file_bytes,
                ctx.version.size_bytes(),
            ),
        },
        max_writer_bytes: ctx.options.job_buffer_bytes,
        limiter: ctx.limiter,
        trainings: ctx.table_cache.trainings(),
        progress: ctx.progress,
    }
}

/// All pieces, or the first error, or `None` if any was cancelled; in the latter cases the files of
/// the others are removed.
fn gather(ctx: &JobContext<'_>, results: Vec<Result<Option<Piece>>>) -> Result<Option<Vec<Piece>>> {
    let mut pieces = Vec::new();
    let mut failed = None;
    let mut cancelled = false;
    for result in results {
        match result {
            Ok(Some(piece)) => pieces.push(piece),
            Ok(None) => cancelled = true,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if failed.is_some() || cancelled {
        remove_outputs(ctx, &pieces);
        return failed.map_or(Ok(None), Err);
    }
    Ok(Some(pieces))
}

fn remove_outputs(ctx: &JobContext<'_>, pieces: &[Piece]) {
    let files = pieces.iter().flat_map(|piece| &piece.files);
    remove_unpublished(ctx.vfs, ctx.dir, files.map(|file| file.number));
    let segments = pieces.iter().flat_map(|piece| &piece.moved.segments);
    remove_segments(ctx.vfs, ctx.dir, segments.map(|segment| segment.number));
}

/// Checks the stats and writes the edit.
fn conclude(ctx: &JobContext<'_>, compaction: &Compaction, pieces: &[Piece]) -> Result<JobOutput> {
    let files = || pieces.iter().flat_map(|piece| &piece.files);
    let held: u64 = compaction.files().map(|f| f.entry_count).sum();
    let read: u64 = pieces.iter().map(|piece| piece.read).sum();
    let kept: u64 = pieces.iter().map(|piece| piece.kept).sum();
    let written: u64 = files().map(|f| f.entry_count).sum();
    if held != read || kept != written {
        let number = compaction.files().map(|f| f.number).min().unwrap_or_default();
        let detail = format!(
            "a compaction with this input lost count: its inputs hold {held} entries and it read \
             {read}, it kept {kept} and wrote {written}"
        );
        return Err(Error::corruption(&names::sst_path(ctx.dir, number), 0, detail));
    }
    let mut references = References::default();
    pieces.iter().for_each(|piece| references.add(&piece.references));
    let inputs = compaction.files().map(|file| &**file);
    if let Some((segment, wanted, found)) = references.imbalance(inputs, files()) {
        let detail = format!(
            "a compaction that reads values of this segment lost count: its outputs should refer \
             to {wanted} bytes and refer to {found}"
        );
        let path = names::log_path(ctx.dir, segment);
        return Err(Error::corruption(&path, 0, detail));
    }
    let removed = compaction
        .inputs
        .iter()
        .flat_map(|(level, files)| files.iter().map(|f| (*level, f.number)))
        .collect();
    let mut added: Vec<_> = files().map(|f| (compaction.output_level, f.clone())).collect();
    if compaction.output_level == 0 {
        // It takes the place of its inputs in the order of L0, whatever was dropped.
        let newest = compaction.files().map(|file| file.largest_seqno).max().unwrap_or_default();
        added.iter_mut().for_each(|(_, f)| f.largest_seqno = f.largest_seqno.max(newest));
    }
    Ok(JobOutput {
        edit: FamilyEdit { id: compaction.family, added, removed, ..FamilyEdit::default() },
        segments: pieces.iter().flat_map(|piece| &piece.moved.segments).copied().collect(),
        stats: JobStats {
            read_bytes: compaction.input_bytes(),
            written_bytes: files().map(|f| f.size_bytes).sum(),
            read_entries: read,
            dropped_entries: read - kept,
            moved_values: pieces.iter().map(|piece| piece.moved.values).sum(),
            moved_bytes: pieces.iter().map(|piece| piece.moved.bytes).sum(),
            pieces: pieces.len() as u64,
            filtered: ctx.filtering.as_ref().map(Filtering::counts).unwrap_or_default(),
        },
    })
}

#[cfg(test)]
mod tests;
