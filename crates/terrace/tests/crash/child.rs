//! The process that is killed: opens the store with the options of its round, checks all of it,
//! lets its threads go through their scripts while they read what they know, and closes it, unless
//! it dies before.

use crate::drawn;
use crate::expected::{Round, State};
use crate::journal::Journal;
use crate::kill::{self, KillVfs, OPERATION};
use crate::script::{
    COUNTED, COUNTER, Change, Content, KEYS, Model, OWN, Op, SHARED, Script, THREADS, bytes_of,
    counted_key, family_name, key, marker_key, may_be, prefix,
};
use crate::usage::{self, Call};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace::{CfOptions, ColumnFamily, Db, Error, IngestOptions, IngestSource, ReadOptions};
use terrace::{Snapshot, SstWriter, SyncMode, WriteBatch, WriteOptions};
use terrace_base::rng::{Rng, SplitMix64};

/// How the driver calls it.
pub const ORDERS: &str = "TERRACE_CRASH_ORDERS";

/// What a child is to do; one line of text.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Holds the store, the state before the round, journals and checkpoints.
    pub dir: PathBuf,
    pub round: u64,
    pub seed: u64,
    pub now_ms: u64,
    /// Operations of each thread.
    pub ops: u64,
    pub point: String,
    pub count: u64,
}

impl Orders {
    pub fn to_line(&self) -> String {
        let Self { dir, round, seed, now_ms, ops, point, count } = self;
        format!("{round} {seed} {now_ms} {ops} {point} {count} {}", dir.display())
    }

    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.splitn(7, ' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        Self {
            round: number(0),
            seed: number(1),
            now_ms: number(2),
            ops: number(3),
            point: words[4].to_string(),
            count: number(5),
            dir: PathBuf::from(words[6]),
        }
    }

    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    pub fn report(&self) -> PathBuf {
        self.dir.join("report")
    }
}

#[test]
#[ignore = "the process that the crash test starts and kills"]
fn child() {
    let Ok(line) = std::env::var(ORDERS) else { return };
    let orders = Orders::parse(&line);
    if let Err(why) = run(&orders) {
        eprintln!("child: {why}");
        std::process::exit(1);
    }
    kill::report();
    // The harness would go on to tell of a test that passed.
    std::process::exit(0);
}

fn run(orders: &Orders) -> Result<(), String> {
    kill::sentence(&orders.point, orders.count, &orders.report());
    let before = State::load(&orders.dir.join("before"));
    let round = Round { number: orders.round, seed: orders.seed, now_ms: orders.now_ms, before };
    let names: Vec<String> = SHARED[1..].iter().map(ToString::to_string).collect();
    let options = drawn::options(orders.seed, KillVfs::shared(), orders.now_ms, &names);
    let sync = options.sync;
    std::thread::spawn(|| {
        loop {
            // A little later than the thread that can say more, unless it hangs as well.
            std::thread::sleep(Duration::from_secs(15));
            if let Some(calls) = usage::hanging() {
                eprintln!("child: a call hangs; under way are\n{calls}");
                std::process::exit(3);
            }
        }
    });
    let db = {
        let _call = Call::of("open");
        Db::open(orders.store(), options).map_err(|e| format!("open: {e}"))?
    };
    check_all(&db, &round)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&db, &over));
        let result = work_and_close(&db, &round, orders, sync);
        over.store(true, Ordering::SeqCst);
        watch.join().unwrap().and(result)
    })
}

