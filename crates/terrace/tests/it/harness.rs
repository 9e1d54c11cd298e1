//! What the reliability tests share: seeds and effort, a clock to turn, small stores, seeded
//! workloads.
//!
//! `TERRACE_TEST_EFFORT` (1) multiplies how much a test executes; `SEED` makes it run one seed. The
//! workload is a function of the seed; the engine's threads are real, so the moment of a crash
//! image is only nearly the same in a replay.

pub use crate::at_step::at_step;
use crate::camera::Marks;
pub use crate::drawn::{draw_separation, drawn_options};
use crate::model::{
    Batch, Contents, FAMILIES, Files, History, MERGING, Op, SEPARATOR, State, is_empty,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace::vfs::Vfs;
use terrace::{
    AppendOperator, CfOptions, ColumnFamily, Db, MergeOperator, Options, ReadOptions, Result,
    Snapshot, SyncMode, WriteBatch, WriteOptions,
};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// Where the store lies in a simulated file system.
pub const DIR: &str = "/db";

/// When the workloads happen.
pub const START_MS: u64 = 1_000_000;

/// No wait of a test takes longer, on whatever machine: a guard against hanging, not a bound.
pub const HANG_GUARD: Duration = Duration::from_secs(600);

/// What a panic may carry: it panics when it is dropped.
pub struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Bomb);
    }
}

/// Waits until `done`; panics if that never happens.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < HANG_GUARD, "it never happens: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many times the size of a run on every change.
pub fn effort(count: u64) -> u64 {
    let effort = std::env::var("TERRACE_TEST_EFFORT").ok().and_then(|e| e.parse::<f64>().ok());
    ((count as f64 * effort.unwrap_or(1.0)) as u64).max(1)
}

/// Prints the seed if the test fails while this lives.
pub struct SeedNote(pub &'static str, pub u64);

impl Drop for SeedNote {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} failed, replay with SEED={}", self.0, self.1);
        }
    }
}

/// Runs `run` with one seed after the other until it has done `wanted` in sum; with `SEED` set,
/// with that one only. Gives the sum.
pub fn over_seeds(name: &'static str, wanted: u64, mut run: impl FnMut(u64, u64) -> u64) -> u64 {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        let _note = SeedNote(name, seed);
        return run(seed, wanted);
    }
    let (mut done, mut seed) = (0, 0);
    while done < wanted {
        let _note = SeedNote(name, seed);
        done += run(seed, wanted - done);
        seed += 1;
    }
    done
}

/// A clock whose wall stands at [`START_MS`].
pub fn stopped_clock() -> ManualClock {
    ManualClock::wall_at(START_MS)
}

/// Options under which a few hundred writes make flushes, levels and partitions.
pub fn small_options(vfs: Arc<dyn Vfs>, clock: &ManualClock) -> Options {
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    options.column_families =
        FAMILIES[1..].iter().map(|name| (name.to_string(), family_options(name))).collect();
    let a = &mut options.advanced;
    a.vfs = vfs;
    a.clock = Arc::new(clock.clone());
    a.memtable_bytes = 16 << 10;
    a.block_size = 512;
    a.metadata_block_size = 256;
    a.l0_compaction_trigger = 2;
    a.level_base_bytes = 16 << 10;
    a.level_multiplier = 4.0;
    a.target_file_bytes = 8 << 10;
    a.reserve_bytes = 8 << 10;
    options
}

/// Options of a family of the test stores.
pub fn family_options(name: &str) -> CfOptions {
    let separator = String::from_utf8_lossy(SEPARATOR).into_owned();
    let append = || Arc::new(AppendOperator::new(separator)) as Arc<dyn MergeOperator>;
    let merge_operator = (name == FAMILIES[MERGING]).then(append);
    CfOptions { merge_operator, ..CfOptions::default() }
}

/// An open store with its families, in the order of [`FAMILIES`].
pub struct Store {
    pub db: Db,
    pub families: Vec<ColumnFamily>,
}

impl Store {
    pub fn open(options: Options) -> Result<Self> {
        Ok(Self::of(Db::open(DIR, options)?))
    }

    pub fn open_read_only(options: Options) -> Result<Self> {
        Ok(Self::of(Db::open_read_only(DIR, options)?))
    }

