//! Reads that make do with memory: they never touch the file system, are refused only where a plain
//! read would read from it, and otherwise say the same. A refusal that a plain read does not justify
//! needs one of two excuses: a background thread brought something into memory in between, or an
//! iterator holds an older state of the store, or of a file that was closed and opened again since: a fresh
//! iterator is not refused then.

mod counting;

use crate::harness::{DIR, SeedNote, drawn_options, effort, key, stopped_clock};
use counting::{Counting, reads, touches};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{
    ColumnFamily, Db, Error, FilterAllocator, Iter, LevelMetrics, Metrics, Options, ReadOptions,
    WriteBatch,
};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// Which files there are, as far as it shows: jobs that changed them, files and bytes by level.
type Files = ([u64; 3], Vec<(u64, u64)>);

fn files(m: &Metrics) -> Files {
    let levels = m.levels.iter().map(|level| (level.file_count, level.size_bytes));
    ([m.flushes, m.compactions, m.trivial_moves], levels.collect())
}

/// What tells that a background thread has brought something into memory or taken it away; reads
/// change it too.
#[derive(Debug, PartialEq)]
struct Background {
    files: Files,
    /// SSTs that are open, reads of them.
    sst: [u64; 2],
    /// Filter units loaded and dropped.
    filter_units: [u64; 2],
    /// Models made, and what they take.
    models: [u64; 4],
}

impl Background {
    fn of(db: &Db) -> Self {
        let m = db.metrics();
        let sum = |of: fn(&LevelMetrics) -> u64| m.levels.iter().map(of).sum();
        Self {
            files: files(&m),
            sst: [m.open_files, m.reads.device_reads],
            filter_units: [sum(|l| l.filter_units_loaded), sum(|l| l.filter_units_dropped)],
            models: [m.models_built, m.level_models_built, m.level_models, m.model_bytes],
        }
    }

    /// Whether anything has changed. What changes may be counted a little later.
    fn has_changed(&self, db: &Db) -> bool {
        (0..200).any(|_| {
            let has_changed = Self::of(db) != *self;
            if !has_changed {
                std::thread::sleep(Duration::from_millis(5));
            }
            has_changed
        })
    }
}

/// Counts of reads in memory.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    answered: u64,
    refused: u64,
    /// Refused, although the plain read read nothing: with an excuse.
    excused: u64,
    /// Refused, and answered once a plain read had been there.
    repeated: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.excused += other.excused;
        self.repeated += other.repeated;
    }
}

/// An open store whose memory may have room for everything that was read.
struct Roomy {
    db: Db,
    has_room: bool,
}

impl Roomy {
    /// Whether all that a read needed is in memory after it, if of separated values it keeps those
    /// of one key only: scans and `multi_get` leave the others on the device.
    fn keeps(&self, wants_many_values: bool) -> bool {
        let threshold = self.db.options().default_family.value_separation_threshold;
        self.has_room && (threshold >= VALUE_BYTES || !wants_many_values)
    }
}

/// A read without and with the device, and what both must say.
struct Reader<'a> {
    plain: ReadOptions,
    in_memory: ReadOptions,
    store: &'a Roomy,
    family: ColumnFamily,
    /// After the last plain read.
    background: Background,
    tally: Tally,
}

impl<'a> Reader<'a> {
    fn new(store: &'a Roomy) -> Self {
        Self {
            plain: ReadOptions::default(),
            in_memory: ReadOptions { in_memory: true, ..ReadOptions::default() },
            store,
            family: store.db.default_family(),
            background: Background::of(&store.db),
            tally: Tally::default(),
        }
    }

    /// Reads in memory; if that is refused, the plain read has to read from the device. After it
    /// everything is in memory if it `is_kept` there.
    fn read<T: PartialEq + std::fmt::Debug>(
        &mut self,
        wanted: &T,
        what: &str,
        is_kept: bool,
        get: impl Fn(&ColumnFamily, &ReadOptions) -> terrace::Result<T>,
    ) {
        let store = self.store;
        let db = &store.db;
        for round in 0..10 {
            let (found, touched) = touches(|| get(&self.family, &self.in_memory));
            assert_eq!(touched, 0, "{what}: {found:?}");
            match found {
                Ok(found) => {
                    assert_eq!(found, *wanted, "{what}");
                    self.tally.answered += 1;
                    self.tally.repeated += u64::from(round > 0);
                    return;
                }
                Err(error) => assert!(matches!(error, Error::NotInMemory), "{what}: {error}"),
            }
            self.tally.refused += 1;
            assert!(
                round == 0 || self.background.has_changed(db),
                "{what} is refused after a plain read: {:?}",
                self.background
            );
            let (found, has_read) = reads(|| get(&self.family, &self.plain).unwrap());
            assert_eq!(found, *wanted, "{what}, from the device");
            if !has_read {
                assert!(
                    self.background.has_changed(db),
                    "{what} is refused, and the device is not needed: {:?}",
                    self.background
                );
                self.tally.excused += 1;
            }
            self.background = Background::of(db);
            if has_read && !is_kept {
                return;
            }
        }
        panic!("{what} is refused time and again");
    }
}

