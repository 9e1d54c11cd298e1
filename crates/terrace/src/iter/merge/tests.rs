//! The merge against a sorted vector.

use super::*;
use crate::iter::tests::cursors::{Entry, VecIter, sort};
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;
use terrace_base::{Rng, SplitMix64};

/// A key out of few, with heads that are equal, short and long.
fn key(n: u64) -> Vec<u8> {
    let m = n / 6;
    match n % 6 {
        0 => format!("{m:02}").into_bytes(),
        1 => format!("{m:02}-same-head-a").into_bytes(),
        2 => format!("{m:02}-same-head-b").into_bytes(),
        3 => format!("{m:02}-same-head-and-second-word").into_bytes(),
        4 => format!("{m:02}-same-head-and-second-wore").into_bytes(),
        _ => vec![n as u8; (n % 11) as usize],
    }
}

/// Runs with keys that repeat across and within runs, and their merge: lower runs first among
/// entries with equal internal keys. Values name the run, so that the order of repeats shows.
fn runs(rng: &mut SplitMix64, count: u64) -> (Vec<Vec<Entry>>, Vec<Entry>) {
    let keys = 1 + rng.below(60);
    let runs: Vec<Vec<Entry>> = (0..count)
        .map(|run| {
            let len = if rng.one_in(4) { 0 } else { rng.below(30) };
            let mut run: Vec<Entry> =
                (0..len).map(|_| (key(rng.below(keys)), rng.below(8), vec![run as u8])).collect();
            sort(&mut run);
            run.dedup();
            run
        })
        .collect();
    let mut merged: Vec<Entry> = runs.iter().flatten().cloned().collect();
    sort(&mut merged);
    (runs, merged)
}

fn current<I: InternalIter>(iter: &I) -> Option<Entry> {
    iter.valid().then(|| (iter.user_key().to_vec(), iter.trailer(), iter.value().to_vec()))
}

