//! Seconds, steps and marks from made-up readings.

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
    (now.engine.gets, now.engine.reads.device_reads, now.engine.stall_us) = (200, 50, 1_500_000);
    past.enter(now);
    let summary = past.summary().unwrap();
    let rates = (summary.ops_per_s, summary.reads_per_s, summary.writes_per_s);
    assert_eq!(rates, (250.0, 150.0, 50.0));
    assert_eq!((summary.device_reads_per_get, summary.device_reads_per_s), (Some(0.25), 25.0));
    assert_eq!(past.history(600).columns.stall_seconds, [0.0, 1.5]);
    // Counters that were reset give no negative rates, and no absurd ones.
    past.enter(reading(4));
    let summary = past.summary().unwrap();
    assert_eq!((summary.ops_per_s, summary.device_reads_per_get), (0.0, None));
    assert_eq!(summary.device_reads_per_s, 0.0);
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
    let causes = past.history(2).columns.stall_cause;
    assert_eq!(causes, [Some("memtables wait for their flush".into()), None]);
}

#[test]
fn a_store_that_refuses_writes_says_why() {
    let mut past = Past::default();
    let mut refused = |second, poisoned, disk_full| {
        let engine = Metrics { poisoned, disk_full, ..Metrics::default() };
        past.enter(Reading { engine, ..reading(second) });
        past.summary().unwrap().writes_refused
    };
    assert_eq!(refused(1, false, false), None);
    assert_eq!(refused(2, false, true), Some("the disk is full"));
    assert_eq!(refused(3, true, true), Some("an earlier failure"));
    assert_eq!(refused(4, false, false), None);
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
fn ten_minutes_are_kept_by_the_second() {
    let mut past = Past::default();
    for second in 0..KEPT_SECONDS as u64 + 50 {
        past.enter(reading(second));
    }
    let history = past.history(KEPT_SECONDS);
    assert_eq!((history.step_s, history.columns.t_ms.len()), (1, KEPT_SECONDS));
    assert_eq!(history.columns.t_ms.last(), Some(&(1_000_000 + 649_000)));
    assert!(history.columns.t_ms.is_sorted());
    assert_eq!(history.columns.stall_cause.len(), KEPT_SECONDS);
    assert_eq!(past.history(5).columns.t_ms.len(), 5);
    assert!(past.history(0).columns.t_ms.is_empty());
}

#[test]
fn a_step_is_the_mean_of_its_seconds_and_has_their_percentiles() {
    let mut past = Past::default();
    let mut now = reading(0);
    past.enter(now.clone());
    for second in 1..=STEP_SECONDS as u64 {
        let slow = second == 7;
        now = Reading {
            figures: Figures { reads: second * 10 + 90 * u64::from(second >= 7), ..now.figures },
            now_ms: reading(second).now_ms,
            at_us: reading(second).at_us,
            ..now
        };
        now.timings.reads.record_n(if slow { 900_000 } else { 20_000 }, 10).unwrap();
        past.enter(now.clone());
    }
    let steps = past.history(KEPT_SECONDS + 1);
    assert_eq!((steps.step_s, &steps.columns.t_ms[..]), (30, &[1_030_000][..]));
    assert_eq!(steps.columns.reads_per_s, [13.0]);
    let at = |column: &[Option<f32>]| column[0].unwrap() as u64;
    assert_eq!(at(&steps.columns.read_p50_us), 20);
    // Long out of the window of seconds, not out of the step.
    assert!(at(&steps.columns.read_p99_us) >= 890, "{steps:?}");
    past.enter(reading(31));
    past.end();
    assert_eq!(past.history(KEPT_SECONDS + 1).columns.t_ms, [1_030_000, 1_031_000]);
    past.end();
    assert_eq!(past.history(KEPT_SECONDS + 1).columns.t_ms.len(), 2, "nothing came since");
}

#[test]
fn a_day_of_steps_is_kept_and_no_more() {
    let mut past = Past::default();
    let small = Histogram::new_with_bounds(1, 100, 1).unwrap();
    let timings = Timings { reads: small.clone(), writes: small };
    for step in 0..KEPT_STEPS as u64 + 20 {
        past.enter(Reading { timings: timings.clone(), ..reading(step * 30) });
    }
    let day = past.history(usize::MAX).columns;
    assert_eq!(day.t_ms.len(), KEPT_STEPS);
    assert_eq!(past.history(3600).columns.t_ms.len(), 120);
}

fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[test]
fn what_is_kept_is_there_in_the_next_run_with_a_mark_of_its_start() {
    let mut past = Past::default();
    let mut stalled = reading(2);
    stalled.engine.stalls[StallCause::L0Files as usize] =
        StallMetrics { slowdowns: 1, stops: 0, stall_us: 500_000 };
    stalled.engine.stall_us = 500_000;
    past.enter(reading(1));
    past.note_options(1_001_000, options(&[("a", "1"), ("b", "1")]));
    past.enter(stalled);
    past.note_options(1_002_000, options(&[("a", "2"), ("b", "1")]));
    past.note_options(1_003_000, options(&[("a", "2"), ("b", "1")]));
    past.end();
    let text = serde_json::to_vec(&past.kept()).unwrap();
    let kept: Kept = serde_json::from_slice(&text).unwrap();
    let mut next = Past::restored(kept.clone(), 1_100_000);
    assert_eq!(next.history(600).columns, past.history(600).columns);
    assert_eq!(next.history(900).columns, past.history(900).columns);
    assert_eq!(next.history(900).columns.stall_cause, [Some("too many L0 files".into())]);
    // `c` is an option of a later version.
    next.note_options(1_100_000, options(&[("a", "2"), ("b", "3"), ("c", "1")]));
    let marks = next.history(0).marks;
    let told: Vec<_> = marks.iter().map(|m| (m.t_ms, m.kind, m.options.join(" "))).collect();
    let expected = [
        (1_001_000, MarkKind::Start, String::new()),
        (1_002_000, MarkKind::Options, "a".into()),
        (1_100_000, MarkKind::Start, "b".into()),
    ];
    assert_eq!(told, expected);
    assert!(next.summary().is_none(), "the rates of an earlier run are not those of now");
    // What is older than a day, or would be in the future, is not.
    let late = Past::restored(kept.clone(), 1_002_000 + DAY_MS + 1);
    assert!(late.history(600).columns.t_ms.is_empty() && late.history(0).marks.is_empty());
    let early = Past::restored(kept, 1_001_500);
    assert_eq!(early.history(600).columns.t_ms, [1_001_000]);
}

#[test]
fn a_clock_that_is_set_back_leaves_nothing_in_the_future() {
    let mut past = Past::default();
    past.enter(reading(5000));
    past.note_options(reading(5000).now_ms, options(&[("a", "1")]));
    past.enter(reading(5001));
    past.note_options(reading(5001).now_ms, options(&[("a", "2")]));
    let set_back = reading(100).now_ms;
    past.enter(Reading { now_ms: set_back, ..reading(5002) });
    let history = past.history(600);
    assert_eq!(history.columns.t_ms, [set_back]);
    let marks: Vec<_> = history.marks.iter().map(|mark| (mark.t_ms, mark.kind)).collect();
    assert_eq!(marks, [(set_back, MarkKind::Start), (set_back, MarkKind::Options)]);
    past.note_options(set_back + 1000, options(&[("a", "3")]));
    assert!(past.history(0).marks.is_sorted_by_key(|mark| mark.t_ms), "oldest first");
}

#[test]
fn columns_of_different_lengths_and_times_out_of_order_are_cut() {
    let mut past = Past::default();
    (1..=5).for_each(|second| past.enter(reading(second)));
    let mut kept = past.kept();
    kept.seconds.t_ms[1] = 0;
    kept.seconds.write_p99_us.truncate(4);
    let next = Past::restored(kept, 2_000_000);
    assert_eq!(next.history(600).columns.t_ms, [1_001_000, 1_003_000, 1_004_000]);
}

/// As a damaged file may have them: JSON has no way to write them back.
#[test]
fn numbers_that_are_infinite_are_not_taken_over() {
    let mut past = Past::default();
    (1..=4).for_each(|second| past.enter(reading(second)));
    let mut kept = past.kept();
    kept.seconds.reads_per_s[1] = f32::INFINITY;
    kept.seconds.stall_seconds[2] = f32::NEG_INFINITY;
    kept.seconds.read_p50_us[3] = Some(f32::INFINITY);
    let next = Past::restored(kept, 2_000_000);
    assert_eq!(next.history(600).columns.t_ms, [1_001_000, 1_004_000]);
    let text = serde_json::to_vec(&next.kept()).unwrap();
    let again: Kept = serde_json::from_slice(&text).unwrap();
    assert_eq!(again.seconds.t_ms, [1_001_000, 1_004_000]);
    assert_eq!(again.seconds.read_p50_us, [None, None]);
}
