//! Rewrites of a file in place without what files above it hide.

use super::*;
use crate::background::compaction::above::Above;
use terrace_base::MAX_SEQNO;
use terrace_base::key::{EXPIRY_BYTES, trailer_kind, trailer_seqno};

/// Versions of keys, and deleted ranges.
type Content = (Vec<Entry>, Vec<RangeTombstone>);

fn covers(tombstone: &RangeTombstone, key: &[u8]) -> bool {
    tombstone.start.as_slice() <= key && key < tombstone.end.as_slice()
}

/// What a reader finds.
fn found(contents: &[&Content], key: &[u8], at: SeqNo) -> Option<Vec<u8>> {
    let entries = contents.iter().flat_map(|(entries, _)| entries);
    let seen = entries.filter(|(k, trailer, _)| k == key && trailer_seqno(*trailer) <= at);
    let (_, trailer, value) = seen.max_by_key(|(_, trailer, _)| *trailer)?;
    let seqno = trailer_seqno(*trailer);
    let deletes = |t: &RangeTombstone| covers(t, key) && t.seqno <= at && t.seqno > seqno;
    let is_deleted = contents.iter().flat_map(|(_, ranges)| ranges).any(deletes);
    let is_there = match trailer_kind(*trailer) {
        Some(ValueKind::Put) => true,
        Some(ValueKind::PutTtl) => {
            u64::from_le_bytes(value[..EXPIRY_BYTES].try_into().unwrap()) > NOW_MS
        }
        _ => false,
    };
    (is_there && !is_deleted).then(|| value.clone())
}

#[test]
fn what_files_above_hide_goes_and_every_reader_finds_the_same() {
    let (mut dropped, mut rewrites) = (0, 0);
    for seed in 0..25 {
        let store = Store::random(seed);
        let above_files = store.version.level(0).files().to_vec();
        let above = store.contents(above_files.iter().map(|file| &**file));
        let mut readers = store.snapshots.clone();
        readers.push(MAX_SEQNO);
        for file in store.version.level(5).files() {
            let before = store.contents(std::iter::once(&**file));
            let compaction = Compaction {
                family: 3,
                start_level: 5,
                output_level: 5,
                inputs: vec![(5, vec![file.clone()])],
                grandparents: store.version.level(6).files().to_vec(),
                above: Some(Above {
                    runs: vec![(0, above_files.clone())],
                    skipped: Vec::new(),
                    left_bytes: 0,
                }),
                reason: Reason::Tombstones,
            };
            let output = store.run(&compaction, &AtomicBool::new(false)).unwrap().unwrap();
            let (entries, ranges) = store.read(&output.edit.added);
            let after: Content = (entries, ranges.iter().collect());
            for (key, _, _) in &before.0 {
                for at in &readers {
                    assert_eq!(
                        found(&[&above, &after], key, *at),
                        found(&[&above, &before], key, *at),
                        "seed {seed}, {} at {at}",
                        key.escape_ascii()
                    );
                }
            }
            for (key, trailer, _) in &after.0 {
                let seqno = trailer_seqno(*trailer);
                let seen = *readers.iter().find(|at| **at >= seqno).unwrap();
                let hides = |newer: SeqNo| newer > seqno && newer <= seen;
                let by_entry = above.0.iter().any(|e| e.0 == *key && hides(trailer_seqno(e.1)));
                let by_range = above.1.iter().any(|t| covers(t, key) && hides(t.seqno));
                assert!(!by_entry && !by_range, "seed {seed}, {}", key.escape_ascii());
            }
            assert_eq!(output.edit.removed, [(5, file.number)]);
            dropped += output.stats.dropped_entries;
            rewrites += 1;
        }
    }
    assert!(dropped > 200 && rewrites > 20, "{dropped} of {rewrites} rewrites");
}

/// It is what makes room, and has none.
#[test]
fn a_file_of_which_everything_is_hidden_goes_without_room() {
    let mut store = Store::new();
    let trailer = |seqno, kind| pack_trailer(SeqNo::new(seqno), kind);
    let keys = || (0..2000).map(|n| format!("key{n:05}").into_bytes());
    let puts = keys().map(|key| (key, trailer(1, ValueKind::Put), vec![7; 60]));
    store.add_run(6, puts.collect(), Vec::new(), true);
    let deletions = keys().map(|key| (key, trailer(2, ValueKind::Delete), Vec::new()));
    store.add_run(0, deletions.collect(), Vec::new(), false);
    let used_bytes: u64 = store.sim.files().into_iter().map(|(_, bytes)| bytes).sum();
    store.sim.set_capacity_bytes(Some(used_bytes));
    let runs = vec![(0, store.version.level(0).files().to_vec())];
    let compaction = Compaction {
        grandparents: Vec::new(),
        above: Some(Above { runs, skipped: Vec::new(), left_bytes: 0 }),
        ..store.compaction(6)
    };
    let output = store.run(&compaction, &AtomicBool::new(false)).unwrap().unwrap();
    assert!(output.edit.added.is_empty() && output.stats.dropped_entries == 2000);
}
