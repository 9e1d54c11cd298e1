//! Moves one memory budget between pools, a small step at a time, to where a byte more saves the most
//! device time; pure.
//!
//! ```text
//! counters -> gains (one currency) -> smoothed (mean and noise) -> Arbiter::step -> Move
//! ```
//! The currency is **device microseconds saved per second by one MiB more**. The caller takes a step
//! about once a second: it measures, gives a [`PoolReading`] of every pool, and carries out what it is
//! told. Time is counted in steps; nothing here reads a clock, draws a number or does I/O, so the same
//! readings give the same moves.
//!
//! Where every pool's savings grow ever more slowly with its bytes, the split at which all marginal
//! gains are equal is the best one, and small moves from the lowest gain to the highest end there.
//!
//! | module | |
//! |---|---|
//! | `gains` | what one MiB more would save, from counters |
//! | `smoothed` | a gain as it was lately, and how far it can be trusted |
//! | `policy` | from which pool to which, how much, or why nothing moves |
//!
//! Floor 1: uses no other crate of the workspace.

#![forbid(unsafe_code)]

pub mod gains;
mod policy;
mod smoothed;

pub use policy::{Arbiter, Decision, Move, PoolReading, Stay};