/// One random move of the cursor and of `at`, an index into `model`.
fn random_move<I: InternalIter>(
    iter: &mut I,
    at: Option<usize>,
    model: &[Entry],
    rng: &mut SplitMix64,
) -> (Result<()>, Option<usize>) {
    let target = (key(rng.below(66)), rng.below(9));
    let position =
        model.partition_point(|e| compare_internal(&e.0, e.1, &target.0, target.1).is_lt());
    let (result, to) = match (rng.below(12), at) {
        (0, _) => (iter.seek_to_first(), Some(0)),
        (1, _) => (iter.seek_to_last(), model.len().checked_sub(1)),
        (2, _) | (_, None) => (iter.seek(&target.0, target.1), Some(position)),
        (3, _) => (iter.seek_before(&target.0, target.1), position.checked_sub(1)),
        (4..8, Some(at)) => (iter.next(), Some(at + 1)),
        (_, Some(at)) => (iter.prev(), at.checked_sub(1)),
    };
    (result, to.filter(|to| *to < model.len()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn walks_as_the_sorted_vector_does(seed: u64, count in 0u64..9) {
        let mut rng = SplitMix64::new(seed);
        let (runs, model) = runs(&mut rng, count);
        let mut iter = MergingIter::new(runs.into_iter().map(VecIter::new).collect());
        prop_assert!(!iter.valid());
        let mut at = None;
        for _ in 0..200 {
            let (result, to) = random_move(&mut iter, at, &model, &mut rng);
            result.expect("no child fails");
            at = to;
            prop_assert_eq!(current(&iter), at.map(|at| model[at].clone()));
        }
    }

    #[test]
    fn an_error_makes_it_invalid_until_the_next_seek(seed: u64, count in 1u64..6) {
        let mut rng = SplitMix64::new(seed);
        let (runs, model) = runs(&mut rng, count);
        let fuse = Rc::new(Cell::new(rng.below(60)));
        let children = runs.into_iter().map(|run| VecIter::new(run).with_fuse(&fuse)).collect();
        let mut iter = MergingIter::new(children);
        let mut at = None;
        let mut errors = 0;
        for _ in 0..100 {
            let (result, to) = random_move(&mut iter, at, &model, &mut rng);
            match result {
                Ok(()) => {
                    at = to;
                    prop_assert_eq!(current(&iter), at.map(|at| model[at].clone()));
                }
                Err(_) => {
                    errors += 1;
                    prop_assert!(!iter.valid());
                    at = None;
                    fuse.set(rng.below(60));
                }
            }
        }
        prop_assert!(errors > 0);
    }

    #[test]
    fn seek_onward_is_seek(seed: u64, count in 1u64..6) {
        let mut rng = SplitMix64::new(seed);
        let (runs, model) = runs(&mut rng, count);
        prop_assume!(!model.is_empty());
        let mut iter = MergingIter::new(runs.into_iter().map(VecIter::new).collect());
        for _ in 0..20 {
            let from = rng.below(model.len() as u64) as usize;
            let to = from + rng.below((model.len() - from) as u64) as usize;
            iter.seek(&model[from].0, model[from].1).expect("no child fails");
            iter.seek_onward(&model[to].0, model[to].1).expect("no child fails");
            prop_assert_eq!(current(&iter).map(|e| (e.0, e.1)), Some((model[to].0.clone(), model[to].1)));
            prop_assert_eq!(iter.winner() as u8, iter.value()[0]);
        }
    }

    #[test]
    fn skip_covered_passes_over_covered_entries_only(seed: u64, count in 1u64..6) {
        let mut rng = SplitMix64::new(seed);
        let (mut runs, _) = runs(&mut rng, count);
        for (run, entries) in runs.iter_mut().enumerate() {
            for entry in entries.iter_mut() {
                entry.1 = ((20 - 2 * run as u64 + entry.1 / 4) << 8) | 1;
            }
            entries.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
        }
        let mut model: Vec<Entry> = runs.iter().flatten().cloned().collect();
        sort(&mut model);
        prop_assume!(!model.is_empty());
        let mut iter = MergingIter::new(runs.into_iter().map(VecIter::new).collect());
        let (end, seqno) = (key(rng.below(66)), 8 + rng.below(16));
        let from = rng.below(model.len() as u64) as usize;
        iter.seek(&model[from].0, model[from].1).expect("no child fails");
        iter.skip_covered(&end, SeqNo::new(seqno)).expect("no child fails");
        let mut rest = Vec::new();
        while let Some(entry) = current(&iter) {
            rest.push(entry);
            iter.next().expect("no child fails");
        }
        let lost: Vec<&Entry> = model[from..].iter().filter(|e| !rest.contains(e)).collect();
        prop_assert!(lost.iter().all(|e| e.0 < end && e.1 >> 8 < seqno));
        let kept: Vec<Entry> = model[from..].iter().filter(|e| rest.contains(e)).cloned().collect();
        prop_assert_eq!(rest, kept);

        iter.seek_before(&model[from].0, model[from].1).expect("no child fails");
        prop_assume!(iter.valid());
        let start = end;
        iter.skip_covered_back(&start, SeqNo::new(seqno)).expect("no child fails");
        let mut rest = Vec::new();
        while let Some(entry) = current(&iter) {
            rest.insert(0, entry);
            iter.prev().expect("no child fails");
        }
        let lost: Vec<&Entry> = model[..from].iter().filter(|e| !rest.contains(e)).collect();
        prop_assert!(lost.iter().all(|e| e.0 >= start && e.1 >> 8 < seqno));
        let kept: Vec<Entry> = model[..from].iter().filter(|e| rest.contains(e)).cloned().collect();
        prop_assert_eq!(rest, kept);
    }
}

#[test]
fn an_entry_that_appears_behind_the_cursor_does_not_come_ahead_of_it() {
    // A memtable may grow between two moves: its cursor stood at "z" when "m" was inserted.
    struct Growing(VecIter, Rc<Cell<bool>>, VecIter);
    impl Growing {
        fn iter(&self) -> &VecIter {
            if self.1.get() { &self.2 } else { &self.0 }
        }
    }
    impl InternalIter for Growing {
        fn valid(&self) -> bool {
            self.iter().valid()
        }
        fn seek_to_first(&mut self) -> Result<()> {
            self.0.seek_to_first().and(self.2.seek_to_first())
        }
        fn seek_to_last(&mut self) -> Result<()> {
            self.0.seek_to_last().and(self.2.seek_to_last())
        }
        fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
            self.0.seek(user_key, trailer).and(self.2.seek(user_key, trailer))
        }
        fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
            self.0.seek_before(user_key, trailer).and(self.2.seek_before(user_key, trailer))
        }
        fn next(&mut self) -> Result<()> {
            if self.1.get() { self.2.next() } else { self.0.next() }
        }
        fn prev(&mut self) -> Result<()> {
            if self.1.get() { self.2.prev() } else { self.0.prev() }
        }
        fn user_key(&self) -> &[u8] {
            self.iter().user_key()
        }
        fn trailer(&self) -> u64 {
            self.iter().trailer()
        }
        fn value(&self) -> &[u8] {
            self.iter().value()
        }
    }
    let entries = |keys: &[&str]| -> VecIter {
        VecIter::new(keys.iter().map(|k| (k.as_bytes().to_vec(), 9, vec![])).collect())
    };
    for (before, after) in [(&["b", "z"], &["b", "m", "z"]), (&["a", "b"], &["a", "b", "m"])] {
        let grown = Rc::new(Cell::new(false));
        let growing = Growing(entries(before), Rc::clone(&grown), entries(after));
        let still = Growing(entries(&["c", "x"]), Rc::default(), entries(&["c", "x"]));
        let mut iter = MergingIter::new(vec![growing, still]);
        iter.seek(b"c", u64::MAX).expect("no child fails");
        assert_eq!(iter.user_key(), b"c");
        grown.set(true);
        let Growing(stood, _, stands) = &mut iter.children[0];
        match stood.valid() {
            true => stands.seek(stood.user_key(), stood.trailer()),
            false => stands.seek(b"zz", 0),
        }
        .expect("no child fails");
        iter.prev().expect("no child fails");
        assert_eq!(iter.user_key(), b"b");
        iter.next().expect("no child fails");
        assert_eq!(iter.user_key(), b"c");
        iter.next().expect("no child fails");
        assert_eq!(iter.user_key(), b"m");
    }
}
