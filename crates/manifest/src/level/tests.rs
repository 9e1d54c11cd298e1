//! Lookups against a walk over all files, with bounds that share prefixes and each other.

use super::*;
use crate::{FamilyEdit, LEVEL_COUNT, Version};
use proptest::prelude::*;
use terrace_base::{FileNumber, SeqNo};

fn file(number: u64, smallest: &[u8], largest: &[u8], largest_exclusive: bool) -> FileMeta {
    FileMeta {
        number: FileNumber::new(number),
        size_bytes: 10 * number,
        smallest: smallest.into(),
        largest: largest.into(),
        largest_exclusive,
        largest_seqno: SeqNo::new(number),
        ..FileMeta::default()
    }
}

fn added(level: u8, files: Vec<FileMeta>) -> FamilyEdit {
    FamilyEdit {
        added: files.into_iter().map(|file| (level, file)).collect(),
        ..FamilyEdit::default()
    }
}

/// Keys that often tie in their first eight bytes, or are prefixes of each other.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)];
    let tail = proptest::collection::vec(byte(), 0..4);
    (prop_oneof![Just(&b""[..]), Just(&b"longer than eight "[..]), Just(&b"longer than"[..])], tail)
        .prop_map(|(front, tail)| [front, &tail].concat())
}

/// A sorted level cut out of an ascending list of distinct keys.
fn sorted_files() -> impl Strategy<Value = Vec<FileMeta>> {
    (proptest::collection::btree_set(key(), 0..24), proptest::collection::vec(0u8..4, 24)).prop_map(
        |(keys, cuts)| {
            let keys: Vec<_> = keys.into_iter().collect();
            let mut files = Vec::new();
            let mut at = 0;
            while at < keys.len() {
                let number = files.len() as u64 + 1;
                match cuts[at] {
                    // One key.
                    0 => files.push(file(number, &keys[at], &keys[at], false)),
                    // Ends with a range tombstone: the next may start at the bound.
                    1 | 2 if at + 1 < keys.len() => {
                        files.push(file(number, &keys[at], &keys[at + 1], true));
                        at += usize::from(cuts[at] == 2);
                    }
                    _ if at + 1 < keys.len() => {
                        files.push(file(number, &keys[at], &keys[at + 1], false));
                        at += 1;
                    }
                    _ => files.push(file(number, &keys[at], &keys[at], false)),
                }
                at += 1;
            }
            files
        },
    )
}

fn bound(kind: u8, key: &[u8]) -> Bound<&[u8]> {
    match kind {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn lookups_in_a_sorted_level_agree_with_a_walk(
        files in sorted_files(),
        probes in proptest::collection::vec((key(), 0u8..3, key(), 0u8..3), 1..12),
    ) {
        let version = Version::empty().apply(&added(3, files.clone())).unwrap();
        let level = version.level(3);
        let bounds = files.iter().flat_map(|file| [file.smallest.clone(), file.largest.clone()]);
        for key in bounds.chain(probes.iter().map(|probe| probe.0.clone())) {
            let find = files.iter().position(|file| file.contains(&key));
            prop_assert_eq!(level.find(&key), find, "{:?}", key);
            let seek = files.iter().position(|file| !file.ends_before(&key));
            prop_assert_eq!(level.seek(&key), seek.unwrap_or(files.len()));
        }
        for (start, start_kind, end, end_kind) in &probes {
            let (start, end) = (bound(*start_kind, start), bound(*end_kind, end));
            let walk: Vec<FileNumber> = files
                .iter()
                .filter(|file| file.overlaps(start, end))
                .map(|file| file.number)
                .collect();
            let found = level.overlapping(start, end).iter().map(|file| file.number);
            prop_assert_eq!(found.collect::<Vec<_>>(), walk, "{:?} {:?}", start, end);
        }
    }

    #[test]
    fn a_level_edited_step_by_step_is_the_level_built_at_once(
        files in sorted_files(),
        order in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..40),
    ) {
        let mut version = Version::empty();
        let mut live = std::collections::BTreeMap::new();
        for (index, remove) in order {
            if files.is_empty() { break }
            let file = index.get(&files).clone();
            let mut edit = FamilyEdit::default();
            if live.contains_key(&file.number) {
                edit.removed.push((5, file.number));
                if !remove {
                    edit.added.push((5, FileMeta { entry_count: file.entry_count + 1, ..file.clone() }));
                }
            } else {
                edit.added.push((5, file.clone()));
            }
            version = version.apply(&edit).unwrap();
            live.remove(&file.number);
            for (_, file) in edit.added { live.insert(file.number, file); }
            let whole = Version::empty().apply(&added(5, live.values().cloned().collect())).unwrap();
            prop_assert_eq!(&version, &whole);
            // Heads kept from an older level must be what the keys give.
            for file in live.values() {
                let at = version.level(5).find(&file.smallest).unwrap();
                prop_assert_eq!(version.level(5).files()[at].number, file.number);
            }
            prop_assert_eq!(version.size_bytes(), live.values().map(|f| f.size_bytes).sum::<u64>());
        }
    }
}

