//! The list beside a `BTreeMap`: same operations, same answers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use terrace_base::{InternalIter, MAX_SEQNO, Rng, SplitMix64};
use terrace_skiplist::{Entry, Hint, Iter, Skiplist};

type InternalKey = (Vec<u8>, Reverse<u64>);
type Model = BTreeMap<InternalKey, Vec<u8>>;
type Read = (Vec<u8>, u64, Vec<u8>);

struct Pair {
    list: Arc<Skiplist>,
    model: Model,
    hints: [Hint; 2],
}

fn entry(iter: &Iter) -> Option<Read> {
    let entry = || (iter.user_key().to_vec(), iter.trailer(), iter.value().to_vec());
    iter.valid().then(entry)
}

fn model_entry(found: Option<(&InternalKey, &Vec<u8>)>) -> Option<Read> {
    found.map(|((key, trailer), value)| (key.clone(), trailer.0, value.clone()))
}

impl Pair {
    fn new(bytes: usize) -> Self {
        let list = Skiplist::with_capacity(bytes).unwrap();
        Self { list, model: Model::new(), hints: Default::default() }
    }

    fn insert(&mut self, key: &[u8], trailer: u64, value: &[u8], hint: usize) {
        self.list.insert(key, trailer, value, &mut self.hints[hint]).unwrap();
        self.model.entry((key.to_vec(), Reverse(trailer))).or_insert_with(|| value.to_vec());
    }

    /// Inserts `(key, trailer)` pairs together, each with its place among them as its value; without
    /// a hint as if nothing was known of the list.
    fn insert_all(&mut self, keys: &[(Vec<u8>, u64)], hint: Option<usize>) {
        let values: Vec<[u8; 2]> = (0..keys.len()).map(|n| (n as u16).to_le_bytes()).collect();
        let entries: Vec<Entry<'_, _>> = keys
            .iter()
            .zip(&values)
            .map(|((user_key, trailer), value)| Entry { user_key, trailer: *trailer, value })
            .collect();
        let mut unknown = Hint::default();
        let hint = match hint {
            Some(hint) => &mut self.hints[hint],
            None => &mut unknown,
        };
        assert_eq!(self.list.insert_all(&entries, hint), keys.len());
        for ((key, trailer), value) in keys.iter().zip(&values) {
            self.model.entry((key.clone(), Reverse(*trailer))).or_insert_with(|| value.to_vec());
        }
    }

    /// Every read at `(key, trailer)`.
    fn check(&self, key: &[u8], trailer: u64) {
        let at = (key.to_vec(), Reverse(trailer));
        let mut from = self.model.range(at.clone()..);
        let expected = from.clone().next().filter(|((found, _), _)| found == key);
        let got = self.list.get(key, trailer);
        assert_eq!(got, expected.map(|((_, trailer), value)| (trailer.0, &value[..])));

        let mut iter = self.list.iter();
        iter.seek(key, trailer).unwrap();
        for _ in 0..3 {
            let expected = model_entry(from.next());
            assert_eq!(entry(&iter), expected);
            if expected.is_none() {
                break;
            }
            iter.next().unwrap();
        }
        let mut before = self.model.range(..at);
        iter.seek_before(key, trailer).unwrap();
        for _ in 0..3 {
            let expected = model_entry(before.next_back());
            assert_eq!(entry(&iter), expected);
            if expected.is_none() {
                break;
            }
            iter.prev().unwrap();
        }
    }

    /// Both directions from end to end, and the counts.
    fn check_all(&self) {
        let expected: Vec<Read> =
            self.model.iter().map(|e| model_entry(Some(e)).unwrap()).collect();
        let mut iter = self.list.iter();
        let mut got = Vec::new();
        iter.seek_to_first().unwrap();
        while let Some(entry) = entry(&iter) {
            got.push(entry);
            iter.next().unwrap();
        }
        assert!(got == expected, "forwards");
        got.clear();
        iter.seek_to_last().unwrap();
        while let Some(entry) = entry(&iter) {
            got.push(entry);
            iter.prev().unwrap();
        }
        got.reverse();
        assert!(got == expected, "backwards");
        assert!(self.list.is_ordered());
        assert_eq!(self.list.entry_count(), self.model.len());
        assert_eq!(self.list.is_empty(), self.model.is_empty());
    }
}

#[test]
fn an_empty_list_has_nothing() {
    let pair = Pair::new(1 << 10);
    assert!(!pair.list.iter().valid());
    pair.check(b"", 0);
    pair.check(b"key", u64::MAX);
    pair.check_all();
}

