//! Reads that make do with memory: they never touch the file system, are refused only where a plain
//! read would touch it, and otherwise say the same.

use crate::harness::{DIR, SeedNote, drawn_options, effort, key, stopped_clock};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{ColumnFamily, Db, Error, FilterAllocator, Iter, Options, ReadOptions, WriteBatch};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_vfs::{AppendFile, CreateOptions, OpenMode, RandomFile};

thread_local! {
    /// Calls of this thread to any file system.
    static TOUCHES: Cell<u64> = const { Cell::new(0) };
}

fn touch() {
    TOUCHES.set(TOUCHES.get() + 1);
}

/// What `call` gives, and how often it touched the file system.
fn touches<R>(call: impl FnOnce() -> R) -> (R, u64) {
    let before = TOUCHES.get();
    let result = call();
    (result, TOUCHES.get() - before)
}

/// A file system that counts the calls of each thread.
struct Counting(SimVfs);

struct CountingFile(Arc<dyn RandomFile>);

impl RandomFile for CountingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> terrace_base::Result<()> {
        touch();
        self.0.read_at(offset, buf)
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn advise_willneed(&self, offset: u64, len: u64) {
        touch();
        self.0.advise_willneed(offset, len);
    }
}

impl Vfs for Counting {
    fn open(&self, path: &Path, mode: OpenMode) -> terrace_base::Result<Arc<dyn RandomFile>> {
        touch();
        Ok(Arc::new(CountingFile(self.0.open(path, mode)?)))
    }
    fn create(
        &self,
        path: &Path,
        options: &CreateOptions,
    ) -> terrace_base::Result<Box<dyn AppendFile>> {
        touch();
        self.0.create(path, options)
    }
    fn rename(&self, from: &Path, to: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.remove(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.hard_link(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.sync_dir(path)
    }
    fn sync_file(&self, path: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.sync_file(path)
    }
    fn list(&self, dir: &Path) -> terrace_base::Result<Vec<String>> {
        touch();
        self.0.list(dir)
    }
    fn len(&self, path: &Path) -> terrace_base::Result<u64> {
        touch();
        self.0.len(path)
    }
    fn exists(&self, path: &Path) -> terrace_base::Result<bool> {
        touch();
        self.0.exists(path)
    }
    fn lock(&self, path: &Path) -> terrace_base::Result<Box<dyn Send + Sync>> {
        touch();
        self.0.lock(path)
    }
    fn free_space_bytes(&self, dir: &Path) -> terrace_base::Result<u64> {
        self.0.free_space_bytes(dir)
    }
}

/// A read without and with the device, and what both must say.
struct Reader<'a> {
    plain: ReadOptions,
    in_memory: ReadOptions,
    family: &'a ColumnFamily,
    answered: u64,
    refused: u64,
}

impl<'a> Reader<'a> {
    fn new(family: &'a ColumnFamily) -> Self {
        let in_memory = ReadOptions { in_memory: true, ..ReadOptions::default() };
        Self { plain: ReadOptions::default(), in_memory, family, answered: 0, refused: 0 }
    }

