//! Tests of the keyspace through its public interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod collections;
mod collections_commands;
mod collections_model;
mod commands;
mod concurrency;
mod edges;
mod harness;
mod kinds;
mod model;
mod random;
