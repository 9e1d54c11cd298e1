//! Several servers in this process that are one cluster: coordinators that share their state, and whose
//! calls are calls of functions.

use crate::client::{Client, until};
use crate::ranges::range;
use crate::served::Served;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use terrace_cluster::{
    CallMode, CallTarget, Cancellation, CommandExecutor, Coordinator, DbKey, Direction, Epoch,
    IncomingCall, MoveId, Node, NodeId, OutgoingCall, Owner, Placement, Reply, Revision, Route,
    ServeGuard, Shard, ShardCall, ShardId, Topology, Unserved,
};
use terrace_keyspace::Keyspace;

type Callback = Box<dyn FnOnce() + Send>;

/// What all coordinators know.
pub struct State {
    pub topology: Arc<Topology>,
    /// Keys that are not where their shard is.
    pub exceptions: BTreeMap<Vec<u8>, NodeId>,
    /// Keys that are being moved.
    held: BTreeSet<Vec<u8>>,
    waiting: Vec<(Vec<u8>, Callback)>,
    /// Shards between two owners, and who waits for the next one.
    changing: BTreeMap<ShardId, Vec<Callback>>,
    /// Calls to these nodes get no answer.
    pub cut_off: BTreeSet<NodeId>,
    /// How many of the next calls to an owner are answered that it is not the owner.
    pub misrouted: u32,
    /// A key that has come home, but is sent to where it was this many times more, in vain.
    pub late: Option<(Vec<u8>, u32)>,
    at_revision: Vec<(Revision, Callback)>,
    executors: BTreeMap<NodeId, Arc<dyn CommandExecutor>>,
    spaces: BTreeMap<NodeId, Arc<Keyspace>>,
    pub calls: u64,
}

/// The shared part.
pub struct Shared {
    state: Mutex<State>,
    /// One move at a time.
    moving: Mutex<()>,
    /// The number of the next one.
    moves: AtomicU64,
    revision: AtomicU64,
}

impl Shared {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Gives a shard to another owner.
    pub fn hand_over(&self, shard: ShardId, to: NodeId) {
        self.change_owner(shard, to, true);
    }

    /// Gives a shard to another owner, whose claim is not seen yet: it serves the shard, and only it knows.
    pub fn hand_over_unseen(&self, shard: ShardId, to: NodeId) {
        self.change_owner(shard, to, false);
    }

    fn change_owner(&self, shard: ShardId, node: NodeId, is_claimed: bool) {
        let mut state = self.state();
        let old = state.topology.clone();
        let revision = Revision(old.revision.0 + 1);
        let shards = old.shards.values().cloned().map(|mut one| {
            if one.id == shard {
                one.owner = Some(Owner { node, epoch: Epoch(revision.0), is_claimed });
            }
            one
        });
        let nodes = old.nodes.values().cloned();
        self.revision.store(revision.0, Ordering::SeqCst);
        state.topology = Arc::new(Topology::new(revision, old.placement, nodes, shards).unwrap());
        let due = state.at_revision.extract_if(.., |(at, _)| *at <= revision);
        let due: Vec<Callback> = due.map(|(_, done)| done).collect();
        drop(state);
        due.into_iter().for_each(|done| done());
    }

    /// A shard's owner has given it up, and no other has claimed it: as all nodes see it.
    pub fn give_up(&self, shard: ShardId) {
        self.state().changing.insert(shard, Vec::new());
    }

    /// The shard has an owner again, or nobody waits for one any more.
    pub fn end_change(&self, shard: ShardId) {
        let due = self.state().changing.remove(&shard);
        due.into_iter().flatten().for_each(|done| done());
    }

    /// How many clients and calls wait for the next owner of a shard.
    pub fn waiting_for_owner(&self, shard: ShardId) -> usize {
        self.state().changing.get(&shard).map_or(0, Vec::len)
    }

    /// Holds the writes of a key.
    pub fn hold(&self, key: &str) {
        self.state().held.insert(key.into());
    }

