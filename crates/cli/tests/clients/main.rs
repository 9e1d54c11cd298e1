//! `terrace serve` and the clients that people use. These tests need Redis's own programs, Python
//! and Chromium: `cargo xtask test` installs what is missing and runs them, plain `cargo test` tells
//! that it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod benchmark;
mod cluster;
mod cluster_clients;
mod cluster_commands;
mod differential;
#[path = "../../../metadata/tests/servers/mod.rs"]
mod etcd;
mod faults;
mod generator;
mod go;
mod java;
mod kill9;
mod node;
#[path = "../process/mod.rs"]
mod process;
mod python;
#[path = "../../../server/tests/it/nodes/recorder.rs"]
mod recorder;
mod redis_cli;
mod redis_rs;
mod repartition;
mod servers;
mod table;
mod watched;
mod ycsb;