type Entries = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

const KEYS: u64 = 300;
/// All values are shorter.
const VALUE_BYTES: usize = 300;

fn counting_options(sim: &SimVfs, clock: &ManualClock, rng: &mut SplitMix64) -> Options {
    let mut options = drawn_options(Arc::new(Counting(sim.clone())), clock, rng);
    let a = &mut options.advanced;
    a.memory_shares.cache = [0.001, 0.004, 0.02, 0.5][rng.below(4) as usize];
    let all = [FilterAllocator::Budget, FilterAllocator::Cached, FilterAllocator::Mq];
    a.filter_allocator = all[rng.below(3) as usize];
    a.level_model_files = 2 + rng.below(3) as usize;
    a.gc_garbage_ratio = 1.0;
    options.max_open_files = [4, 1000][rng.below(2) as usize];
    options
}

/// As [`counting_options`]; in one of three everything stays in memory that was read once.
fn drawn_room(sim: &SimVfs, clock: &ManualClock, rng: &mut SplitMix64) -> (Options, bool) {
    let mut options = counting_options(sim, clock, rng);
    let has_room = rng.one_in(3);
    if has_room {
        options.memory_budget = 64 << 20;
        options.advanced.memory_shares.cache = 0.5;
        options.max_open_files = 1000;
    }
    (options, has_room)
}

/// Writes at random, with expiries, deletes and range deletes.
fn write_some(db: &Db, clock: &ManualClock, rng: &mut SplitMix64, expected: &mut Entries) {
    for _ in 0..1 + rng.below(12) {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + rng.below(20) {
            let at = key(rng.below(KEYS));
            let value = vec![rng.below(256) as u8; rng.below(VALUE_BYTES as u64) as usize];
            match rng.below(12) {
                0 => {
                    batch.delete(&at);
                    expected.remove(&at);
                }
                1 => {
                    let end = key(rng.below(KEYS));
                    batch.delete_range(&at, &end);
                    expected.retain(|key, _| *key < at || *key >= end);
                }
                2 | 3 => {
                    let expires_at_ms = clock.now_ms() + rng.below(5000);
                    batch.put_until(&at, &value, expires_at_ms);
                    expected.insert(at, (value, Some(expires_at_ms)));
                }
                _ => {
                    batch.put(&at, &value);
                    expected.insert(at, (value, None));
                }
            }
        }
        db.write(batch).unwrap();
    }
}

fn read_some(store: &Roomy, rng: &mut SplitMix64, shown: &Entries) -> Tally {
    let mut reader = Reader::new(store);
    for _ in 0..120 {
        // Keys past the last are in no file, those between stored ones may be.
        let at = key(rng.below(KEYS + KEYS / 10));
        let one_is_kept = store.keeps(false);
        let wanted = shown.get(&at).cloned();
        reader.read(&wanted, &format!("get_entry of {at:?}"), one_is_kept, |family, read| {
            let found = family.get_entry(&at, read)?;
            Ok(found.map(|found| (found.value.to_vec(), found.expires_at_ms)))
        });
        let value = wanted.map(|(value, _)| value);
        reader.read(&value, &format!("get of {at:?}"), one_is_kept, |family, read| {
            Ok(family.get_with(&at, read)?.map(|value| value.to_vec()))
        });
        if rng.one_in(8) {
            let keys: Vec<Vec<u8>> = (0..rng.below(6)).map(|_| key(rng.below(KEYS))).collect();
            let value = |key: &Vec<u8>| shown.get(key).map(|(value, _)| value.clone());
            let wanted: Vec<Option<Vec<u8>>> = keys.iter().map(value).collect();
            reader.read(&wanted, "multi_get", store.keeps(true), |family, read| {
                let found = family.multi_get_with(&keys, read)?;
                Ok(found.into_iter().map(|value| value.map(|v| v.to_vec())).collect())
            });
        }
    }
    reader.tally
}

/// One step of a scan, by hand where it is refused.
struct Walk<'a> {
    store: &'a Roomy,
    family: ColumnFamily,
    backward: bool,
    options: ReadOptions,
    /// Which files there were when the iterator was opened.
    files: Files,
    /// After the last plain read.
    background: Background,
    tally: Tally,
}

type Shown = Option<(Vec<u8>, Vec<u8>, Option<u64>)>;

fn shown(iter: &Iter) -> Shown {
    iter.valid().then(|| (iter.key().to_vec(), iter.value().to_vec(), iter.expires_at_ms()))
}

