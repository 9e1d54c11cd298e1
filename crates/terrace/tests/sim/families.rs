//! Families that come and go: each client makes one of its own, writes, reads and drops it.
//!
//! Only its client writes to it, so at any moment it is known what it holds. In the history of the
//! other families such a write is a batch without operations: it has its place in the order, and what
//! is promised of that place is promised of it. All of this lasts over the lives of a store.

use crate::client::Place;
use crate::harness::{Store, scan};
use crate::model::{Batch, FAMILIES, Op};
use crate::plan::Shown;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use terrace::{CfOptions, ColumnFamily, ReadOptions, SyncMode, WriteBatch, WriteOptions};

/// What a client does with its family.
#[derive(Debug, Clone)]
pub enum OwnStep {
    /// Makes the family if it is not there, and drops it if it is.
    ComeOrGo,
    /// Makes the family if it is not there. The last says whether the write asks for a sync.
    Write(Batch, bool),
    Read,
    Compact,
}

impl fmt::Display for OwnStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(batch, sync) => write!(f, "own write{} (sync: {sync})", Shown(batch)),
            other => write!(f, "own {other:?}"),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Presence {
    #[default]
    Absent,
    There,
    /// It was being made or dropped when the power was cut or something failed.
    Unknown,
}

#[derive(Default)]
struct Family {
    presence: Presence,
    /// Visible writes in order, each with the number of batches that were visible then.
    writes: Vec<(usize, Batch)>,
    /// Writes that failed since: the log may end with one of them.
    failed: Vec<Batch>,
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

impl Family {
    fn after(&self, count: usize) -> Entries {
        let mut entries = Entries::new();
        self.writes[..count].iter().for_each(|(_, batch)| apply(&mut entries, batch));
        entries
    }

    /// Takes over what a recovery shows, if it may show that: all of the first `floor` batches, and
    /// no hole. `count` batches were recovered.
    fn recover(&mut self, seen: &Entries, floor: usize, count: usize) -> bool {
        let least = self.writes.partition_point(|(at, _)| *at <= floor);
        let prefix = (least..=self.writes.len()).rev().find(|n| self.after(*n) == *seen);
        let with_tail = |batch: &&Batch| {
            let mut entries = self.after(self.writes.len());
            apply(&mut entries, batch);
            entries == *seen
        };
        if let Some(prefix) = prefix {
            self.writes.truncate(prefix);
        } else if let Some(tail) = self.failed.iter().find(with_tail).cloned() {
            self.writes.push((count, tail));
        } else if self.presence == Presence::Unknown && seen.is_empty() {
            self.writes.clear();
        } else {
            return false;
        }
        self.failed.clear();
        true
    }
}

fn apply(entries: &mut Entries, batch: &Batch) {
    for op in batch {
        match op {
            Op::Put { key, value, .. } => drop(entries.insert(key.clone(), value.clone())),
            Op::Merge { .. } => panic!("these families have no merge operator"),
            Op::Delete { key, .. } => drop(entries.remove(key)),
            Op::DeleteRange { start, end, .. } => {
                entries.retain(|key, _| key < start || key >= end);
            }
        }
    }
}

fn encode(batch: &Batch, family: &ColumnFamily) -> WriteBatch {
    let mut out = WriteBatch::new();
    for op in batch {
        match op {
            Op::Put { key, value, .. } => out.put_cf(family, key, value),
            Op::Merge { .. } => panic!("these families have no merge operator"),
            Op::Delete { key, .. } => out.delete_cf(family, key),
            Op::DeleteRange { start, end, .. } => out.delete_range_cf(family, start, end),
        }
    }
    out
}

/// The clients' own families, over all lives.
#[derive(Default)]
pub struct Families(Mutex<BTreeMap<String, Family>>);

impl Families {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.0.lock().unwrap()
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Family)) {
        change(self.all().entry(name.into()).or_default());
    }

    /// What the family holds, if that is known.
    fn contents(&self, name: &str) -> Option<Entries> {
        let all = self.all();
        let family = all.get(name).filter(|family| family.presence == Presence::There)?;
        Some(family.after(family.writes.len()))
    }

    /// The store was opened, and what it has is durable.
    pub fn opened(&self, store: &Store) {
        for (name, family) in &mut *self.all() {
            if family.presence == Presence::Unknown {
                family.presence = match store.db.column_family(name) {
                    Some(_) => Presence::There,
                    None => Presence::Absent,
                };
            }
        }
    }

    /// Compares what a life left with what it must have left, and remembers it for the next.
    /// `floor` batches had to be there, `count` are.
    pub fn recovered(&self, store: &Store, floor: usize, count: usize) -> Result<(), String> {
        let mut all = self.all();
        for name in store.db.column_families() {
            if !FAMILIES.contains(&&*name) && !all.contains_key(&name) {
                return Err(format!("the family {name} was never made"));
            }
        }
        for (name, family) in &mut *all {
            let Some(handle) = store.db.column_family(name) else {
                match family.presence {
                    Presence::There => return Err(format!("LOST: the family {name}")),
                    _ => continue,
                }
            };
            if family.presence == Presence::Absent {
                return Err(format!("the family {name} was dropped, and is there again"));
            }
            let seen = scan(&handle, &ReadOptions::default(), false);
            let seen = seen.map_err(|error| format!("a scan of {name}: {error}"))?;
            if !family.recover(&seen, floor, count) {
                let at = family.writes.iter().map(|(at, _)| *at).collect::<Vec<_>>();
                return Err(format!(
                    "LOST or HOLE: {name} ({:?}) shows {} entries, which are no prefix of its writes \
                     {at:?} with all up to {floor}",
                    family.presence,
                    seen.len()
                ));
            }
        }
        Ok(())
    }
}

