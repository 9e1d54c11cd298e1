//! The store behind the Redis protocol, HTTP and a dashboard.
//!
//! Floor 6: the only place that knows JSON and the network.

#![forbid(unsafe_code)]

pub mod command;
pub mod server;
pub mod session;
