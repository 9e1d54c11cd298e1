//! `terrace-inspect` from outside: dumps and checks of sound and broken stores.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod check;
mod dumps;
mod store;
mod values;
