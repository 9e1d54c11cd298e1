//! Seconds that are over: rates, percentiles of the last ten of them, ten minutes by the second and a day
//! in steps of half a minute for a page that is just opened, and marks of starts and changed options.
//! Pure; `sampler.rs` enters a second at a time, `history_file.rs` keeps it across restarts.

use super::json::{Columns, History, LatencyUs, Mark, MarkKind, Percentiles, Stall, Summary};
use super::{Figures, Timings};
use crate::stats::disk_bytes;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use terrace::{Metrics, StallCause, StallMetrics};

/// Seconds that are kept one by one.
pub(super) const KEPT_SECONDS: usize = 600;
/// Seconds of a step.
const STEP_SECONDS: usize = 30;
/// Milliseconds of a day: nothing older is kept.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Steps that are kept: those of a day.
const KEPT_STEPS: usize = DAY_MS as usize / 1000 / STEP_SECONDS;
/// Marks that are kept, the newest.
const KEPT_MARKS: usize = 200;
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
    last: Option<Summary>,
    /// Oldest first.
    seconds: VecDeque<Sample>,
    /// Where the step under way began.
    step_from: Option<Reading>,
    /// Oldest first.
    steps: VecDeque<Sample>,
    /// Oldest first.
    marks: VecDeque<Mark>,
    /// The options as they were last, those of the run before until the first look.
    options: BTreeMap<String, String>,
    /// The start of this run is marked.
    has_begun: bool,
}

/// What is kept of a second or a step. Single precision is enough for charts, and short as text.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    t_ms: u64,
    reads_per_s: f32,
    writes_per_s: f32,
    read_us: [Option<f32>; 3],
    write_us: [Option<f32>; 3],
    write_amplification: Option<f32>,
    space_amplification: Option<f32>,
    device_reads_per_get: Option<f32>,
    stall_cause: Option<&'static str>,
    stall_seconds: f32,
}

/// All that outlives a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    pub seconds: Columns,
    pub steps: Columns,
    pub marks: Vec<Mark>,
    /// Names and values, without secrets. They are compared with those of the next run, and shown to nobody.
    pub options: BTreeMap<String, String>,
}

impl Past {
    /// What is left of earlier runs, as far as it is of the day before `now_ms`.
    pub fn restored(kept: Kept, now_ms: u64) -> Self {
        let oldest_ms = now_ms.saturating_sub(DAY_MS);
        let samples = |columns: &Columns, most: usize| {
            let mut samples: VecDeque<Sample> = VecDeque::new();
            for sample in Sample::all_of(columns) {
                // A clock that was set back leaves times that do not follow each other.
                let follows = samples.back().is_none_or(|before| before.t_ms < sample.t_ms);
                let is_within = (oldest_ms..now_ms).contains(&sample.t_ms);
                if follows && is_within && sample.is_finite() {
                    push(&mut samples, sample, most);
                }
            }
            samples
        };
        let mut past = Self {
            seconds: samples(&kept.seconds, KEPT_SECONDS),
            steps: samples(&kept.steps, KEPT_STEPS),
            options: kept.options,
            ..Self::default()
        };
        let marks = kept.marks.into_iter();
        for mark in marks.filter(|mark| (oldest_ms..now_ms).contains(&mark.t_ms)) {
            push(&mut past.marks, mark, KEPT_MARKS);
        }
        past
    }

    /// What a later run is to know.
    pub fn kept(&self) -> Kept {
        let all = |samples: &VecDeque<Sample>| Columns::of(samples.iter());
        Kept {
            seconds: all(&self.seconds),
            steps: all(&self.steps),
            marks: self.marks.iter().cloned().collect(),
            options: self.options.clone(),
        }
    }

    /// The last second.
    pub fn summary(&self) -> Option<Summary> {
        self.last.clone()
    }

    /// Enters a second that ends with `now`.
    pub fn enter(&mut self, now: Reading) {
        let latency_us = self.latencies(&now.timings);
        let (summary, sample) = between(self.before.as_ref(), &now, latency_us);
        forget_from(&mut self.seconds, now.now_ms);
        forget_from(&mut self.steps, now.now_ms);
        // What a mark stands for has happened, whatever the clock said then.
        self.marks.iter_mut().for_each(|mark| mark.t_ms = mark.t_ms.min(now.now_ms));
        push(&mut self.seconds, sample, KEPT_SECONDS);
        self.last = Some(summary);
        self.end_step(&now, STEP_SECONDS);
        self.before = Some(now);
    }

