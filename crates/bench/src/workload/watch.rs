//! Watches writers for stalls: the longest stretch in which no thread finished an operation.
//!
//! The longest latency of one operation is in the rows of every workload. A gap is more: it also
//! sees the time between operations, and with several threads it says that all of them stood still.

use anyhow::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_workload::phase::{Tally, Worker};

/// What the threads of a phase have in common.
#[derive(Debug)]
pub struct Watch {
    start: Instant,
    /// When an operation last ended, or the first one began; 0 before that.
    last_ns: AtomicU64,
    longest_ns: AtomicU64,
    ops: AtomicU64,
}

impl Watch {
    /// A watch that starts now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            last_ns: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
            ops: AtomicU64::new(0),
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Operations finished.
    pub fn ops(&self) -> u64 {
        self.ops.load(Ordering::Relaxed)
    }

    /// The longest time between the ends of two operations that followed each other, whatever the
    /// thread, or from the first beginning to the first end.
    pub fn longest_gap(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }

    fn begin(&self) {
        let now = self.elapsed().as_nanos().max(1) as u64;
        // Only the first operation of all finds 0 here.
        self.last_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).ok();
    }

    fn end(&self) {
        let now = self.elapsed().as_nanos() as u64;
        let last = self.last_ns.swap(now, Ordering::Relaxed);
        self.longest_ns.fetch_max(now.saturating_sub(last), Ordering::Relaxed);
        self.ops.fetch_add(1, Ordering::Relaxed);
    }
}

/// A worker whose operations a [`Watch`] sees.
pub struct Watched<'a, W> {
    worker: W,
    watch: &'a Watch,
    begun: bool,
}

impl<'a, W> Watched<'a, W> {
    /// Has `watch` see what `worker` does.
    pub fn new(worker: W, watch: &'a Watch) -> Self {
        Self { worker, watch, begun: false }
    }
}

impl<W: Worker> Worker for Watched<'_, W> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        if !self.begun {
            self.watch.begin();
            self.begun = true;
        }
        self.worker.step(sequence)?;
        self.watch.end();
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.worker.tally()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use terrace_workload::phase::{self, Phase};

    /// Sleeps before operation 7.
    struct Sleeper;

    impl Worker for Sleeper {
        fn step(&mut self, sequence: u64) -> Result<()> {
            if sequence == 7 {
                std::thread::sleep(Duration::from_millis(60));
            }
            Ok(())
        }

        fn tally(&self) -> Tally {
            Tally::default()
        }
    }

    /// The watch of some work that begins half a second after it, and how long the work took.
    fn watched(threads: usize) -> (Watch, Duration) {
        let watch = Watch::new();
        let phase = Phase { threads, ops: 2000, duration: None, time_every: 1 };
        std::thread::sleep(Duration::from_millis(500));
        let start = Instant::now();
        let make = |_| Ok(Watched::new(Sleeper, &watch));
        phase::run(phase, &AtomicU64::new(0), make).unwrap();
        (watch, start.elapsed())
    }

    #[test]
    fn the_longest_gap_is_that_of_the_slowest_operation_and_not_the_time_before_the_first() {
        let (watch, took) = watched(1);
        assert_eq!(watch.ops(), 2000);
        let gap = watch.longest_gap();
        // The thread may stand still for any time, but not for longer than all of the work takes.
        assert!(gap >= Duration::from_millis(60) && gap <= took, "{gap:?} of {took:?}");
        assert!(watch.elapsed() >= Duration::from_millis(560));
    }

    #[test]
    fn operations_of_all_threads_are_counted() {
        assert_eq!(watched(3).0.ops(), 2000);
    }
}
