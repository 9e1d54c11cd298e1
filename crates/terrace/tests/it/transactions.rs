//! Transactions and read sets: what is a conflict and what is not, in memory and in SSTs, and that
//! histories of many threads could have happened one after the other.

use crate::harness::{DIR, Store, effort, over_seeds, small_options, stopped_clock};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{
    CfOptions, CompactionStyle, Db, Error, Options, ReadOptions, ReadSet, Result, Snapshot,
    SyncMode, Transaction, WriteBatch, WriteOptions,
};
use terrace_base::rng::{Rng, SplitMix64};

pub fn open() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options { memory_budget: 8 << 20, ..Options::default() };
    options.advanced.memtable_bytes = 64 << 10;
    let db = Db::open(dir.path(), options).unwrap();
    (dir, db)
}

/// Runs `body` in transactions until one commits; gives its result and how many did not.
fn retried<T>(db: &Db, mut body: impl FnMut(&mut Transaction) -> Result<T>) -> (T, u64) {
    for conflicts in 0.. {
        let mut transaction = db.transaction();
        let value = body(&mut transaction).unwrap();
        match transaction.commit() {
            Ok(()) => return (value, conflicts),
            Err(Error::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

fn number(value: Option<impl AsRef<[u8]>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.as_ref().try_into().unwrap()))
}

#[test]
fn a_transaction_reads_one_moment_and_its_own_writes_and_commits_as_a_whole() {
    let (_dir, db) = open();
    let users = db.create_column_family("users", CfOptions::default()).unwrap();
    db.put(b"kept", b"old").unwrap();
    users.put(b"gone", b"old").unwrap();
    let large = vec![9; 5000];
    let mut transaction = db.transaction();
    db.put(b"later", b"unseen").unwrap();
    assert_eq!(transaction.get(b"kept").unwrap().as_deref(), Some(&b"old"[..]));
    assert!(transaction.get_untracked(b"later").unwrap().is_none());
    transaction.put(b"kept", b"new");
    transaction.put(b"empty", b"");
    transaction.put_cf(&users, b"large", &large);
    transaction.delete_cf(&users, b"gone");
    transaction.put_with_ttl_cf(&users, b"ttl", b"for an hour", Duration::from_secs(3600));
    transaction.put_with_ttl(b"large ttl", &large, Duration::from_secs(3600));
    assert_eq!(transaction.get(b"kept").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(transaction.get(b"empty").unwrap().as_deref(), Some(&b""[..]));
    assert!(transaction.get_cf(&users, b"large").unwrap().as_deref() == Some(&large[..]));
    assert!(transaction.get(b"large ttl").unwrap().as_deref() == Some(&large[..]));
    assert!(transaction.get_cf(&users, b"gone").unwrap().is_none());
    let ttl = transaction.get_cf(&users, b"ttl").unwrap();
    assert_eq!(ttl.as_deref(), Some(&b"for an hour"[..]));
    // Own writes need no check: of all these only the first read does.
    assert_eq!((transaction.read_set().len(), transaction.len()), (1, 6));
    assert_eq!(db.get(b"kept").unwrap().as_deref(), Some(&b"old"[..]));
    assert!(users.get(b"gone").unwrap().is_some());
    transaction.commit().unwrap();
    assert_eq!(db.get(b"kept").unwrap().as_deref(), Some(&b"new"[..]));
    assert!(users.get(b"large").unwrap().as_deref() == Some(&large[..]));
    assert!(db.get(b"large ttl").unwrap().as_deref() == Some(&large[..]));
    assert!(users.get(b"gone").unwrap().is_none());

    let mut dropped = db.transaction();
    dropped.put(b"kept", b"never");
    drop(dropped);
    assert_eq!(db.get(b"kept").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(db.metrics().snapshots, 0);
}

#[test]
fn save_points_take_back_writes_of_all_kinds_but_no_reads() {
    let (_dir, db) = open();
    let users = db.create_column_family("users", CfOptions::default()).unwrap();
    let large = vec![1; 3000];
    let larger = vec![2; 4000];
    db.put(b"a", b"old").unwrap();
    db.put(b"read later", b"old").unwrap();
    let mut transaction = db.transaction();
    transaction.put(b"a", &large);
    let point = transaction.save_point();
    for _ in 0..2 {
        transaction.put(b"a", &larger);
        transaction.delete(b"a");
        transaction.put_with_ttl(b"a", &larger, Duration::from_secs(60));
        transaction.put_cf(&users, b"a", b"family");
        let inner = transaction.save_point();
        transaction.put(b"b", &larger);
        transaction.put(b"read later", b"new");
        transaction.roll_back_to(inner);
        assert!(transaction.get(b"b").unwrap().is_none());
        assert!(transaction.get(b"a").unwrap().as_deref() == Some(&larger[..]));
        transaction.roll_back_to(point);
        assert!(transaction.get(b"a").unwrap().as_deref() == Some(&large[..]));
        assert!(transaction.get_cf(&users, b"a").unwrap().is_none());
    }
    assert_eq!(transaction.get(b"read later").unwrap().as_deref(), Some(&b"old"[..]));
    transaction.commit().unwrap();
    assert!(db.get(b"a").unwrap().as_deref() == Some(&large[..]));
    assert!(users.get(b"a").unwrap().is_none());

    // What was read stays read.
    let mut transaction = db.transaction();
    let point = transaction.save_point();
    transaction.get(b"a").unwrap();
    transaction.roll_back_to(point);
    transaction.put(b"c", b"");
    db.put(b"a", b"new").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Conflict)));

    // A save point of another transaction would take back something else.
    let mut transaction = db.transaction();
    transaction.put(b"d", b"");
    transaction.roll_back_to(db.transaction().save_point());
    assert!(matches!(transaction.commit(), Err(Error::InvalidArgument(_))));
    assert!(db.get(b"d").unwrap().is_none());
}

#[test]
fn only_a_newer_version_of_a_key_that_was_read_is_a_conflict() {
    let (_dir, db) = open();
    let users = db.create_column_family("users", CfOptions::default()).unwrap();
    let write_k = |what: &dyn Fn()| {
        let mut transaction = db.transaction();
        transaction.get(b"k").unwrap();
        transaction.get_untracked(b"untracked").unwrap();
        transaction.put(b"blind", b"mine");
        what();
        transaction.commit()
    };
    let conflicting: [&dyn Fn(); 5] = [
        &|| db.put(b"k", b"1").unwrap(),
        &|| db.put(b"k", b"1").unwrap(),
        &|| db.put_with_ttl(b"k", b"1", Duration::ZERO).unwrap(),
        &|| db.delete(b"k").unwrap(),
        &|| db.delete_range(b"j", b"l").unwrap(),
    ];
    for (case, what) in conflicting.into_iter().enumerate() {
        for settle in 0..3 {
            let outcome = write_k(&|| {
                what();
                if settle > 0 {
                    db.flush().unwrap();
                }
                if settle > 1 {
                    db.compact_range::<&[u8]>(..).unwrap();
                }
            });
            assert!(matches!(outcome, Err(Error::Conflict)), "{case} {settle} {outcome:?}");
        }
    }
    assert!(db.get(b"blind").unwrap().is_none());
    let harmless: [&dyn Fn(); 6] = [
        &|| db.put(b"untracked", b"1").unwrap(),
        &|| db.put(b"blind", b"theirs").unwrap(),
        &|| users.put(b"k", b"1").unwrap(),
        &|| db.delete_range(b"k0", b"l").unwrap(),
        &|| db.delete_range(b"a", b"k").unwrap(),
        &|| db.flush().unwrap(),
    ];
    for (case, what) in harmless.into_iter().enumerate() {
        assert!(write_k(what).is_ok(), "{case}");
        assert_eq!(db.get(b"blind").unwrap().as_deref(), Some(&b"mine"[..]));
    }
    let m = db.metrics();
    assert_eq!(m.conflicts, 15);
}

#[test]
fn the_end_of_a_time_to_live_is_no_conflict() {
    let clock = stopped_clock();
    let db = Db::open(DIR, small_options(Arc::new(SimVfs::new(1)), &clock)).unwrap();
    db.put_with_ttl(b"session", b"open", Duration::from_millis(500)).unwrap();
    let mut transaction = db.transaction();
    assert!(transaction.get(b"session").unwrap().is_some());
    transaction.put_with_ttl(b"token", b"1", Duration::from_millis(500));
    clock.advance(400);
    // The time to live counts from the commit.
    transaction.commit().unwrap();
    clock.advance(400);
    assert!(db.get(b"token").unwrap().is_some());
    let mut transaction = db.transaction();
    assert!(transaction.get(b"token").unwrap().is_some());
    transaction.put(b"seen", b"");
    clock.advance(400);
    assert!(db.get(b"token").unwrap().is_none());
    // Expired entries become tombstones with the numbers they had.
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn write_skew_is_refused() {
    let (_dir, db) = open();
    db.put(b"alice on call", b"1").unwrap();
    db.put(b"bob on call", b"1").unwrap();
    let sign_off = |who: &[u8]| {
        let mut transaction = db.transaction();
        let on_call = [b"alice on call".as_slice(), b"bob on call"]
            .iter()
            .filter(|who| transaction.get(who).unwrap().is_some())
            .count();
        assert_eq!(on_call, 2);
        transaction.delete(who);
        transaction
    };
    let (alice, bob) = (sign_off(b"alice on call"), sign_off(b"bob on call"));
    alice.commit().unwrap();
    assert!(matches!(bob.commit(), Err(Error::Conflict)));
    assert!(db.get(b"bob on call").unwrap().is_some());
}

#[test]
fn a_read_set_checks_from_its_moment_or_from_that_of_a_key() {
    let (_dir, db) = open();
    let cf = db.default_family();
    let mut reads = db.read_set();
    db.put(b"early", b"").unwrap();
    reads.watch_from_now(&cf, b"early");
    assert_eq!((reads.len(), reads.is_empty()), (1, false));
    assert!(db.is_unchanged(&reads).unwrap());
    // Nothing is written, only asked.
    db.write_if_unchanged(WriteBatch::new(), &reads, &WriteOptions::default()).unwrap();
    let copy = reads.clone();
    reads.watch(&cf, b"early");
    reads.watch_from_now(&cf, b"early");
    assert!(!db.is_unchanged(&reads).unwrap() && db.is_unchanged(&copy).unwrap());
    let asked = db.write_if_unchanged(WriteBatch::new(), &reads, &WriteOptions::default());
    assert!(matches!(asked, Err(Error::Conflict)));
    db.delete(b"early").unwrap();
    assert!(!db.is_unchanged(&copy).unwrap());
    // Reads at its snapshot are what it is about.
    let snapshot: Snapshot = reads.snapshot().clone();
    let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    assert!(db.get_with(b"early", &then).unwrap().is_none());
}

#[test]
fn a_key_of_a_read_set_is_asked_alone_and_watched_anew() {
    let (_dir, db) = open();
    let cf = db.default_family();
    let mut reads = db.read_set();
    reads.watch(&cf, b"a");
    reads.watch(&cf, b"b");
    let is_unchanged =
        |reads: &ReadSet, key: &[u8]| db.is_unchanged(&reads.of_key(&cf, key)).unwrap();
    db.put(b"a", b"").unwrap();
    assert!(!is_unchanged(&reads, b"a") && is_unchanged(&reads, b"b"));
    reads.watch_anew(&cf, b"a");
    assert!(db.is_unchanged(&reads).unwrap());
    db.put(b"b", b"").unwrap();
    assert!(is_unchanged(&reads, b"a") && !is_unchanged(&reads, b"b"));
    db.put(b"a", b"").unwrap();
    assert!(!is_unchanged(&reads, b"a"));
    assert!(reads.of_key(&cf, b"c").is_empty() && reads.len() == 2);
}

#[test]
fn what_cannot_be_checked_is_an_error_and_a_dropped_family_a_conflict() {
    let (dir, db) = open();
    let (_other_dir, other) = open();
    let batch = || {
        let mut batch = WriteBatch::new();
        batch.put(b"x", b"");
        batch
    };
    let write = |reads: &ReadSet| db.write_if_unchanged(batch(), reads, &WriteOptions::default());
    assert!(matches!(write(&other.read_set()), Err(Error::InvalidArgument(_))));
    let mut mixed = db.read_set();
    mixed.watch(&other.default_family(), b"k");
    assert!(matches!(write(&mixed), Err(Error::InvalidArgument(_))));
    assert!(db.get(b"x").unwrap().is_none());

    let family = db.create_column_family("short", CfOptions::default()).unwrap();
    let mut reads = db.read_set();
    reads.watch(&family, b"k");
    let mut to_dropped = WriteBatch::new();
    to_dropped.put_cf(&family, b"k", b"");
    db.drop_column_family("short").unwrap();
    assert!(!db.is_unchanged(&reads).unwrap());
    assert!(matches!(write(&reads), Err(Error::Conflict)));
    let late = db.write_if_unchanged(to_dropped, &db.read_set(), &WriteOptions::default());
    assert!(matches!(late, Err(Error::NoSuchFamily(_))));

    let mut refused = db.transaction();
    refused.put(vec![0; terrace::MAX_KEY_BYTES + 1], b"");
    assert!(matches!(refused.commit(), Err(Error::InvalidArgument(_))));

    let mut left = db.transaction();
    left.put(b"k", b"");
    let reads = db.read_set();
    db.put(b"k", b"value").unwrap();
    db.close().unwrap();
    assert!(matches!(left.commit(), Err(Error::Closed)));
    assert!(matches!(db.is_unchanged(&reads), Err(Error::Closed)));
    let read_only = Db::open_read_only(dir.path(), Options::default()).unwrap();
    let mut transaction = read_only.transaction();
    assert!(transaction.get(b"k").unwrap().is_some());
    assert!(read_only.is_unchanged(transaction.read_set()).unwrap());
    transaction.put(b"k", b"");
    assert!(matches!(transaction.commit(), Err(Error::ReadOnly(_))));
}

const ACCOUNTS: u64 = 12;
const START: u64 = 1000;

fn account(n: u64) -> [u8; 9] {
    let mut key = [b'a'; 9];
    key[1..].copy_from_slice(&n.to_be_bytes());
    key
}

#[test]
fn transfers_of_many_threads_neither_make_nor_lose_money() {
    let (_dir, db) = open();
    let savings = db.create_column_family("savings", CfOptions::default()).unwrap();
    let cf_of = |n: u64| if n.is_multiple_of(2) { db.default_family() } else { savings.clone() };
    for n in 0..ACCOUNTS {
        cf_of(n).put(account(n), START.to_le_bytes()).unwrap();
    }
    let (conflicts, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let transfer = |rng: &mut SplitMix64| {
        let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
        if from == to {
            return;
        }
        let (_, lost) = retried(&db, |transaction| {
            let left = number(transaction.get_cf(&cf_of(from), account(from))?);
            let right = number(transaction.get_cf(&cf_of(to), account(to))?);
            let amount = (left / 2).min(7);
            transaction.put_cf(&cf_of(from), account(from), (left - amount).to_le_bytes());
            transaction.put_cf(&cf_of(to), account(to), (right + amount).to_le_bytes());
            Ok(())
        });
        conflicts.fetch_add(lost, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..6u64)
            .map(|thread| {
                let transfer = &transfer;
                scope.spawn(move || {
                    let mut rng = SplitMix64::new(thread);
                    (0..effort(400)).for_each(|_| transfer(&mut rng));
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let mut audit = db.transaction();
                let sum =
                    (0..ACCOUNTS).map(|n| number(audit.get_cf(&cf_of(n), account(n)).unwrap()));
                assert_eq!(sum.sum::<u64>(), ACCOUNTS * START);
                audit.commit().unwrap();
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.flush().unwrap();
                db.compact_range::<&[u8]>(..).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let failed =
            movers.into_iter().map(|mover| mover.join()).filter(|end| end.is_err()).count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0);
    });
    let sum: u64 = (0..ACCOUNTS).map(|n| number(cf_of(n).get(account(n)).unwrap())).sum();
    assert_eq!(sum, ACCOUNTS * START);
    assert_eq!(db.metrics().conflicts, conflicts.into_inner());
}

/// What a committed transaction of the list-append workload saw and did.
struct Committed {
    id: u32,
    /// List and what was in it.
    reads: Vec<(u64, Vec<u32>)>,
    appends: Vec<u64>,
}

fn list(value: Option<impl AsRef<[u8]>>) -> Vec<u32> {
    let Some(value) = value else { return Vec::new() };
    value.as_ref().chunks(4).map(|chunk| u32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

/// Lists that transactions append to name the order of all writes; with what was read this gives
/// the order that any serial history must have (Elle: Kingsbury and Alvaro 2020, section 4). It
/// must have no circle.
fn check_history(history: &[Committed], last: &HashMap<u64, Vec<u32>>) {
    let mut appended: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut before: HashMap<u32, Vec<u32>> = HashMap::new();
    for txn in history {
        txn.appends.iter().for_each(|key| appended.entry(*key).or_default().push(txn.id));
        for (key, seen) in &txn.reads {
            let all = &last[key];
            assert_eq!(all.get(..seen.len()), Some(&seen[..]), "{} read no prefix", txn.id);
            before.entry(txn.id).or_default().extend(seen.last());
            let next = all.get(seen.len()).filter(|next| **next != txn.id);
            next.into_iter().for_each(|next| before.entry(*next).or_default().push(txn.id));
        }
    }
    for (key, all) in last {
        let mut ids = appended.remove(key).unwrap_or_default();
        let mut sorted = all.clone();
        ids.sort_unstable();
        sorted.sort_unstable();
        assert_eq!(sorted, ids, "list {key} lost an append, or has one that was refused");
        all.windows(2).for_each(|two| before.entry(two[1]).or_default().push(two[0]));
    }
    assert!(appended.is_empty());
    // Takes away whatever has nothing before it that is left, until nothing is.
    let mut left: Vec<u32> = history.iter().map(|txn| txn.id).collect();
    let mut placed = std::collections::HashSet::new();
    while !left.is_empty() {
        let count = left.len();
        left.retain(|id| {
            let free = before.get(id).is_none_or(|all| all.iter().all(|id| placed.contains(id)));
            if free {
                placed.insert(*id);
            }
            !free
        });
        assert!(left.len() < count, "{count} transactions have no serial order");
    }
}

#[test]
fn histories_of_appends_to_lists_have_a_serial_order() {
    for sync in [SyncMode::None, SyncMode::Batch] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options { memory_budget: 8 << 20, sync, ..Options::default() };
        options.advanced.memtable_bytes = 32 << 10;
        let db = Db::open(dir.path(), options).unwrap();
        let history = Mutex::new(Vec::new());
        let lists = 8;
        let next_id = AtomicU64::new(0);
        let run = |rng: &mut SplitMix64| {
            let mut transaction = db.transaction();
            let id = next_id.fetch_add(1, Ordering::Relaxed) as u32;
            let mut txn = Committed { id, reads: Vec::new(), appends: Vec::new() };
            let read_only = rng.below(5) == 0;
            for _ in 0..1 + rng.below(3) {
                let key = rng.below(lists);
                if txn.reads.iter().any(|(read, _)| *read == key) {
                    continue;
                }
                let mut all = list(transaction.get(key.to_be_bytes()).unwrap());
                txn.reads.push((key, all.clone()));
                if !read_only && rng.below(2) == 0 {
                    all.push(id);
                    let bytes: Vec<u8> = all.iter().flat_map(|id| id.to_le_bytes()).collect();
                    transaction.put(key.to_be_bytes(), bytes);
                    txn.appends.push(key);
                }
            }
            match transaction.commit() {
                Ok(()) => history.lock().unwrap().push(txn),
                Err(Error::Conflict) => {}
                Err(error) => panic!("{error}"),
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let run = &run;
                scope.spawn(move || {
                    let mut rng = SplitMix64::new(1000 + thread);
                    (0..effort(150)).for_each(|_| run(&mut rng));
                });
            }
        });
        let last: HashMap<u64, Vec<u32>> =
            (0..lists).map(|key| (key, list(db.get(key.to_be_bytes()).unwrap()))).collect();
        let history = history.into_inner().unwrap();
        assert!(history.len() > 100, "only {} transactions committed", history.len());
        check_history(&history, &last);
    }
}

const KEYS: u64 = 12;

/// A read set and, per key and family, how many writes it had at the moment that counts.
struct Held {
    reads: ReadSet,
    since: BTreeMap<(usize, u64), u64>,
    other_snapshot: Option<Snapshot>,
}

/// Writes, flushes, merges, expiries and read sets in any order; every set must tell exactly
/// whether one of its keys was written since.
fn run_read_sets(seed: u64, steps: u64) -> u64 {
    let mut rng = SplitMix64::new(seed);
    let clock = stopped_clock();
    let mut options = small_options(Arc::new(SimVfs::new(seed)), &clock);
    options.default_family.compaction =
        [CompactionStyle::Leveled, CompactionStyle::Tiered][rng.below(2) as usize];
    options.default_family.value_separation_threshold = [0, 64, usize::MAX][rng.below(3) as usize];
    let Store { db, families } = Store::open(options).unwrap();
    let key = |n: u64| [b'k', n as u8];
    let mut writes: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    let mut held: Vec<Held> = Vec::new();
    for step in 0..steps {
        let family = rng.below(2) as usize;
        let (cf, n) = (&families[family], rng.below(KEYS));
        let count = writes.get(&(family, n)).copied().unwrap_or(0);
        let any = rng.below(held.len().max(1) as u64) as usize;
        let value = vec![step as u8; rng.below(200) as usize];
        let mut written = n..n;
        match rng.below(15) {
            0..3 => {
                cf.put(key(n), &value).unwrap();
                written.end += 1;
            }
            3 => {
                let ttl = Duration::from_millis(rng.below(100));
                cf.put_with_ttl(key(n), &value, ttl).unwrap();
                written.end += 1;
            }
            4 => {
                cf.delete(key(n)).unwrap();
                written.end += 1;
            }
            5 => {
                written.end += rng.below(4);
                cf.delete_range(key(n), key(written.end)).unwrap();
            }
            6 => clock.advance(50),
            7 => db.flush().unwrap(),
            8 => cf.compact_range::<&[u8]>(..).unwrap(),
            9..12 if held.len() < 8 => {
                let mut reads = db.read_set();
                let other_snapshot = (rng.below(2) == 0).then(|| db.snapshot());
                let mut since = BTreeMap::new();
                for _ in 0..rng.below(4) {
                    let (family, n) = (rng.below(2) as usize, rng.below(KEYS));
                    reads.watch(&families[family], key(n));
                    let count = writes.get(&(family, n)).copied().unwrap_or(0);
                    since.insert((family, n), count);
                }
                held.push(Held { reads, since, other_snapshot });
            }
            12 if !held.is_empty() => {
                held[any].reads.watch_from_now(cf, key(n));
                held[any].since.entry((family, n)).or_insert(count);
            }
            13 if !held.is_empty() => drop(held.swap_remove(any)),
            14 if !held.is_empty() => held[any].other_snapshot = None,
            _ => {}
        }
        written.for_each(|n| *writes.entry((family, n)).or_default() += 1);
        for (at, set) in held.iter().enumerate() {
            let now = |key: &(usize, u64)| writes.get(key).copied().unwrap_or(0);
            let want = set.since.iter().all(|(key, count)| now(key) == *count);
            let got = db.is_unchanged(&set.reads).unwrap();
            assert_eq!(got, want, "set {at} in step {step}");
        }
    }
    steps
}

#[test]
fn a_read_set_tells_exactly_whether_its_keys_were_written_since() {
    over_seeds("read sets", effort(6000), |seed, _| run_read_sets(seed, 300));
}
