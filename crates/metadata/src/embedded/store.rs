//! The map, its leases, and how a transaction becomes durable.

use super::history::History;
use crate::error::{Error, Result};
use crate::metadata::{
    Change, Changes, Compare, Entry, Grant, LeaseId, Metadata, Snapshot, Transaction, Watch, Write,
};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use terrace::{CfOptions, Clock, ColumnFamily, Db, SyncMode, WriteBatch, WriteOptions};
use tokio::sync::watch;

const FAMILY: &str = "metadata";
const REVISION: &[u8] = b"r";
const ENTRIES: &[u8] = b"k";

/// How often a watch that waits looks for leases that have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// See the module. Clones are the same map.
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
}

struct Shared {
    db: Db,
    family: ColumnFamily,
    clock: Arc<dyn Clock>,
    /// Locked while a transaction is synced, which may take as long as the device likes.
    state: Mutex<State>,
    /// Locked for moments only, by those who hold the state as well: a keep-alive never waits for a sync, so that a slow
    /// device ends no lease whose holder lives.
    leases: Mutex<Leases>,
    /// The last revision, for watches that wait.
    revision: watch::Sender<u64>,
}

struct State {
    entries: BTreeMap<Vec<u8>, Entry>,
    revision: u64,
    history: History,
    /// Leases that have ended, and whose keys are still to be deleted.
    ended: Vec<LeaseId>,
    /// After a write of which it is unknown what is durable, no other.
    is_broken: bool,
}

#[derive(Default)]
struct Leases {
    /// Those that were not found to have ended.
    known: HashMap<LeaseId, Lease>,
    last: i64,
}

struct Lease {
    ttl: Duration,
    ends_at_us: u64,
}

impl Leases {
    /// Gives a lease from `now_us` on.
    fn grant(&mut self, ttl: Duration, now_us: u64) -> Grant {
        self.last += 1;
        let lease = LeaseId(self.last);
        self.known.insert(lease, Lease { ttl, ends_at_us: end_us(now_us, ttl) });
        Grant { lease, ttl }
    }

    /// Begins the time of a lease again; `None` if it has ended.
    fn keep_alive(&mut self, lease: LeaseId, now_us: u64) -> Option<Grant> {
        let found = self.known.get_mut(&lease).filter(|lease| now_us < lease.ends_at_us)?;
        found.ends_at_us = end_us(now_us, found.ttl);
        Some(Grant { lease, ttl: found.ttl })
    }

    /// Forgets those that have ended, and gives them.
    fn take_ended(&mut self, now_us: u64) -> Vec<LeaseId> {
        self.known.extract_if(|_, lease| lease.ends_at_us <= now_us).map(|(id, _)| id).collect()
    }
}

fn end_us(now_us: u64, ttl: Duration) -> u64 {
    now_us.saturating_add(ttl.as_micros() as u64)
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("path", &self.shared.db.path()).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens the map in a family of its own of `db`; all leases have ended. One at a time: what another
    /// one of the same store writes is not seen.
    ///
    /// # Errors
    /// The store fails, or the family holds something else.
    pub fn open(db: &Db, clock: Arc<dyn Clock>) -> Result<Self> {
        let family = match db.column_family(FAMILY) {
            Some(family) => family,
            None => db.create_column_family(FAMILY, CfOptions::default())?,
        };
        let damaged = || Error::Refused(format!("family {FAMILY} holds something else"));
        let revision = match family.get(REVISION)? {
            None => 0,
            Some(bytes) => u64::from_le_bytes(bytes.as_ref().try_into().map_err(|_| damaged())?),
        };
        let mut entries = BTreeMap::new();
        let mut iter = family.prefix(ENTRIES)?;
        iter.seek_to_first()?;
        while iter.valid() {
            let key = iter.key()[ENTRIES.len()..].to_vec();
            let value = iter.value();
            let (mod_revision, value) = value.split_first_chunk().ok_or_else(damaged)?;
            let (mod_revision, value) = (u64::from_le_bytes(*mod_revision), value.to_vec());
            entries.insert(key.clone(), Entry { key, value, mod_revision, lease: None });
            iter.next()?;
        }
        let history = History::after(revision);
        let state = State { entries, revision, history, ended: Vec::new(), is_broken: false };
        let (db, state, leases) = (db.clone(), Mutex::new(state), Mutex::default());
        let revision = watch::Sender::new(revision);
        Ok(Self { shared: Arc::new(Shared { db, family, clock, state, leases, revision }) })
    }
}

