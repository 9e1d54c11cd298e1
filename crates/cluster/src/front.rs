//! What the server in front of clients needs of the cluster: where a command goes, and that it may be
//! answered.
//!
//! `terrace-node` implements [`Coordinator`]; the server's tests have one of their own.

use crate::cancellation::Cancellation;
use crate::id::{Epoch, NodeId, Revision, ShardId};
use crate::topology::Topology;
use std::fmt;
use std::sync::Arc;

/// Where the commands for a key go now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Into this node's own store.
    Local,
    /// To an instance, in the name of a shard that this node owns: the shard's instance is elsewhere, or
    /// the key is an exception.
    Instance(ShardCall),
    /// To the coordinator that owns the shard.
    Owner(NodeId),
    /// Into this node's own store, but the key is being moved: reads go on, writes wait until
    /// [`Coordinator::when_released`] calls back.
    Held,
    /// Nowhere at the moment: the shard's owner has just given it up, or is gone, and the next one takes it over. Commands
    /// wait until [`Coordinator::when_served`] calls back.
    Changing(ShardId),
    /// Nowhere: the shard has no owner that could be reached, or this node's lease is not sure.
    Unserved(Unserved),
}

/// A call to an instance: it refuses one with an epoch below the latest that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardCall {
    /// The node of the instance.
    pub instance: NodeId,
    /// In whose name.
    pub shard: ShardId,
    /// The term of the shard's owner.
    pub epoch: Epoch,
}

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallTarget {
    /// To a coordinator, which routes it again.
    Owner(NodeId),
    /// To an instance, which executes it.
    Instance(ShardCall),
}

/// Why a command is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unserved {
    /// The shard has no owner, or the owner's lease is not sure.
    NoOwner(ShardId),
    /// The node did not answer; the outcome of a write is unknown.
    Unreachable(NodeId),
    /// It was not sent, and nothing happened: the node is not the owner, or has another epoch. The
    /// topology to wait for.
    Moved(Revision),
    /// There is no metadata.
    NoTopology,
    /// It was not sent, and nothing happened: too many bytes wait for the node, or it is more than a message takes.
    Full(NodeId),
}

impl Unserved {
    /// The code of the error that clients get.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Full(_) => "TRYAGAIN",
            _ => "CLUSTERDOWN",
        }
    }
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOwner(shard) => write!(f, "shard {shard} has no owner at the moment"),
            Self::Unreachable(node) => {
                write!(f, "node {node} does not answer; a write may have happened")
            }
            Self::Moved(_) => f.write_str("the shard has another owner"),
            Self::NoTopology => {
                f.write_str("the cluster was not created yet, or its metadata was not read yet")
            }
            Self::Full(node) => {
                write!(f, "node {node} takes no more bytes of requests; nothing was executed")
            }
        }
    }
}

/// What a call gives: the replies in RESP, one after the other, or why there are none. The replies may
/// be fewer than the requests: then the last ones were not executed, and are to be sent again.
pub type Reply = Result<Vec<u8>, Unserved>;

/// Which version of RESP the replies of a call are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReplyProtocol {
    /// RESP2.
    #[default]
    Resp2,
    /// RESP3.
    Resp3,
}

/// Requests for another node.
#[derive(Debug, Clone)]
pub struct OutgoingCall {
    /// The database.
    pub db: u8,
    /// What the replies are to be written in.
    pub protocol: ReplyProtocol,
    /// Requests in RESP, to be executed one after the other, often those of many clients. A transaction
    /// is `MULTI`, its commands and `EXEC`, and has a reply for each. Shared, so that who sends
    /// it can send it again.
    pub requests: Arc<Vec<u8>>,
}

/// How a call of another node is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallMode {
    /// By this node as a coordinator: requests are routed again, and for what belongs to another
    /// coordinator the reply says so.
    Owner,
    /// By this node's store, in the name of a shard. It was not [admitted](Coordinator::admit) yet.
    Instance(ShardCall),
}

/// A call of another node.
#[derive(Debug, Clone)]
pub struct IncomingCall {
    /// Who executes it.
    pub mode: CallMode,
    /// The database.
    pub db: u8,
    /// What the replies are written in.
    pub protocol: ReplyProtocol,
    /// See [`OutgoingCall::requests`].
    pub requests: Vec<u8>,
}

