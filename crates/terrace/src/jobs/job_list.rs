//! The flushes, compactions and collections that run now, for metrics and pages.
//!
//! A job is entered when it starts ([`JobList::enter`]) and carries its own counts, which the
//! threads that work on it raise as they go; dropping the entry ends it. Ended jobs stay listed for
//! [`LISTED_FOR_MS`], so that a page that is refreshed once a second shows even short ones. The list is
//! locked when a job starts, when it ends, and by readers of the list; never while a job works.
//!
//! `flush` and `compact` enter jobs, `shape` lists them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::Clock;
use terrace_base::sync::Mutex;

/// How long a job that has ended stays in the list.
const LISTED_FOR_MS: u64 = 3000;
/// Ended jobs that are listed at most: the oldest make way.
const MAX_ENDED: usize = 64;

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Writes immutable memtables to a file of L0.
    Flush,
    /// Merges files down.
    Compaction,
    /// Merges files and moves values out of segments with much garbage.
    GarbageCollection,
}

/// A job that runs, or ended a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobShape {
    /// Different for every job since the open.
    pub id: u64,
    /// What it does.
    pub kind: JobKind,
    /// The column family.
    pub family: String,
    /// Level and number of the files that it reads; none for a flush.
    pub inputs: Vec<(u8, u64)>,
    /// The level that it writes.
    pub output_level: u8,
    /// Wall-clock time of its start, in ms.
    pub started_ms: u64,
    /// Wall-clock time of its end, in ms; `None` while it runs. Ended jobs are listed for about 3 s.
    pub finished_ms: Option<u64>,
    /// Bytes that it has to read: of memtables for a flush, of files otherwise.
    pub input_bytes: u64,
    /// Of these, what it has read; exact at the end, before by the share of keys and values read.
    pub read_bytes: u64,
    /// Bytes of files that it has written.
    pub written_bytes: u64,
}

/// What a job has done so far.
#[derive(Debug, Default)]
pub(crate) struct JobProgress {
    /// What was read so far, in the units of [`JobStart::to_read`].
    pub read: AtomicU64,
    /// Bytes of files written.
    pub written_bytes: AtomicU64,
}

/// What is known of a job when it starts.
#[derive(Debug, Clone)]
pub(crate) struct JobStart {
    pub kind: JobKind,
    pub family: String,
    pub inputs: Vec<(u8, u64)>,
    pub output_level: u8,
    /// Bytes to read, as [`JobShape::input_bytes`].
    pub input_bytes: u64,
    /// What [`JobProgress::read`] will be at the end: bytes of keys and values before compression,
    /// or entries for a flush.
    pub to_read: u64,
}

/// When a job ended.
#[derive(Debug, Clone, Copy)]
struct Ended {
    wall_ms: u64,
    monotonic_ms: u64,
}

#[derive(Debug)]
struct Job {
    id: u64,
    start: JobStart,
    started_ms: u64,
    ended: Option<Ended>,
    progress: Arc<JobProgress>,
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct JobList {
    jobs: Mutex<Jobs>,
}

#[derive(Debug, Default)]
struct Jobs {
    last_id: u64,
    running: Vec<Job>,
    /// Oldest end first.
    ended: VecDeque<Job>,
}

/// A job in the list, until this is dropped.
pub(crate) struct Entered<'a> {
    list: &'a JobList,
    clock: &'a dyn Clock,
    id: u64,
    progress: Arc<JobProgress>,
}

impl Entered<'_> {
    /// Where the job counts what it does.
    pub fn progress(&self) -> &JobProgress {
        &self.progress
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.list.end(self.id, self.clock);
    }
}

impl JobList {
    /// A job starts now.
    pub fn enter<'a>(&'a self, clock: &'a dyn Clock, start: JobStart) -> Entered<'a> {
        let progress = Arc::new(JobProgress::default());
        let mut jobs = self.jobs.lock();
        jobs.last_id += 1;
        let id = jobs.last_id;
        let started_ms = clock.wall_ms();
        jobs.running.push(Job { id, start, started_ms, ended: None, progress: progress.clone() });
        drop(jobs);
        Entered { list: self, clock, id, progress }
    }

