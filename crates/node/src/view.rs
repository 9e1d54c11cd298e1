//! What routes are made of: the topology and the shards that this node owns, swapped as one.

use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_cluster::{
    DbKey, Epoch, ExceptionList, KeyCopy, MoveId, NodeId, Route, Shard, ShardCall, ShardId,
    Topology, Unserved,
};
use tokio::sync::{mpsc, oneshot};

/// The cluster as this node sees it at a moment.
#[derive(Default, Clone)]
pub(crate) struct View {
    pub topology: Option<Arc<Topology>>,
    /// Few: a tree finds them in less time than a hash takes.
    pub owned: BTreeMap<ShardId, Arc<OwnedShard>>,
    /// Shards that had an owner and have none to send commands to, and since when.
    pub vacant: BTreeMap<ShardId, Instant>,
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
    /// Writes of these wait.
    pub held: HashMap<DbKey, Held>,
    /// The shard's task has ended: nobody will release what is held.
    pub is_over: bool,
}

/// Since when a key is held, and who is called when it is released, or has been held for too long.
pub(crate) struct Held {
    since: Instant,
    /// In a lock of its own: see [`OwnedShard::wait_for_release`].
    waiting: Mutex<Vec<Callback>>,
}

impl Held {
    /// From now on.
    pub fn new() -> Self {
        Self { since: Instant::now(), waiting: Mutex::default() }
    }

    /// Those who wait, to be called.
    pub fn take_waiting(&mut self) -> Vec<Callback> {
        std::mem::take(self.waiting.get_mut())
    }

    /// How much longer commands wait, who may wait for this long in all; `None` if they do not any more.
    pub fn time_left(&self, limit: Duration) -> Option<Duration> {
        limit.checked_sub(self.since.elapsed()).filter(|left| !left.is_zero())
    }
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

    /// Lets a command wait until a key is released, or has been held for `limit`; gives back what is to be called at once, without
    /// a lock. The keys are only read here: the shard's task reads all of them for some time, and a thread that wanted to write them
    /// meanwhile would let all routes of the shard wait.
    pub fn wait_for_release(
        &self,
        key: &DbKey,
        limit: Duration,
        done: Callback,
    ) -> Option<Callback> {
        let keys = self.keys.read();
        let may_wait = |held: &&Held| !keys.is_over && held.time_left(limit).is_some();
        match keys.held.get(key).filter(may_wait) {
            Some(held) => {
                held.waiting.lock().push(done);
                None
            }
            None => Some(done),
        }
    }

    /// Where commands for what is at home go.
    pub fn route_home(&self, me: NodeId) -> Route {
        if self.instance == me { Route::Local } else { self.call_at(self.instance) }
    }
}

impl View {
    /// Of the lease that an owned shard was claimed with, if that was in this term.
    pub fn generation_in(&self, shard: ShardId, epoch: Epoch) -> Option<u64> {
        self.owned.get(&shard).filter(|owned| owned.epoch == epoch).map(|owned| owned.generation)
    }

    /// Where commands for a shard go that this node does not own. They wait for an owner until the shard has been without
    /// one for `patience`.
    pub fn route_to_owner(
        &self,
        topology: &Topology,
        (me, patience): (NodeId, Duration),
        shard: ShardId,
    ) -> Route {
        match topology.shards.get(&shard).and_then(|shard| other_owner(shard, me)) {
            Some(owner) => Route::Owner(owner),
            None if self.changes_for(shard, patience).is_some() => Route::Changing(shard),
            None => Route::Unserved(Unserved::NoOwner(shard)),
        }
    }

    /// How long commands on a shard still wait for an owner; `None` if they do not.
    pub fn changes_for(&self, shard: ShardId, patience: Duration) -> Option<Duration> {
        let vacant = self.vacant.get(&shard)?.elapsed();
        patience.checked_sub(vacant).filter(|left| !left.is_zero())
    }

    /// To be called when anything else has changed.
    pub fn note_vacant(&mut self, me: NodeId, now: Instant) {
        let Some(topology) = &self.topology else { return self.vacant.clear() };
        // One that never had an owner does not change it.
        let is_vacant = |shard: &&Shard| {
            let is_served = self.owned.contains_key(&shard.id) || other_owner(shard, me).is_some();
            shard.owner.is_some() && !is_served
        };
        let since = |shard: &Shard| self.vacant.get(&shard.id).copied().unwrap_or(now);
        let vacant = topology.shards.values().filter(is_vacant);
        self.vacant = vacant.map(|shard| (shard.id, since(shard))).collect();
    }
}

