//! Runs one stretch of operations on some threads and times it.
//!
//! Operations are numbered from 0 and dealt to the threads in contiguous pieces. Reading the
//! clock twice costs as much as a tenth of a cached read, so only every `time_every`-th operation
//! is timed: every one when operations are slow or stalls are of interest (writes, seeks, cold
//! reads), one of 8 for cached point reads, one of 64 for steps of a scan. Percentiles come from
//! the timed ones; the rate comes from all of them and the wall clock.

use anyhow::{Error, Result, anyhow};
use hdrhistogram::Histogram;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest latency told apart.
const MAX_LATENCY_NS: u64 = 3_600_000_000_000;
/// Operations between two looks at the stop flag and updates of the progress counter.
const REPORT_EVERY: u64 = 64;

/// How long, how wide, how closely watched.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// Threads that run operations.
    pub threads: usize,
    /// Stop after this many operations.
    pub ops: u64,
    /// Stop after this long.
    pub duration: Option<Duration>,
    /// One operation of this many is timed.
    pub time_every: u64,
}

/// What one thread does.
pub trait Worker {
    /// Carries out operation number `sequence`.
    fn step(&mut self, sequence: u64) -> Result<()>;

    /// What the thread did beside taking time; asked once, at the end.
    fn tally(&self) -> Tally;
}

/// What operations did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lookups that found their key.
    pub found: u64,
    /// Lookups that found nothing.
    pub missed: u64,
    /// Bytes of keys and values written.
    pub user_bytes: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.found += other.found;
        self.missed += other.missed;
        self.user_bytes += other.user_bytes;
    }
}

/// A finished stretch.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Operations carried out.
    pub ops: u64,
    /// From the first operation's start to the last one's end.
    pub seconds: f64,
    /// Timed operations, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// The threads' tallies together.
    pub tally: Tally,
}

/// Runs `phase`; each thread makes its worker with `make(thread)` before the clock starts.
/// `done` is counted up as operations finish. An error or a panic of one thread ends the others.
pub fn run<W: Worker>(
    phase: Phase,
    done: &AtomicU64,
    make: impl Fn(usize) -> Result<W> + Sync,
) -> Result<Outcome> {
    let barrier = Barrier::new(phase.threads);
    let stop = AtomicBool::new(false);
    let spans = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..phase.threads)
            .map(|thread| {
                let (barrier, stop, make) = (&barrier, &stop, &make);
                scope.spawn(move || {
                    // A thread that panics goes to the barrier all the same: the others wait there.
                    let worker = caught(|| make(thread));
                    barrier.wait();
                    let span =
                        worker.and_then(|w| caught(|| run_thread(phase, thread, w, done, stop)));
                    stop.fetch_or(span.is_err(), Ordering::Relaxed);
                    span
                })
            })
            .collect();
        let joined: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        joined
            .into_iter()
            .map(|result| result.unwrap_or_else(|_| Err(panicked())))
            .collect::<Result<Vec<Span>>>()
    })?;
    let mut total =
        Outcome { ops: 0, seconds: 0.0, latencies: histogram()?, tally: Tally::default() };
    for span in &spans {
        total.ops += span.ops;
        total.tally += span.tally;
        total.latencies.add(&span.latencies)?;
    }
    let start = spans.iter().map(|span| span.start).min();
    let end = spans.iter().map(|span| span.end).max();
    if let (Some(start), Some(end)) = (start, end) {
        total.seconds = end.duration_since(start).as_secs_f64();
    }
    Ok(total)
}

/// What `work` gives, or an error if it panics. The message of the panic is on standard error.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> Error {
    anyhow!("a benchmark thread panicked")
}

struct Span {
    start: Instant,
    end: Instant,
    ops: u64,
    latencies: Histogram<u64>,
    tally: Tally,
}

