//! What is shown, against a map of versions searched one by one.

use super::*;
use crate::iter::cover::CoverSource;
use crate::iter::merge::MergingIter;
use crate::iter::tests::cursors::{Entry, History, NOW_MS, VecIter, key};
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use terrace_base::key::pack_trailer;
use terrace_base::{MAX_SEQNO, RangeTombstone, RangeTombstones, Rng, SplitMix64};

fn view(history: &History, seqno: SeqNo, lower: Option<&[u8]>, upper: Option<&[u8]>) -> View {
    let sources = history
        .tombstones
        .iter()
        .filter(|list| !list.is_empty())
        .map(|list| {
            Box::new(Arc::new(RangeTombstones::new(list.iter().cloned()))) as Box<dyn CoverSource>
        })
        .collect();
    View {
        seqno,
        now_ms: NOW_MS,
        lower: lower.map(<[u8]>::to_vec),
        upper: upper.map(<[u8]>::to_vec),
        cover: Cover::new(sources, seqno),
        keys_only: false,
        fold: None,
    }
}

fn merged(history: &History) -> MergingIter<VecIter> {
    MergingIter::new(history.runs.iter().cloned().map(VecIter::new).collect())
}

fn current<I: ScanCursor>(iter: &Visible<I>, history: &History) -> Option<(Vec<u8>, Vec<u8>)> {
    let value = match iter.shows_handle() {
        true => history.values.value(iter.handle().expect("a whole handle")),
        false => iter.value().to_vec(),
    };
    iter.valid().then(|| (iter.key().to_vec(), value))
}

