//! What background threads wait for and what they are busy with.

use crate::error::{Error, Result};
use crate::jobs::ahead::Ahead;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_base::sync::{Condvar, Instant, Mutex, MutexGuard};
use terrace_base::{FileNumber, SeqNo};
use terrace_manifest::FileMeta;

/// How long a thread sleeps at most before it looks again at what it waits for; a job that ends wakes it earlier.
const RECHECK: Duration = Duration::from_millis(50);

/// A thread that has found nothing to merge rests this many times as long as all threads that merge take for such a look: where
/// there are many families, or files, a look takes a while.
const LOOK_RESTS: u32 = 50;
/// It rests no longer. Not all that makes work wakes it: values expire, and snapshots are let go of.
const LONGEST_LOOK_REST: Duration = Duration::from_secs(1);
/// A look has the scheduler's lock. Also where work comes up all the time, as while thousands of families are flushed one after the
/// other, each of which may make work, others have the lock this many times as long as all threads that merge take for such a look.
const LOOK_BREATHS: u32 = 4;
/// What is shorter is no rest.
const SHORTEST_BREATH: Duration = Duration::from_millis(2);

/// A compaction that is running, as far as the choice of another one must know it.
#[derive(Debug, Clone)]
pub(crate) struct RunningCompaction {
    pub id: u64,
    pub family: u32,
    pub output_level: u8,
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    /// If there are any, it has the keys of these files alone: they are in the order of their keys, and do not overlap.
    pub files: Vec<Arc<FileMeta>>,
    /// It puts keys below everything that come from outside: what a merge of their range sees is not all that lies below.
    pub brings_older: bool,
    /// Room that its outputs may take.
    pub needs_bytes: u64,
}

impl RunningCompaction {
    /// What brings `outputs` into `family`, files with their levels, which do not overlap, in the order of their keys: one for each level,
    /// however many files there are.
    pub fn of_outputs<'f>(
        id: u64,
        family: u32,
        outputs: impl Iterator<Item = (usize, &'f Arc<FileMeta>)>,
        brings_older: bool,
    ) -> Vec<Self> {
        let mut levels: BTreeMap<usize, Vec<Arc<FileMeta>>> = BTreeMap::new();
        for (level, file) in outputs {
            levels.entry(level).or_default().push(file.clone());
        }
        let of_level = |(level, files): (usize, Vec<Arc<FileMeta>>)| Self {
            id,
            family,
            output_level: level as u8,
            smallest: files.first().map_or_else(Vec::new, |file| file.smallest.clone()),
            largest: files.last().map_or_else(Vec::new, |file| file.largest.clone()),
            files,
            brings_older,
            needs_bytes: 0,
        };
        levels.into_iter().map(of_level).collect()
    }

    /// Whether it has keys of `family` from `start` to `end`.
    pub fn has_keys(&self, family: u32, start: &[u8], end: &[u8]) -> bool {
        let is_met = |smallest: &[u8], largest: &[u8]| smallest <= end && start <= largest;
        if self.family != family || !is_met(&self.smallest, &self.largest) {
            return false;
        }
        let at = self.files.partition_point(|file| file.largest.as_slice() < start);
        self.files.is_empty()
            || self.files.get(at).is_some_and(|file| is_met(&file.smallest, &file.largest))
    }
}

/// Files that [`Rewrites`] knows at most before it forgets those that are gone.
const MOST_KNOWN: usize = 4096;

/// How long [`Rewrites`] takes it that there is nothing to rewrite, if no job ends: snapshots are let go of without one.
const NOTHING_FOR_US: u64 = 1_000_000;

/// What has been done, for want of room, about files below deletions: they are rewritten without what these hide.
#[derive(Debug, Default)]
pub(crate) struct Rewrites {
    /// What has been applied to a file.
    applied: HashMap<FileNumber, Applied>,
    /// Files whose rewrite has found no room, with their families.
    in_vain: HashMap<FileNumber, u32>,
    nothing: Option<Nothing>,
}

/// Nothing was found to rewrite.
#[derive(Debug, Clone, Copy)]
struct Nothing {
    /// Of the scheduler's state.
    generation: u64,
    /// Room that there was.
    room_bytes: u64,
    /// Until when that counts.
    until_us: u64,
}

/// The deletions up to `upto`, but for those of files that could not be read then.
#[derive(Debug, Clone, Default)]
struct Applied {
    upto: SeqNo,
    skipped: Vec<FileNumber>,
}