#[test]
fn versions_of_a_key_come_newest_first() {
    let mut pair = Pair::new(1 << 20);
    for trailer in [5, 9, 1, 0, u64::MAX, 7] {
        for key in [b"".as_slice(), b"a", b"a\0", b"b"] {
            pair.insert(key, trailer, &trailer.to_le_bytes(), 0);
        }
    }
    for trailer in [0, 1, 2, 6, 8, 9, 10, u64::MAX] {
        for key in [b"".as_slice(), b"\0", b"a", b"a\0", b"a\0\0", b"b", b"c"] {
            pair.check(key, trailer);
        }
    }
    pair.check_all();
}

/// More versions than any search could pass one by one as often as here, and some that came late.
#[test]
fn a_key_of_many_versions_has_each_of_them() {
    let count: u64 = if cfg!(miri) { 100 } else { 60_000 };
    let mut pair = Pair::new(16 << 20);
    pair.insert(b"before", 1, b"", 0);
    pair.insert(b"counter!", 1, b"", 0);
    for n in 0..count {
        pair.insert(b"counter", 10 * n + 5, &n.to_le_bytes(), 0);
        if n % 97 == 0 {
            pair.insert(b"counter", 5 * n + 1, b"late", 1);
        }
    }
    let mut rng = SplitMix64::new(3);
    for _ in 0..count {
        pair.check(b"counter", rng.below(10 * count + 10));
    }
    for trailer in [0, 1, 5, u64::MAX] {
        pair.check(b"counter", trailer);
    }
    pair.check_all();
}

#[test]
fn a_repeat_is_ignored() {
    let mut pair = Pair::new(1 << 20);
    pair.insert(b"key", 3, b"first", 0);
    let allocated = pair.list.allocated_bytes();
    for hint in [0, 1] {
        pair.insert(b"key", 3, b"second", hint);
    }
    assert_eq!(pair.list.allocated_bytes(), allocated);
    assert_eq!(pair.list.get(b"key", 3), Some((3, b"first".as_slice())));
    pair.check_all();
}

#[test]
fn a_hint_of_another_list_is_no_hint() {
    let (mut full, mut other) = (Pair::new(1 << 20), Pair::new(1 << 10));
    for n in 0..500u32 {
        full.insert(&n.to_be_bytes(), 1, b"", 0);
    }
    other.hints = std::mem::take(&mut full.hints);
    other.insert(&700u32.to_be_bytes(), 1, b"", 0);
    other.insert(&10u32.to_be_bytes(), 1, b"", 0);
    other.check_all();
    full.insert(&200u32.to_be_bytes(), 2, b"", 0);
    full.check_all();
}

/// Keys of one kind, by number.
fn key_of(kind: u64, n: u64) -> Vec<u8> {
    match kind {
        0 => format!("{n:016}").into_bytes(),
        1 => n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
        2 => format!("user{n}").into_bytes(),
        3 => format!("t{}/item/{n:05}", n % 7).into_bytes(),
        // A long shared prefix, keys that are prefixes of others, and keys beyond either side.
        _ => match n % 50 {
            0 => vec![b'a'; n as usize % 40],
            1 => vec![0xff; n as usize % 9],
            _ => [&[b'a'; 30], &n.to_be_bytes()[4 + n as usize % 4..]].concat(),
        },
    }
}

/// Enough entries of each kind to pass every point at which heads are reconsidered.
#[test]
fn all_kinds_of_keys_in_all_orders_stay_in_order() {
    let count: u64 = if cfg!(miri) { 70 } else { 40_000 };
    for kind in 0..5 {
        for order in 0..3 {
            let mut rng = SplitMix64::new(kind * 3 + order);
            let mut pair = Pair::new(8 << 20);
            for n in 0..count {
                let n = match order {
                    0 => n,
                    1 => count - n,
                    _ => rng.below(100_000_000),
                };
                pair.insert(&key_of(kind, n), n % 3, &n.to_le_bytes()[..n as usize % 9], 0);
            }
            for _ in 0..count / 20 {
                let mut key = key_of(kind, rng.below(2 * count));
                if rng.one_in(4) {
                    key.truncate(rng.below(key.len() as u64 + 1) as usize);
                }
                pair.check(&key, rng.below(4));
            }
            pair.check_all();
        }
    }
}