    fn end(&self, id: u64, clock: &dyn Clock) {
        let mut jobs = self.jobs.lock();
        let Some(at) = jobs.running.iter().position(|job| job.id == id) else { return };
        let mut job = jobs.running.remove(at);
        job.ended = Some(Ended { wall_ms: clock.wall_ms(), monotonic_ms: monotonic_ms(clock) });
        jobs.ended.push_back(job);
        jobs.forget_old(clock);
    }

    /// The jobs that run, in the order of their starts, and those that ended a moment ago.
    pub fn shapes(&self, clock: &dyn Clock) -> Vec<JobShape> {
        let mut jobs = self.jobs.lock();
        jobs.forget_old(clock);
        let mut shapes: Vec<JobShape> =
            jobs.ended.iter().chain(&jobs.running).map(Job::shape).collect();
        shapes.sort_by_key(|job| job.id);
        shapes
    }
}

impl Jobs {
    fn forget_old(&mut self, clock: &dyn Clock) {
        let now = monotonic_ms(clock);
        let old = |job: &Job| {
            job.ended.is_none_or(|ended| now.saturating_sub(ended.monotonic_ms) > LISTED_FOR_MS)
        };
        while self.ended.len() > MAX_ENDED || self.ended.front().is_some_and(old) {
            self.ended.pop_front();
        }
    }
}

impl Job {
    fn shape(&self) -> JobShape {
        let start = &self.start;
        let read = self.progress.read.load(Ordering::Relaxed);
        let part = read as f64 / start.to_read.max(1) as f64;
        JobShape {
            id: self.id,
            kind: start.kind,
            family: start.family.clone(),
            inputs: start.inputs.clone(),
            output_level: start.output_level,
            started_ms: self.started_ms,
            finished_ms: self.ended.map(|ended| ended.wall_ms),
            input_bytes: start.input_bytes,
            read_bytes: (start.input_bytes as f64 * part.min(1.0)) as u64,
            written_bytes: self.progress.written_bytes.load(Ordering::Relaxed),
        }
    }
}

fn monotonic_ms(clock: &dyn Clock) -> u64 {
    clock.monotonic_us() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::ManualClock;

    fn start(kind: JobKind) -> JobStart {
        let (family, inputs) = ("f".to_string(), vec![(1, 7)]);
        JobStart { kind, family, inputs, output_level: 2, input_bytes: 100, to_read: 400 }
    }

    #[test]
    fn a_job_is_listed_while_it_runs_and_a_little_longer() {
        let (list, clock) = (JobList::default(), ManualClock::at(1_000_000));
        assert!(list.shapes(&clock).is_empty());
        let job = list.enter(&clock, start(JobKind::Compaction));
        job.progress().read.store(200, Ordering::Relaxed);
        job.progress().written_bytes.store(33, Ordering::Relaxed);
        clock.advance(60_000);
        let other = list.enter(&clock, start(JobKind::Flush));
        let listed = list.shapes(&clock);
        assert_eq!(listed.len(), 2);
        let first = &listed[0];
        assert_eq!((first.kind, first.finished_ms), (JobKind::Compaction, None));
        assert_eq!((first.read_bytes, first.written_bytes), (50, 33));
        assert_eq!((first.started_ms, listed[1].started_ms), (1_000_000, 1_060_000));
        drop(job);
        let listed = list.shapes(&clock);
        assert_eq!(listed[0].finished_ms, Some(1_060_000));
        clock.advance(LISTED_FOR_MS);
        assert_eq!(list.shapes(&clock).len(), 2);
        clock.advance(1);
        assert_eq!(list.shapes(&clock).len(), 1, "the flush goes on");
        drop(other);
        assert_eq!(list.shapes(&clock).len(), 1);
    }

    #[test]
    fn many_short_jobs_do_not_pile_up() {
        let (list, clock) = (JobList::default(), ManualClock::at(1_000_000));
        for _ in 0..5 * MAX_ENDED {
            drop(list.enter(&clock, start(JobKind::Flush)));
        }
        let listed = list.shapes(&clock);
        assert_eq!(listed.len(), MAX_ENDED);
        assert_eq!(listed.last().unwrap().id, 5 * MAX_ENDED as u64, "the newest stay");
    }
}
