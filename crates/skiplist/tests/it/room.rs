//! Arena accounting, and what happens when it is full.

use terrace_base::InternalIter;
use terrace_skiplist::{Entry, Full, Hint, Skiplist};

#[test]
fn what_an_entry_takes_stays_below_its_bound() {
    let list = Skiplist::with_capacity(4 << 20).unwrap();
    let mut hint = Hint::default();
    let mut before = list.allocated_bytes();
    let mut known = std::collections::HashSet::new();
    for n in 0..2_000usize {
        let key = vec![n as u8; n % 40];
        let value = vec![1; n % 101];
        list.insert(&key, n as u64, &value, &mut hint).unwrap();
        let taken = list.allocated_bytes() - before;
        let least = value.len() + 16;
        if known.insert(key.clone()) {
            assert!(taken >= key.len() + least + 16);
        } else {
            assert!((least + 8..least + 16).contains(&taken), "the key is there: {taken}");
        }
        assert!(taken <= Skiplist::entry_upper_bound(key.len(), value.len()));
        before += taken;
    }
    assert!(list.allocated_bytes() <= list.resident_bytes());
    assert!(list.resident_bytes() < list.allocated_bytes() + (2 << 20));
    assert_eq!(list.capacity_bytes(), 4 << 20);
}

#[test]
fn a_full_arena_refuses_and_stays_as_it_was() {
    let list = Skiplist::with_capacity(10_000).unwrap();
    let mut hint = Hint::default();
    let mut count = 0;
    while list.insert(&[count as u8, 1], count, &[7; 50], &mut hint).is_ok() {
        count += 1;
    }
    let allocated = list.allocated_bytes();
    assert!(allocated + Skiplist::entry_upper_bound(2, 50) > 10_000 && allocated <= 10_000);
    // Too large by far, so that no tower is low enough; in several places.
    for key in [b"".as_slice(), b"\x05\x02", b"\xff\xff\xff"] {
        assert_eq!(list.insert(key, 0, &[0; 10_000], &mut hint), Err(Full));
        assert_eq!(list.get(key, u64::MAX), None);
    }
    assert_eq!(list.allocated_bytes(), allocated);
    assert_eq!(list.entry_count() as u64, count);
    let mut iter = list.iter();
    iter.seek_to_first().unwrap();
    for n in 0..count {
        assert_eq!((iter.user_key(), iter.trailer()), ([n as u8, 1].as_slice(), n));
        iter.next().unwrap();
    }
    assert!(!iter.valid());
    // Less may still fit, to the last word.
    while list.insert(b"small", list.entry_count() as u64, b"", &mut hint).is_ok() {}
    assert!(list.allocated_bytes() + 40 > 10_000);
}

/// Towers depend on the place alone, so that the same entries fit one by one and together.
#[test]
fn a_batch_enters_as_far_as_there_is_room() {
    let keys: Vec<[u8; 2]> = (0..40u8).map(|n| [n.wrapping_mul(101), n]).collect();
    let value = [7; 20];
    let mut counts = std::collections::BTreeSet::new();
    for bytes in (0..4_000).step_by(8) {
        let singly = Skiplist::with_capacity(bytes).unwrap();
        let mut hint = Hint::default();
        let insert = |key: &&[u8; 2]| singly.insert(*key, 1, &value, &mut hint).is_ok();
        let fits = keys.iter().take_while(insert).count();

        let together = Skiplist::with_capacity(bytes).unwrap();
        let mut hint = Hint::default();
        let entries: Vec<Entry<'_, _>> =
            keys.iter().map(|user_key| Entry { user_key, trailer: 1, value }).collect();
        assert_eq!(together.insert_all(&entries, &mut hint), fits);
        assert_eq!(together.allocated_bytes(), singly.allocated_bytes());
        assert_eq!(together.entry_count(), fits);
        assert!(together.is_ordered());
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(together.get(key, 1).is_some(), n < fits);
        }
        // The hint is still one: what has no key and no value may fit.
        let _ = together.insert_all(&[Entry { user_key: b"", trailer: 1, value: b"" }], &mut hint);
        assert!(together.is_ordered());
        counts.insert(fits);
    }
    assert_eq!(counts, (0..=keys.len()).collect(), "each place was the first without room");
}

#[test]
fn no_room_at_all_is_still_a_list() {
    let list = Skiplist::with_capacity(0).unwrap();
    assert_eq!(list.insert(b"", 0, b"", &mut Hint::default()), Err(Full));
    assert!(list.is_empty());
    assert_eq!(list.get(b"", 0), None);
}

#[test]
fn an_arena_too_large_to_address_is_refused() {
    let error = Skiplist::with_capacity((8 << 30) + 1).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_cursor_keeps_the_list_alive() {
    let list = Skiplist::with_capacity(1 << 16).unwrap();
    list.insert(b"key", 1, b"value", &mut Hint::default()).unwrap();
    let mut iter = list.iter();
    drop(list);
    iter.seek(b"key", 1).unwrap();
    assert_eq!(iter.value(), b"value");
}

/// Memory is committed as the arena fills, not when it is reserved.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_reserved_arena_costs_nothing_until_used() {
    let resident_kib = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    let before = resident_kib();
    let lists: Vec<_> = (0..16).map(|_| Skiplist::with_capacity(1 << 30).unwrap()).collect();
    for list in &lists {
        list.insert(b"key", 1, b"value", &mut Hint::default()).unwrap();
        assert_eq!(list.resident_bytes(), 4 << 10);
    }
    // Other tests run meanwhile: leave them a lot, and still far less than 16 huge pages.
    assert!(resident_kib() < before + (28 << 10));
}

#[test]
fn the_index_takes_as_much_as_its_keys_need() {
    let list = Skiplist::with_capacity(64 << 20).unwrap();
    assert!(list.index_bytes() < 1_000);
    let mut hint = Hint::default();
    for n in 0..100_000_u64 {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        list.insert(&key, 1, b"", &mut hint).unwrap();
        list.insert(&key, 2, b"again", &mut hint).unwrap();
        if n.is_power_of_two() && n > 1_000 {
            let bytes = list.index_bytes() / n as usize;
            assert!((14..24).contains(&bytes), "{bytes} bytes for each of {n} keys");
        }
    }
}

/// Memory that is touched ahead holds what is written there meanwhile and later.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn memory_is_given_out_before_it_is_needed() {
    const ENTRIES: u64 = 60_000;
    let list = Skiplist::with_capacity(16 << 20).unwrap();
    let (mut hint, mut pieces) = (Hint::default(), 0);
    assert!(list.memory_ahead().is_none(), "an empty list stays small");
    let value_of = |n: u64| [n as u8; 200];
    for n in 0..ENTRIES {
        list.insert(&n.to_be_bytes(), 1, &value_of(n), &mut hint).unwrap();
        if let Some(ahead) = list.memory_ahead() {
            ahead.touch();
            pieces += 1;
        }
    }
    // All of the arena but its beginning, which has small pages. The index is still as small.
    assert!(list.allocated_bytes() > 14 << 20);
    assert_eq!(pieces, 7);
    for n in 0..ENTRIES {
        assert_eq!(list.get(&n.to_be_bytes(), u64::MAX).unwrap().1, value_of(n));
    }
}
