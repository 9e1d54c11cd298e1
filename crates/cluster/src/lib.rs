//! The rules of a cluster, without I/O: slots, who owns what, where a key lives.
//!
//! ```text
//! key -> Slot -> shard (Topology) -> its owner, a coordinator with an epoch
//!                                 -> its instance, the engine that has the shard's keys,
//!                                    but for those in the shard's exception list
//! ```
//! - Owning a shard: [`LeaseClock`], [`Ownership`] in every coordinator, [`Fence`] at every instance.
//! - Moving keys: [`Mover`] and [`KeyMove`] at the owner, [`HomeKey`] and [`KeyCopy`] at the instances,
//!   [`ExceptionList`] for where keys are.
//! - What to move: [`make_plan`], of what the instances counted.
//!
//! Floor 1: uses no other crate of the workspace. The crates that need the network, a store or a clock
//! (`terrace-node`) stand above it and pass events in.

#![forbid(unsafe_code)]

mod cancellation;
mod exceptions;
mod front;
mod id;
mod key;
mod moves;
mod owning;
mod plan;
mod slot;
mod topology;

pub use cancellation::Cancellation;
pub use exceptions::{Exception, ExceptionList, Misplaced};
pub use front::{
    CallMode, CallTarget, CommandExecutor, Coordinator, IncomingCall, OutgoingCall, Reply,
    ReplyProtocol, Route, ServeGuard, ShardCall, Unserved,
};
pub use id::{Epoch, NodeId, ParseNodeIdError, Revision, ShardId};
pub use key::{DbKey, MoveId};
pub use moves::{
    CopyChange, CopyState, Direction, Effect, FinishedMove, FlushId, Flushes, HomeKey, Intent,
    IntentState, KeyCopy, KeyMove, MoveAnswer, MoveCall, MoveEffects, MoveEvent, MoveLimits, Mover,
    Outcome, RecordError, Refusal, Site,
};
pub use owning::{
    Admission, ClaimAnswer, Fence, FenceAnswer, LeaseClock, OwnerAnswer, OwnerEffect, OwnerEvent,
    OwnerRequest, Ownership, OwnershipTimes, SendStamp, Ticket, claim_rank,
};
pub use plan::{
    Assignment, MAX_MOVED_KEY_BYTES, MAX_PLAN_KEYS, MergedKey, Plan, PlanError, PlanSpec, TopKey,
    TopList, make_plan, merge,
};
pub use slot::{SLOT_COUNT, Slot, hash_tag, slot_of};
pub use topology::{KeyRange, Node, Owner, Placement, Shard, Topology, TopologyError};