impl Walk<'_> {
    fn open(&self, in_memory: bool) -> Iter {
        let options = ReadOptions { in_memory, ..self.options.clone() };
        let (iter, touched) = touches(|| self.family.iter_with(&options).unwrap());
        assert_eq!(touched, 0);
        iter
    }

    fn seek(&self, iter: &mut Iter, key: Option<&[u8]>) -> terrace::Result<()> {
        match (key, self.backward) {
            (None, false) => iter.seek_to_first(),
            (None, true) => iter.seek_to_last(),
            (Some(key), false) => iter.seek(key),
            (Some(key), true) => iter.seek_for_prev(key),
        }
    }

    fn step(&self, iter: &mut Iter) -> terrace::Result<()> {
        if self.backward { iter.prev() } else { iter.next() }
    }

    /// Seeks `key` if `iter` does not stand on it, and steps; without a key to the first entry.
    fn advance(&self, iter: &mut Iter, key: Option<&[u8]>) -> terrace::Result<()> {
        match key {
            Some(key) if !iter.valid() => self.seek(iter, Some(key)).and_then(|()| self.step(iter)),
            Some(_) => self.step(iter),
            None => self.seek(iter, None),
        }
    }

    /// As [`Walk::advance`], in memory; `None` if it is refused.
    fn try_advance(&mut self, iter: &mut Iter, key: Option<&[u8]>) -> Option<Shown> {
        let (moved, touched) = touches(|| self.advance(iter, key));
        assert_eq!(touched, 0, "after {key:?}");
        match moved {
            Ok(()) => {
                self.tally.answered += 1;
                return Some(shown(iter));
            }
            Err(error) => assert!(matches!(error, Error::NotInMemory), "{error}"),
        }
        assert!(!iter.valid(), "after an error");
        self.tally.refused += 1;
        None
    }

    /// The entry after `key`, or the first: in memory through `iter`, which stands on `key` if it is
    /// valid, else by a plain scan, which has to read from the device.
    fn after(&mut self, iter: &mut Iter, key: Option<&[u8]>) -> Shown {
        let store = self.store;
        let db = &store.db;
        for _ in 0..10 {
            if let Some(shown) = self.try_advance(iter, key) {
                return shown;
            }
            let mut plain = self.open(false);
            let (found, has_read) = reads(|| {
                self.advance(&mut plain, key).unwrap();
                shown(&plain)
            });
            let has_changed =
                || files(&db.metrics()) != self.files || self.background.has_changed(db);
            if !has_read && !has_changed() {
                // The iterator may hold the reader of a file that was closed and opened again since.
                *iter = self.open(true);
                if let Some(shown) = self.try_advance(iter, key) {
                    self.tally.excused += 1;
                    return shown;
                }
                assert!(
                    self.background.has_changed(db),
                    "a step from {key:?} is refused, and the device is not needed: {:?}, {}",
                    self.files,
                    db.metrics()
                );
            }
            self.background = Background::of(db);
            if has_read {
                self.repeat(key, &found);
                return found;
            }
            self.tally.excused += 1;
            *iter = self.open(true);
            self.files = self.background.files.clone();
        }
        panic!("a step from {key:?} is refused time and again");
    }

    /// A step that a plain scan has just taken, in memory.
    fn repeat(&mut self, key: Option<&[u8]>, found: &Shown) {
        if !self.store.keeps(!self.options.keys_only) {
            return;
        }
        let mut iter = self.open(true);
        match self.try_advance(&mut iter, key) {
            Some(shown) => {
                assert_eq!(shown, *found);
                self.tally.repeated += 1;
            }
            None => assert!(
                self.background.has_changed(&self.store.db),
                "a step from {key:?} to {found:?} is refused after a plain one, {:?}, {}",
                self.options,
                self.store.db.metrics()
            ),
        }
    }
}

fn scan_some(store: &Roomy, rng: &mut SplitMix64, shown: &Entries) -> Tally {
    let mut sum = Tally::default();
    for backward in [false, true] {
        let options = ReadOptions { keys_only: rng.one_in(4), ..ReadOptions::default() };
        let background = Background::of(&store.db);
        let mut walk = Walk {
            store,
            family: store.db.default_family(),
            backward,
            options,
            files: background.files.clone(),
            background,
            tally: Tally::default(),
        };
        let mut iter = walk.open(true);
        let keys_only = walk.options.keys_only;
        let value = |value: &Vec<u8>| if keys_only { Vec::new() } else { value.clone() };
        let entry = |(key, (v, expiry)): (&Vec<u8>, &(Vec<u8>, Option<u64>))| {
            (key.clone(), value(v), *expiry)
        };
        let mut wanted: Vec<_> = shown.iter().map(entry).collect();
        if backward {
            wanted.reverse();
        }
        let mut at: Option<Vec<u8>> = None;
        for entry in &wanted {
            let found = walk.after(&mut iter, at.as_deref());
            assert_eq!(found.as_ref(), Some(entry), "after {at:?}, backward: {backward}");
            at = found.map(|(key, ..)| key);
        }
        assert_eq!(walk.after(&mut iter, at.as_deref()), None);
        sum.add(walk.tally);
    }
    sum
}

