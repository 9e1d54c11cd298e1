//! What is kept of the log, drawn as segments with their lengths.

use super::*;
use terrace_log::{LogOptions, LogWriter};
use terrace_vfs::SimVfs;

fn number(number: u64) -> SegmentNumber {
    SegmentNumber::new(number)
}

/// Segments 1 to 5 of 100 bytes, and 6, which is being written.
fn history() -> Arc<LogHistory> {
    let segment = |n: u64| HistorySegment {
        number: number(n),
        end: (n < 6).then_some(100),
        first_seqno: Some(SeqNo::new(n * 10)),
    };
    Arc::new(LogHistory::new((1..=6).map(segment), SeqNo::ZERO))
}

fn trim(history: &LogHistory, limit_bytes: u64, in_force: u64, values: &[u64]) -> Vec<u64> {
    let retention = Retention { limit_bytes, in_force: number(in_force), regardless: false };
    let gone = history.trim(retention, |n| values.contains(&n.get()));
    gone.into_iter().map(SegmentNumber::get).collect()
}

#[test]
fn what_is_in_force_stays_and_the_limit_bounds_the_rest() {
    let history = history();
    assert_eq!(trim(&history, 250, 5, &[]), [1, 2]);
    assert_eq!(history.kept_bytes(), 200);
    assert!(!history.keeps(number(2)) && history.keeps(number(3)) && history.keeps(number(6)));
    assert_eq!(trim(&history, 100, 5, &[]), [3]);
    assert_eq!(trim(&history, 0, 5, &[]), [4]);
    assert_eq!((trim(&history, 0, 5, &[]), history.kept_bytes()), (vec![], 0));
}

#[test]
fn a_segment_that_stays_for_its_values_costs_nothing_until_they_are_gone() {
    let history = history();
    assert_eq!(trim(&history, 150, 6, &[4, 5]), [1, 2]);
    assert_eq!(history.kept_bytes(), 100);
    assert_eq!(trim(&history, 150, 6, &[5]), [3]);
    assert_eq!(trim(&history, 0, 6, &[5]), [4, 5], "nothing is kept for feeds");
}

#[test]
fn a_pin_holds_what_comes_after_it_and_a_full_disk_breaks_it() {
    let history = history();
    let (pin, seen) = history.pin();
    assert_eq!(seen.len(), 6);
    assert_eq!(trim(&history, 0, 6, &[]), []);
    pin.move_to(number(3));
    assert_eq!(trim(&history, 0, 6, &[]), [1, 2]);
    let retention = Retention { limit_bytes: 0, in_force: number(5), regardless: true };
    assert_eq!(history.trim(retention, |_| false), [3, 4].map(number));
    drop(pin);
    assert_eq!(trim(&history, 0, 6, &[]), [5]);
}

#[test]
fn a_segment_that_begins_ends_the_one_before_it() {
    let history = history();
    assert_eq!(history.last_full_seqno(), SeqNo::new(59));
    history.begin(number(9), SeqNo::new(75), LogPosition { segment: number(6), offset: 44 });
    let segments = history.segments();
    assert_eq!((segments[5].end, segments[6].end), (Some(44), None));
    assert_eq!(history.last_full_seqno(), SeqNo::new(74));
    history.note_synced(SeqNo::new(70));
    history.note_synced(SeqNo::new(60));
    assert_eq!(history.synced(), SeqNo::new(70));
}

#[test]
fn links_lead_back_to_the_first_segment_that_is_missing() {
    let sim = SimVfs::new(1);
    let dir = Path::new("/log");
    sim.create_dir_all(dir).unwrap();
    let mut end = None;
    for n in [1, 2, 5, 7].map(number) {
        let path = names::log_path(dir, n);
        let options = LogOptions::default();
        let mut writer = LogWriter::create_after(&sim, &path, n, &options, end).unwrap();
        writer.append(&[b"record"]).unwrap();
        end = Some(writer.end());
    }
    let found = |end| -> Vec<u64> {
        let segments = linked(&sim, dir, end).unwrap().segments;
        segments.iter().map(|segment| segment.number.get()).collect()
    };
    assert_eq!(found(end.unwrap()), [1, 2, 5, 7]);
    assert_eq!(found(LogPosition::default()), [0; 0]);
    sim.remove(&names::log_path(dir, number(2))).unwrap();
    assert_eq!(found(end.unwrap()), [5, 7]);
}