fn run_thread<W: Worker>(
    phase: Phase,
    thread: usize,
    mut worker: W,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<Span> {
    let (first, last) = piece(phase.ops, phase.threads, thread);
    let mut latencies = histogram()?;
    let start = Instant::now();
    let deadline = phase.duration.map(|duration| start + duration);
    let mut ops = 0;
    for sequence in first..last {
        if ops % REPORT_EVERY == REPORT_EVERY - 1 {
            done.fetch_add(REPORT_EVERY, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        ops += 1;
        if ops % phase.time_every != 0 {
            worker.step(sequence)?;
            continue;
        }
        let before = Instant::now();
        worker.step(sequence)?;
        let after = Instant::now();
        latencies.saturating_record((after - before).as_nanos() as u64);
        if deadline.is_some_and(|deadline| after >= deadline) {
            break;
        }
    }
    Ok(Span { start, end: Instant::now(), ops, latencies, tally: worker.tally() })
}

/// The operations of one thread of several.
fn piece(ops: u64, threads: usize, thread: usize) -> (u64, u64) {
    let cut = |thread: usize| (u128::from(ops) * thread as u128 / threads.max(1) as u128) as u64;
    (cut(thread), cut(thread + 1))
}

/// An empty histogram with three significant digits.
pub fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Note<'a> {
        seen: &'a Mutex<Vec<u64>>,
        fail_at: Option<u64>,
        wait: Duration,
    }

    impl Worker for Note<'_> {
        fn step(&mut self, sequence: u64) -> Result<()> {
            anyhow::ensure!(self.fail_at != Some(sequence), "as asked");
            std::thread::sleep(self.wait);
            self.seen.lock().unwrap().push(sequence);
            Ok(())
        }

        fn tally(&self) -> Tally {
            Tally { found: 1, missed: 2, user_bytes: 3 }
        }
    }

    fn note(seen: &Mutex<Vec<u64>>) -> Note<'_> {
        Note { seen, fail_at: None, wait: Duration::ZERO }
    }

    #[test]
    fn every_operation_runs_once_whatever_the_threads() {
        for threads in [1, 2, 3, 7] {
            for ops in [0, 1, 5, 1000] {
                let (seen, done) = (Mutex::new(Vec::new()), AtomicU64::new(0));
                let phase = Phase { threads, ops, duration: None, time_every: 1 };
                let outcome = run(phase, &done, |_| Ok(note(&seen))).unwrap();
                let mut seen = seen.into_inner().unwrap();
                seen.sort_unstable();
                assert_eq!(seen, (0..ops).collect::<Vec<_>>());
                assert_eq!((outcome.ops, outcome.latencies.len()), (ops, ops));
                assert_eq!(outcome.tally.user_bytes, 3 * threads as u64);
            }
        }
    }

    #[test]
    fn one_of_so_many_is_timed() {
        let (seen, done) = (Mutex::new(Vec::new()), AtomicU64::new(0));
        let phase = Phase { threads: 1, ops: 1000, duration: None, time_every: 8 };
        let outcome = run(phase, &done, |_| Ok(note(&seen))).unwrap();
        assert_eq!((outcome.ops, outcome.latencies.len()), (1000, 125));
        assert_eq!(done.into_inner(), 960);
    }

    #[test]
    fn duration_ends_a_phase() {
        let (seen, done) = (Mutex::new(Vec::new()), AtomicU64::new(0));
        let phase = Phase {
            threads: 2,
            ops: 1_000_000,
            duration: Some(Duration::from_millis(60)),
            time_every: 1,
        };
        let worker = || Note { wait: Duration::from_millis(1), ..note(&seen) };
        let outcome = run(phase, &done, |_| Ok(worker())).unwrap();
        assert!(outcome.ops < 200 && outcome.seconds < 5.0, "{} ops", outcome.ops);
        assert!(outcome.seconds >= 0.06 && outcome.latencies.min() >= 1_000_000);
    }

    #[test]
    fn an_error_in_a_thread_is_reported_and_ends_the_others() {
        let (seen, done) = (Mutex::new(Vec::new()), AtomicU64::new(0));
        let phase = Phase { threads: 2, ops: 200_000, duration: None, time_every: 8 };
        let worker =
            |_| Ok(Note { fail_at: Some(3), wait: Duration::from_micros(50), ..note(&seen) });
        let error = run(phase, &done, worker).unwrap_err();
        assert_eq!(error.to_string(), "as asked");
        assert!(seen.into_inner().unwrap().len() < 100_000);
    }

    /// A worker that panics when it is made, or at its first operation, as `at` says.
    struct Panicking {
        at: Option<u64>,
    }

    impl Worker for Panicking {
        fn step(&mut self, sequence: u64) -> Result<()> {
            assert!(self.at != Some(sequence), "as asked");
            Ok(())
        }

        fn tally(&self) -> Tally {
            Tally::default()
        }
    }

    /// Without a bound of operations or time, only the panic ends the phase.
    #[test]
    fn a_panic_in_a_thread_is_an_error_and_ends_the_others() {
        let phase = Phase { threads: 3, ops: u64::MAX, duration: None, time_every: 1 };
        let while_made = |thread: usize| {
            assert!(thread != 1, "as asked");
            Ok(Panicking { at: None })
        };
        let error = run(phase, &AtomicU64::new(0), while_made).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        let in_a_step = |_| Ok(Panicking { at: Some(0) });
        let error = run(phase, &AtomicU64::new(0), in_a_step).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}
