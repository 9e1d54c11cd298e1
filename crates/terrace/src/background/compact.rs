//! Compaction, from the choice to the installed result: choose under
//! the scheduler's lock, claim the inputs, run the job, install, release the claim.

use crate::background::choose::{self, Job, Next, Occasion, Shared, choose, input, needs_bytes};
use crate::background::compact_events::{self, Merged, Volume};
use crate::background::compaction::job::{self, JobContext, JobOutput, JobStats};
use crate::background::compaction::kept_room::KeptRoom;
use crate::background::compaction::pick;
use crate::background::compaction::pick::{
    Choice, Compaction, File, Move, PickInput, Reason, Span,
};
use crate::background::compaction::values::Moving;
use crate::background::env::JobEnv;
use crate::background::filter::{self, Filtering};
use crate::background::full_disk::room_for_writes;
use crate::background::gc;
use crate::background::read_again;
use crate::compaction_filter::{FilterContext, FilterJob};
use crate::error::{Error, Result};
use crate::event;
use crate::jobs::background_errors::{Attempt, Work};
use crate::jobs::job_list::{JobKind, JobStart};
use crate::jobs::scheduler::{RunningCompaction, SchedulerState};
use crate::kill_point::kill_point;
use crate::listener::SstInfo;
use crate::metrics::add;
use crate::values::segment_length;
use crate::version::family::Family;
use crate::version::install::{self, Change};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_base::sync::Instant;
use terrace_base::{FileNumber, SegmentNumber};
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{FamilyEdit, FileMeta, SegmentMeta, Version};

/// A store that committed nothing for this long is idle.
const IDLE_AFTER_US: u64 = 400_000;

/// The inputs of a compaction, taken until this is dropped.
pub(crate) struct Claim<'a> {
    env: &'a JobEnv,
    id: u64,
    files: Vec<FileNumber>,
}

impl<'a> Claim<'a> {
    pub fn new(env: &'a JobEnv, jobs: &mut SchedulerState, choice: &Choice) -> Option<Self> {
        let id = jobs.next_id();
        let (running, files): (RunningCompaction, Vec<FileNumber>) = match choice {
            Choice::Nothing => return None,
            Choice::Move(moved) => {
                (running_move(moved, id), moved.files.iter().map(|f| f.number).collect())
            }
            Choice::Merge(merge) => {
                let needs_bytes = needs_bytes(env, merge);
                let running = RunningCompaction { needs_bytes, ..merge.running(id) };
                (running, merge.files().map(|f| f.number).collect())
            }
        };
        jobs.running.push(running);
        jobs.busy_files.extend(&files);
        Some(Self { env, id, files })
    }

    /// Claims the key ranges of `outputs`, files with their levels, that are about to be installed, and the files; as in
    /// [`RunningCompaction::of_outputs`].
    pub fn of_outputs<'f>(
        env: &'a JobEnv,
        jobs: &mut SchedulerState,
        family: u32,
        outputs: impl Iterator<Item = (usize, &'f Arc<FileMeta>)>,
        brings_older: bool,
    ) -> Self {
        let id = jobs.next_id();
        let mut files = Vec::new();
        let outputs = outputs.inspect(|(_, file)| files.push(file.number));
        jobs.running.extend(RunningCompaction::of_outputs(id, family, outputs, brings_older));
        jobs.busy_files.extend(&files);
        Self { env, id, files }
    }
}

fn running_move(moved: &Move, id: u64) -> RunningCompaction {
    let span = Span::of(&moved.files);
    RunningCompaction {
        id,
        family: moved.family,
        output_level: moved.to,
        smallest: span.map_or_else(Vec::new, |s| s.start.to_vec()),
        largest: span.map_or_else(Vec::new, |s| s.end.to_vec()),
        files: Vec::new(),
        brings_older: false,
        needs_bytes: 0,
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        {
            let mut jobs = self.env.jobs.scheduler.lock();
            jobs.running.retain(|running| running.id != self.id);
            for number in &self.files {
                jobs.busy_files.remove(number);
            }
        }
        self.env.jobs.scheduler.job_ended();
    }
}