    /// Lets the writes of a key go on.
    pub fn release(&self, key: &str) {
        let mut state = self.state();
        state.held.remove(key.as_bytes());
        let due = state.waiting.extract_if(.., |(held, _)| held == key.as_bytes());
        let due: Vec<Callback> = due.map(|(_, done)| done).collect();
        drop(state);
        due.into_iter().for_each(|done| done());
    }

    /// Lets another execute the calls to a node; gives who did before.
    pub fn replace_executor(
        &self,
        node: NodeId,
        by: Arc<dyn CommandExecutor>,
    ) -> Arc<dyn CommandExecutor> {
        self.state().executors.insert(node, by).unwrap()
    }

    /// How many commands wait for a key.
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }
}

/// The cluster as one node sees it.
pub struct FakeCoordinator {
    me: NodeId,
    shared: Arc<Shared>,
    guards: Arc<AtomicU64>,
    /// Its lease has not ended.
    pub is_sure: Arc<AtomicBool>,
    /// How often it says that its lease covers a batch until it says once that it does not.
    pub asks: Arc<AtomicU64>,
}

struct Guard {
    guards: Arc<AtomicU64>,
    is_sure: Arc<AtomicBool>,
    asks: Arc<AtomicU64>,
}

impl ServeGuard for Guard {
    fn may_reply(&self) -> bool {
        self.asks.fetch_sub(1, Ordering::SeqCst) > 0 && self.is_sure.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.guards.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FakeCoordinator {
    fn of_shard(&self, shard: &Shard) -> Route {
        match shard.owner {
            Some(owner) if owner.node == self.me => match shard.instance == self.me {
                true => Route::Local,
                false => Route::Instance(call(shard, shard.instance)),
            },
            Some(owner) if owner.is_claimed => Route::Owner(owner.node),
            _ => Route::Unserved(Unserved::NoOwner(shard.id)),
        }
    }
}

fn call(shard: &Shard, instance: NodeId) -> ShardCall {
    let epoch = shard.owner.map_or(Epoch(0), |owner| owner.epoch);
    ShardCall { instance, shard: shard.id, epoch }
}

impl Coordinator for FakeCoordinator {
    fn me(&self) -> NodeId {
        self.me
    }

    fn topology(&self) -> Option<Arc<Topology>> {
        Some(self.shared.state().topology.clone())
    }

    fn revision(&self) -> Revision {
        Revision(self.shared.revision.load(Ordering::SeqCst))
    }

    fn route(&self, _db: u8, key: &[u8]) -> Route {
        assert!(self.guards.load(Ordering::SeqCst) > 0, "a route without a guard");
        let mut state = self.shared.state();
        let shard = state.topology.shards[&state.topology.shard_of(key)].clone();
        if state.changing.contains_key(&shard.id) {
            return Route::Changing(shard.id);
        }
        let route = self.of_shard(&shard);
        if matches!(route, Route::Owner(_) | Route::Unserved(_)) {
            return route;
        }
        let State { late, exceptions, .. } = &mut *state;
        if let Some((late, left)) = late
            && late == key
        {
            if *left == 0 {
                exceptions.remove(key);
            }
            *left = left.saturating_sub(1);
        }
        let shard = &shard;
        match state.exceptions.get(key) {
            Some(node) => Route::Instance(call(shard, *node)),
            // A key is held where it is; for the store of another node its owner begins no moves.
            None if route == Route::Local && state.held.contains(key) => Route::Held,
            None => route,
        }
    }

    fn route_shard(&self, shard: ShardId) -> Route {
        let state = self.shared.state();
        match state.changing.contains_key(&shard) {
            true => Route::Changing(shard),
            false => self.of_shard(&state.topology.shards[&shard]),
        }
    }

    fn guard(&self) -> Box<dyn ServeGuard> {
        self.guards.fetch_add(1, Ordering::SeqCst);
        let (guards, is_sure) = (self.guards.clone(), self.is_sure.clone());
        Box::new(Guard { guards, is_sure, asks: self.asks.clone() })
    }

    fn admit(&self, call: ShardCall) -> Result<Box<dyn ServeGuard>, Unserved> {
        let state = self.shared.state();
        let owner = state.topology.shards[&call.shard].owner;
        match owner.is_some_and(|owner| owner.epoch > call.epoch) {
            true => Err(Unserved::Moved(state.topology.revision)),
            false => {
                self.guards.fetch_add(1, Ordering::SeqCst);
                // A store answers every owner, also when its own node has no lease.
                let is_sure = Arc::new(AtomicBool::new(true));
                let (guards, asks) = (self.guards.clone(), Arc::new(AtomicU64::new(u64::MAX)));
                Ok(Box::new(Guard { guards, is_sure, asks }))
            }
        }
    }

    fn call(&self, target: CallTarget, call: OutgoingCall, done: Box<dyn FnOnce(Reply) + Send>) {
        self.call_until(target, call, Cancellation::default(), done);
    }

    fn call_until(
        &self,
        target: CallTarget,
        call: OutgoingCall,
        cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        assert!(self.guards.load(Ordering::SeqCst) > 0, "a call without a guard");
        let (node, mode) = match target {
            CallTarget::Owner(node) => (node, CallMode::Owner),
            CallTarget::Instance(call) => (call.instance, CallMode::Instance(call)),
        };
        assert_ne!(target, CallTarget::Owner(self.me));
        let mut state = self.shared.state();
        state.calls += 1;
        if state.cut_off.contains(&node) {
            drop(state);
            return done(Err(Unserved::Unreachable(node)));
        }
        let is_late = matches!(mode, CallMode::Instance(_)) && state.late.is_some();
        let is_misrouted = mode == CallMode::Owner && state.misrouted > 0;
        if is_late || is_misrouted {
            state.misrouted -= u32::from(is_misrouted);
            let revision = state.topology.revision;
            drop(state);
            return done(Err(Unserved::Moved(revision)));
        }
        let executor = state.executors[&node].clone();
        drop(state);
        let OutgoingCall { db, protocol, requests } = call;
        let is_sure = self.is_sure.clone();
        let checked = move |reply| match mode {
            CallMode::Instance(_) if !is_sure.load(Ordering::SeqCst) => {
                done(Err(Unserved::Unreachable(node)));
            }
            _ => done(reply),
        };
        let call = IncomingCall { mode, db, protocol, requests: requests.to_vec() };
        executor.execute_until(call, cancellation, Box::new(checked));
    }

    fn when_released(&self, _db: u8, key: &[u8], done: Callback) {
        let mut state = self.shared.state();
        match state.held.contains(key) {
            true => state.waiting.push((key.into(), done)),
            false => {
                drop(state);
                done();
            }
        }
    }

    fn when_served(&self, shard: ShardId, done: Callback) {
        let mut state = self.shared.state();
        match state.changing.get_mut(&shard) {
            Some(waiting) => waiting.push(done),
            None => {
                drop(state);
                done();
            }
        }
    }

    fn when_at(&self, revision: Revision, done: Callback) {
        let mut state = self.shared.state();
        match state.topology.revision < revision {
            true => state.at_revision.push((revision, done)),
            false => {
                drop(state);
                // As a node does: what refused a call has to become known first.
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(2));
                    done();
                });
            }
        }
    }

    fn recall(&self, _db: u8, key: &[u8], done: Callback) {
        let (shared, key) = (self.shared.clone(), key.to_vec());
        std::thread::spawn(move || {
            let _alone = shared.moving.lock().unwrap();
            move_home(&shared, &key);
            done();
        });
    }
}

