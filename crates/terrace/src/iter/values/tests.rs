//! Windows of values against a sorted list, with reads that fail, and how many reads there are.

use super::*;
use crate::iter::cover::Cover;
use crate::iter::merge::MergingIter;
use crate::iter::tests::cursors::{Entry, FakeValues, History, NOW_MS, VecIter, key};
use crate::iter::visible::View;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;
use terrace_base::key::pack_trailer;
use terrace_base::{MAX_SEQNO, Rng, SeqNo, SplitMix64, ValueKind};

type Scan = Values<MergingIter<VecIter>>;

/// A run of single versions in key order, and what a reader should see.
#[derive(Default)]
struct Case {
    run: Vec<Entry>,
    values: FakeValues,
    /// Key, value, and whether reading it fails.
    model: Vec<(Vec<u8>, Vec<u8>, bool)>,
    /// The index of the separated value of each entry of the model.
    stored_at: Vec<Option<usize>>,
}

impl Case {
    fn add(&mut self, key: &[u8], value: &[u8], separated: bool) {
        let (kind, stored) = match separated {
            true => (ValueKind::PutHandle, self.values.add(key, value).encode().to_vec()),
            false => (ValueKind::Put, value.to_vec()),
        };
        self.run.push((key.to_vec(), pack_trailer(SeqNo::new(5), kind), stored));
        self.model.push((key.to_vec(), value.to_vec(), false));
        self.stored_at.push(separated.then(|| self.values.values.lock().len() - 1));
    }

    /// `count` separated values of `len` bytes.
    fn separated(count: usize, len: usize) -> Self {
        let mut case = Self::default();
        for n in 0..count {
            case.add(format!("{n:05}").as_bytes(), &vec![n as u8; len], true);
        }
        case
    }

    fn damage(&mut self, at: usize) {
        self.values.damaged.lock().insert(self.stored_at[at].expect("a separated value"));
        self.model[at].2 = true;
    }

    fn random(rng: &mut SplitMix64, count: usize) -> Self {
        let mut keys: Vec<Vec<u8>> = (0..count as u64).map(key).collect();
        keys.sort();
        let mut case = Self::default();
        let separated = [0, 2, 9, 10][rng.below(4) as usize];
        let damaged = rng.below(3);
        for (n, key) in keys.iter().enumerate() {
            let len = [0, 1, 30, 300, 5000][rng.below(5) as usize];
            let mut value = vec![n as u8; len];
            value.extend_from_slice(&key[..key.len().min(3)]);
            let separated = rng.below(10) < separated;
            case.add(key, &value, separated);
            if separated && rng.below(20) < damaged {
                case.damage(n);
            }
        }
        case
    }

    fn view(lower: Option<&[u8]>, upper: Option<&[u8]>) -> View {
        View {
            seqno: MAX_SEQNO,
            now_ms: NOW_MS,
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(<[u8]>::to_vec),
            cover: Cover::new(Vec::new(), MAX_SEQNO),
            keys_only: false,
            fold: None,
        }
    }

    fn scan_of(&self, iter: VecIter, view: View, max_bytes: usize) -> Scan {
        let visible = Visible::new(MergingIter::new(vec![iter]), view);
        Values::new(visible, Reading::Values(Box::new(self.values.clone()), max_bytes))
    }

    fn scan(&self, max_bytes: usize) -> Scan {
        self.scan_of(VecIter::new(self.run.clone()), Self::view(None, None), max_bytes)
    }

    /// The sizes of the batches since the last call.
    fn batches(&self) -> Vec<usize> {
        std::mem::take(&mut *self.values.batches.lock()).iter().map(Vec::len).collect()
    }
}

fn shown(scan: &Scan) -> Option<(Vec<u8>, Vec<u8>)> {
    if !scan.valid() {
        assert!(scan.key().is_empty() && scan.value().is_empty());
    }
    scan.valid().then(|| (scan.key().to_vec(), scan.value().to_vec()))
}

