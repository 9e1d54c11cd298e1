//! Compaction, from the choice to the installed result (compact, steps 1, 2 and 5): choose under
//! the scheduler's lock, claim the inputs, run the job, install, release the claim.

use crate::compaction::job::{self, JobContext};
use crate::compaction::pick::{Choice, Compaction, Manual, ManualStep, Move, PickInput, Span};
use crate::compaction::{pending_bytes, pick, pick_idle, pick_manual};
use crate::error::{Error, Result};
use crate::event;
use crate::family::Family;
use crate::flush;
use crate::inner::Inner;
use crate::install::{self, Change};
use crate::metrics::add;
use crate::scheduler::{Jobs, Running};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_manifest::{FamilyEdit, Version};

/// A store that committed nothing for this long is idle.
const IDLE_AFTER_US: u64 = 400_000;

/// How long a waiter sleeps before it looks again; a finished job wakes it earlier.
const RECHECK: Duration = Duration::from_millis(50);

/// How long settling waits for filters.
const MOST_FILTER_WAIT: Duration = Duration::from_secs(2);

/// How far a `compact_range` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Merges and moves done so far.
    pub steps: u64,
    /// Bytes read so far.
    pub read_bytes: u64,
    /// Bytes written so far.
    pub written_bytes: u64,
    /// Level whose files the next step takes down.
    pub level: usize,
}

/// The inputs of a compaction, taken until this is dropped.
struct Claim<'a> {
    inner: &'a Inner,
    id: u64,
    files: Vec<u64>,
}

impl<'a> Claim<'a> {
    fn new(inner: &'a Inner, jobs: &mut Jobs, choice: &Choice) -> Option<Self> {
        let id = jobs.next_id();
        let (running, files): (Running, Vec<u64>) = match choice {
            Choice::Nothing => return None,
            Choice::Move(moved) => {
                (running_move(moved, id), moved.files.iter().map(|f| f.number).collect())
            }
            Choice::Merge(merge) => (merge.running(id), merge.files().map(|f| f.number).collect()),
        };
        jobs.running.push(running);
        jobs.busy_files.extend(&files);
        Some(Self { inner, id, files })
    }
}

fn running_move(moved: &Move, id: u64) -> Running {
    let span = Span::of(&moved.files);
    Running {
        id,
        family: moved.family,
        output_level: moved.to,
        smallest: span.map_or_else(Vec::new, |s| s.start.to_vec()),
        largest: span.map_or_else(Vec::new, |s| s.end.to_vec()),
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        {
            let mut jobs = self.inner.scheduler.lock();
            jobs.running.retain(|running| running.id != self.id);
            for number in &self.files {
                jobs.busy_files.remove(number);
            }
        }
        self.inner.scheduler.job_ended();
    }
}

/// What a family's choice is made from. The version is read under the scheduler's lock: a job
/// installs before it releases its claim, so the version is never older than the claims.
fn input<'a>(
    inner: &Inner,
    family: &'a Family,
    version: &'a Version,
    jobs: &'a Jobs,
) -> PickInput<'a> {
    PickInput {
        family: family.id,
        version,
        options: &family.options,
        in_progress: &jobs.busy_files,
        running: &jobs.running,
        snapshots_oldest: inner.snapshots.oldest(),
        now_ms: inner.clock.wall_ms(),
    }
}

