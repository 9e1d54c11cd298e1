//! All tests of a store that has one of the placements.

mod collections;
mod collections_commands;
mod collections_model;
mod commands;
mod concurrency;
mod edges;
pub mod harness;
mod model;
mod moves;
mod random;
