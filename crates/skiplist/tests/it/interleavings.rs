//! Small programs under loom, which runs every interleaving (up to a number of preemptions) of the
//! same insert and search code, and reports entries read that were not published to the reader:
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p terrace-skiplist --release -- loom`

use std::sync::Arc;

use loom::thread;
use terrace_base::InternalIter;
use terrace_skiplist::{Entry, Hint, Skiplist};

/// Small, since loom tracks every word.
const ARENA_BYTES: usize = 512;

fn explore(preemptions: usize, program: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(program);
}

fn list() -> Arc<Skiplist> {
    Skiplist::with_capacity(ARENA_BYTES).unwrap()
}

/// Keys that differ past their first four bytes only, so that their heads are equal until the list
/// has learned, and are renewed then.
fn key_of(number: u8) -> [u8; 5] {
    [b'k', b'e', b'y', b' ', number]
}

fn insert_all(list: &Skiplist, numbers: &[u8]) {
    let mut hint = Hint::default();
    for number in numbers {
        list.insert(&key_of(*number), 1, &[*number], &mut hint).unwrap();
    }
}

/// As [`insert_all`], but in groups of two.
fn insert_together(list: &Skiplist, numbers: &[u8]) {
    let keys: Vec<[u8; 5]> = numbers.iter().map(|number| key_of(*number)).collect();
    let entry = |(user_key, number)| Entry { user_key, trailer: 1, value: [number] };
    let entries: Vec<Entry<'_, [u8; 1]>> =
        keys.iter().map(|key| &key[..]).zip(numbers.iter().copied()).map(entry).collect();
    assert_eq!(list.insert_all(&entries, &mut Hint::default()), numbers.len());
}

/// What a scan finds, checked for order and for values that belong to their keys.
fn scan(list: &Arc<Skiplist>) -> Vec<u8> {
    let mut iter = list.iter();
    iter.seek_to_first().unwrap();
    let mut found = Vec::new();
    while iter.valid() {
        let number = iter.value()[0];
        assert_eq!(iter.user_key(), key_of(number));
        found.push(number);
        iter.next().unwrap();
    }
    assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    found
}

type Insert = fn(&Skiplist, &[u8]);

/// `first` and `second` insert their keys while a reader looks around.
fn race(before: &'static [u8], first: &'static [u8], second: &'static [u8], probe: u8) {
    race_with([insert_all, insert_all], before, first, second, Some(probe));
}

/// As [`race`], with a way to insert for each of the two. Without a probe nobody reads meanwhile.
fn race_with(
    inserts: [Insert; 2],
    before: &'static [u8],
    first: &'static [u8],
    second: &'static [u8],
    probe: Option<u8>,
) {
    let list = list();
    insert_all(&list, before);
    let [first_insert, second_insert] = inserts;
    let writers = [(first_insert, first), (second_insert, second)].map(|(insert, keys)| {
        let list = Arc::clone(&list);
        thread::spawn(move || insert(&list, keys))
    });
    if let Some(probe) = probe {
        let seen = scan(&list);
        assert!(before.iter().all(|key| seen.contains(key)));
        if let Some(got) = list.get(&key_of(probe), 9) {
            assert_eq!(got, (1, [probe].as_slice()));
        }
    }
    for writer in writers {
        writer.join().unwrap();
    }
    let mut expected = [before, first, second].concat();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(scan(&list), expected);
    assert_eq!(list.entry_count(), expected.len());
    assert!(list.is_ordered());
    for number in expected {
        assert_eq!(list.get(&key_of(number), 1), Some((1, [number].as_slice())));
    }
}

#[test]
fn loom_neighbours_in_one_gap() {
    explore(2, || race(&[1, 9], &[4], &[5], 5));
}

#[test]
fn loom_the_same_entry_twice() {
    explore(3, || race(&[], &[4], &[4], 4));
}

#[test]
fn loom_ascending_with_hints_between_each_other() {
    explore(2, || race(&[], &[2, 6], &[4, 8], 6));
}

/// The second entry comes between the first and the third on level 0 before the first is on level
/// 1: what the first insert leaves in its hint is older below than above.
#[test]
fn loom_a_hint_with_a_stale_right_side() {
    explore(2, || race(&[], &[4, 6], &[5], 6));
}

#[test]
fn loom_descending_with_hints_between_each_other() {
    explore(2, || race(&[5], &[7, 3], &[6], 3));
}

#[test]
fn loom_two_groups_between_each_other() {
    let together: [Insert; 2] = [insert_together, insert_together];
    explore(1, move || race_with(together, &[], &[2, 6], &[4, 8], None));
}

#[test]
fn loom_a_group_and_single_inserts_in_one_gap() {
    let mixed: [Insert; 2] = [insert_together, insert_all];
    explore(2, move || race_with(mixed, &[9], &[6, 3], &[4], Some(3)));
}

/// Both groups hold both entries: the second of one group is a repeat of what came between.
#[test]
fn loom_the_same_group_twice() {
    let together: [Insert; 2] = [insert_together, insert_together];
    explore(2, move || race_with(together, &[], &[4, 5], &[5, 4], Some(5)));
}

/// Each insert splits a line of the index, while a reader looks for what has long been there.
#[test]
fn loom_a_lookup_while_lines_are_split() {
    explore(3, || {
        let list = list();
        insert_all(&list, &[1, 2, 3]);
        let writer = {
            let list = Arc::clone(&list);
            thread::spawn(move || insert_all(&list, &[4, 5]))
        };
        for number in [1, 2, 3] {
            assert_eq!(list.get(&key_of(number), 1), Some((1, [number].as_slice())));
        }
        assert_eq!(list.get(&key_of(9), 1), None);
        writer.join().unwrap();
        assert!(list.is_ordered());
    });
}

fn insert_versions(list: &Skiplist, trailers: &[u8]) {
    let mut hint = Hint::default();
    for trailer in trailers {
        list.insert(b"key", (*trailer).into(), &[*trailer], &mut hint).unwrap();
        // The thread that linked the key may not have noted it in the index yet.
        let found = list.get(b"key", (*trailer).into());
        assert_eq!(found, Some(((*trailer).into(), [*trailer].as_slice())));
    }
}

/// Two writers of one key, in the versions `first` and `second`, beside a reader.
fn race_in_versions(before: &'static [u8], first: &'static [u8], second: &'static [u8]) {
    let list = list();
    insert_versions(&list, before);
    let writers = [first, second].map(|trailers| {
        let list = Arc::clone(&list);
        thread::spawn(move || insert_versions(&list, trailers))
    });
    let seen = list.get(b"key", 9).map(|(trailer, value)| (trailer, value.to_vec()));
    let newest_before = before.iter().max().copied().unwrap_or(0);
    assert!(before.is_empty() || seen.is_some(), "an entry vanished");
    if let Some((trailer, value)) = seen {
        assert!(trailer >= newest_before.into() && value == [trailer as u8]);
    }
    for writer in writers {
        writer.join().unwrap();
    }
    let mut expected = [before, first, second].concat();
    expected.sort_unstable();
    expected.dedup();
    for trailer in &expected {
        let trailer = *trailer;
        assert_eq!(list.get(b"key", trailer.into()), Some((trailer.into(), [trailer].as_slice())));
    }
    assert_eq!(list.entry_count(), expected.len());
    assert!(list.is_ordered());
}

#[test]
fn loom_two_versions_of_a_new_key() {
    explore(3, || race_in_versions(&[], &[4], &[5]));
}

#[test]
fn loom_versions_on_top_and_between() {
    explore(2, || race_in_versions(&[2, 6], &[4, 7], &[3, 8]));
}

#[test]
fn loom_the_same_version_twice() {
    explore(3, || race_in_versions(&[2], &[4], &[4]));
}

#[test]
fn loom_the_last_room() {
    explore(3, || {
        let list = Skiplist::with_capacity(96).unwrap();
        let writers = [3u8, 4].map(|key| {
            let list = Arc::clone(&list);
            thread::spawn(move || list.insert(&[key], 1, &[key; 24], &mut Hint::default()).is_ok())
        });
        let accepted = writers.map(|writer| writer.join().unwrap());
        assert!(accepted[0] != accepted[1], "there is room for one");
        assert_eq!(scan_len(&list), 1);
        assert_eq!(list.entry_count(), 1);
    });
}

fn scan_len(list: &Arc<Skiplist>) -> usize {
    let mut iter = list.iter();
    iter.seek_to_first().unwrap();
    let mut count = 0;
    while iter.valid() {
        count += 1;
        iter.next().unwrap();
    }
    count
}
