//! Pages of keys in their order, between many keys that are not shown.

use super::harness::{PLACEMENT, START_MS, locked, roomy_store, small_options, stopped_clock};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace::Compression;
use terrace::vfs::SimVfs;
use terrace_keyspace::{ExpireIf, InParts, KeyPage, KeyRange, KeyScan, Keyspace, Mode, PutOptions};

const KEYS: usize = 3000;
const LIMIT: usize = 7;

/// All are in two slots; each slot has keys of every kind.
fn key(n: usize) -> Vec<u8> {
    format!("k{n:04}{{{}}}", if n.is_multiple_of(2) { "a" } else { "b" }).into_bytes()
}

fn is_live(n: usize) -> bool {
    n.is_multiple_of(99)
}

/// A store of which nothing is flushed, so that nothing is merged away: a few live keys between sets that have expired, and
/// strings that have expired or were deleted.
fn store() -> Arc<Keyspace> {
    let clock = stopped_clock();
    let mut options = small_options(&SimVfs::new(1), &clock);
    options.memory_budget = 64 << 20;
    options.advanced.memtable_bytes = 0;
    let space = Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap();
    let mut batch = space.command_batch(Mode::Device);
    batch.next_command();
    batch.lock_everything();
    for n in 0..KEYS {
        let written = match n % 3 {
            0 if !is_live(n) => batch.set_add(0, &key(n), [&b"m"[..]].into_iter()).map(drop),
            _ => batch.put(0, &key(n), b"v", &PutOptions::default()).map(drop),
        };
        written.unwrap();
        if !is_live(n) && n % 3 != 1 {
            batch.expire(0, &key(n), START_MS + 10, ExpireIf::default()).unwrap();
        }
    }
    batch.commit().unwrap();
    batch.next_command();
    batch.lock_everything();
    for n in (0..KEYS).filter(|n| !is_live(*n) && n % 3 == 1) {
        batch.delete(0, [&key(n)[..]].into_iter()).unwrap();
    }
    batch.commit().unwrap();
    drop(batch);
    clock.advance(20);
    space
}

fn pages(space: &Arc<Keyspace>, most_steps: u64) -> Vec<KeyPage> {
    let (mut pages, mut start): (Vec<KeyPage>, Vec<u8>) = (Vec::new(), Vec::new());
    loop {
        let mut batch = space.command_batch(Mode::Device);
        batch.next_command();
        let range = KeyRange { start: &start, end: None, prefix: b"k" };
        let page = batch.page_of_keys(0, range, LIMIT, most_steps).unwrap();
        let next = page.next.clone();
        pages.push(page);
        match next {
            Some(next) => {
                assert!(next >= start, "it does not go back");
                start = [&next[..], &[0]].concat();
            }
            None => return pages,
        }
    }
}

#[test]
fn pages_have_all_keys_however_few_steps_one_may_take() {
    let space = store();
    let live: Vec<Vec<u8>> = (0..KEYS).filter(|n| is_live(*n)).map(key).collect();
    for (most_steps, is_short) in [(u64::MAX, false), (200, true), (0, true)] {
        let pages = pages(&space, most_steps);
        let keys: Vec<Vec<u8>> =
            pages.iter().flat_map(|page| &page.keys).map(|(key, _)| key.clone()).collect();
        assert_eq!(keys, live, "{most_steps}");
        assert!(pages.iter().all(|page| page.keys.len() <= LIMIT));
        let full = live.len().div_ceil(LIMIT);
        assert_eq!(pages.len() > full, is_short, "{} pages with {most_steps}", pages.len());
        // Each gets past many keys in each slot.
        assert!(pages.len() <= full + KEYS / 32, "{} pages with {most_steps}", pages.len());
    }
}

#[test]
fn a_scan_has_all_keys_however_few_steps_a_page_of_it_may_take() {
    let space = store();
    let live: Vec<Vec<u8>> = (0..KEYS).filter(|n| is_live(*n)).map(key).collect();
    for (most_steps, is_short) in [(u64::MAX, false), (200, true), (0, true)] {
        let (mut keys, mut pages, mut cursor) = (Vec::new(), 0, 0);
        loop {
            let mut batch = space.command_batch(Mode::Device);
            batch.next_command();
            let scan = KeyScan { cursor, prefix: b"k", kind: None, count: LIMIT as u64 };
            let page = batch.scan_keys_within(0, &scan, most_steps, |_| true).unwrap();
            assert!(page.items.len() <= LIMIT);
            keys.extend(page.items);
            (cursor, pages) = (page.cursor, pages + 1);
            if cursor == 0 {
                break;
            }
        }
        keys.sort();
        assert_eq!(keys, live, "{most_steps}");
        let full = live.len().div_ceil(LIMIT);
        assert_eq!(pages > full, is_short, "{pages} pages with {most_steps}");
        assert!(pages <= full + KEYS / 32, "{pages} pages with {most_steps}");
    }
}

#[test]
fn a_page_of_a_scan_ends_early_where_keys_are_long() {
    let space = roomy_store(Compression::None);
    let long: BTreeSet<Vec<u8>> = (0..100).map(|n| [key(n), vec![b'.'; 60_000]].concat()).collect();
    for key in &long {
        let mut batch = locked(&space, &[&key[..]]);
        batch.put(0, key, b"v", &PutOptions::default()).unwrap();
        batch.commit().unwrap();
    }
    let (mut keys, mut pages, mut cursor) = (BTreeSet::new(), 0, 0);
    loop {
        let mut batch = space.command_batch(Mode::Device);
        batch.next_command();
        let scan = KeyScan { cursor, prefix: b"k", kind: None, count: 1000 };
        let page = batch.scan_keys(0, &scan, |_| true).unwrap();
        // Of 4 MiB together.
        assert!(page.items.len() <= 70, "{} keys", page.items.len());
        keys.extend(page.items);
        (cursor, pages) = (page.cursor, pages + 1);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!((keys, pages), (long, 2));
}

/// A server that is to end, or a client that was killed, is not held up by keys that are not shown.
#[test]
fn a_walk_asks_whether_it_goes_on_where_no_key_is_shown() {
    let space = store();
    let live: Vec<Vec<u8>> = (0..KEYS).filter(|n| is_live(*n)).map(key).collect();
    for (most_asked, ends) in [(usize::MAX, false), (3, true)] {
        let asked = Cell::new(0);
        let goes_on = || {
            asked.set(asked.get() + 1);
            asked.get() < most_asked
        };
        let mut batch = space.command_batch(Mode::Device);
        batch.next_command();
        let range = KeyRange { prefix: b"k", ..KeyRange::default() };
        let (mut keys, parts) = (Vec::new(), InParts { steps: 50, goes_on: &goes_on });
        let walked = batch.walk_keys_while(0, range, false, parts, |seen| {
            keys.push(seen.key.to_vec());
            true
        });
        walked.unwrap();
        assert!(keys.iter().all(|key| live.contains(key)));
        assert_eq!(keys.len() < live.len(), ends);
        match ends {
            true => assert!(asked.get() < 10, "asked {} times", asked.get()),
            false => assert!(asked.get() > 10, "asked {} times", asked.get()),
        }
    }
}
