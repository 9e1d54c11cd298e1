//! Levels of vectors against the vector of all their entries.

use super::*;
use crate::iter::tests::cursors::{Entry, VecIter, sort};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use terrace_base::key::compare_internal;
use terrace_base::{Rng, SplitMix64};

/// Files of vectors that count how often one is opened.
struct VecFiles {
    files: Vec<Arc<FileMeta>>,
    entries: Vec<Vec<Entry>>,
    opens: Cell<u64>,
    /// Decides which turns are refused, as those that would have to read are; `None`: all.
    turns: RefCell<Option<SplitMix64>>,
}

impl VecFiles {
    fn new(files: Vec<Arc<FileMeta>>, entries: Vec<Vec<Entry>>) -> Self {
        Self { files, entries, opens: Cell::new(0), turns: RefCell::new(None) }
    }
}

impl FileSet for VecFiles {
    type Iter = VecIter;
    fn files(&self) -> &[Arc<FileMeta>] {
        &self.files
    }
    fn seek(&self, key: &[u8]) -> usize {
        self.files.partition_point(|file| file.ends_before(key))
    }
    fn open(&self, index: usize) -> Result<VecIter> {
        self.opens.set(self.opens.get() + 1);
        Ok(VecIter::new(self.entries[index].clone()))
    }
    fn turn_to(&self, index: usize, iter: &mut Option<VecIter>) -> bool {
        let turns = self.turns.borrow_mut().as_mut().is_some_and(|rng| !rng.one_in(3));
        let Some(entries) = self.entries.get(index).filter(|_| turns) else { return false };
        *iter = Some(VecIter::new(entries.clone()));
        true
    }
}

fn meta(smallest: u8, largest: u8, largest_exclusive: bool, largest_seqno: SeqNo) -> Arc<FileMeta> {
    Arc::new(FileMeta {
        smallest: vec![smallest],
        largest: vec![largest],
        largest_exclusive,
        largest_seqno,
        ..FileMeta::default()
    })
}

/// Files over ranges of one-byte keys, some without point entries (range tombstones only), some
/// with bounds wider than their entries.
fn random_files(rng: &mut SplitMix64) -> (VecFiles, Vec<Entry>) {
    let (mut files, mut entries) = (Vec::new(), Vec::new());
    let mut from = rng.below(3) as u8;
    while from < 60 {
        let to = from + rng.below(9) as u8;
        let exclusive = to > from && rng.one_in(3);
        let last = if exclusive { to - 1 } else { to };
        let (base, newest) = (rng.below(3) * 10, rng.below(10));
        let mut list: Vec<Entry> = (from..=last)
            .flat_map(|key| (0..rng.below(4)).map(move |n| (key, n)))
            .map(|(key, n)| (vec![key], ((base + n.min(newest)) << 8) | 1, vec![key]))
            .collect();
        if rng.one_in(4) {
            list.clear();
        }
        sort(&mut list);
        list.dedup();
        files.push(meta(from, to, exclusive, SeqNo::new(base + 10)));
        entries.push(list);
        from = to + u8::from(!exclusive) + rng.below(3) as u8;
    }
    let model = entries.concat();
    (VecFiles::new(files, entries), model)
}

