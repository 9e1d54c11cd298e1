//! Tests of the list through its interface: against a model, with threads, and (under `cfg(loom)`)
//! over all interleavings of small programs.

#![allow(clippy::unwrap_used)] // tests: a failure ends the test

#[cfg(loom)]
mod interleavings;
#[cfg(not(loom))]
mod model;
#[cfg(not(loom))]
mod room;
#[cfg(not(loom))]
mod threads;
