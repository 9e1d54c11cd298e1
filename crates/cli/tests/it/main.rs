//! The real binary from outside: every command on good and bad input, damage, kills.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod backup;
mod basics;
mod beside;
mod cluster;
mod convert;
mod damage;
mod demo;
mod dump;
mod encryption;
mod installation;
mod kill9;
mod kinds;
mod load;
mod memory;
mod opener;
#[path = "../process/mod.rs"]
mod process;
mod program;
mod repair;
mod serve;
mod unread;
