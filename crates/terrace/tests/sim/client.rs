//! One client: does its steps, and compares every answer with the oracle.

use crate::disk::Disk;
use crate::families::{Families, OwnStep};
use crate::harness::{DIR, Store};
use crate::model::{Batch, Op};
use crate::oracle::{Oracle, ReadOf};
use crate::plan::{START_MS, Step};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::{
    Clock, Db, Error, Iter, ReadOptions, Result, Snapshot, SyncMode, WriteBatch, WriteOptions,
};
use terrace_base::sync::{simulation, thread};

/// The simulation's clock: monotonic time is virtual, the wall clock is turned by clients.
#[derive(Clone, Default)]
pub struct SimClock(Arc<AtomicU64>);

impl SimClock {
    pub fn turn(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn wall_ms(&self) -> u64 {
        START_MS + self.0.load(Ordering::Relaxed)
    }

    fn monotonic_us(&self) -> u64 {
        simulation::elapsed().as_micros() as u64
    }
}

/// What the clients of one life share.
#[derive(Clone)]
pub struct Place {
    pub store: Arc<Store>,
    pub oracle: Arc<Oracle>,
    pub families: Arc<Families>,
    pub disk: Disk,
    pub clock: SimClock,
    pub checkpoints: Arc<AtomicU64>,
    /// See [`Life::believes_writes`](crate::plan::Life::believes_writes).
    pub believes_writes: bool,
}

/// A snapshot, and the prefixes that it may be of.
struct Held {
    snapshot: Snapshot,
    prefixes: Vec<usize>,
}

/// An iterator that is read a little at a time.
struct Open {
    iter: Iter,
    family: usize,
    seen: Vec<(Vec<u8>, Vec<u8>)>,
    prefixes: Vec<usize>,
    opened_ms: u64,
}

pub struct Client {
    place: Place,
    /// The name of the family that is its own.
    own: String,
    snapshots: Vec<Held>,
    iter: Option<Open>,
}

impl Client {
    pub fn new(place: Place, number: usize) -> Self {
        Self { place, own: format!("own-{number}"), snapshots: Vec::new(), iter: None }
    }

    /// Does all steps, or as many as there are before the power is cut.
    pub fn run(mut self, steps: Vec<Step>) {
        for step in steps {
            if self.place.disk.is_dead() {
                return;
            }
            simulation::begin_call(call(&step));
            simulation::record("begin", &step.to_string(), self.place.oracle.visible() as u64);
            let result = self.step(step.clone());
            simulation::record("end", &outcome(&result), self.place.oracle.visible() as u64);
            simulation::end_call();
            match result {
                Ok(()) => {}
                Err(Error::Conflict) => self.place.oracle.note_conflict(),
                Err(error) => self.place.accept(&step, &error),
            }
        }
    }

    fn step(&mut self, step: Step) -> Result<()> {
        let store = self.place.store.clone();
        let from = self.place.oracle.visible();
        match step {
            Step::Write(batch, sync) => self.write(&batch, sync),
            Step::Transaction(reads, batch) => self.transact(&reads, &batch),
            Step::Get(family, key) => {
                let now = self.place.clock.wall_ms();
                let got = store.families[family].get(&key)?;
                self.place.check_get(from, family, &key, now, got.as_deref());
                Ok(())
            }
            Step::MultiGet(family, keys) => self.multi_get(family, &keys),
            Step::Scan { family, backward } => self.scan(family, backward, None).map(drop),
            Step::TakeSnapshot => {
                let snapshot = store.db.snapshot();
                let prefixes = self.place.oracle.window(from).collect();
                self.snapshots.push(Held { snapshot, prefixes });
                Ok(())
            }
            Step::DropSnapshot => {
                drop(self.snapshots.pop());
                Ok(())
            }
            Step::ReadSnapshot { family, key, scan } => self.read_snapshot(family, &key, scan),
            Step::OpenIter(family) => self.open_iter(family),
            Step::ReadIter(count) => self.read_iter(count),
            Step::Flush => store.db.flush().map(|()| self.place.oracle.promise(from)),
            Step::Sync => store.db.sync().map(|()| self.place.oracle.promise(from)),
            Step::Compact { family, start, end } => {
                store.families[family].compact_range(start..end)?;
                self.place.oracle.promise(from);
                Ok(())
            }
            Step::CollectGarbage(share) => store.db.collect_garbage(share),
            Step::Checkpoint => self.checkpoint(),
            Step::WaitIdle => store.db.wait_idle(),
            Step::Verify => store.db.verify().map(drop),
            Step::TurnClock(ms) => {
                self.place.clock.turn(ms);
                Ok(())
            }
            Step::Budget(bytes) => store.db.set_memory_budget(bytes),
            Step::Split(split) => {
                store.db.set_memory_split(split);
                Ok(())
            }
            Step::Own(step) => self.place.own_step(&self.own, &step),
            Step::Sleep(time) => {
                thread::sleep(time);
                Ok(())
            }
        }
    }

