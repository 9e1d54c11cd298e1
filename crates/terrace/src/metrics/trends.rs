//! Rates over the last seconds, from counters that only grow: the caller brings the counters, and
//! gets how they grew since a call [`WINDOW_US`] ago, or since the open.
//!
//! Nothing is counted here, and no thread keeps this up to date: without calls it costs nothing.
//! `store_shape` and `memory_pools` call it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::FileNumber;
use terrace_base::sync::Mutex;

/// How far back the counters are compared, if somebody looked then.
const WINDOW_US: u64 = 30_000_000;
/// Looks in a shorter time than this after the last one leave no trace.
const MIN_GAP_US: u64 = 1_000_000;
/// A rate of a file forgets with this time constant, in seconds.
const FILE_MEMORY_S: f64 = 10.0;

/// Counters of the store, since the open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Point reads.
    pub lookups: u64,
    /// Seeks of iterators.
    pub seeks: u64,
    /// Data blocks found in memory, and those that were not.
    pub block_hits: u64,
    pub block_misses: u64,
    /// Insertions into the block cache that a larger cache would have saved.
    pub ghost_hits: u64,
    /// Bytes that were written to memtables.
    pub memtable_bytes: u64,
    /// Bytes that flushes wrote.
    pub flush_bytes: u64,
    /// Bytes that compactions read and wrote, and how long they took.
    pub compaction_bytes: u64,
    pub compaction_ns: u64,
    /// Point reads that were timed, and how long they took together.
    pub get_samples: u64,
    pub get_ns: u64,
}

impl Counts {
    /// How they grew from `before` on.
    pub fn since(&self, before: &Counts) -> Self {
        let grew = |of: fn(&Counts) -> u64| of(self).saturating_sub(of(before));
        Self {
            lookups: grew(|c| c.lookups),
            seeks: grew(|c| c.seeks),
            block_hits: grew(|c| c.block_hits),
            block_misses: grew(|c| c.block_misses),
            ghost_hits: grew(|c| c.ghost_hits),
            memtable_bytes: grew(|c| c.memtable_bytes),
            flush_bytes: grew(|c| c.flush_bytes),
            compaction_bytes: grew(|c| c.compaction_bytes),
            compaction_ns: grew(|c| c.compaction_ns),
            get_samples: grew(|c| c.get_samples),
            get_ns: grew(|c| c.get_ns),
        }
    }
}

/// How the counters grew.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Growth {
    pub counts: Counts,
    /// In this time.
    pub seconds: f64,
}

impl Growth {
    /// `count` of the growth per second; 0 where no time has passed.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

/// The lookups of one file.
#[derive(Debug, Clone, Copy)]
struct FileTrend {
    at_us: u64,
    lookups: f64,
    per_second: f64,
}

/// What was seen at earlier looks.
#[derive(Debug)]
pub(crate) struct Trends {
    opened_us: u64,
    /// Oldest first; the first is the open or the last look before the window.
    looks: Mutex<VecDeque<(u64, Counts)>>,
    files: Mutex<HashMap<FileNumber, FileTrend>>,
    /// Segments of the commit log when they could be counted last.
    log_segments: AtomicU64,
}

impl Trends {
    /// A store is opened now, with all counters at 0.
    pub fn new(now_us: u64) -> Self {
        let looks = Mutex::new(VecDeque::from([(now_us, Counts::default())]));
        Self { opened_us: now_us, looks, files: Mutex::default(), log_segments: AtomicU64::new(0) }
    }

    /// How many segments the commit log has, or had when somebody could see.
    pub fn log_segments(&self, seen: Option<u64>) -> u64 {
        let Some(count) = seen else { return self.log_segments.load(Ordering::Relaxed) };
        self.log_segments.store(count, Ordering::Relaxed);
        count
    }

