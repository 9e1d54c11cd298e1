//! Concurrent inserts and reads: nothing lost, nothing out of order, at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_base::{InternalIter, Rng, SplitMix64};
use terrace_skiplist::{Entry, Hint, Skiplist};

const WRITERS: u64 = 3;
const COUNT: u64 = if cfg!(miri) { 40 } else { 20_000 };

/// Values repeat the key and trailer, so that a torn or misplaced entry shows.
fn value_of(key: &[u8], trailer: u64) -> Vec<u8> {
    [key, &trailer.to_le_bytes()].concat()
}

fn insert_all(list: &Skiplist, keys: &[(Vec<u8>, u64)], hint: &mut Hint) {
    if let [(key, trailer)] = keys {
        return list.insert(key, *trailer, &value_of(key, *trailer), hint).unwrap();
    }
    let entries: Vec<Entry<'_, _>> = keys
        .iter()
        .map(|(user_key, trailer)| {
            let value = value_of(user_key, *trailer);
            Entry { user_key, trailer: *trailer, value }
        })
        .collect();
    assert_eq!(list.insert_all(&entries, hint), keys.len());
}

/// Reads forwards once: strictly ascending entries, each whole. Returns their number.
fn read_through(list: &Arc<Skiplist>) -> u64 {
    let mut iter = list.iter();
    iter.seek_to_first().unwrap();
    let mut last: Option<(Vec<u8>, u64)> = None;
    let mut count = 0;
    while iter.valid() {
        let (key, trailer) = (iter.user_key(), iter.trailer());
        assert_eq!(iter.value(), value_of(key, trailer));
        if let Some((last_key, last_trailer)) = &last {
            assert!((last_key.as_slice(), !last_trailer) < (key, !trailer));
        }
        last = Some((key.to_vec(), trailer));
        count += 1;
        iter.next().unwrap();
    }
    count
}

/// Runs `WRITERS` writers, the keys of each given by `key(writer, n)`, beside a scanning reader and
/// one that looks up what writers have announced; then checks that everything is there. The last
/// writer inserts one by one, the others in batches, every other one as if nothing was known.
fn run(key: impl Fn(u64, u64) -> (Vec<u8>, u64) + Sync, expected: u64) {
    let list = Skiplist::with_capacity(64 << 20).unwrap();
    let done = AtomicBool::new(false);
    let progress: [AtomicU64; WRITERS as usize] = Default::default();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (list, key, progress) = (&list, &key, &progress);
                scope.spawn(move || {
                    let mut hint = Hint::default();
                    let batch = if writer == WRITERS - 1 { 1 } else { 20 };
                    for n in (0..COUNT).step_by(batch) {
                        let keys: Vec<_> = (n..COUNT).take(batch).map(|n| key(writer, n)).collect();
                        insert_all(list, &keys, &mut hint);
                        if batch > 1 && n % 40 == 0 {
                            hint = Hint::default();
                        }
                        progress[writer as usize].store(n + keys.len() as u64, Ordering::Release);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Acquire) {
                let now = read_through(&list);
                assert!(now >= seen, "an entry vanished");
                seen = now;
            }
        });
        scope.spawn(|| {
            let mut rng = SplitMix64::new(5);
            let mut iter = list.iter();
            while !done.load(Ordering::Acquire) {
                let writer = rng.below(WRITERS);
                let written = progress[writer as usize].load(Ordering::Acquire);
                if written == 0 {
                    continue;
                }
                let (key, trailer) = key(writer, rng.below(written));
                let found = list.get(&key, trailer);
                assert_eq!(found, Some((trailer, value_of(&key, trailer).as_slice())));
                iter.seek_before(&key, trailer).unwrap();
                if iter.valid() {
                    assert!((iter.user_key(), !iter.trailer()) < (key.as_slice(), !trailer));
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert!(list.is_ordered());
    assert_eq!(read_through(&list), expected);
    assert_eq!(list.entry_count() as u64, expected);
    for writer in 0..WRITERS {
        for n in 0..COUNT {
            let (key, trailer) = key(writer, n);
            assert!(list.get(&key, trailer).is_some_and(|(found, _)| found == trailer));
        }
    }
}

#[test]
fn disjoint_ranges() {
    let key = |writer, n| (format!("{writer}{n:010}").into_bytes(), 7);
    run(key, WRITERS * COUNT);
}

#[test]
fn interleaved_keys() {
    let key = |writer, n| (format!("{:015}", n * WRITERS + writer).into_bytes(), 7);
    run(key, WRITERS * COUNT);
}

#[test]
fn random_keys_in_many_versions() {
    let key = |writer: u64, n: u64| {
        let key = (n * WRITERS + writer).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
        (key.to_be_bytes().to_vec(), n * WRITERS + writer)
    };
    run(key, WRITERS * COUNT);
}

/// All writers write the same few keys, each in its own versions.
#[test]
fn few_keys_in_many_versions() {
    let key = |writer: u64, n: u64| ((n % 3).to_be_bytes().to_vec(), n * WRITERS + writer);
    run(key, WRITERS * COUNT);
}

/// All writers insert the same entries: each of them is there once.
#[test]
fn the_same_entries() {
    let key = |_, n: u64| (format!("user{}", n.wrapping_mul(7919) % COUNT).into_bytes(), 3);
    run(key, COUNT);
}

/// Descending below and ascending above one place, with hints that other writers make stale.
#[test]
fn crowding_one_place() {
    let key = |writer: u64, n: u64| {
        let at = [1 << 40, (1 << 40) + n, (1 << 40) - n][writer as usize];
        (u64::to_be_bytes(at).to_vec(), n * WRITERS + writer)
    };
    run(key, WRITERS * COUNT);
}

/// Filling an arena together: what was accepted is there, and the arena is full exactly.
#[test]
fn a_race_for_the_last_room() {
    let list = Skiplist::with_capacity(200_000).unwrap();
    let accepted: u64 = std::thread::scope(|scope| {
        let fill = |writer: u64| {
            let mut hint = Hint::default();
            (0..)
                .take_while(|n| {
                    let key = format!("{n:08}{writer}").into_bytes();
                    list.insert(&key, *n, &value_of(&key, *n), &mut hint).is_ok()
                })
                .count() as u64
        };
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || fill(n))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(read_through(&list), accepted);
    assert_eq!(list.entry_count() as u64, accepted);
    assert!(list.allocated_bytes() <= list.capacity_bytes());
}
