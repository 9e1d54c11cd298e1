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
    state: Mutex<State>,
    /// The last revision, for watches that wait.
    revision: watch::Sender<u64>,
}

struct State {
    entries: BTreeMap<Vec<u8>, Entry>,
    revision: u64,
    history: History,
    leases: HashMap<LeaseId, Lease>,
    last_lease: i64,
    /// After a write that failed, no other: what is durable is unknown.
    is_broken: bool,
}

struct Lease {
    ttl: Duration,
    ends_at_us: u64,
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
        let state = State {
            entries,
            revision,
            history: History::after(revision),
            leases: HashMap::new(),
            last_lease: 0,
            is_broken: false,
        };
        let (db, state, revision) = (db.clone(), Mutex::new(state), watch::Sender::new(revision));
        Ok(Self { shared: Arc::new(Shared { db, family, clock, state, revision }) })
    }
}

impl Shared {
    /// Does `work` on the state, after the leases that have ended by now are gone.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        let now_us = self.clock.monotonic_us();
        let ended = |lease: &Lease| lease.ends_at_us <= now_us;
        let ended = state.leases.iter().filter(|(_, lease)| ended(lease)).map(|(id, _)| *id);
        for lease in ended.collect::<Vec<_>>() {
            self.end_lease(&mut state, lease)?;
        }
        work(&mut state)
    }

    /// Forgets a lease, and deletes what is bound to it in one transaction.
    fn end_lease(&self, state: &mut State, lease: LeaseId) -> Result<()> {
        let bound = state.entries.values().filter(|entry| entry.lease == Some(lease));
        let writes = bound.map(|entry| Write::Delete { key: entry.key.clone() }).collect();
        self.write(state, writes)?;
        state.leases.remove(&lease);
        Ok(())
    }

    /// Writes all of it durably, then into the state: the revision. Nothing to write is no revision.
    fn write(&self, state: &mut State, writes: Vec<Write>) -> Result<u64> {
        if state.is_broken {
            return Err(Error::Unavailable("an earlier write failed; open the store again".into()));
        }
        let revision = state.revision + 1;
        let mut changes = Vec::new();
        let mut batch = WriteBatch::new();
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
                Write::Delete { key } if state.entries.contains_key(&key) => {
                    batch.delete_cf(&self.family, [ENTRIES, &key].concat());
                    changes.push(Change::Deleted { key, mod_revision: revision });
                }
                Write::Delete { .. } => {}
            }
        }
        if changes.is_empty() {
            return Ok(state.revision);
        }
        batch.put_cf(&self.family, REVISION, revision.to_le_bytes());
        let synced = WriteOptions { sync: Some(SyncMode::Batch) };
        if let Err(error) = self.db.write_with(batch, &synced) {
            state.is_broken = true;
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
                && !state.leases.contains_key(lease)
            {
                return Err(Error::LeaseGone);
            }
        }
        self.write(state, transaction.writes).map(Some)
    }
}

/// A commit syncs a file: not on a thread that serves others meanwhile.
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
        blocking(&self.shared, move |shared, state| {
            state.last_lease += 1;
            let lease = LeaseId(state.last_lease);
            state.leases.insert(lease, Lease { ttl, ends_at_us: shared.ends_at_us(ttl) });
            Ok(Grant { lease, ttl })
        })
        .await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Grant> {
        blocking(&self.shared, move |shared, state| {
            let found = state.leases.get_mut(&lease).ok_or(Error::LeaseGone)?;
            found.ends_at_us = shared.ends_at_us(found.ttl);
            Ok(Grant { lease, ttl: found.ttl })
        })
        .await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        blocking(&self.shared, move |shared, state| {
            let is_known = state.leases.contains_key(&lease);
            if is_known { shared.end_lease(state, lease) } else { Err(Error::LeaseGone) }
        })
        .await
    }
}

impl Shared {
    fn ends_at_us(&self, ttl: Duration) -> u64 {
        self.clock.monotonic_us().saturating_add(ttl.as_micros() as u64)
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
            let (changes, last) = self.shared.with(|state| {
                let changes = state.history.since(from, &prefix).map_err(Error::Compacted)?;
                Ok((changes, state.revision))
            })?;
            self.next_revision = from.max(last + 1);
            if let Some(revision) = changes.iter().map(Change::mod_revision).max() {
                return Ok(Changes { revision, changes });
            }
            // Leases end by the clock, which wakes nobody.
            let _ = tokio::time::timeout(LOOK_INTERVAL, self.revision.changed()).await;
        }
    }
}