impl Rewrites {
    /// Up to which sequence number deletions of `deleting` above it have been applied to `file`, as far as that is known.
    pub fn applied(&self, file: FileNumber, deleting: FileNumber) -> SeqNo {
        let applied = self.applied.get(&file).filter(|done| !done.skipped.contains(&deleting));
        applied.map_or_else(SeqNo::default, |done| done.upto)
    }

    /// `outputs` have nothing left of what deletions up to `upto` hide, but for those in the files `skipped`. They have made
    /// room for others.
    pub fn note(
        &mut self,
        outputs: impl Iterator<Item = FileNumber>,
        upto: SeqNo,
        skipped: &[FileNumber],
    ) {
        let applied = Applied { upto, skipped: skipped.to_vec() };
        self.applied.extend(outputs.map(|number| (number, applied.clone())));
        self.in_vain.clear();
    }

    /// The rewrite of `file` has found no room.
    pub fn note_in_vain(&mut self, file: FileNumber, family: u32) {
        self.in_vain.insert(file, family);
    }

    /// Whether the rewrite of `file` has found no room, and nothing has changed since.
    pub fn is_in_vain(&self, file: FileNumber) -> bool {
        self.in_vain.contains_key(&file)
    }

    /// Whether it knows many files. Where room is short for long most of them may be gone.
    pub fn are_many(&self) -> bool {
        self.applied.len() > MOST_KNOWN
    }

    /// Forgets all files but those that are there.
    pub fn keep(&mut self, is_there: impl Fn(FileNumber) -> bool) {
        self.applied.retain(|number, _| is_there(*number));
        self.in_vain.retain(|number, _| is_there(*number));
    }

    /// There is nothing else to do for the families that `were_asked`: theirs are tried again. Those of a family whose
    /// pause keeps it from being asked stay left out, so that its next try is another file.
    pub fn try_again(&mut self, were_asked: impl Fn(u32) -> bool) {
        let before = self.in_vain.len();
        self.in_vain.retain(|_, family| !were_asked(*family));
        if self.in_vain.len() < before {
            self.nothing = None;
        }
    }

    /// Nothing was found to rewrite that fits into `room_bytes`, at this generation of the scheduler's state.
    pub fn note_nothing(&mut self, generation: u64, room_bytes: u64, now_us: u64) {
        let until_us = now_us.saturating_add(NOTHING_FOR_US);
        self.nothing = Some(Nothing { generation, room_bytes, until_us });
    }

    /// Whether nothing was found lately, and as far as is known nothing has changed since.
    pub fn has_nothing(&self, generation: u64, room_bytes: u64, now_us: u64) -> bool {
        self.nothing.is_some_and(|found| {
            found.generation == generation
                && room_bytes <= found.room_bytes
                && now_us < found.until_us
        })
    }
}

/// A step of `compact_range`: the background makes way for it.
#[derive(Debug)]
pub(crate) struct ManualStep {
    pub id: u64,
    pub family: u32,
    /// Whether it waits for its inputs.
    pub waits: bool,
}

/// Guarded by the scheduler's lock.
#[derive(Debug, Default)]
pub(crate) struct SchedulerState {
    /// Families whose memtables are being flushed.
    pub flushing: HashSet<u32>,
    /// Input files of running compactions.
    pub busy_files: HashSet<FileNumber>,
    /// Compactions that run.
    pub running: Vec<RunningCompaction>,
    /// The steps of `compact_range` under way.
    pub manual: Vec<ManualStep>,
    /// The family of which the background chose a compaction last.
    pub last_chosen: u32,
    /// On a full disk: how many jobs have been chosen.
    pub full_turn: usize,
    /// What has been done about files below deletions, since the disk was full last or before.
    pub rewrites: Rewrites,
    /// Threads that merge, and how many there are to be: those over that end.
    pub compaction_threads: usize,
    pub wanted_compaction_threads: usize,
    /// Calls under way that write files into the directory on the caller's thread: ingestions, and
    /// what bulk loads do.
    pub calls: usize,
    /// Temporary files of bulk loads.
    pub load_files: BTreeSet<FileNumber>,
    /// Grows with every change that could make work.
    pub generation: u64,
    /// Jobs that ended so far.
    pub ended: u64,
    /// Callers of `wait_idle`: idle compaction need not wait for a quiet time.
    pub settling: usize,
    /// Writers that wait for a merge of L0: no thread that merges rests meanwhile.
    pub stopped: usize,
    /// Groups committed when last looked at, and since when there are no more.
    pub last_groups: u64,
    pub quiet_since_us: u64,
    next_id: u64,
}