/// Another node that owns a shard.
fn other_owner(shard: &Shard, me: NodeId) -> Option<NodeId> {
    let owner = shard.owner.filter(|owner| owner.is_claimed && owner.node != me);
    owner.map(|owner| owner.node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_cluster::{KeyRange, Node, Owner, Placement, Revision};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn topology(owner: Option<(u8, bool)>) -> Option<Arc<Topology>> {
        let node = |number: u8| Node {
            id: NodeId([number; 20]),
            redis_address: String::new(),
            rpc_address: String::new(),
            is_alive: true,
        };
        let owner = owner.map(|(node, is_claimed)| Owner {
            node: NodeId([node; 20]),
            epoch: Epoch(1),
            is_claimed,
        });
        let ranges = vec![KeyRange::Slots(0, 16_383)];
        let shard = Shard { id: ShardId(1), instance: NodeId([1; 20]), owner, ranges };
        let nodes = [node(1), node(2)];
        Some(Arc::new(Topology::new(Revision(1), Placement::Slots, nodes, [shard]).unwrap()))
    }

    fn route(view: &View, patience: Duration) -> Route {
        let topology = view.topology.clone().unwrap();
        view.route_to_owner(&topology, (NodeId([1; 20]), patience), ShardId(1))
    }

    #[test]
    fn commands_wait_for_the_next_owner_and_not_for_longer_than_that() {
        let (me, shard) = (NodeId([1; 20]), ShardId(1));
        let refused = Route::Unserved(Unserved::NoOwner(shard));
        let mut view = View::default();
        let see = |view: &mut View, owner, now| {
            view.topology = topology(owner);
            view.note_vacant(me, now);
        };
        let start = Instant::now();
        see(&mut view, None, start);
        assert_eq!(route(&view, PATIENCE), refused, "it never had an owner");
        see(&mut view, Some((2, true)), start);
        assert_eq!(route(&view, PATIENCE), Route::Owner(NodeId([2; 20])));
        see(&mut view, Some((2, false)), start);
        assert_eq!(route(&view, PATIENCE), Route::Changing(shard));
        // The time runs on when this node claims it, which serves nobody yet.
        see(&mut view, Some((1, true)), start + Duration::from_secs(1));
        assert_eq!(view.vacant.get(&shard), Some(&start));
        assert_eq!(route(&view, PATIENCE), Route::Changing(shard));
        assert_eq!(route(&view, Duration::ZERO), refused, "it has taken too long");
        see(&mut view, Some((2, true)), start);
        assert!(view.vacant.is_empty() && view.changes_for(shard, PATIENCE).is_none());
    }

    /// A plan is looked at, with many keys that are away.
    #[test]
    fn commands_wait_for_a_held_key_while_what_is_away_is_read() {
        let key = DbKey::new(0, "k");
        let mut keys = AwayKeys::default();
        keys.held.insert(key.clone(), Held::new());
        let (orders, _received) = mpsc::unbounded_channel();
        let owned = Arc::new(OwnedShard {
            shard: ShardId(1),
            epoch: Epoch(1),
            instance: NodeId([1; 20]),
            generation: 1,
            keys: RwLock::new(keys),
            orders,
        });
        let reading = owned.keys.read();
        let (called, is_called) = std::sync::mpsc::channel();
        let (let_in, is_let_in) = std::sync::mpsc::channel();
        let (by, its_key) = (owned.clone(), key.clone());
        let thread = std::thread::spawn(move || {
            let done = Callback::new(Box::new(move || called.send(()).unwrap()));
            let_in.send(by.wait_for_release(&its_key, PATIENCE, done).is_none()).unwrap();
        });
        assert_eq!(is_let_in.recv_timeout(PATIENCE), Ok(true), "it has to wait for the reader");
        drop(reading);
        thread.join().unwrap();
        assert!(is_called.try_recv().is_err());
        let waiting = owned.keys.write().held.get_mut(&key).unwrap().take_waiting();
        waiting.into_iter().for_each(Callback::call);
        assert_eq!(is_called.try_recv(), Ok(()));
        // Not after its time, nor when nobody will release it.
        let waits =
            |limit| owned.wait_for_release(&key, limit, Callback::new(Box::new(|| {}))).is_none();
        assert!(waits(PATIENCE) && !waits(Duration::ZERO));
        owned.keys.write().is_over = true;
        assert!(!waits(PATIENCE));
    }
}
