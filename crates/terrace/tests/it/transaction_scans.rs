//! Range reads of transactions: conflicts with what is written into what was read, and nothing else.

use crate::harness::{Store, effort, over_seeds, small_options, stopped_clock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{CompactionStyle, Db, Error, Options, Result, Transaction};
use terrace_base::rng::{Rng, SplitMix64};

/// Keys that occur, of one byte.
const KEYS: u64 = 12;

type Map = BTreeMap<u64, Vec<u8>>;

fn open() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    (dir, db)
}

/// What a transaction did, with the answers it got.
#[derive(Clone)]
enum Step {
    Get(u64, Option<Vec<u8>>),
    Scan { start: u64, end: u64, limit: usize, seen: Vec<(u64, Vec<u8>)> },
    Put(u64, Vec<u8>),
    Delete(u64),
    DeleteRange(u64, u64),
}

fn scan(map: &Map, start: u64, end: u64, limit: usize) -> Vec<(u64, Vec<u8>)> {
    let entries = map.iter().filter(|(key, _)| (start..end).contains(key));
    entries.take(limit).map(|(key, value)| (*key, value.clone())).collect()
}

/// Does a step on a map; gives whether the answers are the same.
fn replay(map: &mut Map, step: &Step) -> bool {
    match step {
        Step::Get(key, seen) => return map.get(key) == seen.as_ref(),
        Step::Scan { start, end, limit, seen } => return scan(map, *start, *end, *limit) == *seen,
        Step::Put(key, value) => drop(map.insert(*key, value.clone())),
        Step::Delete(key) => drop(map.remove(key)),
        Step::DeleteRange(start, end) => map.retain(|key, _| !(*start..*end).contains(key)),
    }
    true
}

/// Keys that a step writes.
fn written(step: &Step) -> std::ops::Range<u64> {
    match step {
        Step::Get(..) | Step::Scan { .. } => 0..0,
        Step::Put(key, _) | Step::Delete(key) => *key..*key + 1,
        Step::DeleteRange(start, end) => *start..*end,
    }
}

/// A transaction under way, and what is known of it.
struct Own {
    transaction: Transaction,
    /// How many commits there were before it.
    begun: u64,
    /// What it sees.
    map: Map,
    steps: Vec<Step>,
    /// Keys that must not change.
    tracked: BTreeSet<u64>,
    /// Keys whose value follows from its own writes.
    known: BTreeSet<u64>,
}

impl Own {
    fn step(&mut self, rng: &mut SplitMix64) {
        let (key, end) = (rng.below(KEYS), rng.below(KEYS + 1));
        let step = match rng.below(9) {
            0 => {
                let got = self.transaction.get([key as u8]).unwrap();
                if !self.known.contains(&key) {
                    self.tracked.insert(key);
                }
                Step::Get(key, got.map(|value| value.to_vec()))
            }
            1..5 => {
                let limit = if rng.one_in(3) { KEYS as usize } else { 1 + rng.below(4) as usize };
                let got = self.transaction.scan([key as u8]..[end as u8], limit).unwrap();
                let seen: Vec<_> = got
                    .into_iter()
                    .map(|(key, value)| (u64::from(key[0]), value.to_vec()))
                    .collect();
                let read_to = match seen.last() {
                    Some((last, _)) if seen.len() == limit => last + 1,
                    _ => end,
                };
                self.tracked.extend(key..read_to);
                Step::Scan { start: key, end, limit, seen }
            }
            5 => {
                self.transaction.delete([key as u8]);
                Step::Delete(key)
            }
            6 => {
                self.transaction.delete_range([key as u8], [end as u8]);
                Step::DeleteRange(key, end)
            }
            _ => {
                let value = vec![rng.below(256) as u8; rng.below(300) as usize];
                self.transaction.put([key as u8], &value);
                Step::Put(key, value)
            }
        };
        assert!(replay(&mut self.map, &step), "what it reads is its snapshot and its own writes");
        self.known.extend(written(&step));
        self.steps.push(step);
    }
}

