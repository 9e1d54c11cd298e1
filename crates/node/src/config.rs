//! What a node is started with.

use crate::clock::{BootClock, SystemBootClock};
use crate::rpc::{LinkOptions, Secret};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use terrace_cluster::{MoveLimits, Placement, PlanSpec};

/// The shortest time of a lease: shorter ones end where a machine is busy.
pub const MIN_LEASE: Duration = Duration::from_secs(1);

/// The default of [`NodeConfig::hand_over`]: the two seconds for which an owner that ends in order may wait for calls that
/// are under way, and one for the next owner, which takes a fifth of that where the machines are not busy.
pub const HAND_OVER: Duration = Duration::from_secs(3);

/// The default of [`NodeConfig::hold_limit`]: longer than a move takes to give up another instance that does not answer.
pub const HOLD_LIMIT: Duration = Duration::from_secs(15);

/// What a node is started with.
#[derive(Clone)]
pub struct NodeConfig {
    /// The cluster's name.
    pub cluster: String,
    /// How keys lie in the store, if that is known: a cluster with another placement is not joined.
    pub placement: Option<Placement>,
    /// Where other nodes connect to.
    pub rpc_listen: SocketAddr,
    /// `host:port` that other nodes use; the listening address if there is none.
    pub rpc_address: Option<String>,
    /// `host:port` of the Redis protocol, for clients.
    pub redis_address: String,
    /// Shared by the nodes. Needed unless the node listens on the loopback interface only.
    pub secret: Secret,
    /// The time of the node's lease: how long its shards are unserved when it dies, at most.
    pub lease: Duration,
    /// How long commands on a shard that has just lost its owner wait for the next one, before they are refused.
    pub hand_over: Duration,
    /// How long commands wait for a key that is being moved, before they are to be tried again.
    pub hold_limit: Duration,
    /// How long a node that ends may take to give up its shards, and waits for what is under way.
    pub leave: Duration,
    /// Whether it owns shards.
    pub is_coordinator: bool,
    /// Whether it may lead the partitioner, and how often that plans by itself.
    pub partitioner: Option<PartitionerConfig>,
    /// How fast keys are moved.
    pub moves: MoveLimits,
    /// Of connections to other nodes.
    pub links: LinkOptions,
    /// What leases are measured with.
    pub clock: Arc<dyn BootClock>,
}

/// What the partitioner does by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionerConfig {
    /// How often.
    pub interval: Duration,
    /// By which plan.
    pub plan: PlanSpec,
    /// How many keys each instance is asked for.
    pub keys: usize,
}

impl NodeConfig {
    /// For a node on the loopback interface, with the defaults.
    pub fn local(cluster: &str, redis_address: &str) -> Self {
        Self {
            cluster: cluster.to_string(),
            placement: None,
            rpc_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            rpc_address: None,
            redis_address: redis_address.to_string(),
            secret: Secret::none(),
            lease: Duration::from_secs(3),
            hand_over: HAND_OVER,
            hold_limit: HOLD_LIMIT,
            leave: Duration::from_secs(3),
            is_coordinator: true,
            partitioner: None,
            moves: MoveLimits::default(),
            links: LinkOptions::default(),
            clock: Arc::new(SystemBootClock),
        }
    }
}
