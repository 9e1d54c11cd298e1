//! What commands hold in memory of what they remove or move has a bound, which is lower in tests.

use super::{MAX_ADDED_BYTES, MAX_STORED_BYTES};
use crate::command_batch::{CommandBatch, Mode};
use crate::error::Error;
use crate::keyspace::Keyspace;
use crate::lists::End;
use crate::sorted_sets::{AddRule, Order, Range, ScoreEnd};
use std::sync::Arc;

/// Elements of [`name`] that are above the bound together, and not if they are half as many.
const COUNT: usize = MAX_STORED_BYTES / 70;

fn name(at: usize) -> Vec<u8> {
    format!("{at:060}").into_bytes()
}

fn with_space(test: impl FnOnce(&Arc<Keyspace>)) {
    let dir = tempfile::tempdir().unwrap();
    let space = Arc::new(Keyspace::open(dir.path(), terrace::Options::default()).unwrap());
    test(&space);
}

fn locked(space: &Arc<Keyspace>) -> CommandBatch {
    let mut batch = space.command_batch(Mode::Device);
    batch.lock(0, std::iter::once(&b"k"[..])).unwrap();
    batch
}

/// Whether it is refused, with nothing written.
fn is_refused<T>(batch: &CommandBatch, outcome: Result<T, Error>) -> bool {
    match outcome {
        Err(Error::TooLong(_)) => {
            assert!(batch.is_clean(), "something is written nonetheless");
            true
        }
        Err(error) => panic!("{error}"),
        Ok(_) => false,
    }
}

#[test]
fn what_is_removed_of_a_sorted_set_at_a_time_is_bounded() {
    with_space(|space| {
        let names: Vec<_> = (0..COUNT).map(name).collect();
        let fill = || {
            let mut batch = locked(space);
            let pairs = names.iter().enumerate().map(|(at, name)| (at as f64, &name[..]));
            batch.sorted_set_add(0, b"k", AddRule::default(), pairs).unwrap();
            batch.commit().unwrap();
        };
        let end = |score| ScoreEnd { score, excluded: false };
        let scores = |lower, upper| Range::Scores(end(lower), end(upper));
        let remove = |batch: &mut CommandBatch, range: &Range<'static>| {
            batch.sorted_set_remove_range(0, b"k", range)
        };
        fill();
        let mut batch = locked(space);
        let but_one = remove(&mut batch, &scores(1.0, 1e9));
        assert!(is_refused(&batch, but_one));
        let but_one = batch.sorted_set_pop(0, b"k", Order::Down, COUNT as u64 - 1);
        assert!(is_refused(&batch, but_one));
        // Half of it can be removed, and what is in order goes as one range.
        let upper = (COUNT / 2) as f64;
        assert_eq!(remove(&mut batch, &scores(1.0, upper)).unwrap(), COUNT as u64 / 2);
        let left: Vec<usize> = std::iter::once(0).chain(COUNT / 2 + 1..COUNT).collect();
        let mut seen = Vec::new();
        let set = batch.sorted_set(0, b"k").unwrap().unwrap();
        batch
            .sorted_set_each(0, &set, &Range::Ranks(0..=u64::MAX), Order::Up, |_, score| {
                seen.push(score as usize);
                Ok(true)
            })
            .unwrap();
        assert_eq!(seen, left);
        batch.commit().unwrap();
        // All of it is dropped without a look at it.
        for range in [scores(f64::NEG_INFINITY, f64::INFINITY), Range::Ranks(0..=u64::MAX)] {
            fill();
            let mut batch = locked(space);
            assert_eq!(remove(&mut batch, &range).unwrap(), COUNT as u64);
            assert!(batch.written_bytes() < 1000, "{} bytes", batch.written_bytes());
            assert_eq!(batch.key_type(0, b"k").unwrap(), None);
            batch.commit().unwrap();
            assert_eq!(locked(space).key_type(0, b"k").unwrap(), None);
        }
    });
}

#[test]
fn what_is_popped_of_a_set_at_a_time_is_bounded() {
    with_space(|space| {
        let names: Vec<_> = (0..COUNT).map(name).collect();
        let mut batch = locked(space);
        batch.set_add(0, b"k", names.iter().map(|name| &name[..])).unwrap();
        batch.commit().unwrap();
        let mut batch = locked(space);
        for count in [COUNT as u64 - 1, COUNT as u64, u64::MAX] {
            let popped = batch.set_pop(0, b"k", count);
            assert!(is_refused(&batch, popped));
        }
        assert_eq!(batch.set_pop(0, b"k", COUNT as u64 / 2).unwrap().len(), COUNT / 2);
    });
}

