//! What routes are made of: the topology and the shards that this node owns, swapped as one.

use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use terrace_cluster::{
    DbKey, Epoch, ExceptionList, KeyCopy, MoveId, NodeId, Route, ShardCall, ShardId, Topology,
    Unserved,
};
use tokio::sync::{mpsc, oneshot};

/// The cluster as this node sees it at a moment.
#[derive(Default, Clone)]
pub(crate) struct View {
    pub topology: Option<Arc<Topology>>,
    /// Few: a tree finds them in less time than a hash takes.
    pub owned: BTreeMap<ShardId, Arc<OwnedShard>>,
}

/// A shard that this node serves.
pub(crate) struct OwnedShard {
    pub shard: ShardId,
    pub epoch: Epoch,
    /// Its home.
    pub instance: NodeId,
    /// Of the lease that it was claimed with.
    pub generation: u64,
    pub keys: RwLock<AwayKeys>,
    pub orders: mpsc::UnboundedSender<Order>,
}

/// Keys that are not simply at home.
#[derive(Default)]
pub(crate) struct AwayKeys {
    pub exceptions: ExceptionList,
    /// Writes of these wait; who is called when they are released.
    pub held: HashMap<DbKey, Vec<Callback>>,
    /// The shard's task has ended: nobody will release what is held.
    pub is_over: bool,
}

/// Called once: when it is dropped, at the latest, so that nobody waits for what is gone. In a lock only so that it
/// may be kept where several threads look.
pub(crate) struct Callback(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Callback {
    pub fn new(call: Box<dyn FnOnce() + Send>) -> Self {
        Self(Mutex::new(Some(call)))
    }

    pub fn call(self) {
        drop(self);
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        if let Some(call) = self.0.get_mut().take() {
            call();
        }
    }
}

/// What the task of an owned shard is asked for.
pub(crate) enum Order {
    /// Serve, as soon as no move of an earlier owner holds a key.
    Serve,
    /// The exception list that the shard shall have: how many keys will be moved.
    Repartition(Vec<terrace_cluster::Assignment>, oneshot::Sender<Result<u64, String>>),
    /// A key's place; answered when it is there.
    MoveKey(DbKey, Option<ShardId>, oneshot::Sender<Result<(), String>>),
    /// A key is needed at home; called when it is there, or did not come.
    Recall(DbKey, Callback),
    /// The recall with this number has waited long enough.
    Overdue(DbKey, u64),
    /// No more moves; answered when none is under way.
    Stop(oneshot::Sender<()>),
    /// Something happened to a move.
    Event(MoveId, terrace_cluster::MoveEvent<Vec<u8>>),
    /// What an instance, that has these shards, keeps in the shard's name, or why it does not say.
    Copies { instance: NodeId, shards: Vec<ShardId>, copies: Result<Vec<(DbKey, KeyCopy)>, String> },
    /// Whether what was left behind at an instance is gone; if not, it may be there still.
    Dropped(bool),
    /// What the task does, for people.
    Status(oneshot::Sender<OwnerStatus>),
}

/// What the task of an owned shard does.
#[derive(Debug, Default)]
pub(crate) struct OwnerStatus {
    pub waiting_moves: u64,
    /// The step of each move that is under way.
    pub moves: Vec<String>,
    pub is_sweeping: bool,
}

impl OwnedShard {
    fn call_at(&self, instance: NodeId) -> Route {
        Route::Instance(ShardCall { instance, shard: self.shard, epoch: self.epoch })
    }

    /// Where commands for a key of the shard go, while the lease is sure.
    pub fn route(&self, me: NodeId, topology: &Topology, db: u8, key: &[u8]) -> Route {
        let keys = self.keys.read();
        if let Some(exception) = keys.exceptions.get(db, key) {
            return match topology.shards.get(&exception.at) {
                Some(shard) => self.call_at(shard.instance),
                None => Route::Unserved(Unserved::NoOwner(self.shard)),
            };
        }
        if !keys.held.is_empty() && keys.held.contains_key(&DbKey::new(db, key)) {
            return Route::Held;
        }
        self.route_home(me)
    }

    /// Where commands for what is at home go.
    pub fn route_home(&self, me: NodeId) -> Route {
        if self.instance == me { Route::Local } else { self.call_at(self.instance) }
    }
}

impl View {
    /// Where commands for a shard go that this node does not own.
    pub fn route_to_owner(&self, topology: &Topology, me: NodeId, shard: ShardId) -> Route {
        match topology.shards.get(&shard).and_then(|shard| shard.owner) {
            Some(owner) if owner.is_claimed && owner.node != me => Route::Owner(owner.node),
            _ => Route::Unserved(Unserved::NoOwner(shard)),
        }
    }
}
