//! Executes calls of other nodes: a short one at once, others by the event loops in turns.

use super::call_lane::CallLane;
use super::loop_handle::{LoopHandle, Message};
use super::open_call::{Done, OpenCall};
use crate::cluster::Cluster;
use crate::server::Server;
use crate::session::Caller;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_cluster::{
    CallMode, Cancellation, CommandExecutor, IncomingCall, NodeId, ReplyProtocol, ShardCall,
    Unserved,
};
use terrace_resp::Protocol;

/// See the module.
pub struct CallExecutor {
    /// `None` once the server ends: the cluster holds this, and the server holds the cluster.
    open: Mutex<Option<Open>>,
    /// This node, from then on.
    ended: OnceLock<NodeId>,
    next: AtomicUsize,
}

#[derive(Clone)]
struct Open {
    server: Arc<Server>,
    loops: Arc<[Arc<LoopHandle>]>,
    /// `None` without a loop.
    lane: Option<Arc<CallLane>>,
}

impl CallExecutor {
    /// Over the loops of a server.
    pub(crate) fn new(server: Arc<Server>, loops: Vec<Arc<LoopHandle>>) -> Arc<Self> {
        let lane = loops.first().map(|home| Arc::new(CallLane::new(&server, home)));
        let open = Open { server, loops: loops.into(), lane };
        let (open, ended) = (Mutex::new(Some(open)), OnceLock::new());
        Arc::new(Self { open, ended, next: AtomicUsize::new(0) })
    }

    /// Takes no call any more.
    pub(crate) fn close(&self) {
        let open = self.open.lock().take();
        let cluster = open.as_ref().and_then(|open| open.server.cluster.as_ref());
        if let Some(coordinator) = cluster.and_then(Cluster::coordinator) {
            let _first = self.ended.set(coordinator.me());
        }
    }
}

impl CommandExecutor for CallExecutor {
    fn execute(&self, call: IncomingCall, done: Done) {
        self.execute_until(call, Cancellation::default(), done);
    }

    fn execute_until(&self, call: IncomingCall, cancellation: Cancellation, done: Done) {
        let open = self.open.lock().clone();
        let Some(Open { server, loops, lane }) = open else {
            let me = self.ended.get();
            return done(Err(me.map_or(Unserved::NoTopology, |me| Unserved::Unreachable(*me))));
        };
        let Some(coordinator) = server.cluster.as_ref().and_then(|one| one.coordinator()) else {
            return done(Err(Unserved::NoTopology));
        };
        let guard = match call.mode {
            CallMode::Owner => None,
            CallMode::Instance(shard) => match coordinator.admit(shard) {
                Ok(guard) => Some(guard),
                Err(why) => return done(Err(why)),
            },
        };
        let (caller, at_copy) = match call.mode {
            CallMode::Owner => (Caller::Owner, false),
            CallMode::Instance(ShardCall { shard, .. }) => {
                let topology = coordinator.topology();
                let shard = topology.as_ref().and_then(|topology| topology.shards.get(&shard));
                // Whose keys they are is to be known first.
                let Some(shard) = shard else {
                    return done(Err(Unserved::Moved(coordinator.revision())));
                };
                (Caller::Instance, shard.instance != coordinator.me())
            }
        };
        let mut open = OpenCall::new(coordinator.me(), caller, done);
        (open.db, open.requests, open.guard) = (call.db, call.requests, guard);
        (open.at_copy, open.cancellation) = (at_copy, cancellation);
        open.protocol = match call.protocol {
            ReplyProtocol::Resp2 => Protocol::Resp2,
            ReplyProtocol::Resp3 => Protocol::Resp3,
        };
        let open = match lane {
            Some(lane) => lane.execute(open),
            None => Some(open),
        };
        let Some(open) = open else { return };
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        // Without a loop the call is dropped, which answers it.
        if let Some(home) = loops.get(turn % loops.len().max(1)) {
            home.send(Message::Call(Box::new(open)));
        }
    }
}