/// The lock, the signals, and the stop flag.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    jobs: Mutex<SchedulerState>,
    /// Work may have come up.
    work: Condvar,
    /// A job ended.
    ended: Condvar,
    /// Jobs stop at their next check.
    pub cancel: AtomicBool,
    /// What writers want done ahead.
    pub ahead: Ahead,
}

impl SchedulerState {
    /// A number for a new compaction.
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Whether the background is to leave `family` to `compact_range`: until its writers would be slowed, and
    /// while a step waits until they would be stopped. `l0_pressure` is 0 where they begin to be slowed, and 1
    /// where they are stopped.
    pub fn is_left_to_manual(&self, family: u32, l0_pressure: Option<f64>) -> bool {
        self.manual.iter().any(|step| {
            let bound = if step.waits { 1.0 } else { 0.0 };
            step.family == family && l0_pressure.is_none_or(|pressure| pressure < bound)
        })
    }

    /// Whether more threads merge than are asked for, so that the one that asks this ends.
    pub fn lets_one_end(&mut self) -> bool {
        let is_over = self.compaction_threads > self.wanted_compaction_threads;
        self.compaction_threads -= usize::from(is_over);
        is_over
    }

    /// How long a thread rests that has found nothing to merge, for which it `took` so long; `least` where that is little.
    pub fn rest_after_look(&self, took: Duration, least: Duration) -> Duration {
        let threads = u32::try_from(self.compaction_threads).unwrap_or(u32::MAX);
        let rest = took.saturating_mul(threads.saturating_mul(LOOK_RESTS));
        rest.min(LONGEST_LOOK_REST).max(least)
    }

    /// How long a thread does not look again that has found nothing to merge, for which it `took` so long, whatever comes up.
    pub fn breath_after_look(&self, took: Duration) -> Duration {
        let threads = u32::try_from(self.compaction_threads).unwrap_or(u32::MAX);
        match took.saturating_mul(threads.saturating_mul(LOOK_BREATHS)) {
            short if short < SHORTEST_BREATH => Duration::ZERO,
            breath => breath.min(LONGEST_LOOK_REST),
        }
    }

    /// Whether nothing runs.
    pub fn is_quiet(&self) -> bool {
        self.flushing.is_empty() && self.running.is_empty()
    }
}

