//! Real etcd. Needs Debian's `etcd-server` and `etcd-client`: `cargo xtask test` installs them and
//! runs these tests, plain `cargo test` reports that it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../conformance/mod.rs"]
mod conformance;
mod etcd;
mod faults;
#[path = "../servers/mod.rs"]
mod servers;