    /// How the counters grew until now.
    pub fn look(&self, now_us: u64, counts: Counts) -> Growth {
        let mut looks = self.looks.lock();
        while looks.get(1).is_some_and(|(at, _)| now_us.saturating_sub(*at) >= WINDOW_US) {
            looks.pop_front();
        }
        let (from_us, before) = looks.front().copied().unwrap_or((self.opened_us, counts));
        let last_us = looks.back().map_or(self.opened_us, |(at, _)| *at);
        if now_us.saturating_sub(last_us) >= MIN_GAP_US {
            looks.push_back((now_us, counts));
        }
        let seconds = now_us.saturating_sub(from_us) as f64 / 1e6;
        Growth { counts: counts.since(&before), seconds }
    }

    /// The lookups per second of all live files, from how many there were of each since the open.
    pub fn of_files(&self, now_us: u64, files: &[(FileNumber, f64)]) -> HashMap<FileNumber, f64> {
        let mut known = self.files.lock();
        let mut next = HashMap::with_capacity(files.len());
        for (number, lookups) in files {
            let trend = match known.get(number) {
                Some(trend) => trend.moved_on(now_us, *lookups),
                None => FileTrend::first(self.opened_us, now_us, *lookups),
            };
            next.insert(*number, trend);
        }
        *known = next;
        known.iter().map(|(number, trend)| (*number, trend.per_second)).collect()
    }
}

impl FileTrend {
    fn first(opened_us: u64, now_us: u64, lookups: f64) -> Self {
        let seconds = now_us.saturating_sub(opened_us).max(MIN_GAP_US) as f64 / 1e6;
        Self { at_us: now_us, lookups, per_second: lookups / seconds }
    }

    fn moved_on(&self, now_us: u64, lookups: f64) -> Self {
        let passed_us = now_us.saturating_sub(self.at_us);
        if passed_us < MIN_GAP_US {
            return *self;
        }
        let seconds = passed_us as f64 / 1e6;
        let lately = (lookups - self.lookups).max(0.0) / seconds;
        let kept = (-seconds / FILE_MEMORY_S).exp();
        Self { at_us: now_us, lookups, per_second: self.per_second * kept + lately * (1.0 - kept) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookups(lookups: u64) -> Counts {
        Counts { lookups, ..Counts::default() }
    }

    #[test]
    fn growth_is_counted_from_the_open_and_then_over_the_window() {
        let trends = Trends::new(5_000_000);
        assert_eq!(trends.look(5_000_000, lookups(0)).per_second(7), 0.0);
        let growth = trends.look(7_000_000, lookups(10));
        assert_eq!((growth.counts.lookups, growth.seconds), (10, 2.0));
        // Looks that follow each other closely see the same window.
        assert_eq!(trends.look(7_100_000, lookups(12)).counts.lookups, 12);
        for second in 8..100 {
            trends.look(second * 1_000_000, lookups(second * 3));
        }
        let growth = trends.look(100_000_000, lookups(300));
        assert_eq!((growth.counts.lookups, growth.seconds), (90, 30.0));
        assert_eq!(growth.per_second(growth.counts.lookups), 3.0);
        assert!(trends.looks.lock().len() < 40);
        // After a long time without looks the last one is the beginning.
        let growth = trends.look(200_000_000, lookups(500));
        assert_eq!((growth.counts.lookups, growth.seconds), (200, 100.0));
    }

    #[test]
    fn files_warm_up_cool_down_and_are_forgotten() {
        let trends = Trends::new(0);
        let rate = |now_s: u64, count: f64| {
            trends.of_files(now_s * 1_000_000, &[(FileNumber::new(1), count)])[&FileNumber::new(1)]
        };
        assert_eq!(rate(10, 1000.0), 100.0);
        assert_eq!(rate(10, 1500.0), 100.0, "at once says nothing");
        let mut count = 1000.0;
        for second in 11..100 {
            count += 300.0;
            rate(second, count);
        }
        assert!((rate(100, count + 300.0) - 300.0).abs() < 1.0);
        let cold = rate(130, count + 300.0);
        assert!((10.0..20.0).contains(&cold), "{cold}");
        assert!(trends.of_files(131_000_000, &[]).is_empty());
        assert!(trends.files.lock().is_empty());
    }
}
