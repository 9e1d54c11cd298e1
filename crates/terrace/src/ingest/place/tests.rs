//! Levels for files, from LSMs drawn as text.

use super::*;
use terrace_manifest::FileMeta;

const SHAPE: &str = "\
L0:  9:[d-f] 1KB
L1:  7:[h-k] 1KB
L3:  5:[m-p) 1KB
L6:  1:[a-c] 1KB  2:[q-z] 1KB
";

/// Levels above and, if there is room, below, for a file of this key range.
fn levels(style: CompactionStyle, running: &[RunningCompaction], range: &str) -> (usize, bool) {
    let version = Version::parse_shape(SHAPE).unwrap();
    let drawn = Version::parse_shape(&format!("L6:  99:{range} 1KB")).unwrap();
    let file: FileMeta = (*drawn.level(6).files()[0]).clone();
    let file = std::sync::Arc::new(file);
    let span = Span::of([&file]).unwrap();
    let levels = Levels { family: 0, version: &version, style, running };
    (levels.above(&span), levels.has_room_below(&span))
}

fn running(family: u32, output_level: u8, smallest: &str, largest: &str) -> RunningCompaction {
    let (smallest, largest) = (smallest.into(), largest.into());
    let (files, brings_older, needs_bytes) = (Vec::new(), false, 0);
    let id = 1;
    RunningCompaction {
        id,
        family,
        output_level,
        smallest,
        largest,
        files,
        brings_older,
        needs_bytes,
    }
}

#[test]
fn a_file_sinks_until_something_overlaps_it() {
    let of = |range| levels(CompactionStyle::Leveled, &[], range);
    assert_eq!(of("[g-g]"), (6, true));
    assert_eq!(of("[a-a]"), (5, false));
    assert_eq!(of("[e-g]"), (0, true));
    assert_eq!(of("[f-g]"), (0, true));
    assert_eq!(of("[i-l]"), (0, true));
    assert_eq!(of("[l-m]"), (2, true));
    // Ends that are not included do not overlap.
    assert_eq!(of("[l-m)"), (6, true));
    assert_eq!(of("[p-p]"), (6, true));
    assert_eq!(of("[a-z]"), (0, false));
    assert_eq!(levels(CompactionStyle::Tiered, &[], "[g-g]"), (0, true));
}

#[test]
fn a_file_stays_above_what_a_compaction_writes() {
    let of = |running: RunningCompaction| levels(CompactionStyle::Leveled, &[running], "[l-l]").0;
    assert_eq!(of(running(0, 4, "k", "m")), 3);
    assert_eq!(of(running(0, 1, "l", "z")), 0);
    assert_eq!(of(running(0, 6, "a", "l")), 5);
    assert_eq!(of(running(0, 4, "a", "k")), 6);
    assert_eq!(of(running(1, 4, "k", "m")), 6);
    assert_eq!(of(running(0, 0, "k", "m")), 6);
}

#[test]
fn nothing_goes_below_keys_that_are_compacted_or_have_no_number() {
    let shape = "L0:  9:[d-f] 1KB  8:[a-z] 1KB seqnos=1-2  7:[t-v] 1KB seqnos=0-1\n\
                 L5:  2:[g-h] 1KB  3:[m-p) 1KB seqnos=0-7  4:[q-r] 1KB\n";
    let version = Version::parse_shape(shape).unwrap();
    let of = |range: &str, running: &[RunningCompaction]| {
        let drawn = Version::parse_shape(&format!("L6:  99:{range} 1KB")).unwrap();
        let file = std::sync::Arc::new((*drawn.level(6).files()[0]).clone());
        let span = Span::of([&file]).unwrap();
        let style = CompactionStyle::Leveled;
        let levels = Levels { family: 0, version: &version, style, running };
        (levels.is_compacted(&span), levels.has_entries_without_number(&span))
    };
    assert_eq!(of("[d-f]", &[running(0, 3, "f", "g")]), (true, false));
    assert_eq!(of("[d-f]", &[running(0, 6, "g", "z"), running(1, 3, "a", "z")]), (false, false));
    assert_eq!(of("[n-n]", &[]), (false, true));
    assert_eq!(of("[p-s]", &[]), (false, false));
    assert_eq!(of("[h-l]", &[]), (false, false));
    assert_eq!(of("[r-t]", &[]), (false, true));
    assert_eq!(of("[w-z]", &[]), (false, false));
}

/// A merge that began now would not see what comes below it, and would drop deletions that hide it.
#[test]
fn no_merge_of_any_level_begins_in_the_range_of_what_is_ingested_below() {
    let file = FileMeta { smallest: "c".into(), largest: "f".into(), ..FileMeta::default() };
    let far = FileMeta { smallest: "x".into(), largest: "z".into(), ..FileMeta::default() };
    let (file, far) = (std::sync::Arc::new(file), std::sync::Arc::new(far));
    let (span, far) = (Span::of([&file]).unwrap(), Span::of([&far]).unwrap());
    let claim = RunningCompaction { brings_older: true, ..running(3, 6, "e", "h") };
    for level in 0..LEVEL_COUNT {
        let claims = std::slice::from_ref(&claim);
        assert!(!may_write(claims, 3, level, &span), "L{level}");
        assert!(may_write(claims, 4, level, &span) && may_write(claims, 3, level, &far));
        let other = running(3, 6, "e", "h");
        assert_eq!(may_write(&[other], 3, level, &span), level != 6);
    }
}

#[test]
fn many_files_for_a_level_are_one_claim_that_has_the_keys_of_each() {
    let file = |at: u8| {
        let (smallest, largest) = (vec![4 * at], vec![4 * at + at % 3]);
        std::sync::Arc::new(FileMeta { smallest, largest, ..FileMeta::default() })
    };
    let outputs: Vec<_> = (0..60).map(|at| (usize::from(at % 2 * 6), file(at))).collect();
    for brings_older in [false, true] {
        let all = || outputs.iter().map(|(level, file)| (*level, file));
        let claims = RunningCompaction::of_outputs(1, 3, all(), brings_older);
        assert_eq!(claims.len(), 2);
        let each: Vec<RunningCompaction> = all()
            .flat_map(|one| RunningCompaction::of_outputs(1, 3, std::iter::once(one), brings_older))
            .map(|one| RunningCompaction { files: Vec::new(), ..one })
            .collect();
        assert_eq!(each.len(), outputs.len());
        for start in 0..=245 {
            for end in start..=(start + 9).min(250) {
                let (smallest, largest) = (vec![start], vec![end]);
                let asked = FileMeta { smallest, largest, ..FileMeta::default() };
                let asked = std::sync::Arc::new(asked);
                let span = Span::of([&asked]).unwrap();
                for (family, level) in [(3, 0), (3, 6), (3, 4), (4, 6)] {
                    let is_free = |running: &[RunningCompaction]| {
                        let has_keys = running.iter().any(|one| has_keys_of(one, family, &span));
                        (may_write(running, family, level, &span), has_keys)
                    };
                    assert_eq!(is_free(&claims), is_free(&each), "{start}-{end} L{level}");
                }
            }
        }
    }
}
