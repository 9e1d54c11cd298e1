//! What a cluster does at the moment, as `CLUSTER STATUS` and `/api/v1/cluster` show it: one JSON object.

use serde::{Deserialize, Serialize};

/// The whole cluster, as the node that was asked sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// `slots` or `range`; `null` before it was created.
    pub placement: Option<String>,
    /// Of the metadata that this was read from.
    pub revision: u64,
    /// Whether every shard is served.
    pub is_served: bool,
    /// The node that was asked.
    pub me: String,
    /// By id.
    pub nodes: Vec<NodeStatus>,
    /// Those that are not served first, then by number.
    pub shards: Vec<ShardStatus>,
}

/// The cluster in numbers, as a node knows it by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterFigures {
    /// Nodes that are known.
    pub nodes: u64,
    /// Those whose lease is there.
    pub nodes_alive: u64,
    /// Shards of the cluster.
    pub shards: u64,
    /// Those that no node that is alive owns.
    pub shards_unowned: u64,
    /// Those that this node serves.
    pub shards_served: u64,
    /// Keys of these that are not at home.
    pub exceptions: u64,
    /// Keys that this node moved as owner.
    pub moved_keys: u64,
    /// Milliseconds since the last confirmed keep-alive was sent.
    pub lease_age_ms: u64,
    /// It gives its shards up.
    pub is_draining: bool,
    /// It makes plans by itself at the moment.
    pub leads_partitioner: bool,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// 40 hexadecimal digits.
    pub id: String,
    /// For clients.
    pub redis_address: String,
    /// For other nodes.
    pub bus_address: String,
    /// Whether its lease is there.
    pub is_alive: bool,
    /// Why it did not tell more; `null` if it did.
    pub error: Option<String>,
    /// What it told.
    pub report: Option<NodeReport>,
}

/// What a node tells of itself. Counters are of its store, since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    /// Of the metadata that it has seen.
    pub revision: u64,
    /// Milliseconds since the last confirmed keep-alive was sent.
    pub lease_age_ms: u64,
    /// Milliseconds that its lease lasts.
    pub lease_ttl_ms: u64,
    /// Whether it may own shards.
    pub is_coordinator: bool,
    /// Whether it makes plans by itself at the moment.
    pub leads_partitioner: bool,
    /// Whether it is giving its shards up.
    pub is_draining: bool,
    /// Keys that it moved as owner.
    pub moved_keys: u64,
    /// Lookups in its store.
    pub reads: u64,
    /// Keys and elements written to its store.
    pub writes: u64,
    /// Bytes of these.
    pub user_bytes: u64,
    /// Bytes that its store wrote to the device.
    pub device_bytes: u64,
    /// Keys of its store, about.
    pub keys: u64,
}

/// A shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardStatus {
    /// Its number.
    pub id: u32,
    /// Slots as `0-5460`, keys as `"g".."q"`.
    pub ranges: Vec<String>,
    /// The node whose store has its keys.
    pub instance: String,
    /// The node that owns it; `null` before the first.
    pub owner: Option<String>,
    /// The owner's term.
    pub epoch: u64,
    /// Whether it has an owner that is alive and serves it.
    pub is_served: bool,
    /// `serving`, or what is wrong.
    pub state: String,
    /// Keys that are not at home; `null` if the owner did not tell.
    pub exceptions: Option<u64>,
    /// Keys that wait for a move.
    pub waiting_moves: u64,
    /// The step of each move that is under way.
    pub moves: Vec<String>,
}