/// One random move of the iterator and of `at`, an index into `model`.
fn random_move<I: ScanCursor>(
    iter: &mut Visible<I>,
    at: Option<usize>,
    model: &[(Vec<u8>, Vec<u8>)],
    keys: u64,
    rng: &mut SplitMix64,
) -> (Result<()>, Option<usize>) {
    let mut target = key(rng.below(keys + 2));
    target.truncate(rng.below(30) as usize);
    let (result, to) = match (rng.below(14), at) {
        (0, _) => (iter.seek_to_first(), Some(0)),
        (1, _) => (iter.seek_to_last(), model.len().checked_sub(1)),
        (2 | 3, _) => (iter.seek(&target), Some(model.partition_point(|e| e.0 < target))),
        (4 | 5, _) => {
            (iter.seek_for_prev(&target), model.partition_point(|e| e.0 <= target).checked_sub(1))
        }
        (6..10, at) => (iter.next(), at.map(|at| at + 1)),
        (_, at) => (iter.prev(), at.and_then(|at| at.checked_sub(1))),
    };
    (result, to.filter(|to| *to < model.len()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn shows_what_the_model_shows(
        seed: u64,
        keys in 1u64..30,
        writes in 0u64..300,
        runs in 1u64..6,
        bounded: (bool, bool),
    ) {
        let mut rng = SplitMix64::new(seed);
        let history = History::random(&mut rng, keys, writes, runs);
        let seqno = match rng.below(3) {
            0 => MAX_SEQNO,
            _ => SeqNo::new(rng.below((history.last_seqno + 1).get())),
        };
        let lower = bounded.0.then(|| key(rng.below(keys)));
        let upper = bounded.1.then(|| key(rng.below(keys)));
        let (lower, upper) = (lower.as_deref(), upper.as_deref());
        let model = history.shown(seqno, lower, upper);
        let mut iter = Visible::new(merged(&history), view(&history, seqno, lower, upper));
        prop_assert!(!iter.valid());
        let mut at = None;
        for _ in 0..150 {
            let (result, to) = random_move(&mut iter, at, &model, keys, &mut rng);
            result.expect("no child fails");
            at = to;
            prop_assert_eq!(current(&iter, &history), at.map(|at| model[at].clone()));
        }
    }

    #[test]
    fn after_an_error_nothing_is_shown_until_a_seek(seed: u64) {
        let mut rng = SplitMix64::new(seed);
        let history = History::random(&mut rng, 20, 200, 3);
        let model = history.shown(MAX_SEQNO, None, None);
        let fuse = Rc::new(Cell::new(rng.below(100)));
        let children = history.runs.iter().cloned();
        let children = children.map(|run| VecIter::new(run).with_fuse(&fuse)).collect();
        let mut iter =
            Visible::new(MergingIter::new(children), view(&history, MAX_SEQNO, None, None));
        let (mut at, mut errors) = (None, 0);
        for _ in 0..100 {
            let (result, to) = random_move(&mut iter, at, &model, 20, &mut rng);
            at = to;
            if result.is_err() {
                errors += 1;
                at = None;
                fuse.set(rng.below(100));
            }
            prop_assert_eq!(current(&iter, &history), at.map(|at| model[at].clone()));
        }
        prop_assert!(errors > 0);
    }
}

fn put(key: &[u8], seqno: SeqNo) -> Entry {
    (key.to_vec(), pack_trailer(seqno, ValueKind::Put), seqno.to_string().into_bytes())
}

fn plain_view(seqno: SeqNo, sources: Vec<Box<dyn CoverSource>>) -> View {
    let cover = Cover::new(sources, seqno);
    let (keys_only, fold) = (false, None);
    View { seqno, now_ms: NOW_MS, lower: None, upper: None, cover, keys_only, fold }
}

#[test]
fn many_versions_of_one_key_cost_few_moves() {
    let mut run: Vec<Entry> = (1..=10_000).map(|seqno| put(b"hot", SeqNo::new(seqno))).collect();
    run.extend([put(b"a", SeqNo::new(5_000)), put(b"z", SeqNo::new(5_000))]);
    for seqno in [MAX_SEQNO, SeqNo::new(5_000)] {
        let newest = seqno.min(SeqNo::new(10_000)).to_string();
        let moves = Rc::new(Cell::new(0));
        let children = vec![VecIter::new(run.clone()).counted_by(&moves), VecIter::new(vec![])];
        let mut iter = Visible::new(MergingIter::new(children), plain_view(seqno, vec![]));
        iter.seek_to_first().expect("no child fails");
        for want in [b"a".as_slice(), b"hot", b"z"] {
            assert_eq!(iter.key(), want);
            iter.next().expect("no child fails");
        }
        assert!(!iter.valid());
        iter.seek_to_last().expect("no child fails");
        for want in [b"z".as_slice(), b"hot", b"a"] {
            assert_eq!(iter.key(), want);
            assert!(want != b"hot" || iter.value() == newest.as_bytes());
            iter.prev().expect("no child fails");
        }
        iter.seek(b"hot").expect("no child fails");
        iter.prev().expect("no child fails");
        assert_eq!(iter.key(), b"a");
        iter.next().expect("no child fails");
        assert_eq!(iter.value(), newest.as_bytes());
        assert!(moves.get() < 150, "{} moves", moves.get());
    }
}

#[test]
fn a_covered_run_is_left_by_a_seek() {
    let old: Vec<Entry> =
        (0..10_000).map(|n| put(format!("k{n:05}").as_bytes(), SeqNo::new(1 + n))).collect();
    let tombstone = RangeTombstone {
        start: b"k00010".to_vec(),
        end: b"k09990".to_vec(),
        seqno: SeqNo::new(20_000),
    };
    let set = Arc::new(RangeTombstones::new([tombstone]));
    let new = vec![put(b"k05000", SeqNo::new(20_001))];
    let moves = Rc::new(Cell::new(0));
    let children = [new, old].into_iter().map(|run| VecIter::new(run).counted_by(&moves)).collect();
    let view = plain_view(MAX_SEQNO, vec![Box::new(set)]);
    let mut iter = Visible::new(MergingIter::new(children), view);
    iter.seek_to_first().expect("no child fails");
    let mut shown = Vec::new();
    while iter.valid() {
        shown.push(iter.key().to_vec());
        iter.next().expect("no child fails");
    }
    assert_eq!(shown.len(), 10 + 1 + 10);
    assert_eq!(shown[10], b"k05000");
    iter.seek_to_last().expect("no child fails");
    while iter.valid() {
        assert_eq!(Some(iter.key()), shown.pop().as_deref());
        iter.prev().expect("no child fails");
    }
    assert!(shown.is_empty());
    assert!(moves.get() < 160, "{} moves", moves.get());
}

#[test]
fn a_turn_behind_a_covered_run_does_not_walk_over_it() {
    let old: Vec<Entry> =
        (0..10_000).map(|n| put(format!("k{n:05}").as_bytes(), SeqNo::new(1 + n))).collect();
    let tombstone =
        RangeTombstone { start: b"k".to_vec(), end: b"l".to_vec(), seqno: SeqNo::new(20_000) };
    let set = Arc::new(RangeTombstones::new([tombstone]));
    let new = ["k00000x", "k05000x", "k09999x"].map(|key| put(key.as_bytes(), SeqNo::new(20_001)));
    let moves = Rc::new(Cell::new(0));
    let children =
        [new.to_vec(), old].into_iter().map(|run| VecIter::new(run).counted_by(&moves)).collect();
    let view = plain_view(MAX_SEQNO, vec![Box::new(set)]);
    let mut iter = Visible::new(MergingIter::new(children), view);
    iter.seek_to_first().expect("no child fails");
    for _ in 0..3 {
        for want in ["k00000x", "k05000x"] {
            assert_eq!(iter.key(), want.as_bytes());
            iter.next().expect("no child fails");
        }
        for want in ["k09999x", "k05000x"] {
            assert_eq!(iter.key(), want.as_bytes());
            iter.prev().expect("no child fails");
        }
        assert_eq!(iter.key(), b"k00000x");
    }
    assert!(moves.get() < 500, "{} moves", moves.get());
}

#[test]
fn damaged_entries_are_errors() {
    for (kind, value) in [(ValueKind::PutTtl as u64, &b"1234567"[..]), (9, b""), (15, b"")] {
        let run = vec![put(b"a", SeqNo::new(1)), (b"b".to_vec(), (2 << 8) | kind, value.to_vec())];
        let mut iter = Visible::new(
            MergingIter::new(vec![VecIter::new(run)]),
            plain_view(SeqNo::new(9), vec![]),
        );
        iter.seek(b"a").expect("a sound entry");
        assert!(iter.next().is_err_and(|error| error.is_corruption()));
        assert!(!iter.valid() && iter.key().is_empty() && iter.value().is_empty());
        assert!(iter.seek_to_last().is_err_and(|error| error.is_corruption()));
        iter.seek(b"a").expect("a sound entry");
        assert!(iter.valid());
    }
}

#[test]
fn repeats_of_the_smallest_trailer_do_not_hold_a_scan() {
    let mut run: Vec<Entry> = (1..30).map(|seqno| put(b"k", SeqNo::new(seqno))).collect();
    run.extend((0..30).map(|_| (b"k".to_vec(), 0, vec![])));
    run.push(put(b"l", SeqNo::new(7)));
    let mut iter =
        Visible::new(MergingIter::new(vec![VecIter::new(run)]), plain_view(SeqNo::new(9), vec![]));
    iter.seek_to_first().expect("no child fails");
    assert_eq!(iter.key(), b"k");
    iter.next().expect("no child fails");
    assert_eq!(iter.key(), b"l");
    iter.prev().expect("no child fails");
    assert_eq!((iter.key(), iter.value()), (b"k".as_slice(), b"9".as_slice()));
}

proptest! {
    #[test]
    fn same_key_is_equality(a in "[ab]{0,20}", b in "[ab]{0,20}", at in 0usize..20) {
        prop_assert_eq!(same_key(a.as_bytes(), b.as_bytes()), a == b);
        let mut c = a.clone().into_bytes();
        prop_assert!(same_key(a.as_bytes(), &c));
        if let Some(byte) = c.get_mut(at) {
            *byte = b'c';
            prop_assert!(!same_key(a.as_bytes(), &c));
        }
    }
}

#[test]
fn a_walk_that_must_not_take_long_is_refused_after_many_deleted_keys() {
    let deleted =
        |n: u32| (format!("k{n:03}").into_bytes(), pack_trailer(SeqNo::new(2), ValueKind::Delete));
    let mut run = vec![put(b"a", SeqNo::new(1))];
    run.extend((0..100).map(deleted).map(|(key, trailer)| (key, trailer, Vec::new())));
    run.push(put(b"z", SeqNo::new(1)));
    for (most, is_allowed) in [(u64::MAX, true), (100, true), (99, false), (0, false)] {
        for is_backward in [false, true] {
            let merged = MergingIter::new(vec![VecIter::new(run.clone())]);
            let view = plain_view(MAX_SEQNO, Vec::new());
            let mut iter = Visible::new(merged, view);
            iter.step_over_at_most(most);
            let (first, moved) = match is_backward {
                false => (iter.seek_to_first(), iter.next()),
                true => (iter.seek_to_last(), iter.prev()),
            };
            first.unwrap();
            assert_eq!(moved.is_ok(), is_allowed, "{most} {is_backward}");
            assert_eq!(iter.valid(), is_allowed);
            match moved {
                Ok(()) => assert_eq!(iter.key(), if is_backward { b"a" } else { b"z" }),
                Err(error) => assert!(matches!(error, Error::NotInMemory), "{error}"),
            }
        }
    }
}

#[test]
fn a_walk_over_many_deleted_keys_goes_on_where_it_was_refused() {
    let mut run = vec![put(b"a", SeqNo::new(1))];
    let deleted = pack_trailer(SeqNo::new(2), ValueKind::Delete);
    run.extend((0..100).map(|n| (format!("k{n:03}").into_bytes(), deleted, Vec::new())));
    run.push(put(b"z", SeqNo::new(1)));
    let merged = MergingIter::new(vec![VecIter::new(run)]);
    let mut iter = Visible::new(merged, plain_view(MAX_SEQNO, Vec::new()));
    iter.seek_to_first().unwrap();
    let (mut refusals, mut moved) = (Vec::new(), Ok(()));
    while iter.key() != b"z" {
        let behind = iter.refused_at().map(|at| [at, &[0]].concat());
        iter.step_over_at_most(29);
        moved = match behind {
            Some(behind) => iter.seek(&behind),
            None => iter.next(),
        };
        refusals.extend(iter.refused_at().map(<[u8]>::to_vec));
    }
    moved.unwrap();
    assert_eq!(refusals, [b"k029", b"k059", b"k089"]);
}

/// Others write while somebody goes on with a scan of before.
#[test]
fn keys_that_are_too_new_count_once_each_whatever_their_versions() {
    let mut run = vec![put(b"a", SeqNo::new(1))];
    for n in 0..100 {
        let newest = 3 + 12 * u64::from(n == 50);
        let versions = (3..=newest).rev();
        run.extend(versions.map(|seqno| put(format!("k{n:03}").as_bytes(), SeqNo::new(seqno))));
    }
    run.push(put(b"z", SeqNo::new(1)));
    // A key with an older version is shown, and not stepped over.
    run.extend([4, 1].map(|seqno| put(b"zz", SeqNo::new(seqno))));
    for (most, is_allowed) in [(u64::MAX, true), (100, true), (99, false), (0, false)] {
        for is_backward in [false, true] {
            let merged = MergingIter::new(vec![VecIter::new(run.clone())]);
            let view = plain_view(SeqNo::new(2), Vec::new());
            let mut iter = Visible::new(merged, view);
            iter.step_over_at_most(most);
            let (first, moved) = match is_backward {
                false => (iter.seek_to_first(), iter.next()),
                true => (iter.seek(b"z"), iter.prev()),
            };
            first.unwrap();
            assert_eq!(moved.is_ok(), is_allowed, "{most} {is_backward}");
            assert_eq!((iter.valid(), iter.stepped_over()), (is_allowed, 0));
            match (moved, is_backward) {
                (Ok(()), true) => assert_eq!(iter.key(), b"a"),
                (Ok(()), false) => {
                    assert_eq!(iter.key(), b"z");
                    iter.next().unwrap();
                    assert_eq!(iter.key(), b"zz");
                }
                (Err(error), _) => assert!(matches!(error, Error::NotInMemory), "{error}"),
            }
        }
    }
}

/// The run has a newer entry too, so that it cannot be asked to move past all at once.
#[test]
fn covered_keys_that_are_stepped_over_one_by_one_count_too() {
    let mut run = vec![put(b"a", SeqNo::new(1)), put(b"y", SeqNo::new(4))];
    run.extend((0..100).map(|n| put(format!("k{n:03}").as_bytes(), SeqNo::new(2))));
    let tombstone =
        RangeTombstone { start: b"k".to_vec(), end: b"l".to_vec(), seqno: SeqNo::new(3) };
    let set = Arc::new(RangeTombstones::new([tombstone]));
    for (most, is_allowed) in [(u64::MAX, true), (200, true), (99, false), (0, false)] {
        for is_backward in [false, true] {
            let merged = MergingIter::new(vec![VecIter::new(run.clone())]);
            let view = plain_view(MAX_SEQNO, vec![Box::new(set.clone())]);
            let mut iter = Visible::new(merged, view);
            iter.step_over_at_most(most);
            let (first, moved) = match is_backward {
                false => (iter.seek_to_first(), iter.next()),
                true => (iter.seek_to_last(), iter.prev()),
            };
            first.unwrap();
            assert_eq!(moved.is_ok(), is_allowed, "{most} {is_backward}");
            match moved {
                Ok(()) => {
                    assert_eq!(iter.key(), if is_backward { b"a" } else { b"y" });
                    assert!(iter.covered_steps() >= 100 && iter.stepped_over() == 0);
                }
                Err(error) => assert!(matches!(error, Error::NotInMemory), "{error}"),
            }
        }
    }
}

/// Ranges that begin at the same key, each in a run of its own: the newest one reaches furthest.
#[test]
fn nested_ranges_of_many_runs_are_passed_as_one() {
    let old: Vec<Entry> =
        (0..5_000).map(|n| put(format!("k{n:05}").as_bytes(), SeqNo::new(1))).collect();
    let sources = (1..=50).map(|n| {
        let end = format!("k{:05}", 99 * n).into_bytes();
        let tombstone = RangeTombstone { start: b"k".to_vec(), end, seqno: SeqNo::new(1 + n) };
        Box::new(Arc::new(RangeTombstones::new([tombstone]))) as Box<dyn CoverSource>
    });
    let merged = MergingIter::new(vec![VecIter::new(old)]);
    let mut iter = Visible::new(merged, plain_view(MAX_SEQNO, sources.collect()));
    iter.seek_to_first().unwrap();
    assert_eq!(iter.key(), b"k04950");
    assert!(iter.covered_steps() < 10, "{} steps", iter.covered_steps());
    iter.prev().unwrap();
    assert!(!iter.valid());
    assert!(iter.covered_steps() < 20, "{} steps", iter.covered_steps());
}
