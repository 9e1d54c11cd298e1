//! Seconds that are over: rates, percentiles of the last ten of them, and ten minutes for a page that
//! is just opened. Pure; `sampler.rs` enters a second at a time.

use super::json::{History, LatencyUs, Percentiles, Stall, Summary};
use super::{Figures, Timings};
use crate::stats::disk_bytes;
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use terrace::{Metrics, StallCause, StallMetrics};

/// Seconds that are kept.
pub(super) const KEPT_SECONDS: usize = 600;
/// Seconds over which percentiles are.
const WINDOW_SECONDS: usize = 10;

/// What is read from counters at one moment.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// Wall clock.
    pub now_ms: u64,
    /// A clock that nobody sets.
    pub at_us: u64,
    pub figures: Figures,
    pub engine: Metrics,
    pub timings: Timings,
    pub key_count: u64,
    pub rss_bytes: Option<u64>,
    pub budget_bytes: u64,
    pub used_bytes: u64,
}

/// The seconds so far.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The newest last; one more than the window, which is what lies between them.
    timings: VecDeque<Timings>,
    before: Option<Reading>,
    /// Oldest first.
    seconds: VecDeque<Second>,
}

#[derive(Debug)]
struct Second {
    summary: Summary,
    stall_seconds: f64,
}

impl Past {
    /// The last second.
    pub fn summary(&self) -> Option<Summary> {
        self.seconds.back().map(|second| second.summary.clone())
    }

    /// Enters a second that ends with `now`.
    pub fn enter(&mut self, now: Reading) {
        let latency_us = self.latencies(&now.timings);
        let before = self.before.as_ref();
        let seconds = before.map_or(0.0, |b| now.at_us.saturating_sub(b.at_us) as f64 / 1e6);
        let growth = |of: fn(&Reading) -> u64| {
            before.map_or(0, |before| of(&now).saturating_sub(of(before))) as f64
        };
        let rate = |of| if seconds > 0.0 { growth(of) / seconds } else { 0.0 };
        let gets = growth(|r| r.engine.gets);
        let device_reads = growth(|r| r.engine.reads.device_reads);
        let stall = before.and_then(|before| stall(&before.engine, &now.engine));
        let summary = Summary {
            version: env!("CARGO_PKG_VERSION"),
            now_ms: now.now_ms,
            started_ms: now.figures.started_ms,
            uptime_s: now.figures.uptime_s,
            connected_clients: now.figures.connected_clients,
            ops_per_s: rate(|r| r.figures.commands),
            reads_per_s: rate(|r| r.figures.reads),
            writes_per_s: rate(|r| r.figures.writes),
            commands_total: now.figures.commands,
            hits: now.figures.hits,
            misses: now.figures.misses,
            block_hits: now.engine.reads.data_block_hits,
            block_misses: now.engine.reads.data_block_misses,
            latency_us,
            write_amplification: positive(now.engine.write_amplification()),
            space_amplification: positive(now.engine.space_amplification()),
            stall: Stall {
                cause: stall.map(|(cause, _)| cause.text()),
                is_stopped: stall.is_some_and(|(_, is_stopped)| is_stopped),
                seconds_total: now.engine.stall_us as f64 / 1e6,
                count: now.engine.slowdowns + now.engine.stops,
            },
            device_reads_per_get: (gets > 0.0).then(|| device_reads / gets),
            memory: super::json::MemoryNow {
                rss_bytes: now.rss_bytes,
                budget_bytes: now.budget_bytes,
                used_bytes: now.used_bytes,
            },
            dbsize_estimate: now.key_count,
            disk_bytes: disk_bytes(&now.engine),
        };
        let stall_seconds = growth(|r| r.engine.stall_us) / 1e6;
        self.seconds.push_back(Second { summary, stall_seconds });
        if self.seconds.len() > KEPT_SECONDS {
            self.seconds.pop_front();
        }
        self.before = Some(now);
    }