    fn write(&self, batch: &Batch, sync: bool) -> Result<()> {
        let Place { store, oracle, .. } = &self.place;
        oracle.begin_write(batch.clone(), Vec::new());
        let options = WriteOptions { sync: sync.then_some(SyncMode::Batch) };
        let result = match (&batch[..], sync) {
            // The calls for one operation have a way of their own.
            ([Op::Put { family, key, value, expiry_ms: None }], false) => {
                store.families[*family].put(key, value)
            }
            ([Op::Merge { family, key, operand }], false) => {
                store.families[*family].merge(key, operand)
            }
            ([Op::Delete { family, key }], false) => store.families[*family].delete(key),
            _ => store.db.write_with(encode(store, batch), &options),
        };
        self.place.settle_write(result.is_ok(), sync);
        result
    }

    fn transact(&self, reads: &[(usize, Vec<u8>)], batch: &Batch) -> Result<()> {
        let Place { store, oracle, clock, .. } = &self.place;
        let from = oracle.visible();
        let mut transaction = store.db.transaction();
        let mut prefixes: Vec<usize> = oracle.window(from).collect();
        let mut seen: Vec<ReadOf> = Vec::new();
        for (family, key) in reads {
            let now = clock.wall_ms();
            let got = transaction.get_cf(&store.families[*family], key)?;
            if clock.wall_ms() == now {
                let right = oracle.check_get(prefixes, *family, key, now, got.as_deref());
                prefixes = right.unwrap_or_else(|why| panic!("in a transaction: {why}"));
            }
            seen.push((*family, key.clone(), got.map(|value| value.to_vec())));
        }
        for op in batch {
            match op {
                Op::Put { family, key, value, .. } => {
                    transaction.put_cf(&store.families[*family], key, value);
                }
                Op::Merge { family, key, operand } => {
                    transaction.merge_cf(&store.families[*family], key, operand);
                }
                Op::Delete { family, key } => transaction.delete_cf(&store.families[*family], key),
                Op::DeleteRange { .. } => {}
            }
        }
        oracle.begin_write(without_ranges(batch), seen);
        let result = transaction.commit();
        self.place.settle_write(result.is_ok(), false);
        result
    }

    fn multi_get(&self, family: usize, keys: &[Vec<u8>]) -> Result<()> {
        let Place { store, oracle, clock, .. } = &self.place;
        let (from, now) = (oracle.visible(), clock.wall_ms());
        let got = store.families[family].multi_get(keys)?;
        if clock.wall_ms() != now {
            return Ok(());
        }
        let mut prefixes: Vec<usize> = oracle.window(from).collect();
        for (key, got) in keys.iter().zip(got) {
            let right = oracle.check_get(prefixes, family, key, now, got.as_deref());
            prefixes = right.unwrap_or_else(|why| panic!("multi_get: {why}"));
        }
        Ok(())
    }

    /// Scans all of a family; at a snapshot, gives the prefixes of those given that it may be of.
    fn scan(
        &self,
        family: usize,
        backward: bool,
        at: Option<(&Snapshot, Vec<usize>)>,
    ) -> Result<Option<Vec<usize>>> {
        let Place { store, oracle, clock, .. } = &self.place;
        let (from, now) = (oracle.visible(), clock.wall_ms());
        let snapshot = at.as_ref().map(|(snapshot, _)| (*snapshot).clone());
        let options = ReadOptions { snapshot, ..ReadOptions::default() };
        let seen = crate::harness::scan(&store.families[family], &options, backward)?;
        if clock.wall_ms() != now {
            return Ok(None);
        }
        let seen: Vec<_> = seen.into_iter().collect();
        let prefixes = at.map_or_else(|| oracle.window(from).collect(), |(_, prefixes)| prefixes);
        match oracle.check_scan(prefixes, family, now, &seen, true) {
            Ok(right) => Ok(Some(right)),
            Err(why) => panic!("{why} (backward: {backward})"),
        }
    }

    fn read_snapshot(&mut self, family: usize, key: &[u8], scan: bool) -> Result<()> {
        let Some(held) = self.snapshots.first() else { return Ok(()) };
        let Place { store, oracle, clock, .. } = &self.place;
        let prefixes = held.prefixes.clone();
        let right = if scan {
            self.scan(family, false, Some((&held.snapshot, prefixes)))?
        } else {
            let now = clock.wall_ms();
            let snapshot = Some(held.snapshot.clone());
            let options = ReadOptions { snapshot, ..ReadOptions::default() };
            let got = store.families[family].get_with(key, &options)?;
            (clock.wall_ms() == now).then(|| {
                let right = oracle.check_get(prefixes, family, key, now, got.as_deref());
                right.unwrap_or_else(|why| panic!("at a snapshot: {why}"))
            })
        };
        if let Some(right) = right {
            self.snapshots[0].prefixes = right;
        }
        Ok(())
    }

    fn open_iter(&mut self, family: usize) -> Result<()> {
        let Place { store, oracle, clock, .. } = &self.place;
        self.iter = None;
        let (from, opened_ms) = (oracle.visible(), clock.wall_ms());
        let mut iter = store.families[family].iter()?;
        let prefixes = oracle.window(from).collect();
        iter.seek_to_first()?;
        self.iter = Some(Open { iter, family, seen: Vec::new(), prefixes, opened_ms });
        Ok(())
    }

