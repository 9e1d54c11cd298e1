//! Flush: all immutable memtables of a family become one L0 file.

use crate::background::compaction::pick;
use crate::background::env::JobEnv;
use crate::background::filter::{self, Filter, Filtering};
use crate::background::fold::{Fold, Folding, Sink};
use crate::background::gc;
use crate::background::output::{Output, OutputContext};
use crate::background::retain::{Below, Retain, collapse_tombstones, surviving_tombstones};
use crate::compaction_filter::{FilterContext, FilterJob};
use crate::env::rate_limit::RateLimiter;
use crate::error::{Error, Result};
use crate::event;
use crate::iter::RunIter;
use crate::iter::merge::MergingIter;
use crate::jobs::background_errors::Work;
use crate::jobs::job_list::{JobKind, JobProgress, JobStart};
use crate::kill_point::kill_point;
use crate::listener::{Event, FlushBegun, FlushEnded, SstInfo};
use crate::memtable::MemTable;
use crate::metrics::add;
use crate::metrics::training::TrainingTally;
use crate::options::HotTableMode;
use crate::version::family::Family;
use crate::version::hot_keys::{self, HotKeys};
use crate::version::install::{self, Change};
use crate::version::read_state::ReadState;
use crate::version::unpublished::remove_unpublished;
use crate::write::log_segments;
use crate::write::queue::LogState;
use crate::write::room;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_base::sync::Instant;
use terrace_base::{Clock, FileNumber, InternalIter, MAX_SEQNO, SeqNo, ValueHandle};
use terrace_buf::Slice;
use terrace_manifest::{FamilyEdit, FileMeta, HOT_LEVEL, Version};
use terrace_sst::SstOptions;
use terrace_vfs::Vfs;

/// Entries that are counted together.
const COUNTED_TOGETHER: u64 = 1024;

/// Flushes what waits; false if nothing did. The caller sees to it that a family is flushed by
/// one thread at a time, so that L0 files appear in the order of their writes.
pub(crate) fn run(env: &JobEnv, family: &Arc<Family>) -> Result<bool> {
    let state = family.hold_state();
    if state.immutables.is_empty() || family.is_dropped() {
        return Ok(false);
    }
    let start = Instant::now();
    let memtable_bytes = state.immutables.iter().map(|m| m.size_bytes() as u64).sum();
    let entered = env.jobs.list.enter(
        &*env.base.clock,
        JobStart {
            kind: JobKind::Flush,
            family: family.name.clone(),
            inputs: Vec::new(),
            output_level: 0,
            input_bytes: memtable_bytes,
            to_read: state.immutables.iter().map(|m| m.entry_count() as u64).sum(),
        },
    );
    let job = tell_begun(env, family, &state);
    let flushed = flush(env, family, &state, entered.progress());
    tell_ended(env, family, job, start.elapsed(), &flushed);
    let Flushed { memtables, entries, bytes, .. } = flushed?;
    let c = &env.base.counters;
    add(&c.flushes, 1);
    add(&c.flush_bytes, bytes);
    add(&c.level_written_bytes[0], bytes);
    let before: usize = state.immutables.iter().map(|m| m.entry_count()).sum();
    add(&c.entries_dropped, (before as u64).saturating_sub(entries));
    gc::step(env);
    c.flush_latency.record_ns(start.elapsed().as_nanos() as u64);
    event::flushed(&family.name, memtables, entries, bytes, start.elapsed().as_micros() as u64);
    Ok(true)
}

/// Tells listeners that a flush begins; gives the number of the job.
fn tell_begun(env: &JobEnv, family: &Family, state: &ReadState) -> u64 {
    let job = env.base.events.next_job();
    env.base.events.tell(|| {
        Event::FlushBegun(FlushBegun {
            job,
            family: family.name.clone(),
            memtables: state.immutables.len(),
            entry_count: state.immutables.iter().map(|m| m.entry_count() as u64).sum(),
        })
    });
    job
}