    pub fn of(db: Db) -> Self {
        let families = FAMILIES.iter().filter_map(|name| db.column_family(name)).collect();
        Self { db, families }
    }

    pub fn write(&self, batch: &Batch, sync: Option<SyncMode>, now_ms: u64) -> Result<()> {
        let mut out = WriteBatch::new();
        for op in batch {
            match op {
                Op::Put { family, key, value, expiry_ms: None } => {
                    out.put_cf(&self.families[*family], key, value);
                }
                Op::Put { family, key, value, expiry_ms: Some(expiry) } => {
                    let ttl = Duration::from_millis(expiry - now_ms);
                    out.put_with_ttl_cf(&self.families[*family], key, value, ttl);
                }
                Op::Merge { family, key, operand } => {
                    out.merge_cf(&self.families[*family], key, operand);
                }
                Op::Delete { family, key } => out.delete_cf(&self.families[*family], key),
                Op::DeleteRange { family, start, end } => {
                    out.delete_range_cf(&self.families[*family], start, end);
                }
            }
        }
        self.db.write_with(out, &WriteOptions { sync })
    }

    /// Everything there is, by forward scans.
    pub fn contents(&self) -> Result<Contents> {
        let options = ReadOptions::default();
        self.families.iter().map(|family| scan(family, &options, false)).collect()
    }

    /// Compares point reads, batched reads and both scan directions with `want`.
    pub fn compare(
        &self,
        want: &Contents,
        keys: &[Vec<u8>],
    ) -> Result<std::result::Result<(), String>> {
        for (family, want) in self.families.iter().zip(want) {
            let name = family.name();
            let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
            let many = family.multi_get(keys)?;
            for (key, batched) in keys.iter().zip(many) {
                let one = family.get(key)?;
                let want = want.get(key).map(Vec::as_slice);
                if one.as_deref() != want {
                    return Ok(Err(format!("get {name}/{} is wrong", text(key))));
                }
                if batched.as_deref() != want {
                    return Ok(Err(format!("multi_get {name}/{} is wrong", text(key))));
                }
            }
            for backward in [false, true] {
                let got = scan(family, &ReadOptions::default(), backward)?;
                if got != *want {
                    return Ok(Err(format!("scan of {name} (backward: {backward}) is wrong")));
                }
            }
        }
        Ok(Ok(()))
    }
}

/// The entries that an iterator with `options` shows, checked to come in strict order.
pub fn scan(
    family: &ColumnFamily,
    options: &ReadOptions,
    backward: bool,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut iter = family.iter_with(options)?;
    let mut seen = BTreeMap::new();
    let mut last: Option<Vec<u8>> = None;
    if backward {
        iter.seek_to_last()?
    } else {
        iter.seek_to_first()?
    }
    while iter.valid() {
        let key = iter.key().to_vec();
        if let Some(last) = &last {
            assert!(if backward { key < *last } else { key > *last }, "a scan out of order");
        }
        seen.insert(key.clone(), iter.value().to_vec());
        last = Some(key);
        if backward { iter.prev()? } else { iter.next()? }
    }
    Ok(seen)
}

/// The keys that an iterator shows which reads no values.
fn keys_only(family: &ColumnFamily, options: &ReadOptions, backward: bool) -> Result<Vec<Vec<u8>>> {
    let options = ReadOptions { keys_only: true, ..options.clone() };
    let seen = scan(family, &options, backward)?;
    assert!(seen.values().all(Vec::is_empty), "a value where only keys are wanted");
    Ok(seen.into_keys().collect())
}

/// Walks to and fro from `from`, turning at random.
fn stroll(
    family: &ColumnFamily,
    options: &ReadOptions,
    contents: &BTreeMap<Vec<u8>, Vec<u8>>,
    from: &[u8],
    rng: &mut SplitMix64,
) {
    let entries: Vec<(&[u8], &[u8])> =
        contents.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    let mut iter = family.iter_with(options).unwrap();
    iter.seek(from).unwrap();
    let mut at = Some(entries.partition_point(|(key, _)| *key < from));
    let mut onward = true;
    for _ in 0..60 {
        at = at.filter(|at| *at < entries.len());
        let want = at.map(|at| entries[at]);
        assert_eq!(iter.valid().then(|| (iter.key(), iter.value())), want, "stroll");
        onward ^= rng.one_in(10);
        at = match onward {
            true => at.map(|at| at + 1),
            false => at.and_then(|at| at.checked_sub(1)),
        };
        if onward { iter.next().unwrap() } else { iter.prev().unwrap() }
    }
}