#[test]
fn two_files_may_share_a_bound_that_the_first_excludes() {
    let files = vec![file(1, b"a", b"k", true), file(2, b"k", b"p", false)];
    let version = Version::empty().apply(&added(1, files)).unwrap();
    let level = version.level(1);
    assert_eq!(level.find(b"k").map(|at| level.files()[at].number), Some(FileNumber::new(2)));
    assert_eq!(level.find(b"j"), Some(0));
    assert_eq!(level.find(b"q"), None);
    let only_first = (Bound::Included(&b"b"[..]), Bound::Excluded(&b"k"[..]));
    assert_eq!(level.overlapping_range(only_first.0, only_first.1), 0..1);
    assert_eq!(level.overlapping_range(Bound::Included(b"k"), Bound::Unbounded), 1..2);
}

#[test]
fn l0_is_ordered_newest_first_and_searched_in_that_order() {
    let mut files =
        vec![file(1, b"a", b"z", false), file(2, b"c", b"d", false), file(3, b"c", b"m", false)];
    files[0].largest_seqno = SeqNo::new(50);
    files[2].largest_seqno = SeqNo::new(2);
    let version = Version::empty().apply(&added(0, files)).unwrap();
    let level = version.level(0);
    assert_eq!(
        level.numbers(),
        [1, 3, 2].map(FileNumber::new),
        "by sequence number, then by number"
    );
    assert_eq!((level.find(b"c"), level.find(b"zz")), (Some(0), None));
    assert_eq!(level.overlapping_range(Bound::Included(b"e"), Bound::Included(b"f")), 0..2);
    assert_eq!(level.overlapping_range(Bound::Included(b"zz"), Bound::Unbounded), 0..0);
    assert_eq!(
        (level.position(FileNumber::new(2)), level.position(FileNumber::new(9))),
        (Some(2), None)
    );
}

#[test]
fn edits_that_do_not_fit_are_refused_with_the_reason() {
    let base = Version::empty()
        .apply(&added(2, vec![file(1, b"c", b"f", false), file(2, b"h", b"k", true)]))
        .unwrap();
    let removed =
        |level, number| FamilyEdit { removed: vec![(level, number)], ..FamilyEdit::default() };
    let twice = FamilyEdit {
        removed: vec![(2, FileNumber::new(1)), (2, FileNumber::new(1))],
        ..FamilyEdit::default()
    };
    let bad_seqnos = FileMeta { smallest_seqno: SeqNo::new(9), ..file(3, b"x", b"y", false) };
    for (edit, why) in [
        (added(2, vec![file(3, b"f", b"g", false)]), "overlap"),
        (added(2, vec![file(3, b"a", b"c", false)]), "overlap"),
        (added(2, vec![file(3, b"d", b"e", false)]), "overlap"),
        (added(2, vec![file(3, b"a", b"z", false)]), "overlap"),
        (added(2, vec![file(3, b"j", b"l", false)]), "overlap"),
        (added(3, vec![file(3, b"a", b"c", false), file(4, b"b", b"d", false)]), "overlap"),
        (added(3, vec![file(1, b"a", b"b", false)]), "in L2 already"),
        (added(0, vec![file(3, b"a", b"b", false), file(3, b"x", b"y", false)]), "added twice"),
        (added(0, vec![file(3, b"b", b"a", false)]), "bounds"),
        (added(0, vec![file(3, b"b", b"b", true)]), "bounds"),
        (added(0, vec![bad_seqnos]), "sequence numbers"),
        (added(LEVEL_COUNT as u8 + 1, vec![file(3, b"a", b"b", false)]), "no level L8"),
        (removed(2, FileNumber::new(3)), "not there"),
        (removed(1, FileNumber::new(1)), "not there"),
        (removed(9, FileNumber::new(1)), "no level L9"),
        (twice, "twice"),
    ] {
        let error = base.apply(&edit).unwrap_err();
        assert!(error.contains(why), "{edit:?}: {error}");
    }
    assert!(base.apply(&added(2, vec![file(3, b"k", b"l", false)])).is_ok(), "k is excluded");
}

#[test]
fn a_file_moves_between_levels_in_one_edit() {
    let base = Version::empty().apply(&added(0, vec![file(1, b"a", b"b", false)])).unwrap();
    let edit = FamilyEdit {
        removed: vec![(0, FileNumber::new(1))],
        ..added(6, vec![file(1, b"a", b"b", false)])
    };
    let moved = base.apply(&edit).unwrap();
    assert_eq!((moved.level(0).len(), moved.level(6).len()), (0, 1));
    assert_eq!(
        moved.files().map(|(level, file)| (level, file.number)).collect::<Vec<_>>(),
        [(6, FileNumber::new(1))]
    );
}