/// Whether idle compaction may run now: asked for, or nothing was written for a while.
fn is_idle(env: &JobEnv, jobs: &mut SchedulerState) -> bool {
    if jobs.settling > 0 {
        return true;
    }
    let now = env.base.clock.monotonic_us();
    let groups = env.base.counters.groups.load(Ordering::Relaxed);
    if jobs.last_groups != groups || jobs.quiet_since_us == 0 {
        jobs.last_groups = groups;
        jobs.quiet_since_us = now.max(1);
    }
    env.base.dynamic.compact_when_idle() && now.saturating_sub(jobs.quiet_since_us) >= IDLE_AFTER_US
}

/// Chooses, runs and installs one compaction; gives how long it had the scheduler's lock if it found nothing to do.
pub(crate) fn run_next(env: &JobEnv) -> Result<Option<Duration>> {
    if env.base.health.check_may_free().is_err() {
        return Ok(Some(Duration::ZERO));
    }
    let (job, claim) = {
        let mut jobs = env.jobs.scheduler.lock();
        let start = Instant::now();
        // While the disk is full one merge at a time is tried: it may free room, or have none.
        let full = env.base.health.is_disk_full();
        if full && (!jobs.running.is_empty() || env.base.health.makes_way()) {
            return Ok(Some(Duration::ZERO));
        }
        note_stuck(env, &jobs);
        let occasion = match is_idle(env, &mut jobs) {
            _ if full => Occasion::Full { turn: jobs.full_turn },
            true => Occasion::Idle,
            false => Occasion::Usual,
        };
        let now_us = env.base.clock.monotonic_us();
        let next = choose(env, &mut jobs, occasion);
        if !matches!(next, Next::Job(_)) {
            // Those that found no room are all that is left of the families that have no pause.
            jobs.rewrites.try_again(|family| occasion.asks_for_rewrites(env, family, now_us));
        }
        let job = match next {
            Next::Job(job) => job,
            Next::Nothing => return Ok(Some(start.elapsed())),
            Next::NoRoom(no_room) => {
                drop(jobs);
                if no_room.stops_writes && !full {
                    // Now it is for deletions and for every merge to make room.
                    env.base.health.full("compaction", no_room.cause);
                }
                return Ok(Some(start.elapsed()));
            }
        };
        let claim = Claim::new(env, &mut jobs, &job.choice);
        jobs.last_chosen = job.family.id;
        jobs.full_turn = if full { jobs.full_turn.wrapping_add(1) } else { 0 };
        (job, claim)
    };
    let result = execute(env, &job);
    // The inputs are let go of before the end is announced, so that a waiter finds them free to be deleted.
    drop(job);
    drop(claim);
    result.map(|_| None)
}

/// Finds out, while something fails, in which families no compaction can make room in a full L0, so
/// that writers get the error instead of waiting.
fn note_stuck(env: &JobEnv, jobs: &SchedulerState) {
    let errors = &env.jobs.errors;
    if errors.is_empty() {
        return;
    }
    let shared = Shared::new(env, false);
    let now_us = env.base.clock.monotonic_us();
    for family in env.read.families.load().iter().filter(|f| !f.is_dropped()) {
        let version = family.state().version.clone();
        let options = family.options();
        let full = version.level(0).len() >= options.l0_stops_at();
        let runs = jobs.running.iter().any(|running| running.family == family.id);
        let choice = || pick(&input(env, family, (&version, &options), jobs, &shared));
        let files = version.files().map(|(_, file)| file.number);
        let failed = errors.why_not(Work::Compaction, family.id, files, now_us);
        let blocked = || !errors.may_begin(Work::Compaction, family.id, now_us);
        let is_stuck = |error: &Error| {
            let is_stuck = full && !runs && (blocked() || matches!(choice(), Choice::Nothing));
            is_stuck && !is_told_by_state(env, jobs, error)
        };
        let why = failed.filter(is_stuck);
        if errors.why_stuck(family.id).is_some() != why.is_some() {
            errors.set_stuck(family.id, why);
        }
    }
}

