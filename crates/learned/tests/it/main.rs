//! Models through the public interface: the promise of the range, damage, and brute force.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod oracle;
mod promises;