    /// Ends the step under way now, if it has lasted for a second.
    pub fn end(&mut self) {
        if let Some(last) = self.before.take() {
            self.end_step(&last, 1);
            self.before = Some(last);
        }
    }

    /// Ends the step under way if it has at least this many seconds.
    fn end_step(&mut self, now: &Reading, least_seconds: usize) {
        let Some(from) = &self.step_from else {
            self.step_from = Some(now.clone());
            return;
        };
        if now.at_us.saturating_sub(from.at_us) < least_seconds as u64 * 1_000_000 {
            return;
        }
        let latency_us = LatencyUs {
            read: percentiles(&since(&now.timings.reads, Some(&from.timings.reads))),
            write: percentiles(&since(&now.timings.writes, Some(&from.timings.writes))),
        };
        let (_, sample) = between(Some(from), now, latency_us);
        push(&mut self.steps, sample, KEPT_STEPS);
        self.step_from = Some(now.clone());
    }

    /// Marks the start of this run, and every change of options after it.
    pub fn note_options(&mut self, now_ms: u64, options: BTreeMap<String, String>) {
        // An option that only one of two versions has is no change that somebody made.
        let differs = |(name, value): &(&String, &String)| {
            self.options.get(*name).is_some_and(|before| before != *value)
        };
        let changed: Vec<String> =
            options.iter().filter(differs).map(|(name, _)| name.clone()).collect();
        let kind = match self.has_begun {
            false => MarkKind::Start,
            true => MarkKind::Options,
        };
        if kind == MarkKind::Start || !changed.is_empty() {
            let version = env!("CARGO_PKG_VERSION").to_string();
            let mark = Mark { t_ms: now_ms, kind, version, options: changed };
            push(&mut self.marks, mark, KEPT_MARKS);
        }
        self.options = options;
        self.has_begun = true;
    }

    /// Percentiles of the window that ends with `now`.
    fn latencies(&mut self, now: &Timings) -> LatencyUs {
        let then = self.timings.front();
        let latencies = LatencyUs {
            read: percentiles(&since(&now.reads, then.map(|then| &then.reads))),
            write: percentiles(&since(&now.writes, then.map(|then| &then.writes))),
        };
        push(&mut self.timings, now.clone(), WINDOW_SECONDS);
        latencies
    }

    /// The last `seconds` of them: one by one if they are kept so, else in steps. All marks.
    pub fn history(&self, seconds: usize) -> History {
        let (samples, step_s) = match seconds <= KEPT_SECONDS {
            true => (&self.seconds, 1),
            false => (&self.steps, STEP_SECONDS),
        };
        let last_ms = self.seconds.back().or(self.steps.back()).map_or(0, |sample| sample.t_ms);
        let oldest_ms = last_ms.saturating_sub((seconds as u64).saturating_mul(1000));
        let within = samples.iter().filter(|sample| sample.t_ms > oldest_ms);
        let is_of_today = |mark: &&Mark| mark.t_ms > last_ms.saturating_sub(DAY_MS);
        let marks = self.marks.iter().filter(is_of_today).cloned().collect();
        History { step_s: step_s as u32, marks, columns: Columns::of(within) }
    }
}

/// Appends; the oldest of more than `most` goes.
fn push<T>(row: &mut VecDeque<T>, one: T, most: usize) {
    row.push_back(one);
    if row.len() > most {
        row.pop_front();
    }
}

/// Takes away what a clock that was set back has yet to come to.
fn forget_from(row: &mut VecDeque<Sample>, now_ms: u64) {
    while row.back().is_some_and(|sample| sample.t_ms >= now_ms) {
        row.pop_back();
    }
}