/// A random move; gives its outcome and the index of the entry that it goes to.
fn random_move(
    scan: &mut Scan,
    at: Option<usize>,
    model: &[(Vec<u8>, Vec<u8>, bool)],
    rng: &mut SplitMix64,
    onward: &mut bool,
) -> (Result<()>, Option<usize>) {
    let mut target = key(rng.below(model.len() as u64 + 3));
    target.truncate(rng.below(30) as usize);
    // Long walks in one direction, so that windows grow.
    if rng.one_in(12) {
        *onward = !*onward;
    }
    let (result, to) = match rng.below(24) {
        0 => (scan.seek_to_first(), Some(0)),
        1 => (scan.seek_to_last(), model.len().checked_sub(1)),
        2 => (scan.seek(&target), Some(model.partition_point(|e| e.0 < target))),
        3 => {
            let to = model.partition_point(|e| e.0 <= target).checked_sub(1);
            (scan.seek_for_prev(&target), to)
        }
        _ if *onward => (scan.next(), at.map(|at| at + 1)),
        _ => (scan.prev(), at.and_then(|at| at.checked_sub(1))),
    };
    (result, to.filter(|to| *to < model.len()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn shows_every_value_or_the_error_of_its_read(
        seed: u64,
        count in 0usize..150,
        max_bytes in prop::sample::select(vec![1usize, 600, 20_000, MAX_WINDOW_BYTES]),
        bounded: (bool, bool),
    ) {
        let mut rng = SplitMix64::new(seed);
        let case = Case::random(&mut rng, count);
        let bound = |rng: &mut SplitMix64| key(rng.below(count as u64 + 1));
        let lower = bounded.0.then(|| bound(&mut rng));
        let upper = bounded.1.then(|| bound(&mut rng));
        let inside = |key: &[u8]| {
            lower.as_deref().is_none_or(|l| key >= l) && upper.as_deref().is_none_or(|u| key < u)
        };
        let model: Vec<_> = case.model.iter().filter(|e| inside(&e.0)).cloned().collect();
        let view = Case::view(lower.as_deref(), upper.as_deref());
        let mut scan = case.scan_of(VecIter::new(case.run.clone()), view, max_bytes);
        prop_assert_eq!(shown(&scan), None);
        let (mut at, mut onward) = (None, true);
        for _ in 0..400 {
            let (result, to) = random_move(&mut scan, at, &model, &mut rng, &mut onward);
            let fails = to.is_some_and(|to: usize| model[to].2);
            prop_assert_eq!(result.is_err(), fails);
            at = to.filter(|_| !fails);
            let want = at.map(|at: usize| (model[at].0.clone(), model[at].1.clone()));
            prop_assert_eq!(shown(&scan), want);
        }
        let values = case.values.values.lock();
        for at in case.values.batches.lock().iter().flatten() {
            prop_assert!(inside(&values[*at].0), "read beyond a bound");
        }
    }

    #[test]
    fn an_error_of_the_cursor_comes_after_the_entries_before_it(seed: u64, count in 20usize..100) {
        let mut rng = SplitMix64::new(seed);
        let case = Case::random(&mut rng, count);
        let fuse = Rc::new(Cell::new(rng.below(60)));
        let iter = VecIter::new(case.run.clone()).with_fuse(&fuse);
        let mut scan = case.scan_of(iter, Case::view(None, None), MAX_WINDOW_BYTES);
        let (mut at, mut onward, mut errors) = (None, true, 0);
        for _ in 0..400 {
            let (result, to) = random_move(&mut scan, at, &case.model, &mut rng, &mut onward);
            let fails = to.is_some_and(|to: usize| case.model[to].2);
            at = match result {
                Ok(()) => {
                    prop_assert!(!fails);
                    to
                }
                Err(_) => {
                    errors += 1;
                    fuse.set(rng.below(60));
                    None
                }
            };
            let want = at.map(|at: usize| (case.model[at].0.clone(), case.model[at].1.clone()));
            prop_assert_eq!(shown(&scan), want);
        }
        prop_assert!(errors > 0);
    }

    /// Versions, tombstones and expiries below, and both kinds of values.
    #[test]
    fn shows_what_a_history_amounts_to(seed: u64, seqno in 0u64..300) {
        let mut rng = SplitMix64::new(seed);
        let mut history = History::random(&mut rng, 30, 250, 3);
        history.tombstones.iter_mut().for_each(Vec::clear);
        let model: Vec<_> = history
            .shown(SeqNo::new(seqno), None, None)
            .into_iter()
            .map(|(key, value)| (key, value, false))
            .collect();
        let view = View { seqno: SeqNo::new(seqno), ..Case::view(None, None) };
        let children = history.runs.iter().cloned().map(VecIter::new).collect();
        let reading = Reading::Values(Box::new(history.values.clone()), 100);
        let mut scan = Values::new(Visible::new(MergingIter::new(children), view), reading);
        let (mut at, mut onward) = (None, true);
        for _ in 0..200 {
            let (result, to) = random_move(&mut scan, at, &model, &mut rng, &mut onward);
            result.expect("nothing fails");
            at = to;
            let want = at.map(|at: usize| (model[at].0.clone(), model[at].1.clone()));
            prop_assert_eq!(shown(&scan), want);
        }
    }
}

#[test]
fn a_seek_reads_one_value_and_windows_double() {
    let case = Case::separated(400, 10);
    let mut scan = case.scan(MAX_WINDOW_BYTES);
    scan.seek(b"00100").expect("sound");
    assert_eq!(case.batches(), [1]);
    scan.seek(b"00200").expect("sound");
    assert_eq!(case.batches(), [1], "a new seek starts over");
    for _ in 0..2 {
        scan.seek_to_first().expect("sound");
        while scan.valid() {
            scan.next().expect("sound");
        }
        // 1 + 2 + .. + 64 = 127, and what is left of 400.
        assert_eq!(case.batches(), [1, 2, 4, 8, 16, 32, 64, 64, 64, 64, 64, 17]);
        scan.seek_to_last().expect("sound");
        while scan.valid() {
            scan.prev().expect("sound");
        }
        assert_eq!(case.batches(), [1, 2, 4, 8, 16, 32, 64, 64, 64, 64, 64, 17]);
    }
    scan.seek(b"00100").expect("sound");
    for _ in 0..10 {
        scan.next().expect("sound");
    }
    assert_eq!((scan.key(), case.batches()), (&b"00110"[..], vec![1, 2, 4, 8]));
    scan.prev().expect("sound");
    assert_eq!((scan.key(), case.batches()), (&b"00109"[..], vec![1]), "a turn starts over");
}

#[test]
fn windows_hold_no_more_bytes_than_they_may() {
    let case = Case::separated(100, 1000);
    let mut scan = case.scan(4000);
    scan.seek_to_first().expect("sound");
    while scan.valid() {
        assert!(scan.window.bytes.len() < 64 * 10);
        scan.next().expect("sound");
    }
    let batches = case.batches();
    assert_eq!(batches.iter().sum::<usize>(), 100);
    assert_eq!(batches[..4], [1, 2, 4, 4]);
    assert!(batches.iter().all(|batch| *batch <= 4));

    // Values that are longer than what is stored of them.
    let mut case = Case::separated(100, 1000);
    for entry in &mut case.run {
        let bytes = entry.2.as_slice().try_into().expect("a handle");
        let handle = ValueHandle { len: 10, ..ValueHandle::decode(bytes) };
        entry.2 = handle.encode().to_vec();
    }
    let mut scan = case.scan(4000);
    scan.seek_to_first().expect("sound");
    while scan.valid() {
        scan.next().expect("sound");
    }
    let batches = case.batches();
    assert_eq!((batches.iter().sum::<usize>(), batches.iter().max()), (100, Some(&4)));
}

/// What is stored says little about how long compressed values are.
#[test]
fn a_window_reads_no_more_than_it_may_hold_of_values_that_are_longer_than_what_is_stored() {
    let mut case = Case::separated(200, 10);
    for n in 200..300 {
        let (key, value) = (format!("{n:05}").into_bytes(), vec![n as u8; 5000]);
        let handle = case.values.add_compressed(&key, &value, 10);
        let trailer = pack_trailer(SeqNo::new(5), ValueKind::PutHandle);
        case.run.push((key.clone(), trailer, handle.encode().to_vec()));
        case.model.push((key, value, false));
    }
    for forward in [true, false] {
        let mut scan = case.scan(20_000);
        if forward { scan.seek_to_first() } else { scan.seek_to_last() }.unwrap();
        let order: Vec<usize> = if forward { (0..300).collect() } else { (0..300).rev().collect() };
        for at in order {
            let (key, value, _) = &case.model[at];
            assert_eq!((scan.key(), scan.value()), (&key[..], &value[..]));
            if forward { scan.next() } else { scan.prev() }.unwrap();
        }
        assert!(!scan.valid());
        let batches = std::mem::take(&mut *case.values.batches.lock());
        let long = |batch: &Vec<usize>| batch.iter().filter(|at| **at >= 200).count();
        assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), 300, "each is read once");
        assert_eq!(batches.iter().map(long).max(), Some(4), "{batches:?}");
    }
}

