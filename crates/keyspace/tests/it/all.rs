//! The tests that run twice: on a store with placement `range`, and on one with `slots`.

mod collections;
mod collections_commands;
mod collections_model;
mod commands;
mod concurrency;
mod costs;
mod deleted_rows;
mod edges;
mod expired_kinds;
pub mod harness;
mod key_pages;
mod long_lists;
mod model;
mod moves;
mod random;
mod stray_keys;
mod walks;
mod watching;