/// The next choice of all families; idle work only if no family has other work.
fn choose(inner: &Inner, jobs: &Jobs, idle: bool) -> Option<(Arc<Family>, Choice)> {
    let families = inner.families.load();
    let kinds: &[fn(&PickInput<'_>) -> Choice] = if idle { &[pick, pick_idle] } else { &[pick] };
    for choose in kinds {
        for family in families.iter().filter(|f| !f.is_dropped()) {
            let version = family.state().version.clone();
            let input = input(inner, family, &version, jobs);
            family.pending_bytes.store(pending_bytes(&input), Ordering::Relaxed);
            let choice = choose(&input);
            if !matches!(choice, Choice::Nothing) {
                return Some((family.clone(), choice));
            }
        }
    }
    None
}

/// Whether idle compaction may run now: asked for, or nothing was written for a while.
fn is_idle(inner: &Inner, jobs: &mut Jobs) -> bool {
    if jobs.settling > 0 {
        return true;
    }
    let now = inner.clock.monotonic_us();
    let groups = inner.counters.groups.load(Ordering::Relaxed);
    if jobs.last_groups != groups || jobs.quiet_since_us == 0 {
        jobs.last_groups = groups;
        jobs.quiet_since_us = now.max(1);
    }
    let options = &inner.options.advanced;
    options.compact_when_idle && now.saturating_sub(jobs.quiet_since_us) >= IDLE_AFTER_US
}

/// Chooses, runs and installs one compaction; false if there was nothing to do.
pub(crate) fn run_next(inner: &Inner) -> Result<bool> {
    if inner.health.check_writable().is_err() {
        return Ok(false);
    }
    let (family, choice, claim) = {
        let mut jobs = inner.scheduler.lock();
        if jobs.manual > 0 {
            return Ok(false);
        }
        let idle = is_idle(inner, &mut jobs);
        let Some((family, choice)) = choose(inner, &jobs, idle) else { return Ok(false) };
        let claim = Claim::new(inner, &mut jobs, &choice);
        (family, choice, claim)
    };
    let result = execute(inner, &family, &choice);
    // The inputs are let go of before anybody hears of the end, so that whoever waits for it finds
    // them free to be deleted.
    drop(choice);
    drop(claim);
    result.map(|_| true)
}

/// Bytes read and written.
type Volume = (u64, u64);

fn execute(inner: &Inner, family: &Arc<Family>, choice: &Choice) -> Result<Volume> {
    match choice {
        Choice::Nothing => Ok((0, 0)),
        Choice::Move(moved) => {
            add(&inner.counters.trivial_moves, moved.files.len() as u64);
            install_edit(inner, family, moved.edit())?;
            Ok((0, 0))
        }
        Choice::Merge(merge) => run_merge(inner, family, merge),
    }
}

fn run_merge(inner: &Inner, family: &Arc<Family>, merge: &Compaction) -> Result<Volume> {
    let start = Instant::now();
    let state = family.hold_state();
    let progress = AtomicU64::new(0);
    let context = JobContext {
        vfs: &inner.vfs,
        dir: &inner.dir,
        table_cache: &inner.table_cache,
        next_file_number: &|| inner.next_file_number(),
        options: &family.options,
        snapshots: inner.snapshots.list(),
        clock: &*inner.clock,
        limiter: &inner.limiter,
        cancel: &inner.scheduler.cancel,
        version: &state.version,
        progress: &progress,
    };
    let output =
        job::run(&context, merge).map_err(|error| match inner.scheduler.is_stopping() {
            true => Error::Closed,
            false => job_failed(inner, error),
        })?;
    let Some(output) = output else { return Err(Error::Closed) };
    let level = usize::from(merge.output_level);
    install_edit(inner, family, output.edit)?;
    let c = &inner.counters;
    let (read, written) = (output.stats.read_bytes, output.stats.written_bytes);
    add(&c.compactions, 1);
    add(&c.compaction_read_bytes, read);
    add(&c.compaction_written_bytes, written);
    if let Some(counter) = c.level_written_bytes.get(level) {
        add(counter, written);
    }
    add(&c.entries_dropped, output.stats.dropped_entries);
    c.compaction_latency.record_ns(start.elapsed().as_nanos() as u64);
    let took = start.elapsed().as_micros() as u64;
    event::compacted(&family.name, &merge.to_string(), read, written, took);
    Ok((read, written))
}

/// A damaged input stops this compaction, not the writes: nothing was lost by it. Anything that
/// went wrong while writing counts as a failure of the write path.
fn job_failed(inner: &Inner, error: terrace_base::Error) -> Error {
    match error.is_corruption() {
        true => error.into(),
        false => inner.health.fail("compaction", error),
    }
}

fn install_edit(inner: &Inner, family: &Arc<Family>, edit: FamilyEdit) -> Result<()> {
    if family.is_dropped() {
        return Ok(());
    }
    install::install(
        inner,
        vec![Change { family: family.clone(), edit, flushed: Vec::new(), segments: Vec::new() }],
    )
}

/// Waits until no flush and no compaction is running or wanted.
pub(crate) fn wait_idle(inner: &Inner) -> Result<()> {
    inner.write_queue()?;
    inner.scheduler.lock().settling += 1;
    inner.scheduler.wake();
    let result = wait_until_settled(inner);
    inner.scheduler.lock().settling -= 1;
    result
}

fn wait_until_settled(inner: &Inner) -> Result<()> {
    let mut jobs = inner.scheduler.lock();
    loop {
        inner.health.check_writable()?;
        if inner.scheduler.is_stopping() {
            return Err(Error::Closed);
        }
        let waiting = |f: &Arc<Family>| !f.is_dropped() && !f.state().immutables.is_empty();
        let flushes = inner.families.load().iter().any(waiting);
        if !flushes && jobs.is_quiet() && choose(inner, &jobs, true).is_none() {
            drop(jobs);
            install::purge(inner)?;
            wait_for_filters(inner);
            return Ok(());
        }
        inner.scheduler.wait_for_end(&mut jobs, RECHECK);
    }
}

/// Waits until new files have their filters in memory, as far as there is room; a while at most,
/// since lookups that go on may move units for ever.
fn wait_for_filters(inner: &Inner) {
    let start = Instant::now();
    inner.scheduler.job_ended();
    while inner.filters.has_work(true)
        && start.elapsed() < MOST_FILTER_WAIT
        && !inner.scheduler.is_stopping()
    {
        let mut jobs = inner.scheduler.lock();
        inner.scheduler.wait_for_end(&mut jobs, RECHECK / 5);
    }
}

/// Keeps background compactions from starting while it lives.
struct ManualTurn<'a>(&'a Inner);

impl<'a> ManualTurn<'a> {
    fn new(inner: &'a Inner) -> Self {
        inner.scheduler.lock().manual += 1;
        Self(inner)
    }
}

impl Drop for ManualTurn<'_> {
    fn drop(&mut self) {
        self.0.scheduler.lock().manual -= 1;
        self.0.scheduler.wake();
    }
}

