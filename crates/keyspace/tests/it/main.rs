//! Tests of the keyspace through its public interface.

#![allow(clippy::duplicate_mod, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod kinds;
mod lost_marks;
mod slot_ranges;
// The same files twice: see `harness::PLACEMENT`.
#[path = "all.rs"]
mod range;
#[path = "all.rs"]
mod slots;