/// As above, in batches: sorted, descending, unsorted, and mixed with single inserts.
#[test]
fn batches_of_all_kinds_of_keys_stay_in_order() {
    let count: u64 = if cfg!(miri) { 60 } else { 10_000 };
    for kind in 0..5 {
        for order in 0..3 {
            let mut rng = SplitMix64::new(kind * 3 + order);
            let mut pair = Pair::new(8 << 20);
            while (pair.list.entry_count() as u64) < count {
                let len = rng.below(60);
                let mut keys: Vec<(Vec<u8>, u64)> = (0..len)
                    .map(|_| (key_of(kind, rng.below(100_000_000)), rng.below(3)))
                    .collect();
                match order {
                    0 => keys.sort_unstable(),
                    1 => keys.sort_unstable_by(|a, b| b.cmp(a)),
                    _ => pair.insert(&key_of(kind, rng.below(100_000_000)), 1, b"alone", 1),
                }
                pair.insert_all(&keys, [None, Some(0)][len as usize % 2]);
                if let Some((key, trailer)) = keys.first() {
                    pair.check(key, *trailer);
                }
            }
            pair.check_all();
        }
    }
}

#[test]
fn the_part_below_a_key_is_nearly_right() {
    for count in [0, 1, 100, 5_000, 60_000] {
        let mut pair = Pair::new(16 << 20);
        for n in 0..count {
            pair.insert(format!("{:08}", n * 7919 % count.max(1)).as_bytes(), 1, b"", 0);
        }
        for tenth in 0..=10 {
            let part = pair.list.part_below(format!("{:08}", count * tenth / 10).as_bytes());
            let exact = if count == 0 { 0.0 } else { (count * tenth / 10) as f64 / count as f64 };
            assert!((part - exact).abs() < 0.1, "{tenth} tenths of {count}: {part}");
        }
    }
}

/// One tenant first, others after: heads chosen early fit badly later.
#[test]
fn a_change_of_keys_keeps_order() {
    let count: u64 = if cfg!(miri) { 40 } else { 3_000 };
    let mut rng = SplitMix64::new(1);
    let mut pair = Pair::new(8 << 20);
    for phase in 0..5u64 {
        for _ in 0..count {
            let tenant = [500, 501, 400, 999, 500 - phase][phase as usize];
            let key = format!("tenant{tenant}:{:06}", rng.below(1_000_000));
            pair.insert(key.as_bytes(), rng.below(3), &[], rng.below(2) as usize);
            if rng.one_in(8) {
                pair.check(key.as_bytes(), 2);
            }
        }
    }
    pair.check(b"tenant", MAX_SEQNO.get());
    pair.check_all();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 96 }, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_operations_agree(
        operations in proptest::collection::vec(
            (
                proptest::collection::vec(prop_oneof![b'0'..=b'3', any::<u8>()], 0..6),
                prop_oneof![0u64..6, any::<u64>()],
                proptest::collection::vec(any::<u8>(), 0..20),
                0usize..2,
                any::<bool>(),
            ),
            0..if cfg!(miri) { 50 } else { 300 },
        )
    ) {
        let mut pair = Pair::new(1 << 20);
        for (key, trailer, value, hint, insert) in &operations {
            if *insert {
                pair.insert(key, *trailer, value, *hint);
            }
            pair.check(key, *trailer);
        }
        pair.check_all();
    }

    /// Few keys, so that groups hold repeats and neighbours, and what one entry is linked to is
    /// linked in the same group.
    #[test]
    fn any_groups_agree(
        groups in proptest::collection::vec(
            (
                proptest::collection::vec(
                    (proptest::collection::vec(b'0'..=b'4', 0..4), 0u64..3),
                    0..40,
                ),
                prop_oneof![Just(None), (0usize..2).prop_map(Some)],
                any::<bool>(),
            ),
            0..if cfg!(miri) { 5 } else { 20 },
        )
    ) {
        let mut pair = Pair::new(1 << 20);
        for (mut keys, hint, sorted) in groups {
            if sorted {
                keys.sort();
            }
            let allocated = pair.list.allocated_bytes();
            let absent = keys.iter().filter(|(key, trailer)| {
                !pair.model.contains_key(&(key.clone(), Reverse(*trailer)))
            });
            let fresh = absent.collect::<std::collections::BTreeSet<_>>();
            let most: usize =
                fresh.iter().map(|(key, _)| Skiplist::entry_upper_bound(key.len(), 2)).sum();
            pair.insert_all(&keys, hint);
            // Repeats take no room.
            prop_assert!(pair.list.allocated_bytes() <= allocated + most);
            for (key, trailer) in &keys {
                pair.check(key, *trailer);
            }
        }
        pair.check_all();
    }
}
