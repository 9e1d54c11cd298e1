//! Executes calls of other nodes: gives each to an event loop, in turns.

use super::loop_handle::{LoopHandle, Message};
use super::open_call::{Done, OpenCall};
use crate::server::Server;
use crate::session::Caller;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_cluster::{CallMode, CommandExecutor, IncomingCall, ReplyProtocol, Unserved};
use terrace_resp::Protocol;

/// See the module.
pub struct CallExecutor {
    server: Arc<Server>,
    /// None once the server ends.
    loops: Mutex<Vec<Arc<LoopHandle>>>,
    next: AtomicUsize,
}

impl CallExecutor {
    /// Over the loops of a server.
    pub(crate) fn new(server: Arc<Server>, loops: Vec<Arc<LoopHandle>>) -> Arc<Self> {
        Arc::new(Self { server, loops: Mutex::new(loops), next: AtomicUsize::new(0) })
    }

    /// Takes no call any more.
    pub(crate) fn close(&self) {
        self.loops.lock().clear();
    }
}

impl CommandExecutor for CallExecutor {
    fn execute(&self, call: IncomingCall, done: Done) {
        let Some(coordinator) = self.server.cluster.as_ref().and_then(|one| one.coordinator())
        else {
            return done(Err(Unserved::NoTopology));
        };
        let guard = match call.mode {
            CallMode::Owner => None,
            CallMode::Instance(shard) => match coordinator.admit(shard) {
                Ok(guard) => Some(guard),
                Err(why) => return done(Err(why)),
            },
        };
        let caller = match call.mode {
            CallMode::Owner => Caller::Owner,
            CallMode::Instance(_) => Caller::Instance,
        };
        let mut open = OpenCall::new(coordinator.me(), caller, done);
        (open.db, open.requests, open.guard) = (call.db, call.requests, guard);
        open.protocol = match call.protocol {
            ReplyProtocol::Resp2 => Protocol::Resp2,
            ReplyProtocol::Resp3 => Protocol::Resp3,
        };
        let loops = self.loops.lock();
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        // Without a loop the call is dropped, which answers it.
        if let Some(home) = loops.get(turn % loops.len().max(1)) {
            home.send(Message::Call(Box::new(open)));
        }
    }
}