#[test]
fn inline_values_cost_no_copy_and_those_between_handles_are_staged() {
    let mut case = Case::default();
    for n in 0..100u32 {
        case.add(format!("{n:05}").as_bytes(), &[n as u8; 20], n == 50 || n == 53 || n == 60);
    }
    let mut scan = case.scan(MAX_WINDOW_BYTES);
    scan.seek_to_first().expect("sound");
    for n in 0..100usize {
        assert_eq!(scan.value(), [n as u8; 20]);
        // Windows of 1, 2 and 4 entries.
        let staged = n == 50 || n == 53 || n == 54 || (60..64).contains(&n);
        assert_eq!(scan.shown == Shown::Staged, staged, "entry {n}");
        scan.next().expect("sound");
    }
    assert_eq!(case.batches(), [1, 1, 1]);
}

#[test]
fn a_failed_read_ahead_is_the_error_of_its_entry_and_a_seek_may_be_tried_again() {
    let mut case = Case::separated(20, 10);
    case.damage(5);
    let mut scan = case.scan(MAX_WINDOW_BYTES);
    scan.seek_to_first().expect("sound");
    for n in 1..5 {
        scan.next().expect("read before the damaged one");
        assert_eq!(scan.value(), [n; 10]);
    }
    assert!(scan.next().is_err_and(|error| error.is_corruption()));
    assert_eq!(shown(&scan), None);
    scan.next().expect("a step from nowhere does nothing");
    assert_eq!(shown(&scan), None);
    assert!(scan.seek(b"00005").is_err());
    assert_eq!(shown(&scan), None);
    case.values.damaged.lock().clear();
    scan.seek(b"00005").expect("sound again");
    assert_eq!(scan.value(), [5; 10]);
    scan.next().expect("sound");
    assert_eq!(scan.value(), [6; 10]);
}

