//! The protocols of a cluster, model-checked and simulated. See decision 0020.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod history;
mod instance;
mod key_move;
mod key_move_model;
mod ownership;
mod sim;