/// Whether the state "disk full", in which deletions are taken, says what `error` does, or is about to.
fn is_told_by_state(env: &JobEnv, jobs: &SchedulerState, error: &Error) -> bool {
    let is_about_to = || jobs.running.is_empty() && choose::has_no_room_for_writes(env, jobs);
    matches!(error, Error::DiskFull(_)) && (env.base.health.is_disk_full() || is_about_to())
}

/// Runs and installs one compaction that `choose` wants, on the caller's thread, beside those of the
/// background; `None` if there is nothing that it wants, or something running is in the way. Gives
/// the bytes read and written, values included.
pub(crate) fn run_for_values(
    env: &JobEnv,
    choose: fn(&PickInput<'_>) -> Option<Choice>,
) -> Result<Option<Volume>> {
    let mut jobs = env.jobs.scheduler.lock();
    if env.jobs.scheduler.is_stopping() {
        return Err(Error::Closed);
    }
    let shared = Shared::asked_for(env, true);
    let chosen = env.read.families.load().iter().filter(|f| !f.is_dropped()).find_map(|family| {
        let (version, options) = (family.state().version.clone(), family.options());
        let choice = choose(&input(env, family, (&version, &options), &jobs, &shared))?;
        Some((family.clone(), choice))
    });
    let Some((family, choice)) = chosen else { return Ok(None) };
    let claim = Claim::new(env, &mut jobs, &choice);
    drop(jobs);
    let job = Job { family, choice, is_attempt: true };
    let result = execute(env, &job);
    drop(job);
    drop(claim);
    result.map(Some)
}

/// What a job leaves free that is begun although it may not fit: what other writes need, and what they would resume with.
/// What a rewrite below deletions writes is estimated: one that fits by that leaves what other writes need. On a full disk,
/// where none are taken, a job may have all there is.
fn kept_room<'a>(env: &'a JobEnv, job: &Job) -> Option<KeptRoom<'a>> {
    if env.base.health.is_disk_full() {
        return None;
    }
    let for_writes = match attempt_of(&job.choice) {
        Some(Attempt::Rewrite) if !job.is_attempt => 0,
        _ => room_for_writes(env),
    };
    let bytes = choose::besides(env).saturating_add(for_writes);
    Some(KeptRoom::new(&*env.base.vfs, &env.base.dir, bytes))
}

/// Runs and installs a choice, and keeps the stats on what fails and when it is tried again.
pub(super) fn execute(env: &JobEnv, job: &Job) -> Result<Volume> {
    let Job { family, choice, is_attempt } = job;
    let (kept, attempt) = (kept_room(env, job), attempt_of(choice));
    let may_end_early = *is_attempt || attempt == Some(Attempt::Rewrite);
    let may_not_fit = may_end_early || env.base.health.is_disk_full();
    let number = compact_events::begun(env, family, choice);
    let start = Instant::now();
    let result = match choice {
        Choice::Nothing => return Ok((0, 0)),
        Choice::Move(moved) => {
            add(&env.base.counters.trivial_moves, moved.files.len() as u64);
            let outputs = moved.files.iter().map(|file| install::sst_info(moved.to, file));
            let done = Merged { volume: (0, 0), outputs: outputs.collect() };
            install_edit(env, family, moved.edit(), Vec::new()).map(|()| done)
        }
        Choice::Merge(merge) => run_merge(env, job, merge, kept.as_ref()),
    };
    compact_events::ended(env, family, choice, number, start.elapsed(), &result);
    note_rewrite(env, choice, &result);
    match &result {
        Ok(_) => {
            let (errors, read) = (&env.jobs.errors, files_read(choice));
            errors.succeeded(Work::Compaction, family.id, read.map(|(_, file)| file.number));
            // One that fits says nothing of those that may not.
            if let Some(attempt) = attempt.filter(|_| may_not_fit) {
                errors.attempt_succeeded(attempt, family.id);
            }
        }
        Err(Error::Closed | Error::Poisoned(_)) => {}
        // It has ended before it found the disk full: nothing has changed, and there is room for others.
        Err(Error::DiskFull(_)) if may_end_early && kept.as_ref().is_some_and(KeptRoom::is_met) => {
            if let Some(attempt) = attempt {
                let now_us = env.base.clock.monotonic_us();
                env.jobs.errors.attempt_failed(attempt, family.id, now_us);
            }
        }
        Err(error) => note_failure(env, job, may_not_fit, error),
    }
    result.map(|merged| merged.volume)
}