fn tell_ended(env: &JobEnv, family: &Family, job: u64, took: Duration, flushed: &Result<Flushed>) {
    env.base.events.tell(|| {
        Event::FlushEnded(FlushEnded {
            job,
            family: family.name.clone(),
            files: flushed.as_ref().map(|flushed| flushed.files.clone()).unwrap_or_default(),
            took,
            error: flushed.as_ref().err().cloned(),
        })
    });
}

/// Writes and installs what waits in `state`.
fn flush(
    env: &JobEnv,
    family: &Arc<Family>,
    state: &ReadState,
    progress: &JobProgress,
) -> Result<Flushed> {
    let filtering = filtering(family);
    if let Some(flushed) = flush_once(env, family, state, progress, filtering.as_ref())? {
        return Ok(flushed);
    }
    event::filter_set_aside(&family.name, "flush");
    flush_once(env, family, state, progress, None)?.ok_or(Error::Closed)
}

/// What a flush did.
struct Flushed {
    files: Vec<SstInfo>,
    memtables: usize,
    entries: u64,
    bytes: u64,
}

/// Writes and installs what waits in `state`; `None`, with nothing changed, if a snapshot was taken meanwhile that sees
/// what the compaction filter has changed.
fn flush_once(
    env: &JobEnv,
    family: &Arc<Family>,
    state: &ReadState,
    progress: &JobProgress,
    filtering: Option<&Filtering<'_>>,
) -> Result<Option<Flushed>> {
    let snapshots = env.read.snapshots.list();
    let next_file_number = || env.versions.next_file_number();
    let parts = job_parts(env, &next_file_number, progress);
    let upto = state.immutables.iter().map(|m| m.max_seqno()).max().unwrap_or_default();
    // What is hot is not in this file.
    let hot = state.hot.as_deref();
    let flushed_seqno = hot.map_or(upto, |hot| upto.min(hot.log.since().seqno));
    let stated = hot.map_or(SeqNo::ZERO, |_| flushed_seqno);
    let read_value = |key: &[u8], handle| read_value(env, key, handle);
    let filter = filtering.map(|filtering| Filter { filtering, read_value: &read_value });
    let files = write_l0(&parts, family, &state.immutables, &snapshots, stated, filter);
    match family.hot_table(env.base.dynamic.hot_table()) {
        HotTableMode::Auto => {
            hot_keys::note_life(&family.hot_keys, state, env.read.hot_memtable_bytes(family));
        }
        HotTableMode::Off => *family.hot_keys.lock() = HotKeys::default(),
    }
    let mut files = files.map_err(|error| env.base.health.fail("flush", error))?;
    come_first(&mut files, &state.version);
    kill_point("flush:written");
    let memtables = state.immutables.len();
    let bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
    let entries: u64 = files.iter().map(|file| file.entry_count).sum();
    let told: Vec<SstInfo> = files.iter().map(|file| install::sst_info(0, file)).collect();
    let has_values = files.iter().any(|file| !file.value_refs.is_empty());
    let deletes =
        |file: &FileMeta| pick::mostly_deletes_ranges(file) || pick::mostly_deletes_keys(file);
    let deletes = files.iter().any(deletes);
    // All that was hot in a table that none has followed has cooled, and is in this file or earlier ones.
    let checkpoints = state.version.hot().numbers().iter();
    let removed = checkpoints.filter(|number| hot.is_none_or(|hot| !hot.log.has_file(**number)));
    let removed = removed.map(|number| (HOT_LEVEL, *number)).collect();
    let edit = FamilyEdit {
        id: family.id,
        flushed_seqno: Some(flushed_seqno),
        added: files.into_iter().map(|file| (0, file)).collect(),
        removed,
        ..FamilyEdit::default()
    };
    let keeps_log = env.base.dynamic.log_retention_bytes() > 0;
    if has_values || state.hot.is_some() || keeps_log || env.read.families.load().len() > 1 {
        // What the file refers to must be durable before the file is in force. And a power cut may
        // lose the newest writes of all families, never older ones of one family, or hot ones, while
        // newer ones of another stay, or while change feeds miss what the file has.
        if let Err(error) = log_segments::sync_full_segments(&env.commit) {
            let written = edit.added.iter().map(|(_, file)| file.number);
            remove_unpublished(&env.base.vfs, &env.base.dir, written);
            return Err(error);
        }
    }
    let flushed: Vec<u64> = state.immutables.iter().map(|m| m.id).collect();
    let change =
        Change { family: family.clone(), edit, flushed, segments: Vec::new(), fresh: None };
    if !filter::install(env, change, &snapshots, filtering)? {
        return Ok(None);
    }
    if deletes {
        env.jobs.errors.deletions_came(family.id, env.base.clock.monotonic_us());
    }
    kill_point("flush:installed");
    filter::count(&env.base.counters, filtering.map(Filtering::counts).unwrap_or_default());
    Ok(Some(Flushed { files: told, memtables, entries, bytes }))
}