    /// Percentiles of the window that ends with `now`.
    fn latencies(&mut self, now: &Timings) -> LatencyUs {
        let then = self.timings.front();
        let latencies = LatencyUs {
            read: percentiles(&since(&now.reads, then.map(|then| &then.reads))),
            write: percentiles(&since(&now.writes, then.map(|then| &then.writes))),
        };
        self.timings.push_back(now.clone());
        if self.timings.len() > WINDOW_SECONDS {
            self.timings.pop_front();
        }
        latencies
    }

    /// The last `seconds` of them.
    pub fn history(&self, seconds: usize) -> History {
        let mut history = History::default();
        let skipped = self.seconds.len().saturating_sub(seconds);
        for second in self.seconds.iter().skip(skipped) {
            history.enter(second);
        }
        history
    }
}

impl History {
    fn enter(&mut self, second: &Second) {
        let s = &second.summary;
        self.t_ms.push(s.now_ms);
        self.reads_per_s.push(s.reads_per_s);
        self.writes_per_s.push(s.writes_per_s);
        self.read_p50_us.push(s.latency_us.read.p50);
        self.read_p99_us.push(s.latency_us.read.p99);
        self.read_p999_us.push(s.latency_us.read.p999);
        self.write_p50_us.push(s.latency_us.write.p50);
        self.write_p99_us.push(s.latency_us.write.p99);
        self.write_p999_us.push(s.latency_us.write.p999);
        self.write_amplification.push(s.write_amplification);
        self.space_amplification.push(s.space_amplification);
        self.device_reads_per_get.push(s.device_reads_per_get);
        self.stall_cause.push(s.stall.cause);
        self.stall_seconds.push(second.stall_seconds);
    }
}

/// What held writers back between two readings, most of the time if there was more than one cause,
/// and whether it stopped them.
fn stall(before: &Metrics, now: &Metrics) -> Option<(StallCause, bool)> {
    let rows = now.stalls_by_cause().zip(before.stalls);
    let grown = rows.map(|((cause, row), before)| (cause, row.since(before)));
    let (cause, grown) = grown
        .filter(|(_, grown)| *grown != StallMetrics::default())
        .max_by_key(|(_, grown)| (grown.stall_us, grown.slowdowns + grown.stops))?;
    // Time without a slowdown is that of a stop that began earlier.
    Some((cause, grown.stops > 0 || grown.slowdowns == 0))
}

/// The engine gives 0 where there is no amplification yet.
fn positive(ratio: f64) -> Option<f64> {
    (ratio > 0.0).then_some(ratio)
}

/// What `now` has more than `then`: all of it if it was reset in between.
fn since(now: &Histogram<u64>, then: Option<&Histogram<u64>>) -> Histogram<u64> {
    let mut grown = now.clone();
    if let Some(then) = then
        && grown.subtract(then).is_err()
    {
        return now.clone();
    }
    grown
}