fn run(seed: u64) -> Tally {
    let mut rng = SplitMix64::new(seed);
    let (sim, clock) = (SimVfs::new(seed), stopped_clock());
    let (options, has_room) = drawn_room(&sim, &clock, &mut rng);
    let open = || Roomy { db: Db::open(DIR, options.clone()).unwrap(), has_room };
    let mut store = open();
    let (mut expected, mut sum) = (Entries::new(), Tally::default());
    for _ in 0..6 {
        write_some(&store.db, &clock, &mut rng, &mut expected);
        match rng.below(6) {
            0 => store.db.compact_range::<&[u8]>(..).unwrap(),
            1 | 2 => store.db.flush().unwrap(),
            3 => {
                store.db.close().unwrap();
                store = open();
            }
            _ => {}
        }
        // First, since what has expired may be worth a compaction.
        clock.advance(rng.below(1000));
        store.db.wait_idle().unwrap();
        let now_ms = clock.now_ms();
        let live = |expiry: &Option<u64>| expiry.is_none_or(|expiry| expiry > now_ms);
        let shown = expected.iter().filter(|(_, (_, expiry))| live(expiry));
        let shown: Entries = shown.map(|(key, entry)| (key.clone(), entry.clone())).collect();
        for half in [scan_some, read_some, scan_some] {
            sum.add(half(&store, &mut rng, &shown));
        }
    }
    sum
}

#[test]
fn in_memory_reads_say_the_same_without_the_device_or_are_rightly_refused() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(0..effort(24), |seed| seed..seed + 1);
    let mut sum = Tally::default();
    for seed in seeds {
        let _note = SeedNote("in_memory", seed);
        sum.add(run(seed));
    }
    println!("{sum:?}");
    if seed.is_none() {
        assert!(sum.answered > 500 && sum.refused > 500 && sum.repeated > 100, "{sum:?}");
        assert!(sum.excused * 20 < sum.refused, "excuses are rare: {sum:?}");
    }
}

/// Inline and separated values, from the memtable to a store that was just opened.
#[test]
fn what_is_in_memory_changes_with_the_state_of_the_store() {
    let (sim, clock) = (SimVfs::new(1), stopped_clock());
    let mut options = crate::harness::small_options(Arc::new(Counting(sim.clone())), &clock);
    options.default_family.value_separation_threshold = 100;
    // A merge would bring blocks into memory.
    options.advanced.compact_when_idle = false;
    let db = Db::open(DIR, options.clone()).unwrap();
    let in_memory = ReadOptions { in_memory: true, ..ReadOptions::default() };
    let is_refused = |db: &Db, at: &[u8]| {
        let (found, touched) = touches(|| db.get_with(at, &in_memory));
        assert_eq!(touched, 0);
        match found {
            Ok(value) => {
                assert_eq!(value.as_deref(), db.get(at).unwrap().as_deref());
                false
            }
            Err(error) => matches!(error, Error::NotInMemory),
        }
    };
    db.put(b"inline", b"short").unwrap();
    db.put(b"separated", [7; 500]).unwrap();
    assert!(!is_refused(&db, b"inline") && !is_refused(&db, b"nothing"));
    assert!(is_refused(&db, b"separated"), "its value lies only in the log file");
    db.get(b"separated").unwrap();
    assert!(!is_refused(&db, b"separated"), "the cache has it");
    db.flush().unwrap();
    db.close().unwrap();
    let db = Db::open(DIR, options).unwrap();
    assert!(is_refused(&db, b"inline") && is_refused(&db, b"separated"));
    assert!(!is_refused(&db, b"zzz"), "past all files");
    let gets = db.metrics().gets;
    assert!(is_refused(&db, b"inline"));
    assert_eq!(db.metrics().gets, gets, "a refused read is none");
    db.get(b"inline").unwrap();
    assert!(!is_refused(&db, b"inline"));
    assert!(is_refused(&db, b"separated"), "its entry is in memory, its value is not");
    let both: [&[u8]; 2] = [b"inline", b"separated"];
    assert!(matches!(db.multi_get_with(&both, &in_memory), Err(Error::NotInMemory)));
    db.get(b"separated").unwrap();
    let found = db.multi_get_with(&both, &in_memory).unwrap();
    assert_eq!(found[1].as_deref(), Some(&[7; 500][..]));
    db.put(b"inline", b"newer").unwrap();
    assert!(!is_refused(&db, b"inline"));
}
