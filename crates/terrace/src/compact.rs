//! Compaction, from the choice to the installed result (compact, steps 1, 2 and 5): choose under
//! the scheduler's lock, claim the inputs, run the job, install, release the claim.

use crate::compaction::job::{self, JobContext};
use crate::compaction::pick::{
    Choice, Compaction, File, Manual, ManualStep, Move, PickInput, Span, Values,
};
use crate::compaction::values::Moving;
use crate::compaction::{pending_bytes, pick, pick_idle, pick_manual};
use crate::error::{Error, Result};
use crate::event;
use crate::family::Family;
use crate::flush;
use crate::gc;
use crate::inner::Inner;
use crate::install::{self, Change};
use crate::job_list::{JobKind, JobStart};
use crate::metrics::add;
use crate::scheduler::{Jobs, Running};
use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_base::sync::Instant;
use terrace_manifest::{FamilyEdit, SegmentMeta, Version};

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

/// What all families' choices are made from that concerns separated values.
struct ValueState {
    doomed: Arc<HashSet<u32>>,
    hidden: Arc<HashMap<u64, u64>>,
    force: bool,
    live_bytes: u64,
    segment_bytes: u64,
}

impl ValueState {
    fn new(inner: &Inner, idle: bool) -> Self {
        Self {
            doomed: inner.value_log.doomed().clone(),
            hidden: inner.gc.hidden(),
            force: idle || inner.gc.is_overdue(inner.clock.monotonic_us()),
            live_bytes: inner.value_log.live_bytes(),
            segment_bytes: inner.options.advanced.segment_bytes,
        }
    }
}

/// What a family's choice is made from. The version is read under the scheduler's lock: a job
/// installs before it releases its claim, so the version is never older than the claims.
fn input<'a>(
    inner: &Inner,
    family: &'a Family,
    version: &'a Version,
    jobs: &'a Jobs,
    values: &'a ValueState,
) -> PickInput<'a> {
    PickInput {
        family: family.id,
        version,
        options: &family.options,
        in_progress: &jobs.busy_files,
        running: &jobs.running,
        snapshots_oldest: inner.snapshots.oldest(),
        now_ms: inner.clock.wall_ms(),
        values: Values {
            doomed: &values.doomed,
            force: values.force,
            hidden: &values.hidden,
            live_bytes: values.live_bytes,
            segment_bytes: values.segment_bytes,
        },
    }
}