impl Place {
    /// Does a step with the family `name`, which nobody else writes to.
    pub fn own_step(&self, name: &str, step: &OwnStep) -> terrace::Result<()> {
        let found = self.store.db.column_family(name);
        match (step, found) {
            (OwnStep::ComeOrGo, None) => self.come(name).map(drop),
            (OwnStep::ComeOrGo, Some(family)) => self.go(name, &family),
            (OwnStep::Write(batch, sync), None) => {
                let family = self.come(name)?;
                self.write_own(name, &family, batch, *sync)
            }
            (OwnStep::Write(batch, sync), Some(family)) => {
                self.write_own(name, &family, batch, *sync)
            }
            (_, None) => Ok(()),
            (OwnStep::Compact, Some(family)) => family.compact_range::<&[u8]>(..),
            (OwnStep::Read, Some(family)) => {
                let Some(want) = self.families.contents(name) else { return Ok(()) };
                for backward in [false, true] {
                    let seen = scan(&family, &ReadOptions::default(), backward)?;
                    assert!(seen == want, "a scan of {name} is wrong (backward: {backward})");
                }
                for key in (0..crate::plan::KEYS).step_by(7).map(crate::plan::key) {
                    let got = family.get(&key)?;
                    assert!(got.as_deref() == want.get(&key).map(Vec::as_slice), "get in {name}");
                }
                Ok(())
            }
        }
    }

    fn come(&self, name: &str) -> terrace::Result<ColumnFamily> {
        self.families.change(name, |family| family.presence = Presence::Unknown);
        let made = self.store.db.create_column_family(name, CfOptions::default())?;
        if !self.disk.is_dead() {
            let presence = Presence::There;
            self.families.change(name, |family| *family = Family { presence, ..Family::default() });
        }
        Ok(made)
    }

    /// Drops the family; an iterator of before goes on showing what it held.
    fn go(&self, name: &str, handle: &ColumnFamily) -> terrace::Result<()> {
        let want = self.families.contents(name);
        let mut iter = handle.iter()?;
        iter.seek_to_first()?;
        self.families.change(name, |family| family.presence = Presence::Unknown);
        self.store.db.drop_column_family(name)?;
        if !self.disk.is_dead() {
            self.families.change(name, |family| *family = Family::default());
        }
        assert!(handle.get(b"key").is_err(), "{name} was dropped and is read");
        let mut seen = Entries::new();
        while iter.valid() {
            seen.insert(iter.key().to_vec(), iter.value().to_vec());
            iter.next()?;
        }
        assert!(want.is_none_or(|want| want == seen), "an iterator over {name}, which was dropped");
        Ok(())
    }

    fn write_own(
        &self,
        name: &str,
        handle: &ColumnFamily,
        batch: &Batch,
        sync: bool,
    ) -> terrace::Result<()> {
        let options = WriteOptions { sync: sync.then_some(SyncMode::Batch) };
        self.oracle.begin_write(Vec::new(), Vec::new());
        let result = self.store.db.write_with(encode(batch, handle), &options);
        let at = self.settle_write(result.is_ok(), sync);
        assert!(result.is_err() || at.is_some(), "a write that was acknowledged is not visible");
        self.families.change(name, |family| match at {
            Some(at) => {
                family.writes.push((at, batch.clone()));
                family.failed.clear();
            }
            None => family.failed.push(batch.clone()),
        });
        result
    }
}
