//! The store behind the Redis protocol, HTTP and a dashboard.
//!
//! Floor 6: the only place that knows JSON and the network.

#![forbid(unsafe_code)]

pub mod acl;
pub mod command;
pub mod config;
pub mod glob;
pub mod replace_file;
pub mod server;
pub mod session;