#[test]
fn what_is_moved_and_removed_of_a_list_at_a_time_is_bounded() {
    with_space(|space| {
        let (count, equal) = (3 * COUNT, name(0));
        let fill = |element: &dyn Fn(usize) -> Vec<u8>| {
            let elements: Vec<_> = (0..count).map(element).collect();
            let mut batch = locked(space);
            batch.clear_key(0, b"k").unwrap();
            let elements = elements.iter().map(|element| &element[..]);
            batch.list_push(0, b"k", End::Back, false, elements).unwrap();
            batch.commit().unwrap();
            locked(space)
        };
        let mut batch = fill(&name);
        let inserted = batch.list_insert(0, b"k", true, &name(count / 2), b"new");
        assert!(is_refused(&batch, inserted));
        let removed = batch.list_remove(0, b"k", 0, &name(count / 2));
        assert!(is_refused(&batch, removed));
        assert_eq!(batch.list_remove(0, b"k", 0, &name(COUNT / 2)).unwrap(), 1);
        let list = batch.list(0, b"k").unwrap().unwrap();
        assert_eq!(*batch.list_get(0, &list, COUNT as i64).unwrap().unwrap(), *name(COUNT + 1));
        drop(batch);
        // What only goes costs no memory, whatever there is of it.
        for end in [End::Front, End::Back] {
            for left in [0, 1] {
                let mut batch = fill(&name);
                let popped = batch.list_pop_each(0, b"k", end, (count - left) as u64, |_, _| false);
                assert_eq!(popped.unwrap(), Some((count - left) as u64));
                assert!(batch.written_bytes() < 1000, "{} bytes", batch.written_bytes());
                let list = batch.list(0, b"k").unwrap();
                assert_eq!(list.map_or(0, |list| list.count), left as u64);
                if let Some(list) = list {
                    let kept = name(if end == End::Front { count - 1 } else { 0 });
                    assert_eq!(*batch.list_get(0, &list, 0).unwrap().unwrap(), *kept);
                }
            }
        }
        let mut batch = fill(&|_| equal.clone());
        assert_eq!(batch.list_remove(0, b"k", 0, &equal).unwrap(), count as u64);
        assert!(batch.written_bytes() < 1000, "{} bytes", batch.written_bytes());
        batch.commit().unwrap();
        assert_eq!(locked(space).key_type(0, b"k").unwrap(), None);
    });
}

/// Small elements take many times their bytes.
#[test]
fn what_one_command_adds_is_bounded() {
    const MOST: usize = MAX_ADDED_BYTES / 90;
    with_space(|space| {
        let mut batch = locked(space);
        let many = |count: usize| std::iter::repeat_n(&b"x"[..], count);
        let pushed = batch.list_push(0, b"k", End::Back, false, many(MOST));
        assert!(is_refused(&batch, pushed));
        let added = batch.set_add(0, b"k", many(MOST));
        assert!(is_refused(&batch, added));
        let set = batch.hash_set(0, b"k", many(MOST).map(|field| (field, field)));
        assert!(is_refused(&batch, set));
        let pairs = |count: usize| many(count).map(|member| (1.0, member));
        let added = batch.sorted_set_add(0, b"k", AddRule::default(), pairs(MOST / 2));
        assert!(is_refused(&batch, added));
        let put = batch.put_many(0, many(MOST).map(|_| (&b"k"[..], &b"x"[..])));
        assert!(is_refused(&batch, put));
        let long = vec![b'x'; MAX_ADDED_BYTES];
        let pushed = batch.list_push(0, b"k", End::Back, false, std::iter::once(&long[..]));
        assert!(is_refused(&batch, pushed));
        assert_eq!(batch.set_add(0, b"k", many(MOST / 2)).unwrap(), 1);
        assert_eq!(batch.key_type(0, b"k").unwrap().map(|kind| kind.name()), Some("set"));
    });
}

#[test]
fn the_places_of_equal_elements_are_bounded() {
    const COUNT: usize = MAX_STORED_BYTES / size_of::<u64>() + 1;
    with_space(|space| {
        let mut batch = locked(space);
        let equal = std::iter::repeat_n(&b"e"[..], COUNT);
        batch.list_push(0, b"k", End::Back, false, equal).unwrap();
        batch.commit().unwrap();
        let mut batch = locked(space);
        let removed = batch.list_remove(0, b"k", 0, b"e");
        assert!(is_refused(&batch, removed));
        assert_eq!(batch.list_remove(0, b"k", 1 - COUNT as i64, b"e").unwrap(), COUNT as u64 - 1);
        assert_eq!(batch.list(0, b"k").unwrap().unwrap().count, 1);
    });
}