fn current<I: InternalIter>(iter: &I) -> Option<Entry> {
    iter.valid().then(|| (iter.user_key().to_vec(), iter.trailer(), iter.value().to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn walks_as_the_concatenation_does(seed: u64) {
        let mut rng = SplitMix64::new(seed);
        let (files, model) = random_files(&mut rng);
        *files.turns.borrow_mut() = Some(SplitMix64::new(!seed));
        let mut iter = LevelIter::over(files);
        prop_assert!(!iter.valid());
        let mut at: Option<usize> = None;
        for _ in 0..200 {
            let target = (vec![rng.below(64) as u8], rng.below(32) << 8);
            let position =
                model.partition_point(|e| compare_internal(&e.0, e.1, &target.0, target.1).is_lt());
            if rng.one_in(3) {
                // For the seek that follows, or for another one, or for none.
                let prepared = if rng.one_in(2) { target.0[0] } else { rng.below(64) as u8 };
                iter.prepare_seek(&[prepared]);
                prop_assert!(!iter.valid());
                at = None;
            }
            let (result, to) = match (rng.below(10), at) {
                (0, _) => (iter.seek_to_first(), Some(0)),
                (1, _) => (iter.seek_to_last(), model.len().checked_sub(1)),
                (3, _) => (iter.seek_before(&target.0, target.1), position.checked_sub(1)),
                (2, _) | (_, None) => (iter.seek(&target.0, target.1), Some(position)),
                (4..7, Some(at)) => (iter.next(), Some(at + 1)),
                (_, Some(at)) => (iter.prev(), at.checked_sub(1)),
            };
            result.expect("no file fails");
            at = to.filter(|to| *to < model.len());
            prop_assert_eq!(current(&iter), at.map(|at| model[at].clone()));
        }
    }

    #[test]
    fn skip_covered_passes_over_covered_entries_only(seed: u64) {
        let mut rng = SplitMix64::new(seed);
        let (files, model) = random_files(&mut rng);
        prop_assume!(!model.is_empty());
        let mut iter = LevelIter::over(files);
        let from = rng.below(model.len() as u64) as usize;
        let end = vec![rng.below(64) as u8];
        prop_assume!(model[from].0 < end);
        let seqno = rng.below(50);
        iter.seek(&model[from].0, model[from].1).expect("no file fails");
        iter.skip_covered(&end, SeqNo::new(seqno)).expect("no file fails");
        let to = match current(&iter) {
            Some(entry) => model.iter().position(|e| *e == entry).expect("an entry of the model"),
            None => model.len(),
        };
        prop_assert!(from <= to);
        prop_assert!(model[from..to].iter().all(|e| e.0 < end && e.1 >> 8 < seqno));
        // With a tombstone newer than everything, nothing covered is left.
        if seqno > 40 {
            prop_assert!(current(&iter).is_none_or(|e| e.0 >= end));
        }
    }

    #[test]
    fn skip_covered_back_passes_over_covered_entries_only(seed: u64) {
        let mut rng = SplitMix64::new(seed);
        let (files, model) = random_files(&mut rng);
        prop_assume!(!model.is_empty());
        let mut iter = LevelIter::over(files);
        let from = rng.below(model.len() as u64) as usize;
        let start = vec![rng.below(64) as u8];
        prop_assume!(model[from].0 >= start);
        let seqno = rng.below(50);
        iter.seek(&model[from].0, model[from].1).expect("no file fails");
        iter.skip_covered_back(&start, SeqNo::new(seqno)).expect("no file fails");
        let rest = match current(&iter) {
            Some(entry) => 1 + model.iter().position(|e| *e == entry).expect("one of the model"),
            None => 0,
        };
        prop_assert!(rest <= from + 1);
        prop_assert!(model[rest..=from].iter().all(|e| e.0 >= start && e.1 >> 8 < seqno));
        if seqno > 40 {
            prop_assert!(current(&iter).is_none_or(|e| e.0 < start));
        }
    }
}

/// The checksums of such files are right. A scan that seeks past versions of a key of the second would come back to the
/// first, and so on.
#[test]
fn a_key_outside_of_the_bounds_of_its_file_is_damage_when_the_cursor_comes_from_the_other_one() {
    let list =
        |keys: &[u8]| -> Vec<Entry> { keys.iter().map(|key| (vec![*key], 256, vec![])).collect() };
    let files = |first: &[u8], second: &[u8]| {
        let metas = vec![meta(10, 20, true, SeqNo::new(1)), meta(30, 40, false, SeqNo::new(1))];
        LevelIter::over(VecFiles::new(metas, vec![list(first), list(second)]))
    };
    let mut sound = files(&[10, 19], &[30, 40]);
    sound.seek(&[19], u64::MAX).unwrap();
    sound.next().unwrap();
    sound.prev().unwrap();
    assert_eq!(sound.user_key(), [19]);
    for key in [5u8, 20, 25, 35] {
        let mut above = files(&[10, 19], &[key.min(29), 40]);
        above.seek(&[19], u64::MAX).unwrap();
        assert!(above.next().unwrap_err().is_corruption() && !above.valid(), "{key}");
        let mut below = files(&[10, key.max(20)], &[30, 40]);
        below.seek(&[30], u64::MAX).unwrap();
        assert!(below.prev().unwrap_err().is_corruption() && !below.valid(), "{key}");
    }
    assert!(files(&[9, 19], &[]).seek_to_first().unwrap_err().is_corruption());
    assert!(files(&[], &[30, 41]).seek_to_last().unwrap_err().is_corruption());
    assert!(files(&[19], &[9, 40]).seek(&[20], u64::MAX).is_ok(), "from nowhere it is not seen");
}

#[test]
fn a_seek_opens_one_file_and_seeks_again_for_free() {
    let entries: Vec<Vec<Entry>> =
        (0..10).map(|file| (0..5).map(|n| (vec![file * 10 + n], 256, vec![])).collect()).collect();
    let files = (0..10).map(|file| meta(file * 10, file * 10 + 4, false, SeqNo::new(1))).collect();
    let mut iter = LevelIter::over(VecFiles::new(files, entries));
    iter.seek(&[52], u64::MAX).expect("no file fails");
    iter.seek(&[51], u64::MAX).expect("no file fails");
    iter.seek_before(&[54], 0).expect("no file fails");
    assert_eq!((iter.user_key(), iter.files.opens.get()), ([54].as_slice(), 1));
    // Between two files: the next one at its start, the one before at its end.
    iter.seek(&[57], u64::MAX).expect("no file fails");
    assert_eq!((iter.user_key(), iter.files.opens.get()), ([60].as_slice(), 2));
    iter.seek_before(&[57], u64::MAX).expect("no file fails");
    assert_eq!((iter.user_key(), iter.files.opens.get()), ([54].as_slice(), 3));
    iter.seek(&[99], u64::MAX).expect("no file fails");
    assert_eq!((iter.valid(), iter.files.opens.get()), (false, 3));
    // Files 5 to 8 are older than the tombstone and end before it does: not opened.
    iter.seek(&[51], u64::MAX).expect("no file fails");
    iter.skip_covered(&[92], SeqNo::new(2)).expect("no file fails");
    assert_eq!((iter.user_key(), iter.files.opens.get()), ([92].as_slice(), 4));
    iter.skip_covered_back(&[11], SeqNo::new(2)).expect("no file fails");
    assert_eq!((iter.user_key(), iter.files.opens.get()), ([10].as_slice(), 5));
}
