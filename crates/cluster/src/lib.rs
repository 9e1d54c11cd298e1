//! The rules of a cluster, without I/O: slots, who owns what, where a key lives.
//!
//! ```text
//! key -> Slot -> shard (Topology) -> its owner, a coordinator with an epoch
//!                                 -> its instance, the engine that has the shard's keys,
//!                                    but for those in the shard's exception list
//! ```
//! Floor 1: uses no other crate of the workspace. The crates that need the network, a store or a clock
//! (`terrace-node`) stand above it and pass events in.

#![forbid(unsafe_code)]

mod front;
mod id;
mod slot;
mod topology;

pub use front::{
    CallMode, CallTarget, CommandExecutor, Coordinator, IncomingCall, OutgoingCall, Reply,
    ReplyProtocol, Route, ServeGuard, ShardCall, Unserved,
};
pub use id::{Epoch, NodeId, ParseNodeIdError, Revision, ShardId};
pub use slot::{SLOT_COUNT, Slot, hash_tag, slot_of};
pub use topology::{KeyRange, Node, Owner, Placement, Shard, Topology, TopologyError};
