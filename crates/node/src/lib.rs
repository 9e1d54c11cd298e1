//! A node of a cluster: what goes on between processes, so that `terrace-cluster`'s rules happen.
//!
//! ```text
//! server (Coordinator, CommandExecutor) <-> this crate <-> other nodes (rpc)
//!                                              |  \
//!                                     metadata (etcd)  store of this node (InstanceStore)
//! ```
//! Tasks of a node: `lease_keeper` keeps the lease and its stamp, `follower` reads the metadata, `claims`
//! decides which shards are owned, `owner` runs each of them and `sweep`s, `partitioner` plans.
//!
//! Floor 6: uses `terrace-cluster`, `terrace-metadata` and `terrace-keyspace`.

#![forbid(unsafe_code)]

mod claims;
mod clock;
mod config;
mod coordinator;
mod directory;
mod epochs;
mod error;
mod follower;
mod gate;
mod keyspace_store;
mod lease_keeper;
mod node;
mod owner;
mod part;
mod part_check;
mod partitioner;
mod passing;
mod roles;
pub mod rpc;
mod shared;
mod stamp;
mod store;
mod sweep;
mod too_far;
mod vain_wait;
mod view;
mod wishes;

pub use clock::{BootClock, SystemBootClock};
pub use config::{HAND_OVER, HOLD_LIMIT, MIN_LEASE, NodeConfig, PartitionerConfig};
pub use error::Error;
pub use keyspace_store::KeyspaceStore;
pub use node::{Node, NodeFigures, check_alone, check_store, create_cluster, join_store};
pub use part::{ParsePartError, Part};
pub use partitioner::Repartition;
pub use store::{Identity, InstanceStore, StoreError, StoreLoad};