/// A move of a key between two stores, as the owner's: its id, the shard of the key, and the other one's.
struct Carried {
    id: MoveId,
    shard: ShardId,
    other: ShardId,
    keys: [DbKey; 1],
    home: Arc<Keyspace>,
    there: Arc<Keyspace>,
}

impl Carried {
    fn new(shared: &Shared, key: &[u8], there: NodeId) -> Self {
        let state = shared.state();
        let shard = &state.topology.shards[&state.topology.shard_of(key)];
        let other = state.topology.shards.values().find(|one| one.instance == there).unwrap().id;
        let space = |node: NodeId| state.spaces[&node].clone();
        Self {
            id: MoveId { epoch: Epoch(1), number: shared.moves.fetch_add(1, Ordering::SeqCst) },
            shard: shard.id,
            other,
            keys: [DbKey::new(0, key)],
            home: space(shard.instance),
            there: space(there),
        }
    }

    fn begin(&self, direction: Direction) {
        let Self { id, shard, other, keys, home, .. } = self;
        home.begin_move(*shard, *id, direction, *other, keys).unwrap().remove(0).unwrap();
    }

    fn out(&self, shared: &Shared) {
        self.commit_out();
        self.tell_out(shared);
    }

    /// Until the key has left its store, which nobody knows yet.
    fn commit_out(&self) {
        let Self { id, keys, home, there, .. } = self;
        self.begin(Direction::Out);
        let values = home.export_home(*id, keys, usize::MAX).unwrap().unwrap();
        there.import_keys(*id, keys, &values).unwrap().unwrap();
        home.commit_move(*id, keys, &[]).unwrap().unwrap();
    }