/// Every file that a choice reads, with its level.
fn files_read(choice: &Choice) -> impl Iterator<Item = (u8, &File)> {
    let merge = match choice {
        Choice::Merge(merge) => Some(merge),
        Choice::Nothing | Choice::Move(_) => None,
    };
    let levels = merge.into_iter().flat_map(|merge| {
        merge.inputs.iter().chain(merge.above.iter().flat_map(|above| &above.runs))
    });
    levels.flat_map(|(level, files)| files.iter().map(move |file| (*level, file)))
}

/// Notes what became of a file that was to be rewritten below deletions.
fn note_rewrite(env: &JobEnv, choice: &Choice, result: &Result<Merged>) {
    let Choice::Merge(Compaction { family, above: Some(above), inputs, .. }) = choice else {
        return;
    };
    let mut jobs = env.jobs.scheduler.lock();
    match result {
        Ok(done) => {
            let outputs = done.outputs.iter().map(|output| FileNumber::new(output.number));
            jobs.rewrites.note(outputs, above.newest_seqno(), &above.skipped);
            if jobs.rewrites.are_many() {
                // What is known is installed, and versions under the lock are no older.
                let families = env.read.families.load();
                let versions: Vec<Arc<Version>> =
                    families.iter().map(|family| family.state().version.clone()).collect();
                let files = versions.iter().flat_map(|version| version.files());
                let there: HashSet<FileNumber> = files.map(|(_, file)| file.number).collect();
                jobs.rewrites.keep(|number| there.contains(&number));
            }
        }
        Err(Error::DiskFull(_)) => {
            let files = inputs.iter().flat_map(|(_, files)| files);
            files.for_each(|file| jobs.rewrites.note_in_vain(file.number, *family));
        }
        Err(_) => {}
    }
}

/// What kind of attempt a choice is if it finds no room.
fn attempt_of(choice: &Choice) -> Option<Attempt> {
    match choice {
        Choice::Merge(Compaction { above: Some(_), .. }) => Some(Attempt::Rewrite),
        Choice::Merge(merge) if merge.files().any(|file| pick::deletes_ranges(file)) => {
            Some(Attempt::Ranges)
        }
        _ => None,
    }
}

/// Notes that a job failed with `error`, and when it is tried again. `may_not_fit`: it was known when it began that it
/// may find no room.
fn note_failure(env: &JobEnv, job: &Job, may_not_fit: bool, error: &Error) {
    let Job { family, choice, .. } = job;
    let errors = &env.jobs.errors;
    let to_blame: Vec<(u8, &File)> =
        files_read(choice).filter(|(_, file)| is_to_blame(env, file, error)).collect();
    let now_us = env.base.clock.monotonic_us();
    if to_blame.is_empty() {
        errors.job_failed(Work::Compaction, family.id, error, now_us);
    }
    if let (Error::DiskFull(_), Choice::Merge(merge)) = (error, choice) {
        errors.no_room_for_merge(needs_bytes(env, merge), may_not_fit, error);
        if let Some(attempt) = attempt_of(choice) {
            errors.attempt_failed(attempt, family.id, now_us);
        }
    }
    for (level, file) in to_blame {
        quarantine(env, family, (level, file), error, now_us);
    }
}

/// Whether a merge of `file` failed because of this input: it could not be read, or refers to a
/// value segment that is damaged or gone.
fn is_to_blame(env: &JobEnv, file: &File, error: &Error) -> bool {
    let cause = match error {
        Error::Corruption(cause) | Error::Unsupported(cause) | Error::Io(cause) => cause,
        _ => return false,
    };
    let Some(path) = cause.path().filter(|_| !cause.is_transient()) else { return false };
    let refers = |number: SegmentNumber| file.value_refs.iter().any(|r| r.segment == number);
    match path.file_name().and_then(|name| name.to_str()).map(names::parse) {
        Some(FileName::Sst(number)) => number == file.number && path.starts_with(&env.base.dir),
        Some(FileName::Log(number) | FileName::ValueLog(number)) => refers(number),
        _ => false,
    }
}