    fn read_iter(&mut self, count: usize) -> Result<()> {
        let Some(open) = &mut self.iter else { return Ok(()) };
        for _ in 0..count {
            if !open.iter.valid() {
                break;
            }
            open.seen.push((open.iter.key().to_vec(), open.iter.value().to_vec()));
            if let Err(error) = open.iter.next() {
                self.iter = None;
                return Err(error);
            }
        }
        if self.place.clock.wall_ms() != open.opened_ms {
            self.iter = None;
            return Ok(());
        }
        let prefixes = std::mem::take(&mut open.prefixes);
        let (seen, whole) = (&open.seen, !open.iter.valid());
        let right =
            self.place.oracle.check_scan(prefixes, open.family, open.opened_ms, seen, whole);
        open.prefixes = right.unwrap_or_else(|why| panic!("an iterator: {why}"));
        Ok(())
    }

    fn checkpoint(&self) -> Result<()> {
        let Place { store, oracle, clock, .. } = &self.place;
        let number = self.place.checkpoints.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("{DIR}-checkpoint-{number}"));
        let (from, now) = (oracle.visible(), clock.wall_ms());
        store.db.checkpoint(&path)?;
        oracle.promise(from);
        let mut prefixes: Vec<usize> = oracle.window(from).collect();
        let copy = Store::of(Db::open_read_only(&path, store.db.options().clone())?);
        for (family, contents) in copy.contents()?.into_iter().enumerate() {
            let contents: Vec<_> = contents.into_iter().collect();
            if clock.wall_ms() == now {
                let right = oracle.check_scan(prefixes, family, now, &contents, true);
                prefixes = right.unwrap_or_else(|why| panic!("a checkpoint: {why}"));
            }
        }
        Ok(())
    }
}

impl Place {
    /// An error is right only if something was made to fail, and damage never is.
    fn accept(&self, step: &Step, error: &Error) {
        let damage = matches!(error, Error::Corruption(_) | Error::Unsupported(_));
        let expected = self.disk.is_troubled() && !damage;
        assert!(expected, "`{}` failed: {error}", call(step));
    }

    fn check_get(&self, from: usize, family: usize, key: &[u8], now: u64, got: Option<&[u8]>) {
        if self.clock.wall_ms() == now
            && let Err(why) = self.oracle.check_get(self.oracle.window(from), family, key, now, got)
        {
            panic!("{why}");
        }
    }

    /// What a write that returned has promised; gives its place among the visible ones.
    pub fn settle_write(&self, ok: bool, sync: bool) -> Option<usize> {
        let mode = self.store.db.options().sync;
        let durable = sync || mode == SyncMode::Batch || self.believes_writes;
        // What is acknowledged after the power was cut is acknowledged by a dead process.
        let alive = !self.disk.is_dead();
        let (durable, handed_over) = (durable && alive, mode != SyncMode::Buffered && alive);
        if !sync || mode == SyncMode::Batch {
            return self.oracle.end_write(ok, durable, handed_over);
        }
        let at = self.oracle.end_visible_write(ok, durable, handed_over);
        let goes_on = || self.store.db.check_writable().is_ok();
        assert!(
            ok || at.is_none() || !goes_on(),
            "a write failed and is visible, and others go on"
        );
        at
    }
}

fn outcome(result: &Result<()>) -> String {
    result.as_ref().map_or_else(ToString::to_string, |()| "ok".into())
}

/// What a step is called in reports.
fn call(step: &Step) -> String {
    match step {
        Step::Write(batch, sync) => format!("write of {} (sync: {sync})", batch.len()),
        Step::Own(OwnStep::Write(batch, sync)) => {
            format!("own write of {} (sync: {sync})", batch.len())
        }
        Step::Transaction(_, batch) => format!("transaction of {}", batch.len()),
        other => other.to_string(),
    }
}

fn without_ranges(batch: &Batch) -> Batch {
    let kept = batch.iter().filter(|op| !matches!(op, Op::DeleteRange { .. })).cloned();
    kept.map(|op| match op {
        Op::Put { family, key, value, .. } => Op::Put { family, key, value, expiry_ms: None },
        op => op,
    })
    .collect()
}

fn encode(store: &Store, batch: &Batch) -> WriteBatch {
    let mut out = WriteBatch::new();
    for op in batch {
        match op {
            Op::Put { family, key, value, expiry_ms: None } => {
                out.put_cf(&store.families[*family], key, value);
            }
            Op::Put { family, key, value, expiry_ms: Some(expiry) } => {
                out.put_until_cf(&store.families[*family], key, value, *expiry);
            }
            Op::Merge { family, key, operand } => {
                out.merge_cf(&store.families[*family], key, operand);
            }
            Op::Delete { family, key } => out.delete_cf(&store.families[*family], key),
            Op::DeleteRange { family, start, end } => {
                out.delete_range_cf(&store.families[*family], start, end);
            }
        }
    }
    out
}
