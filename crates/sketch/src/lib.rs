//! What is asked for most: top keys in bounded memory; pure.
//!
//! ```text
//! every operation -> Gaps (one in this many) -> TopKeys (Space-Saving) -> top(n)
//! ```
//! Floor 1: uses no other crate of the workspace, does no I/O.

#![forbid(unsafe_code)]

mod gaps;
mod index;
mod top_keys;

pub use gaps::Gaps;
pub use top_keys::{Hot, TopKeys};