    fn tell_out(&self, shared: &Shared) {
        let Self { id, keys, home, there, .. } = self;
        let node = shared.state().topology.shards[&self.other].instance;
        shared.state().exceptions.insert(keys[0].key.clone(), node);
        there.finish_import(*id, keys).unwrap();
        home.forget_move(*id, keys).unwrap();
    }

    fn home(&self, shared: &Shared) {
        let Self { id, keys, home, there, .. } = self;
        self.begin(Direction::Home);
        let values = there.export_copies(*id, keys, usize::MAX).unwrap().unwrap();
        home.commit_move(*id, keys, &values).unwrap().unwrap();
        shared.state().exceptions.remove(&keys[0].key);
        there.drop_copies(*id, keys).unwrap();
        home.forget_move(*id, keys).unwrap();
    }
}

/// Brings a key home, unless it is where nobody can be reached.
fn move_home(shared: &Shared, key: &[u8]) {
    let state = shared.state();
    let from = state.exceptions.get(key).copied().filter(|from| !state.cut_off.contains(from));
    drop(state);
    if let Some(from) = from {
        Carried::new(shared, key, from).home(shared);
    }
}

/// Servers that are one cluster.
pub struct FakeCluster {
    pub served: Vec<Served>,
    pub coordinators: Vec<Arc<FakeCoordinator>>,
    pub shared: Arc<Shared>,
}

impl FakeCluster {
    /// Of this many nodes, each with a shard.
    pub fn new(placement: Placement, count: usize, flags: &[(&str, &str)]) -> Self {
        Self::with(placement, count, flags, &|_| {})
    }

    /// As [`Self::new`], with changes to the options of the engine.
    pub fn with(
        placement: Placement,
        count: usize,
        flags: &[(&str, &str)],
        change: &dyn Fn(&mut terrace::Options),
    ) -> Self {
        let flags = [flags, &[("cluster-enabled", "yes")]].concat();
        let dir = || Arc::new(tempfile::tempdir().unwrap());
        let served: Vec<Served> =
            (0..count).map(|_| Served::start(dir(), None, &flags, change)).collect();
        let ids: Vec<NodeId> = (0..count).map(|at| NodeId([at as u8 + 1; 20])).collect();
        let node = |(at, one): (usize, &Served)| Node {
            id: ids[at],
            redis_address: one.address().to_string(),
            rpc_address: format!("127.0.0.1:{}", 1 + at),
            is_alive: true,
        };
        let nodes: Vec<Node> = served.iter().enumerate().map(node).collect();
        let shards = (0..count).map(|at| Shard {
            id: ShardId(at as u32),
            instance: ids[at],
            owner: Some(Owner { node: ids[at], epoch: Epoch(1), is_claimed: true }),
            ranges: vec![range(placement, at, count)],
        });
        let topology = Topology::new(Revision(1), placement, nodes, shards).unwrap();
        let both = ids.iter().zip(&served);
        let space = |(id, one): (&NodeId, &Served)| (*id, one.server().space.clone());
        let state = State {
            topology: Arc::new(topology),
            exceptions: BTreeMap::new(),
            held: BTreeSet::new(),
            waiting: Vec::new(),
            changing: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            misrouted: 0,
            late: None,
            at_revision: Vec::new(),
            executors: both.map(|(id, one)| (*id, one.running().call_executor())).collect(),
            calls: 0,
            spaces: ids.iter().zip(&served).map(space).collect(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            moving: Mutex::default(),
            moves: AtomicU64::new(1),
            revision: AtomicU64::new(1),
        });
        let coordinator = |id: &NodeId| {
            Arc::new(FakeCoordinator {
                me: *id,
                shared: shared.clone(),
                guards: Arc::default(),
                is_sure: Arc::new(AtomicBool::new(true)),
                asks: Arc::new(AtomicU64::new(u64::MAX)),
            })
        };
        let coordinators: Vec<_> = ids.iter().map(coordinator).collect();
        for (one, coordinator) in served.iter().zip(&coordinators) {
            one.running().join_cluster(coordinator.clone());
        }
        Self { served, coordinators, shared }
    }