/// Puts flushed files before all of `version` in the order of L0. Only what was hot can be older, if it was read in
/// again at an open for which there was no room to write; the number was used up there.
fn come_first(files: &mut [FileMeta], version: &Version) {
    let newest = version.files().map(|(_, file)| file.largest_seqno).max().unwrap_or_default();
    for file in files {
        if file.largest_seqno <= newest {
            file.largest_seqno = MAX_SEQNO.min(newest + 1);
        }
    }
}

/// The family's compaction filter, if it applies to flushes.
fn filtering(family: &Family) -> Option<Filtering<'_>> {
    let filter = family.compaction_filter.as_deref()?;
    let context = FilterContext {
        family: family.name.clone(),
        job: FilterJob::Flush,
        start_level: 0,
        output_level: 0,
        is_full: false,
        is_manual: false,
    };
    Filtering::begin(filter, context)
}

/// A separated value of a memtable, for the compaction filter.
fn read_value(env: &JobEnv, key: &[u8], handle: ValueHandle) -> terrace_base::Result<Slice> {
    let value = env.read.value_log.get(key, handle, false)?;
    value.ok_or_else(|| env.read.value_log.missing(&handle))
}

/// What writing an L0 file needs; recovery has these before there is an [`JobEnv`].
pub(crate) struct Parts<'a> {
    pub vfs: &'a Arc<dyn Vfs>,
    pub dir: &'a Path,
    pub clock: &'a dyn Clock,
    pub limiter: &'a Arc<RateLimiter>,
    pub next_file_number: &'a (dyn Fn() -> FileNumber + Sync),
    pub trainings: &'a TrainingTally,
    /// Where the job counts the entries that it reads, for want of bytes.
    pub progress: &'a JobProgress,
}

/// What a job of an open store has.
pub(crate) fn job_parts<'a>(
    env: &'a JobEnv,
    next_file_number: &'a (dyn Fn() -> FileNumber + Sync),
    progress: &'a JobProgress,
) -> Parts<'a> {
    Parts {
        vfs: &env.base.vfs,
        dir: &env.base.dir,
        clock: &*env.base.clock,
        limiter: &env.base.limiter,
        next_file_number,
        trainings: env.read.table_cache.trainings(),
        progress,
    }
}

/// Where and how one file of L0 is written. `flushed_seqno`, unless it is 0: up to where the log is not
/// needed beside it, if that is less than its own entries say.
pub(crate) fn one_file<'a>(
    parts: &Parts<'a>,
    family: &Family,
    now_ms: u64,
    flushed_seqno: SeqNo,
) -> OutputContext<'a> {
    let sst_options = SstOptions { flushed_seqno, ..family.options().sst(0, now_ms) };
    OutputContext {
        vfs: parts.vfs,
        dir: parts.dir,
        next_file_number: parts.next_file_number,
        sst_options,
        target_file_bytes: u64::MAX,
        max_writer_bytes: usize::MAX,
        limiter: parts.limiter,
        trainings: parts.trainings,
        progress: parts.progress,
    }
}

