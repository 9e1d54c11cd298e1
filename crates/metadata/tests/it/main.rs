//! The embedded metadata: the tests that every kind passes, and those of its file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../conformance/mod.rs"]
mod conformance;
mod embedded;