/// Whether nothing of a batch that failed with `error` counts, now or after a restart: the engine refused it as it is, or before
/// it was in the log, or could not append it and has taken back what it left there. Where the log is unknown the store is
/// poisoned. (If what was left cannot be taken back either, a kill before the next write may bring the batch back.)
fn has_written_nothing(error: &terrace::Error) -> bool {
    use terrace::Error::{Conflict, DiskFull, InvalidArgument, Io, NoSuchFamily, WriteStopped};
    let is_refused_as_it_is = matches!(error, Conflict | InvalidArgument(_) | NoSuchFamily(_));
    is_refused_as_it_is || matches!(error, DiskFull(_) | Io(_) | WriteStopped(_))
}

impl Shared {
    /// Does `work` on the state, after the leases that have ended by now are gone. What cannot be written of that, as on a
    /// full disk, is done by one of the next: until then they are leases that end late.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        // Asked for behind the lock: what was kept alive during a sync lives.
        let ended = self.leases.lock().take_ended(self.clock.monotonic_us());
        state.ended.extend(ended);
        let _tried_again = self.end_leases(&mut state);
        work(&mut state)
    }

    /// Deletes what is bound to the leases that have ended.
    fn end_leases(&self, state: &mut State) -> Result<()> {
        while let Some(lease) = state.ended.last().copied() {
            self.end_lease(state, lease)?;
            state.ended.pop();
        }
        Ok(())
    }

    /// Deletes what is bound to a lease that is known no more, in one transaction.
    fn end_lease(&self, state: &mut State, lease: LeaseId) -> Result<()> {
        let bound = state.entries.values().filter(|entry| entry.lease == Some(lease));
        let writes = bound.map(|entry| Write::Delete { key: entry.key.clone() }).collect();
        self.write(state, writes).map(drop)
    }

    /// Writes all of it durably, then into the state: the revision. Nothing to write is no revision. While the disk is full
    /// what is short is written: a node that cannot say that it lives serves nobody, and of one that has died nobody could take
    /// over what it had and delete anything there.
    fn write(&self, state: &mut State, writes: Vec<Write>) -> Result<u64> {
        if state.is_broken {
            return Err(Error::Unavailable("an earlier write failed; open the store again".into()));
        }
        let revision = state.revision + 1;
        let mut batch = WriteBatch::new();
        batch.use_reserve();
        let mut changes = Vec::new();
        for write in writes {
            match write {
                Write::Put { key, value, lease } => {
                    let stored = [ENTRIES, &key].concat();
                    match lease {
                        // Ends with this process, so it must not be found by the next one.
                        Some(_) => batch.delete_cf(&self.family, stored),
                        None => {
                            let record = [&revision.to_le_bytes()[..], &value].concat();
                            batch.put_cf(&self.family, stored, record);
                        }
                    }
                    changes.push(Change::Put(Entry { key, value, mod_revision: revision, lease }));
                }
                Write::Delete { key } => {
                    let Some(entry) = state.entries.get(&key) else { continue };
                    // The store has nothing of what is bound to a lease, so that the end of one takes few bytes.
                    if entry.lease.is_none() {
                        batch.delete_cf(&self.family, [ENTRIES, &key].concat());
                    }
                    changes.push(Change::Deleted { key, mod_revision: revision });
                }
            }
        }
        if changes.is_empty() {
            return Ok(state.revision);
        }
        batch.put_cf(&self.family, REVISION, revision.to_le_bytes());
        let synced = WriteOptions { sync: Some(SyncMode::Batch) };
        if let Err(error) = self.db.write_with(batch, &synced) {
            state.is_broken = !has_written_nothing(&error);
            return Err(error.into());
        }
        for change in &changes {
            match change {
                Change::Put(entry) => state.entries.insert(entry.key.clone(), entry.clone()),
                Change::Deleted { key, .. } => state.entries.remove(key),
            };
        }
        state.revision = revision;
        state.history.push(revision, changes);
        self.revision.send_replace(revision);
        Ok(revision)
    }

    fn commit(&self, state: &mut State, transaction: Transaction) -> Result<Option<u64>> {
        let holds = |compare: &Compare| {
            let entry = state.entries.get(&compare.key);
            entry.map_or(0, |entry| entry.mod_revision) == compare.mod_revision
        };
        if !transaction.compares.iter().all(holds) {
            return Ok(None);
        }
        let mut keys = Vec::new();
        for write in &transaction.writes {
            let (Write::Put { key, .. } | Write::Delete { key }) = write;
            if key.is_empty() || keys.contains(&key) {
                return Err(Error::Refused("a key that is empty, or written twice".into()));
            }
            keys.push(key);
            if let Write::Put { lease: Some(lease), .. } = write
                && !self.leases.lock().known.contains_key(lease)
            {
                return Err(Error::LeaseGone);
            }
        }
        self.write(state, transaction.writes).map(Some)
    }
}