    pub fn node(&self, at: usize) -> NodeId {
        self.coordinators[at].me
    }

    pub fn client(&self, at: usize) -> Client {
        self.served[at].client()
    }

    /// Moves a string to a node's store, as the partitioner would.
    pub fn move_key(&self, key: &str, to: usize) {
        let bytes = key.as_bytes();
        let home = {
            let state = self.shared.state();
            state.topology.shards[&state.topology.shard_of(bytes)].instance
        };
        let _alone = self.shared.moving.lock().unwrap();
        move_home(&self.shared, bytes);
        if home != self.node(to) {
            Carried::new(&self.shared, bytes, self.node(to)).out(&self.shared);
        }
    }

    /// Moves a string that is at home, up to where its store has committed that and no route knows of it. What is
    /// given does the rest.
    pub fn begin_to_leave(&self, key: &str, to: usize) -> impl FnOnce() + use<> {
        let carried = Carried::new(&self.shared, key.as_bytes(), self.node(to));
        carried.commit_out();
        let shared = self.shared.clone();
        move || carried.tell_out(&shared)
    }

    /// A key whose shard is that of a node, beginning with `name`.
    pub fn key_of(&self, at: usize, name: &str) -> String {
        let topology = self.shared.state().topology.clone();
        (0..)
            .map(|number| format!("{name}{number}"))
            .find(|key| topology.shard_of(key.as_bytes()) == ShardId(at as u32))
            .unwrap()
    }

    /// Waits until nothing is guarded any more.
    pub fn settle(&self) {
        until("a guard was not given back", || {
            self.coordinators.iter().all(|one| one.guards.load(Ordering::SeqCst) == 0)
        });
    }
}

/// A coordinator that has joined, of a cluster that was not created yet.
pub struct Waiting(pub NodeId);

struct NoGuard;

impl ServeGuard for NoGuard {
    fn may_reply(&self) -> bool {
        true
    }
}

impl Coordinator for Waiting {
    fn me(&self) -> NodeId {
        self.0
    }

    fn topology(&self) -> Option<Arc<Topology>> {
        None
    }

    fn revision(&self) -> Revision {
        Revision(0)
    }

    fn route(&self, _: u8, _: &[u8]) -> Route {
        Route::Unserved(Unserved::NoTopology)
    }

    fn route_shard(&self, _: ShardId) -> Route {
        Route::Unserved(Unserved::NoTopology)
    }

    fn guard(&self) -> Box<dyn ServeGuard> {
        Box::new(NoGuard)
    }

    fn admit(&self, _: ShardCall) -> Result<Box<dyn ServeGuard>, Unserved> {
        Err(Unserved::NoTopology)
    }

    fn call(&self, _: CallTarget, _: OutgoingCall, done: Box<dyn FnOnce(Reply) + Send>) {
        done(Err(Unserved::NoTopology));
    }

    fn when_released(&self, _: u8, _: &[u8], done: Callback) {
        done();
    }

    fn when_served(&self, _: ShardId, done: Callback) {
        done();
    }

    fn when_at(&self, _: Revision, done: Callback) {
        done();
    }

    fn recall(&self, _: u8, _: &[u8], done: Callback) {
        done();
    }
}