/// Takes a file out of picking that could not be read.
fn quarantine(
    env: &JobEnv,
    family: &Family,
    (level, file): (u8, &File),
    error: &Error,
    now_us: u64,
) {
    let pause_us = env.jobs.errors.quarantine(file.number, error, now_us);
    event::quarantined(&family.name, level, file.number, pause_us, error);
    // Values that a damaged file refers to cannot be moved any more: nobody is to wait for that.
    if let (None, Error::Corruption(cause)) = (pause_us, error) {
        let log = &env.read.value_log;
        file.value_refs.iter().for_each(|r| log.spare(r.segment, cause, log.begin_try()));
    }
}

/// Runs and installs `merge`, the choice of `job`. `kept_room` binds an attempt, a rewrite below deletions, and every merge
/// that moves values which a caller of `collect_garbage` asks for: there may be any number of them.
fn run_merge(
    env: &JobEnv,
    job: &Job,
    merge: &Compaction,
    kept_room: Option<&KeptRoom<'_>>,
) -> Result<Merged> {
    let family = &job.family;
    let start = Instant::now();
    // Segments are asked for before they are victims, and until they are victims no more.
    let was_asked_for = gc::is_asked_for(env, merge);
    // What is a victim by now is emptied by this merge if it comes to it.
    gc::step(env);
    let (state, options) = (family.hold_state(), family.job_options(&env.base.dynamic));
    let moving = moving(env);
    if family.is_dropped() {
        // Nobody needs what it would make, and segments that its inputs refer to may be gone, which is no damage.
        return Ok(Merged { volume: (0, 0), outputs: Vec::new() });
    }
    let moves = moving.as_ref().is_some_and(|moving| moving.moves(merge));
    let is_asked_for = moves && (was_asked_for || gc::is_asked_for(env, merge));
    let is_bound = job.is_attempt || merge.above.is_some() || is_asked_for;
    let kept_room = kept_room.filter(|_| is_bound);
    let entered = env.jobs.list.enter(&*env.base.clock, job_start(family, merge, moves));
    read_again::files_that_failed(env, merge)?;
    let moving_job = moves.then(|| env.garbage.enter_job());
    let filtering = filtering(family, merge, &state.version);
    let next_file_number = || env.versions.next_file_number();
    let once = |filtering| {
        let context = JobContext {
            vfs: &env.base.vfs,
            dir: &env.base.dir,
            table_cache: &env.read.table_cache,
            next_file_number: &next_file_number,
            options: &options,
            flushed_seqno: env.versions.flushed_seqno(family.id),
            snapshots: env.read.snapshots.list(),
            clock: &*env.base.clock,
            limiter: &env.base.limiter,
            cancel: &env.jobs.scheduler.cancel,
            version: &state.version,
            progress: entered.progress(),
            moving: moving.clone(),
            filtering,
            kept_room,
        };
        merge_once(env, family, merge, &context)
    };
    let (stats, outputs) = match once(filtering)? {
        Some(done) => done,
        None => {
            event::filter_set_aside(&family.name, &merge.to_string());
            once(None)?.ok_or(Error::Closed)?
        }
    };
    if stats.moved_values > 0 {
        // What is empty now goes at once: it has been there twice for long enough.
        install::drop_dead_segments(&env.versions)?;
    }
    drop(moving_job);
    count_merge(env, merge, &stats);
    env.base.counters.compaction_latency.record_ns(start.elapsed().as_nanos() as u64);
    let (read, written) = (stats.read_bytes, stats.written_bytes);
    let took = start.elapsed().as_micros() as u64;
    event::compacted(&family.name, &merge.to_string(), read, written, took);
    gc::step(env);
    Ok(Merged { volume: (read + stats.moved_bytes, written + stats.moved_bytes), outputs })
}

