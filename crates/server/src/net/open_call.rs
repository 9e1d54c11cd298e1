//! Requests on their way between nodes: those that came from one, and what others answered.

use crate::session::Caller;
use std::ops::Range;
use std::sync::Arc;
use terrace_cluster::{Cancellation, NodeId, Reply, ServeGuard, Unserved};
use terrace_resp::Protocol;

/// What is called with the replies of a call.
pub(crate) type Done = Box<dyn FnOnce(Reply) + Send>;

/// Requests that a loop executes for another node, or again for one of this node's clients.
pub(crate) struct OpenCall {
    pub caller: Caller,
    pub db: u8,
    pub protocol: Protocol,
    pub requests: Vec<u8>,
    /// How often they were routed before.
    pub tries: u32,
    /// They are of one client, and may wait.
    pub is_patient: bool,
    /// Places and ids of the clients of this loop that they are of. Nobody else waits for them, if there are any.
    pub clients: Arc<[(usize, u64)]>,
    /// Of another node's call: whether somebody waits for it there.
    pub cancellation: Cancellation,
    /// Of an owner's call: its keys are those of another store's shard.
    pub at_copy: bool,
    /// Of an owner's call: until it is committed, no newer owner is let in.
    pub guard: Option<Box<dyn ServeGuard>>,
    me: NodeId,
    done: Option<Done>,
}

impl OpenCall {
    /// `done` is called exactly once, by [`Self::end`] or when this is dropped.
    pub fn new(me: NodeId, caller: Caller, done: Done) -> Self {
        Self {
            caller,
            db: 0,
            protocol: Protocol::Resp2,
            requests: Vec::new(),
            tries: 0,
            is_patient: false,
            clients: Arc::default(),
            cancellation: Cancellation::default(),
            at_copy: false,
            guard: None,
            me,
            done: Some(done),
        }
    }

    /// Everything is executed, or as much as fits into one reply.
    pub fn end(mut self, replies: Vec<u8>) {
        let may_reply = self.guard.take().is_none_or(|guard| guard.may_reply());
        if may_reply && let Some(done) = self.done.take() {
            done(Ok(replies));
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            // A part of it may have been executed.
            done(Err(Unserved::Unreachable(self.me)));
        }
    }
}

/// Who waits for a part of the replies of a call.
pub(crate) struct Waiter {
    pub token: usize,
    pub id: u64,
    /// Which round of the client's requests they are of.
    pub round: u64,
    pub hole: u32,
    pub part: u32,
    /// How many requests are his; the last one's reply counts.
    pub replies: u32,
    /// Where his requests end.
    pub end: usize,
    /// How often they were routed before.
    pub tries: u32,
}

/// Requests that their node has not executed, since the replies before them were many.
pub(crate) struct Deferred {
    pub waiter: Waiter,
    /// Those that were sent in one call, of which it is this part.
    pub requests: Arc<Vec<u8>>,
    pub range: Range<usize>,
    pub protocol: Protocol,
}

/// What another node answered.
pub(crate) struct Replied {
    /// In the order of their requests.
    pub waiters: Vec<Waiter>,
    pub protocol: Protocol,
    pub requests: Arc<Vec<u8>>,
    pub reply: Reply,
}