/// Executes calls of other nodes: the server does.
pub trait CommandExecutor: Send + Sync {
    /// Executes the requests of a call, and calls `done` with their replies, from any thread, exactly
    /// once. Does not wait. Calls that come while others are executed are executed beside them, in any
    /// order.
    fn execute(&self, call: IncomingCall, done: Box<dyn FnOnce(Reply) + Send>);

    /// As [`Self::execute`], for a call that its sender may cancel.
    fn execute_until(
        &self,
        call: IncomingCall,
        _cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        self.execute(call, done);
    }
}

/// While this lives, no newer owner of a shard that it covers can have been let in by this node's
/// instance. Taken before the first command of a batch, given back after its commit.
pub trait ServeGuard: Send {
    /// Whether the leases still cover this moment: asked after the reads and before the replies. If
    /// not, nothing that was read may be shown.
    fn may_reply(&self) -> bool;
}

/// The cluster as one of its nodes sees it. No method waits.
pub trait Coordinator: Send + Sync {
    /// This node.
    fn me(&self) -> NodeId;

    /// The latest topology; `None` before the first.
    fn topology(&self) -> Option<Arc<Topology>>;

    /// The revision of the latest topology: grows before [`Self::route`] follows it. Costs a load.
    fn revision(&self) -> Revision;

    /// Where the commands for a key go: O(1). Asked while a guard is held, and the command is executed,
    /// or [sent](Self::call), before the guard is given back: so a key of which writes are held has no
    /// command on its way once the guards from before are gone and the calls from before have
    /// ended.
    fn route(&self, db: u8, key: &[u8]) -> Route;

    /// As [`Self::route`], for commands on all keys of a shard.
    fn route_shard(&self, shard: ShardId) -> Route;

    /// Guards a batch of local commands; see [`ServeGuard`].
    fn guard(&self) -> Box<dyn ServeGuard>;

    /// As [`Self::guard`], for a command that neither writes nor uses a key, and is not sent to another node: neither the move
    /// of a key nor a newer owner waits for it, however long it takes. What it read may be shown if the leases cover that.
    fn lease_guard(&self) -> Box<dyn ServeGuard> {
        self.guard()
    }

    /// As [`Self::guard`], for a call in the name of `call.shard` from its owner. Called by
    /// [`CommandExecutor::execute`], on the thread that called that.
    ///
    /// # Errors
    /// Its epoch is below the latest, or cannot be made durable.
    fn admit(&self, call: ShardCall) -> Result<Box<dyn ServeGuard>, Unserved>;

    /// Sends requests. `done` is called by any thread, exactly once. Calls to one target are made in the
    /// order of this method; a node that is behind this one's [`Self::revision`] waits for
    /// it before it routes them. What an instance replies is given only if this node's lease covers the moment
    /// after the reply came: else the outcome is unknown ([`Unserved::Unreachable`]).
    fn call(&self, target: CallTarget, call: OutgoingCall, done: Box<dyn FnOnce(Reply) + Send>);

    /// As [`Self::call`]. When it is cancelled nobody waits for the replies, and what has not begun need not be executed;
    /// `done` is called all the same. The cancellation is kept until then.
    fn call_until(
        &self,
        target: CallTarget,
        call: OutgoingCall,
        _cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        self.call(target, call, done);
    }

    /// Calls back when a held key is released, or has been held for very long; at once if it is not held, or for as long
    /// already.
    fn when_released(&self, db: u8, key: &[u8], done: Box<dyn FnOnce() + Send>);

    /// Calls back when a shard that [changes its owner](Route::Changing) does so no longer as far as this node sees: it is
    /// served, or has been without an owner for so long that commands on it are refused. At once if it is not changing.
    fn when_served(&self, shard: ShardId, done: Box<dyn FnOnce() + Send>);

    /// Calls back when the topology has this revision, or cannot be read for longer than a lease.
    fn when_at(&self, revision: Revision, done: Box<dyn FnOnce() + Send>);

    /// Begins to bring an exception home, since a command needs it beside other keys; `done` when it
    /// is there, or could not be moved.
    fn recall(&self, db: u8, key: &[u8], done: Box<dyn FnOnce() + Send>);
}