#[test]
fn keys_only_reads_no_value() {
    let mut case = Case::separated(20, 10);
    case.add(b"z", b"inline", false);
    let visible = Visible::new(
        MergingIter::new(vec![VecIter::new(case.run.clone())]),
        Case::view(None, None),
    );
    let mut scan = Values::new(visible, Reading::KeysOnly);
    scan.seek_to_first().expect("sound");
    for (key, ..) in &case.model {
        assert_eq!(shown(&scan), Some((key.clone(), Vec::new())));
        scan.next().expect("sound");
    }
    assert!(!scan.valid());
    scan.seek_for_prev(b"00007x").expect("sound");
    scan.prev().expect("sound");
    assert_eq!(shown(&scan), Some((b"00006".to_vec(), Vec::new())));
}

#[test]
fn a_handle_of_a_wrong_length_is_damage() {
    let mut case = Case::separated(3, 10);
    case.run[1].2.pop();
    let mut scan = case.scan(MAX_WINDOW_BYTES);
    scan.seek_to_first().expect("sound");
    assert!(scan.next().is_err_and(|error| error.is_corruption()));
    assert!(!scan.valid());
    scan.seek(b"00002").expect("sound");
    assert_eq!(scan.value(), [2; 10]);
}

/// What the layer costs where all values are inline: steps and seeks with and without it, in turns.
#[test]
#[ignore = "measures; asserts nothing about time"]
fn speed() {
    const ENTRIES: u32 = 200_000;
    let mut case = Case::default();
    for n in 0..ENTRIES {
        case.add(format!("key-{n:09}").as_bytes(), &[n as u8; 100], false);
    }
    let entries = || MergingIter::new(vec![VecIter::new(case.run.clone())]);
    let mut below = Visible::new(entries(), Case::view(None, None));
    let mut above = case.scan(MAX_WINDOW_BYTES);
    let mut best = [[f64::MAX; 2]; 2];
    let mut sum = 0usize;
    for _ in 0..15 {
        let start = std::time::Instant::now();
        below.seek_to_first().expect("sound");
        while below.valid() {
            sum += below.key().len() + below.value().len();
            below.next().expect("sound");
        }
        let steps_below = start.elapsed();
        let start = std::time::Instant::now();
        above.seek_to_first().expect("sound");
        while above.valid() {
            sum += above.key().len() + above.value().len();
            above.next().expect("sound");
        }
        let steps_above = start.elapsed();
        let keys = || (0..ENTRIES).step_by(7).map(|n| format!("key-{:09}", n * 31 % ENTRIES));
        let start = std::time::Instant::now();
        for key in keys() {
            below.seek(key.as_bytes()).expect("sound");
            sum += below.value().len();
        }
        let seeks_below = start.elapsed();
        let start = std::time::Instant::now();
        for key in keys() {
            above.seek(key.as_bytes()).expect("sound");
            sum += above.value().len();
        }
        let seeks_above = start.elapsed();
        let figures = [[steps_below, steps_above], [seeks_below, seeks_above]];
        for (best, times) in best.iter_mut().flatten().zip(figures.iter().flatten()) {
            *best = best.min(times.as_nanos() as f64);
        }
    }
    let per = [f64::from(ENTRIES), f64::from(ENTRIES.div_ceil(7))];
    for ((name, [without, with]), count) in ["step", "seek"].iter().zip(best).zip(per) {
        println!("{name}: {:.2} ns without, {:.2} ns with", without / count, with / count);
    }
    assert!(sum > 0 && case.batches().is_empty());
}