/// One step of a workload.
#[derive(Debug, Clone)]
pub enum Action {
    Write(Batch, Option<SyncMode>),
    Sync,
    Flush,
    Compact {
        family: usize,
        start: Vec<u8>,
        end: Vec<u8>,
    },
    Checkpoint(PathBuf),
    /// Into a family, files.
    Ingest(usize, Files),
    /// Of segments with at least this share of garbage.
    CollectGarbage(f64),
    TakeSnapshot,
    DropSnapshot,
    Advance(u64),
    Read,
}

/// How often what happens.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    pub keys: u64,
    pub value_bytes: u64,
    pub ttl: bool,
    pub checkpoints: bool,
    pub ingestions: bool,
    /// One write in this many is synced by itself; 0 for none.
    pub sync_one_in: u64,
    /// One action in this many flushes, compacts, or syncs.
    pub maintain_one_in: u64,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            keys: 150,
            value_bytes: 250,
            ttl: true,
            checkpoints: true,
            ingestions: true,
            sync_one_in: 8,
            maintain_one_in: 25,
        }
    }
}

/// Draws actions.
pub struct Generator {
    pub rng: SplitMix64,
    mix: Mix,
    clock: ManualClock,
    pub writes: u64,
    checkpoints: u64,
}

impl Generator {
    pub fn new(seed: u64, mix: Mix, clock: &ManualClock) -> Self {
        let rng = SplitMix64::new(seed ^ 0x7e77_ace0);
        Self { rng, mix, clock: clock.clone(), writes: 0, checkpoints: 0 }
    }

    pub fn key(&mut self) -> Vec<u8> {
        key(self.rng.below(self.mix.keys))
    }

    /// Every key that can occur, and some that cannot.
    pub fn universe(&self) -> Vec<Vec<u8>> {
        let absent = [b"".to_vec(), b"a".to_vec(), b"key-0000x".to_vec(), b"z".to_vec()];
        (0..self.mix.keys).map(key).chain(absent).collect()
    }

    pub fn next(&mut self) -> Action {
        if self.rng.one_in(self.mix.maintain_one_in) {
            return self.maintenance();
        }
        match self.rng.below(20) {
            0 => Action::TakeSnapshot,
            1 => Action::DropSnapshot,
            2 => Action::Read,
            3 if self.mix.ttl && self.rng.one_in(3) => Action::Advance(self.rng.below(4000)),
            _ => {
                let batch = self.batch();
                let sync = (self.mix.sync_one_in > 0 && self.rng.one_in(self.mix.sync_one_in))
                    .then_some(SyncMode::Batch);
                Action::Write(batch, sync)
            }
        }
    }

    fn maintenance(&mut self) -> Action {
        match self.rng.below(if self.mix.ingestions { 9 } else { 8 }) {
            8 => {
                let (family, files) = self.ingestion(self.mix);
                Action::Ingest(family, files)
            }
            7 => Action::CollectGarbage([0.0, 0.3, 0.9][self.rng.below(3) as usize]),
            0..=2 => Action::Flush,
            3 => Action::Sync,
            4 | 5 => {
                let (a, b) = (self.key(), self.key());
                let family = self.rng.below(FAMILIES.len() as u64) as usize;
                Action::Compact { family, start: a.clone().min(b.clone()), end: a.max(b) }
            }
            _ if self.mix.checkpoints => {
                self.checkpoints += 1;
                Action::Checkpoint(PathBuf::from(format!("/checkpoint-{}", self.checkpoints)))
            }
            _ => Action::Sync,
        }
    }

    /// A batch; one in three spans families.
    pub fn batch(&mut self) -> Batch {
        self.writes += 1;
        let spans = self.rng.one_in(3);
        let count = if spans { 2 + self.rng.below(6) } else { 1 };
        let home = if self.rng.one_in(2) { 0 } else { self.rng.below(3) as usize };
        (0..count)
            .map(|n| {
                let family = if spans { (home + n as usize) % FAMILIES.len() } else { home };
                self.op(family, n)
            })
            .collect()
    }

