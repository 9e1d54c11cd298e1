//! The atomics the list is built from: the standard ones, or loom's under `cfg(loom)`, so that the
//! model checker runs the same insert and search code as production.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
