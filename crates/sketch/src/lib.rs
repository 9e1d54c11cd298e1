//! What is asked for most: top keys in bounded memory; pure.
//!
//! ```text
//! every operation -> Gaps (one in this many) -> TopKeys (Space-Saving) -> top(n)
//! every operation, later, by another thread   -> HeavyKeys (Space-Saving behind a count sketch) -> top(n)
//! ```
//! Floor 1: uses no other crate of the workspace, does no I/O.

#![forbid(unsafe_code)]

mod count_sketch;
mod gaps;
mod heavy_keys;
mod index;
mod stream_summary;
mod top_keys;

pub use gaps::Gaps;
pub use heavy_keys::{HeavyKey, HeavyKeys};
pub use top_keys::{Hot, TopKeys};
