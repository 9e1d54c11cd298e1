//! What a node needs of its store. The server's keyspace has it; tests have one in memory.

use crate::part::Part;
use crate::rpc::{MoveMessage, ShardRecords, TopCounts};
use terrace_cluster::{DbKey, Epoch, MoveAnswer, NodeId, ShardId};

/// What a store knows of the node that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of the cluster.
    pub cluster: String,
    /// The node.
    pub node: NodeId,
}

/// What a store did since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreLoad {
    /// Lookups.
    pub reads: u64,
    /// Keys and elements written.
    pub writes: u64,
    /// Bytes of these.
    pub user_bytes: u64,
    /// Bytes written to the device.
    pub device_bytes: u64,
    /// Keys there are, about.
    pub keys: u64,
}

/// The store failed; what was asked for may have happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store failed: {0}")]
pub struct StoreError(pub String);

/// The store of a node, as instance of a shard. Methods may wait for the device and are called where
/// that is allowed; what they write is durable when they return.
///
/// Commands check the records of their keys under the keys' locks: at home `HomeKey::may_read` and
/// `may_write`, in another shard's name `KeyCopy::call`. A move commits in the store a moment before the
/// owner's routes follow, and only the record says so meanwhile.
pub trait InstanceStore: Send + Sync + 'static {
    /// Whose store it is; `None` for one that was never in a cluster.
    ///
    /// # Errors
    /// The store fails. So for all methods.
    fn identity(&self) -> Result<Option<Identity>, StoreError>;

    /// From now on it is this node's.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn set_identity(&self, identity: &Identity) -> Result<(), StoreError>;

    /// The part of the key space that it has; `None` if it was never served on since that is remembered.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn part(&self) -> Result<Option<Part>, StoreError>;

    /// From now on it has this part.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn set_part(&self, part: &Part) -> Result<(), StoreError>;

    /// Whether it has no key and no record of a move: then it may get any part. Expired keys may count.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn is_empty(&self) -> Result<bool, StoreError>;

    /// A key that a store with this part has not, and that no move brought here: it would not be found in the cluster.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn stray_key(&self, part: &Part) -> Result<Option<DbKey>, StoreError>;

    /// The latest epoch of a shard that was made known; 0 before the first.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn epoch(&self, shard: ShardId) -> Result<Epoch, StoreError>;

    /// Makes a later epoch known.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn set_epoch(&self, shard: ShardId, epoch: Epoch) -> Result<(), StoreError>;

    /// What it keeps of the shards whose instance it is, of all of them.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn records(&self) -> Result<ShardRecords, StoreError>;

    /// A step of a move, for all its keys in one batch. The epoch was checked.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn apply_move(&self, message: &MoveMessage) -> Result<MoveAnswer<Vec<u8>>, StoreError>;

    /// What an export gives of a key that does not exist.
    fn export_of_nothing(&self, key: &DbKey) -> Vec<u8>;

    /// What was written since the last question; at most `keys` keys.
    ///
    /// # Errors
    /// See [`Self::identity`].
    fn top_counts(&self, keys: usize) -> Result<TopCounts, StoreError>;

    /// What it did since it was opened. Reads nothing from the device.
    fn load(&self) -> StoreLoad;
}
