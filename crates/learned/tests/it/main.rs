//! Models through the public interface: the promise of the range, damage, and a published oracle.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod oracle;
mod promises;