fn work_and_close(db: &Db, round: &Round, orders: &Orders, sync: SyncMode) -> Result<(), String> {
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let start = |thread: usize| {
            scope.spawn(move || {
                let mut worker = Worker::new(db, round, thread, &orders.dir, sync);
                let result = worker.work(orders.ops);
                result.map_err(|why| format!("thread {thread}, {}: {why}", worker.at))
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    results.into_iter().collect::<Result<Vec<()>, String>>()?;
    if orders.seed.is_multiple_of(3) {
        let _call = Call::of("wait_idle");
        db.wait_idle().map_err(|e| format!("wait_idle: {e}"))?;
    }
    let _call = Call::of("close");
    db.close().map_err(|e| format!("close: {e}"))
}

/// Looks at the memory while the threads work.
fn watch(db: &Db, over: &AtomicBool) -> Result<(), String> {
    while !over.load(Ordering::SeqCst) {
        usage::check_memory(db)?;
        if let Some(calls) = usage::hanging() {
            let busy = usage::busy_with(db);
            eprintln!("child: a call hangs; under way are\n{calls}the store is busy with {busy}");
            std::process::exit(3);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Compares everything that the store shows, by every way of reading, with the state before the
/// round: the driver has read it from the same files.
fn check_all(db: &Db, round: &Round) -> Result<(), String> {
    let _call = Call::of("the reads after the open");
    for (thread, model) in round.before.models.iter().enumerate() {
        let name = family_name(thread, OWN);
        if db.column_family(&name).is_some() != model.own_exists {
            return Err(format!(
                "after the open: family {name} should exist: {}",
                model.own_exists
            ));
        }
        for place in 0..=OWN {
            if let Some(family) = db.column_family(&family_name(thread, place)) {
                check_family(&family, thread, place, &model.seen(place, round.now_ms), None)
                    .map_err(|why| format!("after the open: {why}"))?;
            }
        }
    }
    let counter = db.get(COUNTER).map_err(|e| e.to_string())?;
    let counter = counter.map_or(0, |bytes| String::from_utf8_lossy(&bytes).parse().unwrap());
    match counter == round.before.counter {
        true => Ok(()),
        false => {
            Err(format!("after the open: the counter is {counter}, not {}", round.before.counter))
        }
    }
}

/// Compares a thread's part of a family with `want`, by point reads and scans in both directions.
fn check_family(
    family: &ColumnFamily,
    thread: usize,
    place: usize,
    want: &BTreeMap<u64, Content>,
    snapshot: Option<&Snapshot>,
) -> Result<(), String> {
    let name = family.name();
    let options = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    let keys: Vec<Vec<u8>> = (0..=KEYS).map(|number| key(thread, number)).collect();
    let many = family.multi_get_with(&keys, &options).map_err(|e| format!("multi_get: {e}"))?;
    for (number, (key, batched)) in keys.iter().zip(many).enumerate() {
        let want = want.get(&(number as u64));
        let one = family.get_with(key, &options).map_err(|e| format!("get: {e}"))?;
        let is = |got: Option<&[u8]>| match want {
            Some(want) => may_be(place, want, got),
            None => got.is_none(),
        };
        if !is(one.as_deref()) || !is(batched.as_deref()) {
            let want = want.map(bytes_of);
            let seen = [one.as_deref(), batched.as_deref(), want.as_deref()]
                .map(|v| v.map(|v| String::from_utf8_lossy(&v[..v.len().min(20)]).into_owned()));
            return Err(format!("{name}, key {number}: get, multi_get, expected are {seen:?}"));
        }
    }
    let options = ReadOptions { prefix: Some(prefix(thread)), ..options };
    for backward in [false, true] {
        let mut left: Vec<u64> = want.keys().copied().collect();
        if !backward {
            left.reverse();
        }
        let mut iter = family.iter_with(&options).map_err(|e| format!("iter: {e}"))?;
        let begun = if backward { iter.seek_to_last() } else { iter.seek_to_first() };
        begun.map_err(|e| format!("seek: {e}"))?;
        while iter.valid() {
            // What the compaction filter has removed does not come.
            while left
                .pop_if(|number| {
                    iter.key() != key(thread, *number) && may_be(place, &want[number], None)
                })
                .is_some()
            {}
            let next = left.pop();
            let is = |number: u64| {
                iter.key() == key(thread, number)
                    && may_be(place, &want[&number], Some(iter.value()))
            };
            if !next.is_some_and(is) {
                let got = String::from_utf8_lossy(iter.key()).into_owned();
                return Err(format!(
                    "{name}: a scan (backward: {backward}) is at {got}, not {next:?}"
                ));
            }
            let moved = if backward { iter.prev() } else { iter.next() };
            moved.map_err(|e| format!("scan: {e}"))?;
        }
        left.retain(|number| !may_be(place, &want[number], None));
        if let Some(missing) = left.last() {
            return Err(format!("{name}: a scan (backward: {backward}) ends before key {missing}"));
        }
    }
    Ok(())
}

/// One thread of the child.
struct Worker<'a> {
    db: &'a Db,
    round: &'a Round,
    thread: usize,
    dir: &'a Path,
    sync: SyncMode,
    model: Model,
    journal: Journal,
    snapshots: Vec<(Snapshot, Model)>,
    rng: SplitMix64,
    /// What it is at, for the message if it fails.
    at: String,
}

impl<'a> Worker<'a> {
    fn new(db: &'a Db, round: &'a Round, thread: usize, dir: &'a Path, sync: SyncMode) -> Self {
        Self {
            db,
            round,
            thread,
            dir,
            sync,
            model: round.before.models[thread].clone(),
            journal: Journal::create(dir, thread),
            snapshots: Vec::new(),
            rng: SplitMix64::new(round.seed ^ thread as u64),
            at: String::new(),
        }
    }

    fn work(&mut self, ops: u64) -> Result<(), String> {
        let own = self.model.own_exists;
        let mut script = Script::new(self.round.seed, self.thread, own, self.round.now_ms);
        for _ in 0..ops {
            let op = script.next();
            let number = self.journal.begin();
            self.at = format!("operation {number}, {op:.300?}");
            kill::pass(OPERATION);
            let call = Call::of(format!("thread {}: {op:.100?}", self.thread));
            self.execute(&op, number)?;
            drop(call);
            self.model.apply(&op);
            self.journal.acknowledge();
        }
        self.snapshots.clear();
        Ok(())
    }

    fn family(&self, place: usize) -> Result<ColumnFamily, String> {
        let name = family_name(self.thread, place);
        self.db.column_family(&name).ok_or_else(|| format!("there is no family {name}"))
    }

    fn execute(&mut self, op: &Op, number: u64) -> Result<(), String> {
        let db = self.db;
        let done = match op {
            Op::Write { batch, synced, marked } => {
                return self.write(batch, *synced, marked.then_some(number));
            }
            Op::Count => return self.count(number),
            Op::Read => return self.read(),
            Op::TakeSnapshot => {
                if self.snapshots.len() < 2 {
                    self.snapshots.push((db.snapshot(), self.model.clone()));
                }
                Ok(())
            }
            Op::ReadSnapshot => return self.read_snapshot(),
            Op::Flush => db.flush(),
            Op::Sync => db.sync(),
            Op::Compact { family, start, end } => {
                let (start, end) = (key(self.thread, *start), key(self.thread, *end));
                self.family(*family)?.compact_range(start..end)
            }
            Op::Collect(share) => db.collect_garbage(*share),
            Op::Checkpoint => {
                let name = format!("checkpoint-{}-{number}", self.thread);
                db.checkpoint(self.dir.join(name))
            }
            Op::Ingest { family, files } => return self.ingest(*family, files, number),
            Op::CreateOwn => {
                let options = CfOptions {
                    value_separation_threshold: [32, 1024, usize::MAX][number as usize % 3],
                    ..CfOptions::default()
                };
                db.create_column_family(&family_name(self.thread, OWN), options).map(drop)
            }
            Op::DropOwn => db.drop_column_family(&family_name(self.thread, OWN)),
            Op::SetOption(name, value) => db.set_option(name, value),
        };
        done.map_err(|error| error.to_string())
    }

    fn write(&self, batch: &[Change], synced: bool, mark: Option<u64>) -> Result<(), String> {
        let mut out = WriteBatch::new();
        for change in batch {
            let (Change::Put { family, .. }
            | Change::Merge { family, .. }
            | Change::Delete { family, .. }
            | Change::DeleteRange { family, .. }) = change;
            let family = self.family(*family)?;
            match change {
                Change::Put { key: number, value, expiry_ms: None, .. } => {
                    out.put_cf(&family, key(self.thread, *number), value.bytes());
                }
                Change::Put { key: number, value, expiry_ms: Some(expiry), .. } => {
                    out.put_until_cf(&family, key(self.thread, *number), value.bytes(), *expiry);
                }
                Change::Merge { key: number, value, .. } => {
                    out.merge_cf(&family, key(self.thread, *number), value.bytes());
                }
                Change::Delete { key: number, .. } => {
                    out.delete_cf(&family, key(self.thread, *number));
                }
                Change::DeleteRange { start, end, .. } => {
                    let (start, end) = (key(self.thread, *start), key(self.thread, *end));
                    out.delete_range_cf(&family, start, end);
                }
            }
        }
        if let Some(number) = mark {
            out.put(marker_key(self.thread), self.round.stamp(self.thread, number));
        }
        // A buffered log takes a write that is handed to the kernel, too.
        let sync = match (synced, self.sync) {
            (true, _) => Some(SyncMode::Batch),
            _ => None,
        };
        self.db.write_with(out, &WriteOptions { sync }).map_err(|e| e.to_string())
    }

    /// Writes files outside the store and ingests them.
    fn ingest(&self, family: usize, files: &[Vec<Change>], number: u64) -> Result<(), String> {
        let failed = |error: Error| error.to_string();
        let mut paths = Vec::new();
        for (at, changes) in files.iter().enumerate() {
            // The process may have died at the same operation before.
            let path = self.dir.join(format!("outside-{}-{number}-{at}.sst", self.thread));
            let _ = std::fs::remove_file(&path);
            let mut writer = SstWriter::create(&path, &CfOptions::default()).map_err(failed)?;
            for change in changes {
                let added = match change {
                    Change::Put { key: number, value, expiry_ms: None, .. } => {
                        writer.put(key(self.thread, *number), value.bytes())
                    }
                    Change::Put { key: number, value, expiry_ms: Some(expiry), .. } => {
                        writer.put_until(key(self.thread, *number), value.bytes(), *expiry)
                    }
                    Change::Merge { .. } => return Err("files have no operands".into()),
                    Change::Delete { key: number, .. } => writer.delete(key(self.thread, *number)),
                    Change::DeleteRange { start, end, .. } => {
                        writer.delete_range(key(self.thread, *start), key(self.thread, *end))
                    }
                };
                added.map_err(failed)?;
            }
            writer.finish().map_err(failed)?;
            paths.push(path);
        }
        let source = IngestSource::Move;
        let options = IngestOptions { source, ..IngestOptions::default() };
        self.family(family)?.ingest(&paths, &options).map(drop).map_err(failed)
    }

    /// One more increment of the shared counter, as often as it takes.
    fn count(&self, number: u64) -> Result<(), String> {
        loop {
            let mut transaction = self.db.transaction();
            let seen = transaction.get(COUNTER).map_err(|e| e.to_string())?;
            let seen: u64 = seen.map_or(0, |v| String::from_utf8_lossy(&v).parse().unwrap());
            let next = seen + 1;
            let stamp = self.round.stamp(self.thread, number);
            transaction.put(COUNTER, next.to_string());
            transaction.put(counted_key(next), &stamp);
            transaction.put(marker_key(self.thread), &stamp);
            if let Some(old) = next.checked_sub(COUNTED).filter(|old| *old > 0) {
                transaction.delete(counted_key(old));
            }
            match transaction.commit() {
                Ok(()) => return Ok(()),
                Err(Error::Conflict) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let place = self.rng.below(OWN as u64 + 1) as usize;
        if place == OWN && !self.model.own_exists {
            return Ok(());
        }
        let want = self.model.seen(place, self.round.now_ms);
        check_family(&self.family(place)?, self.thread, place, &want, None)
    }

    fn read_snapshot(&mut self) -> Result<(), String> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let (snapshot, model) = self.snapshots.remove(0);
        // A family of its own may have gone since.
        let place = self.rng.below(OWN as u64) as usize;
        let want = model.seen(place, self.round.now_ms);
        check_family(&self.family(place)?, self.thread, place, &want, Some(&snapshot))
            .map_err(|why| format!("at a snapshot: {why}"))
    }
}