impl Scheduler {
    /// The state.
    pub fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        self.jobs.lock()
    }

    /// Says that there may be work: a memtable became immutable, a version changed.
    pub fn wake(&self) {
        self.jobs.lock().generation += 1;
        self.work.notify_all();
    }

    /// Says that a job ended: wakes the threads that wait for its effect, and the workers.
    pub fn job_ended(&self) {
        let mut jobs = self.jobs.lock();
        jobs.generation += 1;
        jobs.ended += 1;
        drop(jobs);
        self.ended.notify_all();
        self.work.notify_all();
    }

    /// Waits for work, at most `timeout`.
    pub fn wait_for_work(&self, jobs: &mut MutexGuard<'_, SchedulerState>, timeout: Duration) {
        self.work.wait_for(jobs, timeout);
    }

    /// Waits for this long, whatever comes up, or until writers wait for a merge, or the store stops, or there is work and
    /// `is_urgent` holds.
    pub fn rest(
        &self,
        jobs: &mut MutexGuard<'_, SchedulerState>,
        rest: Duration,
        is_urgent: impl Fn() -> bool,
    ) {
        let until = Instant::now() + rest;
        let is_over = |jobs: &SchedulerState| {
            jobs.stopped > 0 || is_urgent() || self.is_stopping() || Instant::now() >= until
        };
        while !is_over(jobs) {
            self.wait_for_work(jobs, until.saturating_duration_since(Instant::now()));
        }
    }

    /// Says that a writer waits for a merge from now on, until it takes itself off those that are `stopped`.
    pub fn hurry(&self, jobs: &mut SchedulerState) {
        jobs.stopped += 1;
        self.work.notify_all();
    }

    /// As [`Self::wait_for_work`], but not if some may have come up since the state was of this `generation`.
    pub fn wait_for_work_since(
        &self,
        jobs: &mut MutexGuard<'_, SchedulerState>,
        generation: u64,
        timeout: Duration,
    ) {
        if jobs.generation == generation {
            self.wait_for_work(jobs, timeout);
        }
    }

    /// Waits until some job ends, at most `timeout`.
    pub fn wait_for_end(&self, jobs: &mut MutexGuard<'_, SchedulerState>, timeout: Duration) {
        self.ended.wait_for(jobs, timeout);
    }

    /// Waits until `check` gives a value. It is asked under the lock: at once, and whenever a job has ended.
    ///
    /// # Errors
    /// Those of `check`; `Closed` if the store stops first.
    pub fn wait_until<T>(
        &self,
        mut check: impl FnMut(&mut SchedulerState) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut jobs = self.lock();
        loop {
            if let Some(value) = check(&mut jobs)? {
                return Ok(value);
            }
            if self.is_stopping() {
                return Err(Error::Closed);
            }
            self.wait_for_end(&mut jobs, RECHECK);
        }
    }

    /// As [`Self::wait_until`], and does `meanwhile`, without the lock, once for every wait.
    ///
    /// # Errors
    /// As [`Self::wait_until`], and those of `meanwhile`.
    pub fn wait_until_with<T>(
        &self,
        mut check: impl FnMut(&mut SchedulerState) -> Result<Option<T>>,
        mut meanwhile: impl FnMut() -> Result<()>,
    ) -> Result<T> {
        loop {
            let mut has_waited = false;
            let looked = self.wait_until(|jobs| {
                let found = check(jobs)?;
                let is_over = std::mem::replace(&mut has_waited, true) || found.is_some();
                Ok(is_over.then_some(found))
            })?;
            match looked {
                Some(found) => return Ok(found),
                None => meanwhile()?,
            }
        }
    }

    /// Waits until no compaction runs and no call writes files, also while the store stops.
    pub fn wait_until_none_runs(&self) {
        let mut jobs = self.lock();
        while !jobs.running.is_empty() || jobs.calls > 0 {
            self.wait_for_end(&mut jobs, RECHECK);
        }
    }

    /// Tells all threads to stop.
    pub fn stop(&self) {
        self.cancel.store(true, Ordering::Relaxed);
        self.jobs.lock().generation += 1;
        self.work.notify_all();
        self.ended.notify_all();
        self.ahead.stop();
    }

    /// Whether jobs must stop.
    pub fn is_stopping(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_is_done_meanwhile_is_done_without_the_lock_once_for_every_wait() {
        let scheduler = Scheduler::default();
        let (mut looks, done) = (0, Cell::new(0));
        let check = |_: &mut SchedulerState| {
            looks += 1;
            Ok((done.get() == 3).then_some("over"))
        };
        let meanwhile = || {
            // Would wait for ever for the lock of its own thread.
            scheduler.lock().generation += 1;
            done.set(done.get() + 1);
            Ok(())
        };
        assert_eq!(scheduler.wait_until_with(check, meanwhile).unwrap(), "over");
        // Before each wait and after it, and once it is over.
        assert_eq!((looks, done.get(), scheduler.lock().generation), (7, 3, 3));
        let fails =
            scheduler.wait_until_with(|_| Ok(None::<()>), || Err(Error::ReadOnly("db".into())));
        assert!(matches!(fails, Err(Error::ReadOnly(_))));
        scheduler.stop();
        let stopped = scheduler.wait_until_with(|_| Ok(None::<()>), || panic!("it has stopped"));
        assert!(matches!(stopped, Err(Error::Closed)));
    }

    #[test]
    fn work_that_came_up_during_a_look_is_not_slept_over() {
        let scheduler = Scheduler::default();
        let generation = scheduler.lock().generation;
        // Nobody waits yet.
        scheduler.wake();
        let long = Duration::from_secs(600);
        scheduler.wait_for_work_since(&mut scheduler.lock(), generation, long);
        scheduler.job_ended();
        scheduler.wait_for_work_since(&mut scheduler.lock(), generation + 1, long);
    }

    #[test]
    fn the_longer_a_look_takes_the_less_often_threads_look() {
        let ms = Duration::from_millis;
        let tick = ms(100);
        let mut jobs = SchedulerState { compaction_threads: 1, ..SchedulerState::default() };
        assert_eq!(jobs.rest_after_look(ms(1), tick), tick);
        assert_eq!(jobs.rest_after_look(ms(4), tick), ms(200));
        jobs.compaction_threads = 4;
        assert_eq!(jobs.rest_after_look(ms(1), tick), ms(200));
        assert_eq!(jobs.rest_after_look(ms(90), tick), LONGEST_LOOK_REST);
        jobs.compaction_threads = usize::MAX;
        assert_eq!(jobs.rest_after_look(Duration::MAX, tick), LONGEST_LOOK_REST);
        assert_eq!(jobs.rest_after_look(Duration::ZERO, tick), tick);
    }

    #[test]
    fn a_look_that_takes_long_leaves_the_lock_to_others_for_most_of_the_time() {
        let ms = Duration::from_millis;
        let mut jobs = SchedulerState { compaction_threads: 1, ..SchedulerState::default() };
        assert_eq!(jobs.breath_after_look(Duration::from_micros(499)), Duration::ZERO);
        assert_eq!(jobs.breath_after_look(ms(1)), ms(4));
        jobs.compaction_threads = 4;
        assert_eq!(jobs.breath_after_look(ms(30)), ms(480));
        assert_eq!(jobs.breath_after_look(ms(90)), LONGEST_LOOK_REST);
        jobs.compaction_threads = usize::MAX;
        assert_eq!(jobs.breath_after_look(Duration::MAX), LONGEST_LOOK_REST);
        assert_eq!(jobs.breath_after_look(Duration::ZERO), Duration::ZERO);
        // Writers are stopped until something is merged.
        let scheduler = Scheduler::default();
        scheduler.hurry(&mut scheduler.lock());
        let long = Duration::from_secs(600);
        scheduler.rest(&mut scheduler.lock(), long, || false);
        let scheduler = Scheduler::default();
        scheduler.rest(&mut scheduler.lock(), long, || true);
        // The store stops: nobody waits for it.
        scheduler.stop();
        scheduler.rest(&mut scheduler.lock(), long, || false);
    }

    #[test]
    fn of_many_rewritten_files_those_are_forgotten_that_are_gone() {
        let number = |n: usize| FileNumber::new(n as u64);
        let mut rewrites = Rewrites::default();
        rewrites.note((0..MOST_KNOWN).map(number), SeqNo::new(5), &[]);
        assert!(!rewrites.are_many());
        rewrites.note(std::iter::once(number(MOST_KNOWN)), SeqNo::new(7), &[]);
        rewrites.note_in_vain(number(MOST_KNOWN + 1), 0);
        assert!(rewrites.are_many());
        rewrites.keep(|file| file == number(MOST_KNOWN));
        assert!(!rewrites.are_many() && !rewrites.is_in_vain(number(MOST_KNOWN + 1)));
        let applied = |n| rewrites.applied(number(n), FileNumber::default());
        assert_eq!((applied(0), applied(MOST_KNOWN)), (SeqNo::default(), SeqNo::new(7)));
    }

    /// The pause that comes with the failure leaves nothing to choose, which says nothing of the family's other files.
    #[test]
    fn what_found_no_room_is_not_tried_again_before_the_others_of_its_family() {
        let (one, other) = (FileNumber::new(1), FileNumber::new(2));
        let mut rewrites = Rewrites::default();
        rewrites.note_in_vain(one, 7);
        rewrites.note_in_vain(other, 8);
        let in_vain = |rewrites: &Rewrites| [one, other].map(|file| rewrites.is_in_vain(file));
        rewrites.try_again(|_| false);
        assert_eq!(in_vain(&rewrites), [true, true]);
        rewrites.try_again(|family| family == 8);
        assert_eq!(in_vain(&rewrites), [true, false]);
        rewrites.note_in_vain(other, 8);
        rewrites.note(std::iter::once(FileNumber::new(3)), SeqNo::new(5), &[]);
        assert_eq!(in_vain(&rewrites), [false, false], "there is more room");
    }

    #[test]
    fn where_nothing_was_found_nothing_is_looked_for_until_something_changes() {
        let mut rewrites = Rewrites::default();
        assert!(!rewrites.has_nothing(0, 0, 0));
        rewrites.note_nothing(7, 100, 5);
        assert!(rewrites.has_nothing(7, 100, 5));
        assert!(rewrites.has_nothing(7, 99, 4 + NOTHING_FOR_US));
        assert!(!rewrites.has_nothing(8, 100, 5), "a job has ended");
        assert!(!rewrites.has_nothing(7, 101, 5), "there is more room");
        assert!(!rewrites.has_nothing(7, 100, 5 + NOTHING_FOR_US), "it may have changed by itself");
        rewrites.try_again(|_| true);
        assert!(rewrites.has_nothing(7, 100, 5), "none was in vain");
        rewrites.note_in_vain(FileNumber::new(1), 0);
        rewrites.try_again(|_| true);
        assert!(!rewrites.has_nothing(7, 100, 5), "one is tried again");
    }
}