/// Merges `memtables` (newest first) into one L0 file, synced; none if nothing survives. The
/// directory is the caller's to sync. `flushed_seqno` as in [`one_file`]; `filter` if the family's compaction filter
/// applies.
pub(crate) fn write_l0(
    parts: &Parts<'_>,
    family: &Family,
    memtables: &[Arc<MemTable>],
    snapshots: &[SeqNo],
    flushed_seqno: SeqNo,
    filter: Option<Filter<'_>>,
) -> terrace_base::Result<Vec<FileMeta>> {
    let ranges = memtables.iter().flat_map(|m| m.range_tombstones());
    let tombstones = collapse_tombstones(ranges, snapshots);
    let now_ms = parts.clock.wall_ms();
    // Older versions may lie anywhere below, and L0 is ordered by sequence number: neither
    // tombstones are dropped nor numbers zeroed here.
    let mut below = Below::everywhere();
    let retain = Retain::new(snapshots, &tombstones, now_ms, &mut below, false);
    // Operands on separated values wait for a compaction.
    let read_value = |_: &[u8], _| None;
    let operator = family.merge_operator().map(|operator| &**operator);
    let folding = Folding { operator, read_value: &read_value };
    let mut fold = Fold::new(retain, folding).with_filter(filter);
    let survivors = surviving_tombstones(&tombstones, snapshots, &Below::everywhere());
    let context = one_file(parts, family, now_ms, flushed_seqno);
    let mut output = Output::new(context, survivors);
    let runs = memtables.iter().map(|m| RunIter::Mem(m.iter(), Arc::clone(m))).collect();
    let mut merge = MergingIter::new(runs);
    merge.seek_to_first()?;
    let mut read = 0;
    while merge.valid() {
        let (key, trailer, value) = (merge.user_key(), merge.trailer(), merge.value());
        fold.next(key, trailer, value, &mut output)?;
        merge.next()?;
        read += 1;
        if read % COUNTED_TOGETHER == 0 {
            parts.progress.read.fetch_add(COUNTED_TOGETHER, Ordering::Relaxed);
        }
    }
    parts.progress.read.fetch_add(read % COUNTED_TOGETHER, Ordering::Relaxed);
    fold.finish(&mut output)?;
    let mut files = output.finish()?;
    // What has cooled is newer than what L0 has of the same keys in files of newer writes to others.
    let cooled = memtables.iter().filter(|m| m.is_cooled()).map(|m| m.max_seqno()).max();
    let newest = cooled.unwrap_or_default();
    files.iter_mut().for_each(|file| file.largest_seqno = file.largest_seqno.max(newest));
    Ok(files)
}

impl Sink for Output<'_> {
    #[inline]
    fn keep(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) -> terrace_base::Result<()> {
        self.add(user_key, trailer, value)
    }

    #[inline]
    fn drop(&mut self, _: &[u8], _: u64, _: &[u8]) {}
}

/// Makes everything written so far part of SSTs: rotates the memtables and waits for the workers.
pub(crate) fn all(env: &JobEnv) -> Result<()> {
    families(env, &env.read.families.load_full())
}

/// Makes everything written so far to `families` part of SSTs.
pub(crate) fn families(env: &JobEnv, families: &[Arc<Family>]) -> Result<()> {
    env.base.health.check_writable()?;
    let upto = room::rotate_all(&env.commit, families)?;
    wait(env, families, &upto)
}

/// As [`families`] for one, for the leader, which goes on leading: nothing is written meanwhile.
pub(crate) fn one_under_lead(env: &JobEnv, log: &mut LogState, family: &Arc<Family>) -> Result<()> {
    let upto = room::rotate_under_lead(&env.commit, log, family)?;
    wait(env, std::slice::from_ref(family), &[upto])
}

/// Waits until the workers have flushed the memtables of `families` up to the ids in `upto`.
fn wait(env: &JobEnv, families: &[Arc<Family>], upto: &[u64]) -> Result<()> {
    env.jobs.errors.hurry(Work::Flush);
    env.jobs.scheduler.wake();
    let waits = || {
        families.iter().zip(upto).any(|(family, id)| {
            !family.is_dropped() && family.state().immutables.iter().any(|m| m.id <= *id)
        })
    };
    let why_not = |family: &Arc<Family>| {
        let now_us = env.base.clock.monotonic_us();
        env.jobs.errors.why_not(Work::Flush, family.id, std::iter::empty(), now_us)
    };
    env.jobs.scheduler.wait_until(|_| {
        if !waits() {
            return Ok(Some(()));
        }
        env.base.health.check_writable()?;
        families.iter().find_map(why_not).map_or(Ok(None), Err)
    })
}