/// In microseconds, of a histogram in nanoseconds.
pub(super) fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    let at = |quantile| {
        let ns = histogram.value_at_quantile(quantile);
        (!histogram.is_empty()).then_some(ns as f64 / 1e3)
    };
    Percentiles { samples: histogram.len(), p50: at(0.5), p99: at(0.99), p999: at(0.999) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram() -> Histogram<u64> {
        Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap()
    }

    fn reading(second: u64) -> Reading {
        Reading {
            now_ms: 1_000_000 + second * 1000,
            at_us: second * 1_000_000,
            figures: Figures::default(),
            engine: Metrics::default(),
            timings: Timings { reads: histogram(), writes: histogram() },
            key_count: 0,
            rss_bytes: None,
            budget_bytes: 1,
            used_bytes: 0,
        }
    }

    #[test]
    fn rates_are_over_the_time_between_two_readings() {
        let mut past = Past::default();
        past.enter(reading(1));
        assert_eq!(past.summary().unwrap().ops_per_s, 0.0);
        let mut now = reading(3);
        (now.figures.commands, now.figures.reads, now.figures.writes) = (500, 300, 100);
        (now.engine.gets, now.engine.reads.device_reads, now.engine.stall_us) =
            (200, 50, 1_500_000);
        past.enter(now);
        let summary = past.summary().unwrap();
        let rates = (summary.ops_per_s, summary.reads_per_s, summary.writes_per_s);
        assert_eq!(rates, (250.0, 150.0, 50.0));
        assert_eq!(summary.device_reads_per_get, Some(0.25));
        assert_eq!(past.history(600).stall_seconds, [0.0, 1.5]);
        // Counters that were reset give no negative rates, and no absurd ones.
        past.enter(reading(4));
        let summary = past.summary().unwrap();
        assert_eq!((summary.ops_per_s, summary.device_reads_per_get), (0.0, None));
    }

    #[test]
    fn the_cause_of_a_stall_is_what_the_engine_counted_most_time_for() {
        let mut past = Past::default();
        let mut engine = Metrics::default();
        let mut second = 0;
        let mut enter = |engine: &Metrics| {
            second += 1;
            past.enter(Reading { engine: engine.clone(), ..reading(second) });
            let stall = past.summary().unwrap().stall;
            (stall.cause, stall.is_stopped)
        };
        let row = |slowdowns, stops, stall_us| StallMetrics { slowdowns, stops, stall_us };
        engine.stalls[StallCause::GarbageCollection as usize] = row(9, 0, 900);
        assert_eq!(enter(&engine), (None, false), "what was before is nobody's second");
        assert_eq!(enter(&engine), (None, false));
        engine.stalls[StallCause::GarbageCollection as usize] = row(12, 0, 1_300);
        engine.stalls[StallCause::L0Files as usize] = row(50, 0, 300);
        assert_eq!(enter(&engine), (Some("garbage collection is behind"), false));
        engine.stalls[StallCause::L0Files as usize] = row(90, 0, 500);
        assert_eq!(enter(&engine), (Some("too many L0 files"), false));
        // A stop that has just begun, its time as it goes, its end.
        for (stalled_us, stopped) in [(0, 1), (1_000_000, 1), (1_400_000, 1)] {
            engine.stalls[StallCause::Memtables as usize] = row(0, stopped, stalled_us);
            assert_eq!(enter(&engine), (Some("memtables wait for their flush"), true));
        }
        assert_eq!(enter(&engine), (None, false));
        assert_eq!(past.history(2).stall_cause, [Some("memtables wait for their flush"), None]);
    }

    #[test]
    fn percentiles_forget_what_was_before_the_window() {
        let mut past = Past::default();
        let mut timings = reading(0).timings;
        timings.reads.record_n(5_000_000, 1000).unwrap();
        let mut enter = |second, timings: &Timings| {
            past.enter(Reading { timings: timings.clone(), ..reading(second) });
            past.summary().unwrap().latency_us.read
        };
        let first = enter(0, &timings);
        assert_eq!((first.samples, first.p50.map(|us| us as u64 / 100)), (1000, Some(50)));
        for second in 1..=WINDOW_SECONDS as u64 {
            timings.reads.record_n(20_000, 10).unwrap();
            enter(second, &timings);
        }
        let last = enter(11, &timings);
        assert_eq!(last.samples, 90, "nine of the last ten seconds had ten");
        assert!(last.p999.unwrap() < 21.0, "{last:?}");
        // A histogram that was reset counts from there.
        let reset = Timings { reads: histogram(), writes: histogram() };
        assert_eq!(enter(12, &reset).samples, 0);
    }

    #[test]
    fn ten_minutes_are_kept() {
        let mut past = Past::default();
        for second in 0..KEPT_SECONDS as u64 + 50 {
            past.enter(reading(second));
        }
        let history = past.history(usize::MAX);
        assert_eq!(history.t_ms.len(), KEPT_SECONDS);
        assert_eq!(history.t_ms.last(), Some(&(1_000_000 + 649_000)));
        assert!(history.t_ms.is_sorted());
        assert_eq!(history.stall_cause.len(), KEPT_SECONDS);
        assert_eq!(past.history(5).t_ms.len(), 5);
        assert!(past.history(0).t_ms.is_empty());
    }
}
