//! The cluster that this server is a node of, if it is.
//!
//! Set with the option `cluster-enabled` at the start; the coordinator comes a little later, since it
//! needs the running server. Until then no key is served.

mod admin;
mod membership;
mod node_admin;
mod status;

pub use admin::{
    AdminAnswer, AdminReply, AdminRequest, AdminSlot, ClusterAdmin, ClusterSpec, ClusterSpecError,
    MAX_CREATED_SHARDS, Repartitioned,
};
pub use membership::Membership;
pub use node_admin::NodeAdmin;
pub use status::{ClusterFigures, ClusterStatus, NodeReport, NodeStatus, ShardStatus};

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_cluster::{Coordinator, Placement, ServeGuard, Shard, ShardId, Slot, slot_of};

/// What the calls of other nodes that wait, for the next owners of their shards or for keys, may take, each on the connection
/// that it came by, which calls that need not wait need too: a quarter of that. One call of any size may always wait.
const MAX_WAITING_KIB: usize = 16 << 10;

/// What a call takes there beside its requests.
const CALL_BYTES: usize = 16 << 10;

/// See the module.
#[derive(Default)]
pub struct Cluster {
    coordinator: OnceLock<Arc<dyn Coordinator>>,
    admin: OnceLock<Arc<dyn ClusterAdmin>>,
    /// What all [`WaitingCall`]s take.
    waiting_kib: Arc<AtomicUsize>,
    /// Clients get a redirection (`MOVED`), instead of being served by way of this node.
    redirects: bool,
}

/// While this lives, a call of another node waits for the next owner of a shard, or for a key.
pub(crate) struct WaitingCall {
    kib: usize,
    all_kib: Arc<AtomicUsize>,
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.all_kib.fetch_sub(self.kib, Ordering::Relaxed);
    }
}

/// What a call with requests of this many bytes takes on its connection.
fn kib_of(call_bytes: usize) -> usize {
    (call_bytes + CALL_BYTES) >> 10
}

/// What the keys of one command must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// With placement `slots`.
    Slot(Slot),
    /// With placement `range`.
    Shard(ShardId),
}

impl Cluster {
    /// Without a coordinator yet.
    pub fn new(redirects: bool) -> Self {
        Self { redirects, ..Self::default() }
    }

    /// The coordinator is there. Only the first one counts.
    pub fn join(&self, coordinator: Arc<dyn Coordinator>) {
        let _first = self.coordinator.set(coordinator);
    }

    /// The coordinator; `None` while the server starts.
    #[inline]
    pub fn coordinator(&self) -> Option<&Arc<dyn Coordinator>> {
        self.coordinator.get()
    }

    /// Who does what administrators ask for. Only the first one counts.
    pub fn administer(&self, admin: Arc<dyn ClusterAdmin>) {
        let _first = self.admin.set(admin);
    }

    /// Who does what administrators ask for, if anybody does.
    pub fn admin(&self) -> Option<&Arc<dyn ClusterAdmin>> {
        self.admin.get()
    }

    /// The cluster in numbers, as far as this node knows it by itself.
    pub fn figures(&self) -> ClusterFigures {
        let known = self.admin().map(|admin| admin.figures()).unwrap_or_default();
        let Some(topology) = self.coordinator().and_then(|one| one.topology()) else {
            return known;
        };
        let is_owned = |shard: &&Shard| shard.owner.is_some_and(|owner| owner.is_claimed);
        let owned = topology.shards.values().filter(is_owned).count();
        ClusterFigures {
            nodes: topology.nodes.len() as u64,
            nodes_alive: topology.nodes.values().filter(|node| node.is_alive).count() as u64,
            shards: topology.shards.len() as u64,
            shards_unowned: (topology.shards.len() - owned) as u64,
            ..known
        }
    }

    /// Guards commands on keys of this node; see [`ServeGuard`].
    pub fn guard(&self) -> Option<Box<dyn ServeGuard>> {
        self.coordinator().map(|coordinator| coordinator.guard())
    }

    /// Guards one command on a thread that may wait. Nothing waits for one that `uses_no_key`, and does not write either.
    pub(crate) fn guard_of(&self, uses_no_key: bool) -> Option<Box<dyn ServeGuard>> {
        let coordinator = self.coordinator()?;
        Some(if uses_no_key { coordinator.lease_guard() } else { coordinator.guard() })
    }

    /// A call of another node, with requests of this many bytes, begins to wait for the next owner of a shard, or for a key.
    pub(crate) fn begin_waiting(&self, call_bytes: usize) -> WaitingCall {
        let kib = kib_of(call_bytes);
        self.waiting_kib.fetch_add(kib, Ordering::Relaxed);
        WaitingCall { kib, all_kib: self.waiting_kib.clone() }
    }

    /// Whether a call of another node, with requests of this many bytes, may wait for that.
    pub(crate) fn may_wait(&self, call_bytes: usize) -> bool {
        let waiting = self.waiting_kib.load(Ordering::Relaxed);
        waiting == 0 || waiting + kib_of(call_bytes) <= MAX_WAITING_KIB
    }

    /// Whether clients get redirections.
    pub fn redirects(&self) -> bool {
        self.redirects
    }
}

/// Where a key is, as far as commands with several keys are concerned.
pub fn unit_of(coordinator: &dyn Coordinator, key: &[u8]) -> Unit {
    match coordinator.topology() {
        Some(topology) if topology.placement == Placement::Range => {
            Unit::Shard(topology.shard_of(key))
        }
        _ => Unit::Slot(slot_of(key)),
    }
}
