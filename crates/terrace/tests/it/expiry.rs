//! Expiries that the caller sets and reads back, in every state of the store.

use crate::harness::{DIR, START_MS, key, small_options, stopped_clock};
use std::sync::Arc;
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{ColumnFamily, Db, Options, ReadOptions, WriteBatch};
use terrace_base::ManualClock;

const KEYS: u64 = 60;

/// Every second value is in the log.
fn options(sim: &SimVfs, clock: &ManualClock) -> Options {
    let mut options = small_options(Arc::new(sim.clone()), clock);
    options.default_family.value_separation_threshold = 100;
    options.advanced.segment_bytes = 4 << 10;
    options
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; if n.is_multiple_of(2) { 20 } else { 200 }]
}

/// Every third key does not expire, every third has passed already, the rest expire one after the
/// other.
fn expiry(n: u64) -> Option<u64> {
    match n % 3 {
        0 => None,
        1 => Some(START_MS - 1000 * (n % 2) - n),
        _ => Some(START_MS + 1000 * (n + 1)),
    }
}

fn check(family: &ColumnFamily, now_ms: u64) {
    let read = ReadOptions::default();
    for n in 0..KEYS {
        let there = expiry(n).is_none_or(|expiry| expiry > now_ms);
        let found = family.get_entry(key(n), &read).unwrap();
        let found = found.map(|found| (found.value.to_vec(), found.expires_at_ms));
        assert_eq!(found, there.then(|| (value(n), expiry(n))), "key {n} at {now_ms}");
        assert_eq!(family.get(key(n)).unwrap().is_some(), there, "key {n} at {now_ms}");
    }
    let wanted = (0..KEYS).filter(|n| expiry(*n).is_none_or(|expiry| expiry > now_ms));
    let mut wanted: Vec<_> = wanted.map(|n| (key(n), value(n), expiry(n))).collect();
    wanted.sort();
    let mut iter =
        family.iter_with(&ReadOptions { prefix: Some(key(0)[..1].to_vec()), ..read.clone() });
    let iter = iter.as_mut().unwrap();
    let entry =
        |iter: &terrace::Iter| (iter.key().to_vec(), iter.value().to_vec(), iter.expires_at_ms());
    iter.seek_to_first().unwrap();
    for wanted in &wanted {
        assert_eq!(entry(iter), *wanted, "at {now_ms}");
        iter.next().unwrap();
    }
    assert!(!iter.valid() && iter.expires_at_ms().is_none());
    iter.seek_to_last().unwrap();
    for wanted in wanted.iter().rev() {
        assert_eq!(entry(iter), *wanted, "backward, at {now_ms}");
        iter.prev().unwrap();
    }
    let in_memory = ReadOptions { in_memory: true, ..read };
    for n in 0..KEYS {
        match family.get_entry(key(n), &in_memory) {
            Ok(found) => {
                let there = expiry(n).is_none_or(|expiry| expiry > now_ms);
                assert_eq!(found.map(|f| f.expires_at_ms), there.then(|| expiry(n)));
            }
            Err(error) => assert!(matches!(error, terrace::Error::NotInMemory), "{error}"),
        }
    }
}

fn fill(db: &Db, family: &ColumnFamily) {
    let mut batch = WriteBatch::new();
    for n in 0..KEYS {
        match (expiry(n), family.name()) {
            (None, _) => batch.put_cf(family, key(n), value(n)),
            (Some(at), "default") => batch.put_until(key(n), value(n), at),
            (Some(at), _) => batch.put_until_cf(family, key(n), value(n), at),
        }
    }
    // Between times to live and other operations, each keeps its own expiry.
    batch.put_with_ttl_cf(family, b"ttl", value(1), Duration::from_millis(5000));
    batch.delete_cf(family, b"nothing");
    db.write(batch).unwrap();
}

fn in_every_state(name: &str) {
    let (sim, clock) = (SimVfs::new(7), stopped_clock());
    let open = |sim: &SimVfs| {
        let db = Db::open(DIR, options(sim, &clock)).unwrap();
        let family = db.column_family(name).unwrap();
        (db, family)
    };
    let (db, family) = open(&sim);
    fill(&db, &family);
    let ttl = family.get_entry(b"ttl", &ReadOptions::default()).unwrap().unwrap();
    assert_eq!(ttl.expires_at_ms, Some(START_MS + 5000));
    check(&family, START_MS);
    // From the log, which only the kernel has.
    let killed = sim.kill_image();
    check(&open(&killed).1, START_MS);
    db.flush().unwrap();
    check(&family, START_MS);
    clock.advance(20_000);
    check(&family, START_MS + 20_000);
    family.compact_range::<&[u8]>(..).unwrap();
    check(&family, START_MS + 20_000);
    db.collect_garbage(0.0).unwrap();
    check(&family, START_MS + 20_000);
    drop(family);
    db.close().unwrap();
    let (db, family) = open(&sim);
    check(&family, START_MS + 20_000);
    clock.advance(1000 * KEYS);
    check(&family, START_MS + 20_000 + 1000 * KEYS);
    db.compact_range::<&[u8]>(..).unwrap();
    assert!(family.get(b"ttl").unwrap().is_none());
    check(&family, START_MS + 20_000 + 1000 * KEYS);
}

#[test]
fn an_expiry_is_kept_to_the_millisecond_in_every_state_of_the_store() {
    in_every_state("default");
}

#[test]
fn so_it_is_in_another_family() {
    in_every_state(crate::model::FAMILIES[1]);
}

#[test]
fn the_last_millisecond_belongs_to_the_key() {
    let (sim, clock) = (SimVfs::new(8), stopped_clock());
    let db = Db::open(DIR, options(&sim, &clock)).unwrap();
    let mut batch = WriteBatch::new();
    batch.put_until(b"k", b"v", START_MS + 5);
    batch.put_until(b"never", b"v", 0);
    batch.put_until(b"always", b"v", u64::MAX);
    db.write(batch).unwrap();
    clock.advance(4);
    assert!(db.get(b"k").unwrap().is_some());
    clock.advance(1);
    assert!(db.get(b"k").unwrap().is_none());
    assert!(db.get(b"never").unwrap().is_none());
    let always = db.get_entry(b"always", &ReadOptions::default()).unwrap().unwrap();
    assert_eq!((&always.value[..], always.expires_at_ms), (&b"v"[..], Some(u64::MAX)));
}