    fn op(&mut self, family: usize, n: u64) -> Op {
        match self.rng.below(24) {
            0..=2 => Op::Delete { family, key: self.key() },
            3 => {
                let from = self.rng.below(self.mix.keys);
                let end = key(from + 1 + self.rng.below(self.mix.keys / 8));
                Op::DeleteRange { family, start: key(from), end }
            }
            draw if family == MERGING && draw % 2 == 0 => {
                Op::Merge { family, key: self.key(), operand: self.value(n) }
            }
            draw => {
                let expires = self.mix.ttl && draw < 7;
                let key = self.key();
                self.put_until(family, key, expires, n)
            }
        }
    }

    /// A put of a value that no other has; it may expire.
    pub fn put_until(&mut self, family: usize, key: Vec<u8>, expires: bool, n: u64) -> Op {
        let ttl_ms = 500 + self.rng.below(8000);
        let expiry_ms = expires.then(|| self.clock.now_ms() + ttl_ms);
        Op::Put { family, key, value: self.value(n), expiry_ms }
    }

    /// A value that no other write has.
    pub fn value(&mut self, n: u64) -> Vec<u8> {
        let mut value = format!("{}.{n}:", self.writes).into_bytes();
        let len = match self.rng.below(30) {
            0 => self.mix.value_bytes * 8,
            _ => self.rng.below(self.mix.value_bytes),
        };
        let random = self.rng.one_in(3);
        for at in 0..len {
            value.push(if random { self.rng.next_u64() as u8 } else { b'a' + (at % 17) as u8 });
        }
        value
    }
}

pub fn key(number: u64) -> Vec<u8> {
    format!("key-{:02}-{number:04}", number % 7).into_bytes()
}

/// A workload that succeeds: executes actions, keeps the history, and notes what was promised.
pub struct Run {
    pub store: Store,
    pub generator: Generator,
    pub clock: ManualClock,
    pub history: History,
    pub state: State,
    pub marks: Arc<Marks>,
    snapshots: Vec<(Snapshot, State)>,
}

impl Run {
    pub fn new(
        options: Options,
        clock: &ManualClock,
        generator: Generator,
        marks: Arc<Marks>,
    ) -> Self {
        Self::with(Store::open(options).unwrap(), clock, generator, marks)
    }

    /// A run on a store that is open and empty.
    pub fn with(
        store: Store,
        clock: &ManualClock,
        generator: Generator,
        marks: Arc<Marks>,
    ) -> Self {
        Self {
            store,
            generator,
            clock: clock.clone(),
            history: Default::default(),
            state: State::default(),
            marks,
            snapshots: Vec::new(),
        }
    }

    /// Executes the next action; it must succeed.
    pub fn step(&mut self) {
        let action = self.generator.next();
        self.execute(&action);
    }

    pub fn execute(&mut self, action: &Action) {
        let count = || self.history.batches.len() as u64;
        match action {
            Action::Write(batch, sync) => self.write(batch, *sync),
            Action::Sync => {
                self.store.db.sync().unwrap();
                self.promise(count(), true);
            }
            Action::Flush => {
                self.store.db.flush().unwrap();
                self.promise(count(), true);
            }
            Action::Compact { family, start, end } => {
                let range = start.as_slice()..end.as_slice();
                self.store.families[*family].compact_range(range).unwrap();
                self.promise(count(), true);
            }
            Action::Checkpoint(path) => {
                self.store.db.checkpoint(path).unwrap();
                self.promise(count(), true);
                self.marks.checkpoints.lock().unwrap().push((path.clone(), count()));
            }
            Action::Ingest(family, files) => self.ingest(*family, files),
            Action::CollectGarbage(min_share) => {
                self.store.db.collect_garbage(*min_share).unwrap();
                self.promise(count(), true);
            }
            Action::TakeSnapshot => {
                self.snapshots.push((self.store.db.snapshot(), self.state.clone()));
            }
            Action::DropSnapshot => {
                if !self.snapshots.is_empty() {
                    let at = self.generator.rng.below(self.snapshots.len() as u64) as usize;
                    self.snapshots.swap_remove(at);
                }
            }
            Action::Advance(ms) => self.clock.advance(*ms),
            Action::Read => self.read(),
        }
    }