/// A commit syncs a file, and others wait for that: not on a thread that serves somebody meanwhile.
async fn blocking<T: Send + 'static>(
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared, &mut State) -> Result<T> + Send + 'static,
) -> Result<T> {
    let shared = shared.clone();
    let work = move || shared.with(|state| work(&shared, state));
    let outcome = tokio::task::spawn_blocking(work).await;
    outcome.unwrap_or_else(|_| Err(Error::Unavailable("the process is ending".into())))
}

#[async_trait]
impl Metadata for Embedded {
    async fn snapshot(&self, prefix: &[u8]) -> Result<Snapshot> {
        let prefix = prefix.to_vec();
        blocking(&self.shared, move |_, state| {
            let from = state.entries.range(prefix.clone()..);
            let below = from.take_while(|(key, _)| key.starts_with(&prefix));
            let entries = below.map(|(_, entry)| entry.clone()).collect();
            Ok(Snapshot { entries, revision: state.revision })
        })
        .await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Option<u64>> {
        blocking(&self.shared, |shared, state| shared.commit(state, transaction)).await
    }

    async fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Box<dyn Watch>> {
        let (shared, prefix) = (self.shared.clone(), prefix.to_vec());
        let revision = shared.revision.subscribe();
        Ok(Box::new(EmbeddedWatch { shared, prefix, next_revision: from_revision, revision }))
    }

    async fn grant(&self, ttl: Duration) -> Result<Grant> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let ttl = Duration::from_secs(seconds.max(1));
        let mut leases = self.shared.leases.lock();
        Ok(leases.grant(ttl, self.shared.clock.monotonic_us()))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Grant> {
        let mut leases = self.shared.leases.lock();
        leases.keep_alive(lease, self.shared.clock.monotonic_us()).ok_or(Error::LeaseGone)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        blocking(&self.shared, move |shared, state| {
            shared.leases.lock().known.remove(&lease).ok_or(Error::LeaseGone)?;
            state.ended.push(lease);
            shared.end_leases(state)
        })
        .await
    }
}

struct EmbeddedWatch {
    shared: Arc<Shared>,
    prefix: Vec<u8>,
    next_revision: u64,
    revision: watch::Receiver<u64>,
}

#[async_trait]
impl Watch for EmbeddedWatch {
    async fn next(&mut self) -> Result<Changes> {
        loop {
            self.revision.borrow_and_update();
            let (from, prefix) = (self.next_revision, self.prefix.clone());
            let look = move |_: &Shared, state: &mut State| {
                let changes = state.history.since(from, &prefix).map_err(Error::Compacted)?;
                Ok((changes, state.revision))
            };
            let (changes, last) = blocking(&self.shared, look).await?;
            self.next_revision = from.max(last + 1);
            if let Some(revision) = changes.iter().map(Change::mod_revision).max() {
                return Ok(Changes { revision, changes });
            }
            // Leases end by the clock, which wakes nobody.
            let _ = tokio::time::timeout(LOOK_INTERVAL, self.revision.changed()).await;
        }
    }
}
