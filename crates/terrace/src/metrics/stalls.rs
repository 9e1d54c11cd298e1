//! How often and how long writers were held back, by cause: counters inside, a table of numbers
//! outside. `stall` counts; the totals of [`Metrics`](super::Metrics) are the sums of the table.

use super::add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Why writers are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StallCause {
    /// L0 has more files than is good for reads and compaction. Slows writers, then stops them.
    L0Files,
    /// Levels are far over their size. Slows writers, never stops them.
    PendingCompaction,
    /// As many memtables as may wait for their flush do. Stops writers.
    Memtables,
    /// More garbage comes into the value log than is collected. Slows writers, never stops them.
    GarbageCollection,
}

impl StallCause {
    /// All causes, in the order of [`Metrics::stalls`](super::Metrics::stalls).
    pub const ALL: [Self; 4] =
        [Self::L0Files, Self::PendingCompaction, Self::Memtables, Self::GarbageCollection];

    /// Its name in reports and as a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::L0Files => "l0_files",
            Self::PendingCompaction => "pending_compaction",
            Self::Memtables => "memtables",
            Self::GarbageCollection => "garbage_collection",
        }
    }

    /// In words for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::L0Files => "too many L0 files",
            Self::PendingCompaction => "pending compaction",
            Self::Memtables => "memtables wait for their flush",
            Self::GarbageCollection => "garbage collection is behind",
        }
    }
}

/// Stalls of one cause since the open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StallMetrics {
    /// Times that writes were slowed.
    pub slowdowns: u64,
    /// Times that writes stopped.
    pub stops: u64,
    /// Time writers spent stalled, in microseconds; grows while writes are stopped.
    pub stall_us: u64,
}

impl StallMetrics {
    /// What came since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            slowdowns: self.slowdowns.saturating_sub(before.slowdowns),
            stops: self.stops.saturating_sub(before.stops),
            stall_us: self.stall_us.saturating_sub(before.stall_us),
        }
    }
}

/// Counters of one cause.
#[derive(Debug, Default)]
struct Counted {
    slowdowns: AtomicU64,
    stops: AtomicU64,
    stall_us: AtomicU64,
}

/// Counters of all causes.
#[derive(Debug, Default)]
pub(crate) struct Stalls([Counted; StallCause::ALL.len()]);

impl Stalls {
    /// Counts a slowdown that is over. Gives how many of this cause there were before.
    pub fn slowed(&self, cause: StallCause, took: Duration) -> u64 {
        self.waited(cause, took);
        self.of(cause).slowdowns.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a stop that begins.
    pub fn stopped(&self, cause: StallCause) {
        add(&self.of(cause).stops, 1);
    }

    /// Counts time in which a writer waited.
    pub fn waited(&self, cause: StallCause, took: Duration) {
        add(&self.of(cause).stall_us, took.as_micros() as u64);
    }

    /// The table.
    pub fn table(&self) -> [StallMetrics; StallCause::ALL.len()] {
        StallCause::ALL.map(|cause| {
            let counted = self.of(cause);
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            StallMetrics {
                slowdowns: get(&counted.slowdowns),
                stops: get(&counted.stops),
                stall_us: get(&counted.stall_us),
            }
        })
    }

    fn of(&self, cause: StallCause) -> &Counted {
        // `ALL` lists the causes in their order, so this is in range.
        &self.0[cause as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_row_and_a_name_of_its_own() {
        let stalls = Stalls::default();
        for (at, cause) in StallCause::ALL.into_iter().enumerate() {
            for n in 0..=at as u64 {
                assert_eq!(stalls.slowed(cause, Duration::from_micros(5)), n);
            }
            stalls.stopped(cause);
            stalls.waited(cause, Duration::from_micros(1));
        }
        for (at, row) in stalls.table().into_iter().enumerate() {
            let n = at as u64 + 1;
            let want = StallMetrics { slowdowns: n, stops: 1, stall_us: 5 * n + 1 };
            assert_eq!(row, want, "{:?}", StallCause::ALL[at]);
        }
        let mut names: Vec<_> = StallCause::ALL.iter().flat_map(|c| [c.name(), c.text()]).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 8);
    }
}
