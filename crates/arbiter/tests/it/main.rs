//! The arbiter from outside: what it says to scripts, and how it fares in workloads of which all is known.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod scripts;
mod simulation;
mod world;
