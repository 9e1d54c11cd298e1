//! The cluster that this server is a node of, if it is.
//!
//! Set with the option `cluster-enabled` at the start; the coordinator comes a little later, since it
//! needs the running server. Until then no key is served.

use std::sync::{Arc, OnceLock};
use terrace_cluster::{Coordinator, Placement, ServeGuard, ShardId, Slot, slot_of};

/// See the module.
#[derive(Default)]
pub struct Cluster {
    coordinator: OnceLock<Arc<dyn Coordinator>>,
    /// Clients get a redirection (`MOVED`), instead of being served by way of this node.
    redirects: bool,
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
        Self { coordinator: OnceLock::new(), redirects }
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

    /// Guards commands on keys of this node; see [`ServeGuard`].
    pub fn guard(&self) -> Option<Box<dyn ServeGuard>> {
        self.coordinator().map(|coordinator| coordinator.guard())
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
