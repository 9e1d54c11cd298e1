//! What loads are made of, for benchmarks and the demo: keys and values by number, who is asked for
//! how often, timed stretches of operations on several threads, and what they cost the process.
//!
//! Floor 1: knows no engine.

#![forbid(unsafe_code)]

pub mod distribution;
pub mod hot_range;
pub mod keys;
pub mod phase;
pub mod usage;
pub mod values;
mod zipf;