    fn write(&mut self, batch: &Batch, sync: Option<SyncMode>) {
        let count = self.history.batches.len() as u64 + 1;
        self.history.batches.push(batch.clone());
        self.marks.issued.store(count, Ordering::SeqCst);
        self.store.write(batch, sync, self.clock.now_ms()).unwrap();
        match sync.unwrap_or(self.store.db.options().sync) {
            _ if is_empty(batch) => {}
            SyncMode::Batch => self.promise(count, true),
            SyncMode::Buffered => {}
            _ => self.promise(count, false),
        }
        self.state.apply(batch);
    }

    pub fn promise(&self, count: u64, durable: bool) {
        if durable {
            self.marks.durable.store(count, Ordering::SeqCst);
        }
        self.marks.handed_over.store(count, Ordering::SeqCst);
    }

    /// Compares a few reads of every kind with the model.
    pub fn read(&mut self) {
        let now = self.clock.now_ms();
        let rng = &mut self.generator.rng;
        let family = rng.below(FAMILIES.len() as u64) as usize;
        let handle = &self.store.families[family];
        let at = rng.below(self.snapshots.len() as u64 + 1) as usize;
        let (snapshot, state) = match self.snapshots.get(at) {
            Some((snapshot, state)) => (Some(snapshot.clone()), state),
            None => (None, &self.state),
        };
        let contents = state.contents(now).swap_remove(family);
        let options = ReadOptions { snapshot, ..ReadOptions::default() };
        let keys: Vec<Vec<u8>> = (0..20).map(|_| self.generator.key()).collect();
        let many = handle.multi_get_with(&keys, &options).unwrap();
        for (key, batched) in keys.iter().zip(many) {
            let want = state.get(family, key, now);
            let got = handle.get_with(key, &options).unwrap();
            assert_eq!(got.as_deref(), want.as_deref(), "get");
            assert_eq!(batched.as_deref(), want.as_deref(), "multi_get");
        }
        let (a, b) = (self.generator.key(), self.generator.key());
        let (lower, upper) = (a.clone().min(b.clone()), a.max(b));
        let within = |lower: &Vec<u8>, upper: &Vec<u8>| -> BTreeMap<Vec<u8>, Vec<u8>> {
            let part = contents.range(lower.clone()..upper.clone());
            part.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let bounded = ReadOptions {
            lower_bound: Some(lower.clone()),
            upper_bound: Some(upper.clone()),
            ..options.clone()
        };
        let prefix = format!("key-{:02}", self.generator.rng.below(8)).into_bytes();
        let prefixed = ReadOptions { prefix: Some(prefix.clone()), ..options.clone() };
        let of_prefix: BTreeMap<Vec<u8>, Vec<u8>> = contents
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        for backward in [false, true] {
            assert_eq!(scan(handle, &options, backward).unwrap(), contents, "scan");
            let got = scan(handle, &bounded, backward).unwrap();
            assert_eq!(got, within(&lower, &upper), "bounded scan");
            assert_eq!(scan(handle, &prefixed, backward).unwrap(), of_prefix, "prefix scan");
            let keys = keys_only(handle, &bounded, backward).unwrap();
            let want = within(&lower, &upper).into_keys();
            assert_eq!(keys, want.collect::<Vec<_>>(), "scan of keys");
        }
        stroll(handle, &options, &contents, &lower, &mut self.generator.rng);
        let mut iter = handle.iter_with(&options).unwrap();
        for key in keys.iter().take(6) {
            iter.seek(key).unwrap();
            let want = contents.range(key.clone()..).next().map(|(key, _)| key.as_slice());
            assert_eq!(iter.valid().then(|| iter.key()), want, "seek");
            iter.seek_for_prev(key).unwrap();
            let want = contents.range(..=key.clone()).next_back().map(|(key, _)| key.as_slice());
            assert_eq!(iter.valid().then(|| iter.key()), want, "seek_for_prev");
        }
    }
}