/// Runs and installs a merge; `None`, with nothing changed, if a snapshot was taken meanwhile that sees what the
/// compaction filter has changed.
fn merge_once(
    env: &JobEnv,
    family: &Arc<Family>,
    merge: &Compaction,
    context: &JobContext<'_>,
) -> Result<Option<(JobStats, Vec<SstInfo>)>> {
    let output =
        job::run(context, merge).map_err(|error| match env.jobs.scheduler.is_stopping() {
            true => Error::Closed,
            false if error.is_no_space() && context.kept_room.is_some_and(KeptRoom::is_met) => {
                Error::DiskFull(Arc::new(error))
            }
            false => job_failed(env, error),
        })?;
    let Some(JobOutput { edit, segments, stats }) = output else { return Err(Error::Closed) };
    kill_point("compaction:written");
    let outputs = edit.added.iter().map(|(level, file)| install::sst_info(*level, file)).collect();
    let change =
        Change { family: family.clone(), edit, flushed: Vec::new(), segments, fresh: None };
    let is_installed =
        filter::install(env, change, &context.snapshots, context.filtering.as_ref())?;
    if is_installed {
        kill_point("compaction:installed");
    }
    Ok(is_installed.then_some((stats, outputs)))
}

/// The family's compaction filter, if it applies to a merge of `version`.
fn filtering<'a>(
    family: &'a Family,
    merge: &Compaction,
    version: &Version,
) -> Option<Filtering<'a>> {
    let filter = family.compaction_filter.as_deref()?;
    let context = FilterContext {
        family: family.name.clone(),
        job: FilterJob::Compaction,
        start_level: usize::from(merge.start_level),
        output_level: usize::from(merge.output_level),
        is_full: merge.files().count() == version.files().count(),
        is_manual: merge.reason == Reason::Manual,
    };
    Filtering::begin(filter, context)
}

fn count_merge(env: &JobEnv, merge: &Compaction, stats: &JobStats) {
    let c = &env.base.counters;
    add(&c.compactions, 1);
    add(&c.gc_moved_values, stats.moved_values);
    add(&c.gc_moved_bytes, stats.moved_bytes);
    add(&c.compaction_read_bytes, stats.read_bytes);
    add(&c.compaction_written_bytes, stats.written_bytes);
    if let Some(counter) = c.level_written_bytes.get(usize::from(merge.output_level)) {
        add(counter, stats.written_bytes);
    }
    add(&c.entries_dropped, stats.dropped_entries);
    filter::count(c, stats.filtered);
}

/// What is known of a merge when it starts.
fn job_start(family: &Family, merge: &Compaction, moves: bool) -> JobStart {
    let numbered = |(level, files): &(u8, Vec<File>)| {
        let level = *level;
        files.iter().map(move |file| (level, file.number.get())).collect::<Vec<_>>()
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
fn moving(env: &JobEnv) -> Option<Moving<'_>> {
    let log = &*env.read.value_log;
    if !log.is_used() {
        return None;
    }
    let victims = log.victims().clone();
    Some(Moving {
        log,
        held: log.hold(),
        victims_live_bytes: victims.iter().map(|number| log.live_bytes_of(*number)).sum(),
        victims,
        segment_bytes: segment_length::longest_bytes(
            &*env.base.vfs,
            &env.base.dir,
            env.base.options.advanced.segment_bytes,
            log.live_bytes(),
        ),
        of_try: log.begin_try(),
    })
}

/// What went wrong while reading or writing SSTs is tried again: nothing was lost by it. A full disk
/// stops writes until there is room.
fn job_failed(env: &JobEnv, error: terrace_base::Error) -> Error {
    match error.is_no_space() {
        true => env.base.health.fail("compaction", error),
        false => error.into(),
    }
}

fn install_edit(
    env: &JobEnv,
    family: &Arc<Family>,
    edit: FamilyEdit,
    segments: Vec<SegmentMeta>,
) -> Result<()> {
    let flushed = Vec::new();
    install::install(
        &env.versions,
        vec![Change { family: family.clone(), edit, flushed, segments, fresh: None }],
    )
}

#[cfg(test)]
mod tests;