    /// Reads in memory; if that is refused, the plain read has to touch the device. A filter that
    /// comes into memory in between may make it needless, but not time and again.
    fn read<T: PartialEq + std::fmt::Debug>(
        &mut self,
        wanted: &T,
        what: &str,
        get: impl Fn(&ColumnFamily, &ReadOptions) -> terrace::Result<T>,
    ) {
        for _ in 0..10 {
            let (found, touched) = touches(|| get(self.family, &self.in_memory));
            assert_eq!(touched, 0, "{what}: {found:?}");
            match found {
                Ok(found) => {
                    assert_eq!(found, *wanted, "{what}");
                    self.answered += 1;
                    return;
                }
                Err(error) => assert!(matches!(error, Error::NotInMemory), "{what}: {error}"),
            }
            self.refused += 1;
            let (found, touched) = touches(|| get(self.family, &self.plain).unwrap());
            assert_eq!(found, *wanted, "{what}, from the device");
            if touched > 0 {
                return;
            }
        }
        panic!("{what} is refused, and the device is not needed");
    }
}

type Entries = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

const KEYS: u64 = 300;

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

/// Writes at random, with expiries, deletes and range deletes.
fn write_some(db: &Db, clock: &ManualClock, rng: &mut SplitMix64, expected: &mut Entries) {
    for _ in 0..1 + rng.below(12) {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + rng.below(20) {
            let at = key(rng.below(KEYS));
            let value = vec![rng.below(256) as u8; rng.below(300) as usize];
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

fn read_some(family: &ColumnFamily, rng: &mut SplitMix64, shown: &Entries) -> (u64, u64) {
    let mut reader = Reader::new(family);
    for _ in 0..120 {
        // Keys past the last are in no file, those between stored ones may be.
        let at = key(rng.below(KEYS + KEYS / 10));
        let wanted = shown.get(&at).cloned();
        reader.read(&wanted, &format!("get_entry of {at:?}"), |family, read| {
            let found = family.get_entry(&at, read)?;
            Ok(found.map(|found| (found.value.to_vec(), found.expires_at_ms)))
        });
        let value = wanted.map(|(value, _)| value);
        reader.read(&value, &format!("get of {at:?}"), |family, read| {
            Ok(family.get_with(&at, read)?.map(|value| value.to_vec()))
        });
        if rng.one_in(8) {
            let keys: Vec<Vec<u8>> = (0..rng.below(6)).map(|_| key(rng.below(KEYS))).collect();
            let value = |key: &Vec<u8>| shown.get(key).map(|(value, _)| value.clone());
            let wanted: Vec<Option<Vec<u8>>> = keys.iter().map(value).collect();
            reader.read(&wanted, "multi_get", |family, read| {
                let found = family.multi_get_with(&keys, read)?;
                Ok(found.into_iter().map(|value| value.map(|v| v.to_vec())).collect())
            });
        }
    }
    (reader.answered, reader.refused)
}

/// One step of a scan, by hand where it is refused.
struct Walk<'a> {
    family: &'a ColumnFamily,
    backward: bool,
    options: ReadOptions,
    steps: (u64, u64),
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

    /// The entry after `key`, or the first: in memory through `iter`, which stands on `key` if it is
    /// valid, else by a plain scan, which has to touch the device.
    fn after(&mut self, iter: &mut Iter, key: Option<&[u8]>) -> Shown {
        for _ in 0..10 {
            let (moved, touched) = touches(|| match key {
                Some(key) if !iter.valid() => {
                    self.seek(iter, Some(key)).and_then(|()| self.step(iter))
                }
                Some(_) => self.step(iter),
                None => self.seek(iter, None),
            });
            assert_eq!(touched, 0, "after {key:?}");
            match moved {
                Ok(()) => {
                    self.steps.0 += 1;
                    return shown(iter);
                }
                Err(error) => assert!(matches!(error, Error::NotInMemory), "{error}"),
            }
            assert!(!iter.valid(), "after an error");
            self.steps.1 += 1;
            let mut plain = self.open(false);
            let (found, touched) = touches(|| {
                self.seek(&mut plain, key).unwrap();
                if key.is_some() {
                    self.step(&mut plain).unwrap();
                }
                shown(&plain)
            });
            if touched > 0 {
                return found;
            }
            // An older state of the store may have had files that are closed meanwhile.
            *iter = self.open(true);
        }
        panic!("a step from {key:?} is refused, and the device is not needed");
    }
}

fn scan_some(family: &ColumnFamily, rng: &mut SplitMix64, shown: &Entries) -> (u64, u64) {
    let mut sum = (0, 0);
    for backward in [false, true] {
        let options = ReadOptions { keys_only: rng.one_in(4), ..ReadOptions::default() };
        let mut walk = Walk { family, backward, options, steps: (0, 0) };
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
        sum = (sum.0 + walk.steps.0, sum.1 + walk.steps.1);
    }
    sum
}

fn run(seed: u64) -> (u64, u64) {
    let mut rng = SplitMix64::new(seed);
    let (sim, clock) = (SimVfs::new(seed), stopped_clock());
    let options = counting_options(&sim, &clock, &mut rng);
    let mut db = Db::open(DIR, options.clone()).unwrap();
    let (mut expected, mut sum) = (Entries::new(), (0, 0));
    for _ in 0..6 {
        write_some(&db, &clock, &mut rng, &mut expected);
        match rng.below(6) {
            0 => db.compact_range::<&[u8]>(..).unwrap(),
            1 | 2 => db.flush().unwrap(),
            3 => {
                db.close().unwrap();
                db = Db::open(DIR, options.clone()).unwrap();
            }
            _ => {}
        }
        // First, since what has expired may be worth a compaction.
        clock.advance(rng.below(1000));
        db.wait_idle().unwrap();
        let now_ms = clock.now_ms();
        let live = |expiry: &Option<u64>| expiry.is_none_or(|expiry| expiry > now_ms);
        let shown = expected.iter().filter(|(_, (_, expiry))| live(expiry));
        let shown: Entries = shown.map(|(key, entry)| (key.clone(), entry.clone())).collect();
        let family = db.default_family();
        for half in [scan_some, read_some, scan_some] {
            let (answered, refused) = half(&family, &mut rng, &shown);
            sum = (sum.0 + answered, sum.1 + refused);
        }
    }
    sum
}

#[test]
fn in_memory_reads_say_the_same_without_the_device_or_are_rightly_refused() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(0..effort(24), |seed| seed..seed + 1);
    let (mut answered, mut refused) = (0, 0);
    for seed in seeds {
        let _note = SeedNote("in_memory", seed);
        let sum = run(seed);
        (answered, refused) = (answered + sum.0, refused + sum.1);
    }
    assert!(seed.is_some() || (answered > 500 && refused > 500), "{answered} {refused}");
}

/// Inline and separated values, from the memtable to a store that was just opened.
#[test]
fn what_is_in_memory_changes_with_the_state_of_the_store() {
    let (sim, clock) = (SimVfs::new(1), stopped_clock());
    let mut options = crate::harness::small_options(Arc::new(Counting(sim.clone())), &clock);
    options.default_family.value_separation_threshold = 100;
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
