//! Nodes on the loopback interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod embedded;
mod fences;
#[path = "../harness/mod.rs"]
mod harness;
mod joining;
mod keyspace;
mod links;
mod lost_metadata;
mod orders;
mod receivers;
#[path = "../scenarios/mod.rs"]
mod scenarios;