/// The next choice of all families; idle work only if no family has other work.
fn choose(inner: &Inner, jobs: &Jobs, idle: bool) -> Option<(Arc<Family>, Choice)> {
    let families = inner.families.load();
    let values = ValueState::new(inner, idle);
    let kinds: &[fn(&PickInput<'_>) -> Choice] = if idle { &[pick, pick_idle] } else { &[pick] };
    for choose in kinds {
        for family in families.iter().filter(|f| !f.is_dropped()) {
            let version = family.state().version.clone();
            let input = input(inner, family, &version, jobs, &values);
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

/// Runs and installs one compaction that `choose` wants, on the caller's thread, beside those of the
/// background; `None` if there is nothing that it wants, or something running is in the way. Gives
/// the bytes read and written, values included.
pub(crate) fn run_for_values(
    inner: &Inner,
    choose: fn(&PickInput<'_>) -> Option<Choice>,
) -> Result<Option<Volume>> {
    let mut jobs = inner.scheduler.lock();
    if inner.scheduler.is_stopping() {
        return Err(Error::Closed);
    }
    let mut values = ValueState::new(inner, false);
    values.force = true;
    let chosen = inner.families.load().iter().filter(|f| !f.is_dropped()).find_map(|family| {
        let version = family.state().version.clone();
        let choice = choose(&input(inner, family, &version, &jobs, &values))?;
        Some((family.clone(), choice))
    });
    let Some((family, choice)) = chosen else { return Ok(None) };
    let claim = Claim::new(inner, &mut jobs, &choice);
    drop(jobs);
    let result = execute(inner, &family, &choice);
    drop(choice);
    drop(claim);
    result.map(Some)
}

/// Bytes read and written.
pub(crate) type Volume = (u64, u64);

fn execute(inner: &Inner, family: &Arc<Family>, choice: &Choice) -> Result<Volume> {
    match choice {
        Choice::Nothing => Ok((0, 0)),
        Choice::Move(moved) => {
            add(&inner.counters.trivial_moves, moved.files.len() as u64);
            install_edit(inner, family, moved.edit(), Vec::new())?;
            Ok((0, 0))
        }
        Choice::Merge(merge) => run_merge(inner, family, merge),
    }
}

fn run_merge(inner: &Inner, family: &Arc<Family>, merge: &Compaction) -> Result<Volume> {
    let start = Instant::now();
    // What is doomed by now is emptied by this merge if it comes to it.
    gc::step(inner);
    let state = family.hold_state();
    let moving = moving(inner);
    let moves = moving.as_ref().is_some_and(|moving| moving.moves(merge));
    let entered = inner.jobs.enter(&*inner.clock, job_start(family, merge, moves));
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
        progress: entered.progress(),
        moving,
    };
    let moving_job = moves.then(|| inner.gc.enter_job());
    let output =
        job::run(&context, merge).map_err(|error| match inner.scheduler.is_stopping() {
            true => Error::Closed,
            false => job_failed(inner, error),
        })?;
    let Some(output) = output else { return Err(Error::Closed) };
    let level = usize::from(merge.output_level);
    let (edit, stats) = (output.edit, output.stats);
    let emptied = stats.moved_values > 0;
    install_edit(inner, family, edit, output.segments)?;
    if emptied {
        // What is empty now goes at once: it has been there twice for long enough.
        install::drop_dead_segments(inner)?;
    }
    drop(moving_job);
    let c = &inner.counters;
    let (read, written) = (stats.read_bytes, stats.written_bytes);
    add(&c.compactions, 1);
    add(&c.gc_moved_values, stats.moved_values);
    add(&c.gc_moved_bytes, stats.moved_bytes);
    add(&c.compaction_read_bytes, read);
    add(&c.compaction_written_bytes, written);
    if let Some(counter) = c.level_written_bytes.get(level) {
        add(counter, written);
    }
    add(&c.entries_dropped, stats.dropped_entries);
    c.compaction_latency.record_ns(start.elapsed().as_nanos() as u64);
    let took = start.elapsed().as_micros() as u64;
    event::compacted(&family.name, &merge.to_string(), read, written, took);
    gc::step(inner);
    Ok((read + stats.moved_bytes, written + stats.moved_bytes))
}

/// What is known of a merge when it starts.
fn job_start(family: &Family, merge: &Compaction, moves: bool) -> JobStart {
    let numbered = |(level, files): &(u8, Vec<File>)| {
        let level = *level;
        files.iter().map(move |file| (level, file.number)).collect::<Vec<_>>()
    };
    JobStart {
        kind: if moves { JobKind::GarbageCollection } else { JobKind::Compaction },
        family: family.name.clone(),
        inputs: merge.inputs.iter().flat_map(numbered).collect(),
        output_level: merge.output_level,
        input_bytes: merge.input_bytes(),
        to_read: merge.files().map(|file| file.raw_bytes).sum(),
    }
}

/// Which values a merge that starts now moves.
fn moving(inner: &Inner) -> Option<Moving<'_>> {
    let log = &*inner.value_log;
    if !log.is_used() {
        return None;
    }
    let doomed = log.doomed().clone();
    Some(Moving {
        log,
        held: log.hold(),
        doomed_live_bytes: doomed.iter().map(|number| log.live_bytes_of(*number)).sum(),
        doomed,
        segment_bytes: inner.options.advanced.segment_bytes,
    })
}

/// A damaged input stops this compaction, not the writes: nothing was lost by it. Anything that
/// went wrong while writing counts as a failure of the write path.
fn job_failed(inner: &Inner, error: terrace_base::Error) -> Error {
    match error.is_corruption() {
        true => error.into(),
        false => inner.health.fail("compaction", error),
    }
}

fn install_edit(
    inner: &Inner,
    family: &Arc<Family>,
    edit: FamilyEdit,
    segments: Vec<SegmentMeta>,
) -> Result<()> {
    if family.is_dropped() {
        return Ok(());
    }
    let flushed = Vec::new();
    install::install(inner, vec![Change { family: family.clone(), edit, flushed, segments }])
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
            // What the last of them revealed may be worth collecting.
            gc::step(inner);
            jobs = inner.scheduler.lock();
            if choose(inner, &jobs, true).is_some() {
                continue;
            }
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
        let values = ValueState::new(inner, false);
        let step = pick_manual(&input(inner, family, &version, &jobs, &values), &mut manual);
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