/// Transactions in turns, against one after the other: one that commits could have run wholly at its commit, and one
/// that is refused has read what was written since.
#[test]
fn transactions_that_scan_are_as_if_they_ran_one_after_the_other() {
    over_seeds("scans of transactions", effort(1500), |seed, _| {
        let mut rng = SplitMix64::new(seed);
        let mut options = small_options(Arc::new(SimVfs::new(seed)), &stopped_clock());
        options.default_family.compaction =
            [CompactionStyle::Leveled, CompactionStyle::Tiered][rng.below(2) as usize];
        let Store { db, .. } = Store::open(options).unwrap();
        let mut serial = Map::new();
        let mut commits = 0;
        let mut written_at: BTreeMap<u64, u64> = BTreeMap::new();
        let mut open: Vec<Own> = Vec::new();
        for _ in 0..150 {
            let any = rng.below(open.len().max(1) as u64) as usize;
            match rng.below(12) {
                0 => db.flush().unwrap(),
                1 => db.compact_range::<&[u8]>(..).unwrap(),
                2 | 3 if open.len() < 4 => open.push(Own {
                    transaction: db.transaction(),
                    begun: commits,
                    map: serial.clone(),
                    steps: Vec::new(),
                    tracked: BTreeSet::new(),
                    known: BTreeSet::new(),
                }),
                4 | 5 if !open.is_empty() => {
                    let own = open.swap_remove(any);
                    let is_newer =
                        |key: &u64| written_at.get(key).is_some_and(|at| *at > own.begun);
                    let writes = !own.transaction.is_empty();
                    let conflicts = writes && own.tracked.iter().any(is_newer);
                    match own.transaction.commit() {
                        Ok(()) => assert!(!conflicts, "what it has read was written since"),
                        Err(Error::Conflict) => {
                            assert!(conflicts, "nothing it has read was written since");
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    if writes {
                        commits += 1;
                        for step in &own.steps {
                            assert!(replay(&mut serial, step), "it did not run at its commit");
                            written_at.extend(written(step).map(|key| (key, commits)));
                        }
                    }
                }
                _ if !open.is_empty() => open[any].step(&mut rng),
                _ => {}
            }
        }
        drop(open);
        let all: Map = db
            .transaction()
            .scan::<&[u8]>(.., usize::MAX)
            .unwrap()
            .into_iter()
            .map(|(key, value)| (u64::from(key[0]), value.to_vec()))
            .collect();
        assert_eq!(all, serial);
        150
    });
}

#[test]
fn two_that_find_a_range_empty_cannot_both_fill_it() {
    let (_dir, db) = open();
    let (mut first, mut second) = (db.transaction(), db.transaction());
    assert!(first.scan("a".."b", 10).unwrap().is_empty());
    assert!(second.scan("a".."b", 10).unwrap().is_empty());
    assert_eq!((first.read_set().len(), first.read_set().range_count()), (0, 1));
    first.put(b"a1", b"");
    second.put(b"a2", b"");
    first.commit().unwrap();
    assert!(matches!(second.commit(), Err(Error::Conflict)));
    // Beside the range, and behind the last entry of a full answer.
    let mut third = db.transaction();
    assert_eq!(third.scan("a".., 1).unwrap().len(), 1);
    third.put(b"x", b"");
    db.put(b"a2", b"").unwrap();
    third.commit().unwrap();
}

#[test]
fn a_scan_sees_operands_and_a_dropped_or_foreign_family_is_refused() {
    let (_dir, db) = open();
    let options = terrace::CfOptions {
        merge_operator: Some(Arc::new(terrace::AppendOperator::new(","))),
        ..Default::default()
    };
    let lists = db.create_column_family("lists", options).unwrap();
    lists.merge(b"a", b"1").unwrap();
    let mut own = db.transaction();
    own.merge_cf(&lists, b"a", b"2");
    own.merge_cf(&lists, b"b", b"3");
    let seen = own.scan_cf::<&[u8]>(&lists, .., 10).unwrap();
    let seen: Vec<_> = seen.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(seen, [(&b"a"[..], &b"1,2"[..]), (b"b", b"3")]);
    db.drop_column_family("lists").unwrap();
    assert!(own.scan_cf::<&[u8]>(&lists, .., 10).is_err());
    own.put(b"k", b"");
    assert!(own.commit().is_err());
}

/// Threads that each take a place if a scan shows one that is free: never is one taken too many.
#[test]
fn threads_never_take_more_places_than_there_are() {
    const PLACES: usize = 40;
    let (_dir, db) = open();
    let take = |name: String| -> Result<bool> {
        loop {
            let mut own = db.transaction();
            if own.scan("place/".."place0", PLACES)?.len() == PLACES {
                return Ok(false);
            }
            own.put(format!("place/{name}"), b"taken");
            match own.commit() {
                Err(Error::Conflict) => {}
                done => return done.map(|()| true),
            }
        }
    };
    let taken: usize = std::thread::scope(|scope| {
        let take = &take;
        let run = |thread: usize| {
            scope.spawn(move || {
                let mut taken = 0;
                while take(format!("{thread}-{taken}")).unwrap() {
                    taken += 1;
                }
                taken
            })
        };
        let threads: Vec<_> = (0..4).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(taken, PLACES);
    assert_eq!(db.prefix(b"place/").unwrap().entries().count(), PLACES);
}
