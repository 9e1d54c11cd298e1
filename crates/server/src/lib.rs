//! The store behind the Redis protocol, HTTP and a dashboard.
//!
//! Floor 7: the only place that knows JSON and the network. Inside, a module uses only those listed
//! above it, but for [`command`] and [`dispatch`]: `EXEC` executes commands.

#![forbid(unsafe_code)]

// Vocabulary.
pub mod bounded_file;
mod descriptors;
pub mod glob;
mod process;
pub mod replace_file;
mod settle;
pub mod stats;
mod status;
mod unknown_command;
// What can be set, who may do what, what is measured.
pub mod acl;
pub mod command_observer;
pub mod config;
pub mod error_stats;
pub mod latency;
mod memory_advice;
pub mod slowlog;
// What is known of a client, and of all.
pub mod checkpoints;
pub mod cluster;
mod round;
pub mod session;
// The state that everything shares, and what is done with it.
pub mod command;
pub mod dispatch;
pub mod hot_keys;
mod pause;
mod place;
mod read_command;
pub mod server;
// The outside.
pub mod http;
pub mod net;
mod serve;

pub use process::resident_bytes;
pub use serve::{Running, ServeError};
pub use server::Server;

/// The version of Redis whose behaviour clients can expect of the commands that there are.
pub const REDIS_VERSION: &str = "7.0.15";