/// Merges everything of `family` in `[start, end)` down to its last level, on the caller's thread.
pub(crate) fn range(
    inner: &Inner,
    family: &Arc<Family>,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    flush::all(inner)?;
    let _turn = ManualTurn::new(inner);
    let bound = |key: &[u8]| key.to_vec();
    let mut manual = Manual::new(
        start.map_or(Bound::Unbounded, |key| Bound::Included(bound(key))),
        end.map_or(Bound::Unbounded, |key| Bound::Excluded(bound(key))),
    );
    let mut told = Progress { steps: 0, read_bytes: 0, written_bytes: 0, level: 0 };
    loop {
        inner.health.check_writable()?;
        let mut jobs = inner.scheduler.lock();
        if inner.scheduler.is_stopping() {
            return Err(Error::Closed);
        }
        let version = family.state().version.clone();
        let step = pick_manual(&input(inner, family, &version, &jobs), &mut manual);
        let choice = match step {
            ManualStep::Done => return Ok(()),
            ManualStep::Wait => {
                inner.scheduler.wait_for_end(&mut jobs, RECHECK);
                continue;
            }
            ManualStep::Do(choice) => choice,
        };
        let claim = Claim::new(inner, &mut jobs, &choice);
        drop(jobs);
        let (read, written) = execute(inner, family, &choice)?;
        drop(choice);
        drop(claim);
        told.steps += 1;
        told.read_bytes += read;
        told.written_bytes += written;
        told.level = manual.level;
        progress(told);
        install::purge(inner)?;
    }
}
