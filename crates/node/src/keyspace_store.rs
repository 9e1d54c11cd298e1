//! The keyspace of a server as the store of a node.
//!
//! ```text
//! family "node":  "identity"   version 1 (1), node (20), the cluster's name
//!                 "part"       version 1 (1), the text of a [`Part`]
//! ```
//! Records of moves and epochs are kept by the keyspace itself.

use crate::part::Part;
use crate::rpc::{MoveMessage, ShardRecords, TopCounts};
use crate::store::{Identity, InstanceStore, StoreError, StoreLoad};
use std::fmt::Display;
use std::sync::Arc;
use terrace::{CfOptions, ColumnFamily, HotTableMode, SyncMode, WriteBatch, WriteOptions};
use terrace_cluster::{
    DbKey, Direction, Epoch, KeyRange, MoveAnswer, MoveCall, NodeId, Refusal, ShardId, TopKey,
};
use terrace_keyspace::{ExportLimits, ExportedKey, Keyspace, MAX_DATABASES, MAX_EXPORT_BYTES};

const FAMILY: &str = "node";
const IDENTITY: &[u8] = b"identity";
const PART: &[u8] = b"part";
const VERSION: u8 = 1;

/// All keys of a move are in one message. A move with more is undone, and its keys go in smaller ones.
const EXPORT_LIMITS: ExportLimits =
    ExportLimits { key_bytes: MAX_EXPORT_BYTES, move_bytes: 128 << 20 };

/// How much of a memtable the hot table may take, as the engine does.
const HOT_PARTS: u64 = 2;

type Answer = MoveAnswer<Vec<u8>>;

/// See the module.
pub struct KeyspaceStore {
    keyspace: Arc<Keyspace>,
}

fn failed(error: impl Display) -> StoreError {
    StoreError(error.to_string())
}

impl KeyspaceStore {
    /// The store behind this keyspace.
    pub fn new(keyspace: Arc<Keyspace>) -> Self {
        Self { keyspace }
    }

    fn family(&self) -> Option<ColumnFamily> {
        self.keyspace.db().column_family(FAMILY)
    }

    /// Writes a record of the family durably.
    fn put(&self, key: &[u8], value: Vec<u8>) -> Result<(), StoreError> {
        let db = self.keyspace.db();
        let family = match self.family() {
            Some(family) => family,
            None => db.create_column_family(FAMILY, CfOptions::default()).map_err(failed)?,
        };
        let mut batch = WriteBatch::new();
        batch.put_cf(&family, key, value);
        let durable = WriteOptions { sync: Some(SyncMode::Batch) };
        db.write_with(batch, &durable).map_err(failed)
    }

    fn move_keys(&self, message: &MoveMessage) -> Result<Answer, StoreError> {
        let MoveMessage { shard, id, direction, other, keys, call } = message;
        let space = &self.keyspace;
        Ok(match call {
            MoveCall::Begin => {
                let begun = space.begin_move(*shard, *id, *direction, *other, keys);
                answer(unless_full(begun.map(Ok))?, MoveAnswer::Begun)
            }
            MoveCall::Export => {
                let exported = match direction {
                    Direction::Out => space.export_home(*id, keys, EXPORT_LIMITS),
                    Direction::Home => space.export_copies(*id, keys, EXPORT_LIMITS),
                };
                let bytes = |key: ExportedKey| key.as_bytes().to_vec();
                answer(unless_full(exported)?, |all| {
                    MoveAnswer::Exported(all.into_iter().map(bytes).collect())
                })
            }
            MoveCall::Import(values) => {
                done(unless_full(space.import_keys(*id, keys, &exported(values)?))?)
            }
            MoveCall::Commit(values) => {
                done(unless_full(space.commit_move(*id, keys, &exported(values)?))?)
            }
            MoveCall::Undo => done(space.undo_move(*shard, *id, keys).map_err(failed)?),
            MoveCall::Finish => {
                space.finish_import(*id, keys).map_err(failed)?;
                MoveAnswer::Done
            }
            MoveCall::Drop => {
                space.drop_copies(*id, keys).map_err(failed)?;
                MoveAnswer::Done
            }
            MoveCall::Release => {
                space.release_copies(*id, keys).map_err(failed)?;
                MoveAnswer::Done
            }
            MoveCall::Forget => {
                space.forget_move(*id, keys).map_err(failed)?;
                MoveAnswer::Done
            }
        })
    }
}

/// A step that the disk has no room for is refused, and nothing was done: its move is undone, and does not wait for room.
fn unless_full<T>(
    answer: Result<Result<T, Refusal>, terrace_keyspace::Error>,
) -> Result<Result<T, Refusal>, StoreError> {
    match answer {
        Err(error) if error.is_disk_full() => Ok(Err(Refusal::Full)),
        answer => answer.map_err(failed),
    }
}

fn answer<T>(result: Result<T, Refusal>, then: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        Ok(value) => then(value),
        Err(refusal) => MoveAnswer::Refused(refusal),
    }
}

fn done(result: Result<(), Refusal>) -> Answer {
    answer(result, |()| MoveAnswer::Done)
}

