//! The scenarios with real etcd. Needs Debian's `etcd-server` and `etcd-client`: `cargo xtask test` installs
//! them and runs these tests, plain `cargo test` reports that it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod etcd;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../scenarios/mod.rs"]
mod scenarios;
#[path = "../../../metadata/tests/servers/mod.rs"]
mod servers;
