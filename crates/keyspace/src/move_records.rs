//! What a store knows of keys that are moved between instances: records in the family `cluster`, mirrored in
//! memory.
//!
//! ```text
//! placement  range              slots
//!            tag · db · key     slot · tag · db · key     01 Exception, 02 Intent, 03 KeyCopy
//!            FF · "fence" · shard u32                     the highest epoch seen, u64
//!            FF · "last" · shard u32                      the latest move that began: epoch u64, number u64
//! ```
//! Numbers in keys are big-endian, in values little-endian; the records of keys are encoded by
//! `terrace-cluster`. They change in one batch with the key that they are of, under its lock; the mirror after the
//! commit and before the lock is given back. So who holds the lock of a key sees what is in the store.

use crate::error::{Error, Result};
use crate::key_layout::KeyLayout;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use terrace::{ColumnFamily, Db};
use terrace_cluster::{
    CopyState, DbKey, Epoch, Exception, FlushId, Flushes, HomeKey, Intent, KeyCopy, MoveId,
    Refusal, ShardId,
};

/// Name of the family of records.
pub const CLUSTER: &str = "cluster";

const EXCEPTION: u8 = 1;
const INTENT: u8 = 2;
const COPY: u8 = 3;
pub(crate) const FENCE: &[u8] = b"\xFFfence";
const LAST: &[u8] = b"\xFFlast";

/// What a batch changes, once it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordChange {
    Home(DbKey, HomeKey),
    Copy(DbKey, Option<KeyCopy>),
    Last(ShardId, MoveId),
    Fence(ShardId, Epoch),
    /// A flush is announced, or executed. In memory only.
    FlushAnnounced(FlushId),
    FlushExecuted(FlushId),
}

/// A record as it is written: `None` deletes it.
pub(crate) type Record = (Vec<u8>, Option<Vec<u8>>);

#[derive(Default)]
struct Tables {
    homes: HashMap<DbKey, HomeKey>,
    copies: HashMap<DbKey, KeyCopy>,
    /// Copies that are hidden.
    hidden: usize,
    last: HashMap<ShardId, MoveId>,
    fences: HashMap<ShardId, Epoch>,
    flushes: Flushes,
}

/// See the module.
pub(crate) struct MoveRecords {
    layout: KeyLayout,
    family: OnceLock<ColumnFamily>,
    tables: RwLock<Tables>,
    /// Whether there are records of any key.
    has_keys: AtomicBool,
    /// Copies that scans do not see.
    hidden: AtomicUsize,
    /// The clock of announced flushes begins here.
    opened: Instant,
    /// Held by who begins or undoes a move, or raises a fence: these read before they write.
    pub turn: Mutex<()>,
}

impl MoveRecords {
    /// What is in a store.
    pub fn load(db: &Db, layout: KeyLayout) -> Result<Self> {
        let (family, mut tables) = (OnceLock::new(), Tables::default());
        if let Some(stored) = db.column_family(CLUSTER) {
            let mut iter = stored.iter()?;
            iter.seek_to_first()?;
            while iter.valid() {
                tables.read(layout, iter.key(), iter.value()).ok_or_else(damaged)?;
                iter.next()?;
            }
            family.get_or_init(|| stored);
        }
        let records = Self {
            layout,
            family,
            tables: RwLock::new(tables),
            has_keys: AtomicBool::new(false),
            hidden: AtomicUsize::new(0),
            opened: Instant::now(),
            turn: Mutex::new(()),
        };
        records.count(&records.tables.read());
        Ok(records)
    }

    /// The family, which is made when the first record is written.
    pub fn family(&self, db: &Db) -> Result<&ColumnFamily> {
        if let Some(family) = self.family.get() {
            return Ok(family);
        }
        let made = match db.column_family(CLUSTER) {
            Some(family) => family,
            None => db.create_column_family(CLUSTER, db.options().default_family.clone())?,
        };
        Ok(self.family.get_or_init(|| made))
    }

    /// What changes in the store. The lock of its key is held.
    pub fn encode(&self, change: &RecordChange) -> Vec<Record> {
        match change {
            RecordChange::Home(key, home) => {
                let mut records = vec![(self.key(INTENT, key), home.intent.map(Intent::encode))];
                // Most steps of a move leave it as it is, and a full disk takes few bytes, or what deletes.
                if self.home(key).exception != home.exception {
                    let exception = home.exception.map(Exception::encode);
                    records.push((self.key(EXCEPTION, key), exception));
                }
                records
            }
            RecordChange::Copy(key, copy) => vec![(self.key(COPY, key), copy.map(KeyCopy::encode))],
            RecordChange::Last(shard, MoveId { epoch, number }) => {
                let value = [epoch.0.to_le_bytes(), number.to_le_bytes()].concat();
                vec![([LAST, &shard.0.to_be_bytes()].concat(), Some(value))]
            }
            RecordChange::Fence(shard, epoch) => {
                let key = [FENCE, &shard.0.to_be_bytes()].concat();
                vec![(key, Some(epoch.0.to_le_bytes().to_vec()))]
            }
            RecordChange::FlushAnnounced(_) | RecordChange::FlushExecuted(_) => Vec::new(),
        }
    }

    /// These are committed.
    pub fn apply(&self, changes: impl Iterator<Item = RecordChange>) {
        let mut tables = self.tables.write();
        for change in changes {
            tables.apply(change, self.opened.elapsed());
        }
        self.count(&tables);
    }