/// What another node exported: refused as a whole if a byte of it is damaged.
fn exported(values: &[Vec<u8>]) -> Result<Vec<ExportedKey>, StoreError> {
    let exported = values.iter().map(|value| ExportedKey::from_bytes(value.as_slice()));
    exported.collect::<Result<_, _>>().map_err(failed)
}

impl InstanceStore for KeyspaceStore {
    fn identity(&self) -> Result<Option<Identity>, StoreError> {
        let Some(family) = self.family() else { return Ok(None) };
        let Some(bytes) = family.get(IDENTITY).map_err(failed)? else { return Ok(None) };
        let damaged = || StoreError("the node's identity in the store is damaged".into());
        let (version, rest) = bytes.split_first().ok_or_else(damaged)?;
        let (node, cluster) = rest.split_first_chunk::<20>().ok_or_else(damaged)?;
        let cluster = std::str::from_utf8(cluster).map_err(|_| damaged())?.to_string();
        if *version != VERSION {
            return Err(damaged());
        }
        Ok(Some(Identity { cluster, node: NodeId(*node) }))
    }

    fn set_identity(&self, identity: &Identity) -> Result<(), StoreError> {
        let value = [&[VERSION], &identity.node.0[..], identity.cluster.as_bytes()].concat();
        self.put(IDENTITY, value)
    }

    fn part(&self) -> Result<Option<Part>, StoreError> {
        let Some(family) = self.family() else { return Ok(None) };
        let Some(bytes) = family.get(PART).map_err(failed)? else { return Ok(None) };
        let text = bytes.strip_prefix(&[VERSION]).and_then(|text| std::str::from_utf8(text).ok());
        match text.and_then(|text| text.parse().ok()) {
            Some(part) => Ok(Some(part)),
            None => Err(StoreError("what part of the keys the store has is damaged in it".into())),
        }
    }

    fn set_part(&self, part: &Part) -> Result<(), StoreError> {
        self.put(PART, [&[VERSION], part.to_string().as_bytes()].concat())
    }

    fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(!self.keyspace.has_moved_keys() && self.keyspace.is_empty().map_err(failed)?)
    }

    fn stray_key(&self, part: &Part) -> Result<Option<DbKey>, StoreError> {
        let ranges: Vec<KeyRange> = part.ranges().cloned().collect();
        self.keyspace.stray_key(&ranges).map_err(failed)
    }

    fn epoch(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        Ok(self.keyspace.fence(shard))
    }

    fn set_epoch(&self, shard: ShardId, epoch: Epoch) -> Result<(), StoreError> {
        match self.keyspace.admit_epoch(shard, epoch).map_err(failed)? {
            true => Ok(()),
            false => Err(StoreError("a later epoch is known".into())),
        }
    }

    fn records(&self) -> Result<ShardRecords, StoreError> {
        let mut records = ShardRecords::default();
        let state = self.keyspace.move_state();
        records.copies = state.copies;
        for (key, home) in state.homes {
            records.exceptions.extend(home.exception.map(|exception| (key.clone(), exception)));
            records.intents.extend(home.intent.map(|intent| (key, intent)));
        }
        Ok(records)
    }

    fn apply_move(&self, message: &MoveMessage) -> Result<Answer, StoreError> {
        self.move_keys(message)
    }

    fn export_of_nothing(&self, key: &DbKey) -> Vec<u8> {
        ExportedKey::nothing(key.db, &key.key).as_bytes().to_vec()
    }

    fn top_counts(&self, keys: usize) -> Result<TopCounts, StoreError> {
        let db = self.keyspace.db();
        // A write that is in the log still counts as any other: a hot table keeps it there for long.
        db.count_written().map_err(failed)?;
        let top = self.keyspace.top_written(keys);
        // Both can change while the store is open.
        let memtable_bytes = db.memtable_bytes() as u64;
        let mode = db.option("hot_table").and_then(|mode| mode.parse().ok());
        let hot_bytes = match mode {
            Some(HotTableMode::Auto) => memtable_bytes / HOT_PARTS,
            Some(HotTableMode::Off) | None => 0,
        };
        let keys = top.keys.into_iter().map(|it| TopKey {
            key: DbKey::new(it.db, it.key),
            count: it.count,
            error: it.error,
            entry_bytes: it.entry_bytes,
        });
        Ok(TopCounts {
            writes: top.writes,
            write_bytes: top.write_bytes,
            memtable_bytes,
            hot_bytes,
            keys: keys.collect(),
        })
    }

    fn load(&self) -> StoreLoad {
        let metrics = self.keyspace.db().metrics();
        let databases = [0]..[MAX_DATABASES as u8];
        let count = |family: &ColumnFamily| {
            family.estimate(databases.clone()).map_or(0, |estimate| estimate.keys)
        };
        StoreLoad {
            reads: metrics.gets,
            writes: metrics.ops_written,
            user_bytes: metrics.user_bytes,
            device_bytes: (metrics.write_amplification() * metrics.user_bytes as f64).round()
                as u64,
            keys: count(self.keyspace.strings()) + count(self.keyspace.collections()),
        }
    }
}