/// What happened between two readings; without the first, what is now.
fn between(before: Option<&Reading>, now: &Reading, latency_us: LatencyUs) -> (Summary, Sample) {
    let seconds = before.map_or(0.0, |b| now.at_us.saturating_sub(b.at_us) as f64 / 1e6);
    let growth = |of: fn(&Reading) -> u64| {
        before.map_or(0, |before| of(now).saturating_sub(of(before))) as f64
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
        writes_refused: refused(&now.engine),
        device_reads_per_get: (gets > 0.0).then(|| device_reads / gets),
        device_reads_per_s: rate(|r| r.engine.reads.device_reads),
        memory: super::json::MemoryNow {
            rss_bytes: now.rss_bytes,
            budget_bytes: now.budget_bytes,
            used_bytes: now.used_bytes,
        },
        dbsize_estimate: now.key_count,
        disk_bytes: disk_bytes(&now.engine),
    };
    let sample = Sample::of(&summary, growth(|r| r.engine.stall_us) / 1e6);
    (summary, sample)
}

impl Sample {
    fn of(s: &Summary, stall_seconds: f64) -> Self {
        let short = |value: Option<f64>| value.map(|value| value as f32);
        let three = |of: &Percentiles| [short(of.p50), short(of.p99), short(of.p999)];
        Self {
            t_ms: s.now_ms,
            reads_per_s: s.reads_per_s as f32,
            writes_per_s: s.writes_per_s as f32,
            read_us: three(&s.latency_us.read),
            write_us: three(&s.latency_us.write),
            write_amplification: short(s.write_amplification),
            space_amplification: short(s.space_amplification),
            device_reads_per_get: short(s.device_reads_per_get),
            stall_cause: s.stall.cause,
            stall_seconds: stall_seconds as f32,
        }
    }

    /// The samples that columns have in full.
    fn all_of(columns: &Columns) -> impl Iterator<Item = Self> {
        (0..columns.t_ms.len()).map_while(|at| Self::at(columns, at))
    }

    /// Whether JSON has its numbers: else a file of it could not be read again.
    fn is_finite(&self) -> bool {
        [self.reads_per_s, self.writes_per_s, self.stall_seconds].iter().all(|n| n.is_finite())
    }

    fn at(c: &Columns, at: usize) -> Option<Self> {
        let known = |text: &str| StallCause::ALL.into_iter().find(|cause| cause.text() == text);
        let cause = c.stall_cause.get(at)?.as_deref().and_then(known);
        Some(Self {
            t_ms: *c.t_ms.get(at)?,
            reads_per_s: *c.reads_per_s.get(at)?,
            writes_per_s: *c.writes_per_s.get(at)?,
            read_us: [*c.read_p50_us.get(at)?, *c.read_p99_us.get(at)?, *c.read_p999_us.get(at)?],
            write_us: [
                *c.write_p50_us.get(at)?,
                *c.write_p99_us.get(at)?,
                *c.write_p999_us.get(at)?,
            ],
            write_amplification: *c.write_amplification.get(at)?,
            space_amplification: *c.space_amplification.get(at)?,
            device_reads_per_get: *c.device_reads_per_get.get(at)?,
            stall_cause: cause.map(StallCause::text),
            stall_seconds: *c.stall_seconds.get(at)?,
        })
    }
}

impl Columns {
    fn of<'s>(samples: impl Iterator<Item = &'s Sample>) -> Self {
        let mut columns = Self::default();
        samples.for_each(|sample| columns.enter(sample));
        columns
    }

    fn enter(&mut self, s: &Sample) {
        self.t_ms.push(s.t_ms);
        self.reads_per_s.push(s.reads_per_s);
        self.writes_per_s.push(s.writes_per_s);
        let [p50, p99, p999] = s.read_us;
        self.read_p50_us.push(p50);
        self.read_p99_us.push(p99);
        self.read_p999_us.push(p999);
        let [p50, p99, p999] = s.write_us;
        self.write_p50_us.push(p50);
        self.write_p99_us.push(p99);
        self.write_p999_us.push(p999);
        self.write_amplification.push(s.write_amplification);
        self.space_amplification.push(s.space_amplification);
        self.device_reads_per_get.push(s.device_reads_per_get);
        self.stall_cause.push(s.stall_cause.map(Into::into));
        self.stall_seconds.push(s.stall_seconds);
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

/// Why writes are refused; not why they wait.
fn refused(engine: &Metrics) -> Option<&'static str> {
    match (engine.poisoned, engine.disk_full) {
        (true, _) => Some("an earlier failure"),
        (false, true) => Some("the disk is full"),
        (false, false) => None,
    }
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
mod tests;