    fn count(&self, tables: &Tables) {
        self.hidden.store(tables.hidden, Ordering::Release);
        let has_keys = !tables.homes.is_empty() || !tables.copies.is_empty();
        self.has_keys.store(has_keys, Ordering::Release);
    }

    /// What home knows of a key.
    pub fn home(&self, key: &DbKey) -> HomeKey {
        self.look_up(|tables| tables.homes.get(key).copied()).unwrap_or_default()
    }

    /// The copy of another shard's key.
    pub fn copy(&self, key: &DbKey) -> Option<KeyCopy> {
        self.look_up(|tables| tables.copies.get(key).copied())
    }

    /// Whether there are records of any key.
    pub fn has_keys(&self) -> bool {
        // Acquire: with the lock of the key that was given back after the commit.
        self.has_keys.load(Ordering::Acquire)
    }

    fn look_up<T>(&self, of: impl FnOnce(&Tables) -> Option<T>) -> Option<T> {
        match self.has_keys() {
            true => of(&self.tables.read()),
            false => None,
        }
    }

    /// How many keys of the store scans do not see.
    pub fn hidden(&self) -> usize {
        self.hidden.load(Ordering::Acquire)
    }

    /// Whether scans do not see a key.
    pub fn hides(&self, db: u8, key: &[u8]) -> bool {
        let state = |copy: KeyCopy| copy.state == CopyState::Hidden;
        self.hidden() > 0 && self.copy(&DbKey::new(db, key)).is_some_and(state)
    }

    /// Whether this store may take part in moves. Asked under the lock of a key of the move.
    pub fn may_move(&self) -> std::result::Result<(), Refusal> {
        self.tables.read().flushes.may_move(self.opened.elapsed())
    }

    /// Whether a flush may be executed. Asked under all locks.
    pub fn is_announced(&self, id: FlushId) -> bool {
        self.tables.read().flushes.is_announced(id, self.opened.elapsed())
    }

    pub fn last(&self, shard: ShardId) -> MoveId {
        self.tables.read().last.get(&shard).copied().unwrap_or_default()
    }

    pub fn fence(&self, shard: ShardId) -> Epoch {
        self.tables.read().fences.get(&shard).copied().unwrap_or_default()
    }

    pub fn homes(&self) -> Vec<(DbKey, HomeKey)> {
        self.tables.read().homes.iter().map(|(key, home)| (key.clone(), *home)).collect()
    }

    pub fn copies(&self) -> Vec<(DbKey, KeyCopy)> {
        self.tables.read().copies.iter().map(|(key, copy)| (key.clone(), *copy)).collect()
    }

    fn key(&self, tag: u8, key: &DbKey) -> Vec<u8> {
        let mut bytes = self.layout.user_key(key.db, &key.key);
        bytes.insert(self.layout.slot_bytes(), tag);
        bytes
    }
}

impl Tables {
    fn apply(&mut self, change: RecordChange, now: Duration) {
        match change {
            RecordChange::Home(key, home) if home == HomeKey::default() => {
                self.homes.remove(&key);
            }
            RecordChange::Home(key, home) => {
                self.homes.insert(key, home);
            }
            RecordChange::Copy(key, copy) => {
                let before = match copy {
                    Some(copy) => self.copies.insert(key, copy),
                    None => self.copies.remove(&key),
                };
                let is_hidden = |copy: Option<KeyCopy>| {
                    usize::from(copy.is_some_and(|copy| copy.state == CopyState::Hidden))
                };
                self.hidden = self.hidden + is_hidden(copy) - is_hidden(before);
            }
            RecordChange::Last(shard, id) => {
                self.last.insert(shard, id);
            }
            RecordChange::Fence(shard, epoch) => {
                self.fences.insert(shard, epoch);
            }
            RecordChange::FlushAnnounced(id) => self.flushes.announce(id, now),
            RecordChange::FlushExecuted(id) => self.flushes.end(id),
        }
    }

    /// Takes in a stored record; `None` if it is damaged.
    fn read(&mut self, layout: KeyLayout, key: &[u8], value: &[u8]) -> Option<()> {
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let shard = |bytes: &[u8]| bytes.try_into().ok().map(|it| ShardId(u32::from_be_bytes(it)));
        if let Some(of) = key.strip_prefix(FENCE) {
            self.fences.insert(shard(of)?, Epoch(number(value)?));
            return Some(());
        }
        if let Some(of) = key.strip_prefix(LAST) {
            let (epoch, count) = value.split_at_checked(8)?;
            let id = MoveId { epoch: Epoch(number(epoch)?), number: number(count)? };
            self.last.insert(shard(of)?, id);
            return Some(());
        }
        let (tag, rest) = key.get(layout.slot_bytes()..)?.split_first()?;
        let (db, key) = rest.split_first()?;
        let key = DbKey::new(*db, key);
        match *tag {
            EXCEPTION => {
                let exception = Some(Exception::decode(value).ok()?);
                let intent = self.homes.get(&key).and_then(|home| home.intent);
                self.homes.insert(key, HomeKey::recovered(exception, intent));
            }
            INTENT => {
                let intent = Some(Intent::decode(value).ok()?);
                let exception = self.homes.get(&key).and_then(|home| home.exception);
                self.homes.insert(key, HomeKey::recovered(exception, intent));
            }
            COPY => {
                let change = RecordChange::Copy(key, Some(KeyCopy::decode(value).ok()?));
                self.apply(change, Duration::ZERO);
            }
            _ => return None,
        }
        Some(())
    }
}

fn damaged() -> Error {
    let what = "the family of key moves has a damaged record".into();
    Error::Engine(terrace::Error::InvalidArgument(what))
}
