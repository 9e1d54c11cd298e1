//! The cluster as the server in front of clients sees it. Nothing here waits, but for an admission that
//! makes a later epoch durable.

use crate::follower;
use crate::gate::Token;
use crate::shared::{Admission, Shared};
use crate::view::{Callback, Order, OwnedShard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_cluster::{
    CallMode, CallTarget, Cancellation, Coordinator, DbKey, IncomingCall, NodeId, OutgoingCall,
    Reply, Revision, Route, ServeGuard, ShardCall, ShardId, Topology, Unserved,
};

/// A call that was refused is not routed again at once: what refused it has to become known here.
const ROUTE_AGAIN: Duration = Duration::from_millis(2);

/// See the module.
pub(crate) struct NodeCoordinator {
    pub shared: Arc<Shared>,
}

/// Of a batch of this node's own commands.
struct BatchGuard {
    shared: Arc<Shared>,
    generation: u64,
    /// `None` if no drain waits for it.
    _token: Option<Token>,
}

impl ServeGuard for BatchGuard {
    fn may_reply(&self) -> bool {
        self.shared.stamp.covers(self.generation)
    }
}

/// Of a call from an owner elsewhere, who looks at its own lease before the reply is shown.
struct AdmittedGuard {
    _token: Token,
}

impl ServeGuard for AdmittedGuard {
    fn may_reply(&self) -> bool {
        true
    }
}

impl NodeCoordinator {
    /// A guard over commands that are routed from now on.
    fn guard_with(&self, _token: Option<Token>) -> Box<dyn ServeGuard> {
        let generation = self.shared.stamp.generation();
        // Routes under this guard go by it.
        self.shared.stamp.look();
        Box::new(BatchGuard { shared: self.shared.clone(), generation, _token })
    }

    /// The shard, if this node owns it and its lease was sure when the guard was taken that the caller holds.
    fn with_owned<T>(
        &self,
        shard_of: impl Fn(&Topology) -> ShardId,
        then: impl FnOnce(&Topology, &OwnedShard) -> T,
        otherwise: impl FnOnce(Route) -> T,
    ) -> T {
        let view = self.shared.view.load();
        let Some(topology) = &view.topology else {
            return otherwise(Route::Unserved(Unserved::NoTopology));
        };
        let shard = shard_of(topology);
        match view.owned.get(&shard) {
            Some(owned) if self.shared.stamp.covered(owned.generation) => then(topology, owned),
            Some(_) => otherwise(Route::Unserved(Unserved::NoOwner(shard))),
            None => {
                let Shared { me, config, .. } = &*self.shared;
                otherwise(view.route_to_owner(topology, (*me, config.hand_over), shard))
            }
        }
    }

    fn owner_of(&self, key: &[u8]) -> Option<Arc<OwnedShard>> {
        let view = self.shared.view.load();
        let shard = view.topology.as_ref()?.shard_of(key);
        view.owned.get(&shard).cloned()
    }

    /// Calls an instance in the name of an owned shard. What it replies counts only while the lease of the term is
    /// sure: later another owner may have changed it. The command may have been executed all the same. The present lease may
    /// be a later one, if this thread stood still since it routed the command: then the call is not made, since the instance need not
    /// know yet that the term is over.
    fn call_instance(
        &self,
        shard: ShardCall,
        call: OutgoingCall,
        cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        let shared = self.shared.clone();
        let Some(generation) = shared.view.load().generation_in(shard.shard, shard.epoch) else {
            return done(Err(Unserved::Moved(self.revision())));
        };
        let under_way = self.shared.calls.enter();
        let checked: Box<dyn FnOnce(Reply) + Send> = Box::new(move |reply| {
            drop(under_way);
            done(match reply {
                Ok(_) if !shared.stamp.covers(generation) => Err(Unserved::Unreachable(shared.me)),
                reply => reply,
            });
        });
        if shard.instance == self.shared.me {
            return self.execute(CallMode::Instance(shard), call, cancellation, checked);
        }
        match self.shared.peer(shard.instance) {
            Some(peer) => peer.call_instance_until(call, shard, cancellation, checked),
            None => checked(Err(Unserved::Unreachable(shard.instance))),
        }
    }

    fn execute(
        &self,
        mode: CallMode,
        call: OutgoingCall,
        cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        let (db, protocol) = (call.db, call.protocol);
        let requests = Arc::unwrap_or_clone(call.requests);
        let call = IncomingCall { mode, db, protocol, requests };
        self.shared.executor.execute_until(call, cancellation, done);
    }
}

impl Coordinator for NodeCoordinator {
    fn me(&self) -> NodeId {
        self.shared.me
    }

    fn topology(&self) -> Option<Arc<Topology>> {
        self.shared.topology()
    }

    fn revision(&self) -> Revision {
        Revision(self.shared.revision.load(Ordering::SeqCst))
    }

    fn route(&self, db: u8, key: &[u8]) -> Route {
        let me = self.shared.me;
        let shard_of = |topology: &Topology| topology.shard_of(key);
        self.with_owned(shard_of, |topology, owned| owned.route(me, topology, db, key), |it| it)
    }

    fn route_shard(&self, shard: ShardId) -> Route {
        let me = self.shared.me;
        self.with_owned(|_| shard, |_, owned| owned.route_home(me), |it| it)
    }

    fn guard(&self) -> Box<dyn ServeGuard> {
        self.guard_with(Some(self.shared.gate.enter()))
    }

    fn lease_guard(&self) -> Box<dyn ServeGuard> {
        self.guard_with(None)
    }

    fn admit(&self, call: ShardCall) -> Result<Box<dyn ServeGuard>, Unserved> {
        match self.shared.admit(call.shard, call.epoch) {
            Ok(Admission::Entered(_token)) => Ok(Box::new(AdmittedGuard { _token })),
            Ok(Admission::Deposed | Admission::Draining) => Err(Unserved::Moved(self.revision())),
            Ok(Admission::RaiseFirst) => {
                // The first call of an owner to an instance that is not its shard's. It comes again.
                self.shared.begin_fence(call.shard, call.epoch);
                Err(Unserved::Moved(self.revision()))
            }
            Ok(Admission::Refused) => Err(Unserved::Unreachable(self.shared.me)),
            Err(error) => {
                tracing::warn!("a call is not admitted: {error}");
                Err(Unserved::Unreachable(self.shared.me))
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
        match target {
            CallTarget::Instance(shard) => self.call_instance(shard, call, cancellation, done),
            CallTarget::Owner(node) if node == self.shared.me => {
                self.execute(CallMode::Owner, call, cancellation, done);
            }
            CallTarget::Owner(node) => match self.shared.peer(node) {
                Some(peer) => peer.call_owner_until(call, self.revision(), cancellation, done),
                None => done(Err(Unserved::Unreachable(node))),
            },
        }
    }

    fn when_released(&self, db: u8, key: &[u8], done: Box<dyn FnOnce() + Send>) {
        let (done, limit) = (Callback::new(done), self.shared.config.hold_limit);
        let at_once = match self.owner_of(key) {
            Some(owned) => owned.wait_for_release(&DbKey::new(db, key), limit, done),
            None => Some(done),
        };
        at_once.into_iter().for_each(Callback::call);
    }

    fn when_served(&self, shard: ShardId, done: Box<dyn FnOnce() + Send>) {
        // Called also if the runtime ends.
        let (shared, done) = (self.shared.clone(), Callback::new(done));
        self.shared.runtime.spawn(async move {
            shared.wait_until_served(shard).await;
            done.call();
        });
    }

    fn when_at(&self, revision: Revision, done: Box<dyn FnOnce() + Send>) {
        let shared = self.shared.clone();
        self.shared.runtime.spawn(async move {
            tokio::time::sleep(ROUTE_AGAIN).await;
            follower::wait_for(&shared, revision).await;
            done();
        });
    }

    fn recall(&self, db: u8, key: &[u8], done: Box<dyn FnOnce() + Send>) {
        match self.owner_of(key) {
            Some(owned) => {
                // One that is not sent is called.
                let order = Order::Recall(DbKey::new(db, key), Callback::new(done));
                let _ = owned.orders.send(order);
            }
            None => done(),
        }
    }
}
