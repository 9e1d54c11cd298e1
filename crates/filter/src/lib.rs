//! Filters over 64-bit key hashes: "this key is certainly absent" from a few bits per key.
//!
//! Pure: bytes in, bytes out. A filter is made of *units*, one after another in what
//! [`FilterBuilder::build`] appends; any prefix of them is a filter of its own, so that memory can
//! be given to the partitions that need it and taken from others without building anything anew.
//! What a lookup must know besides the bytes is a [`FilterShape`], which the caller stores.
//!
//! ```
//! use terrace_filter::{FilterBuilder, FilterPolicy};
//! let hashes: Vec<u64> = (1..=1000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
//! let mut builder = FilterBuilder::new("ribbon:10".parse::<FilterPolicy>()?);
//! let mut bytes = Vec::new();
//! let shape = builder.build(&hashes, &mut bytes);
//! for units in 0..=shape.unit_count {
//!     let loaded = &bytes[..shape.prefix_bytes(units)];
//!     assert!(hashes.iter().all(|hash| shape.may_contain(loaded, units, *hash)));
//! }
//! # Ok::<(), terrace_filter::PolicyError>(())
//! ```
//!
//! A filter never says "absent" of a key it was built from, and bytes that no filter can look
//! like say "perhaps". One module per [`FilterKind`]:
//!
//! | kind | bits for 1 % | cache lines of a lookup | units |
//! |---|---|---|---|
//! | [`FilterKind::Bloom`] | 9.6 | one per probe | filters of their own with hashes of their own |
//! | [`FilterKind::BlockedBloom`] | 9.9 | one | the same |
//! | [`FilterKind::PairedBloom`] | 9.7 | one or two | the same |
//! | [`FilterKind::Ribbon`] | 6.8 | one or two, rarely more | columns: each halves the false positives |

mod block;
mod blocked_bloom;
mod bloom;
mod builder;
mod layout;
mod model;
mod simd;

mod paired_bloom;
mod policy;
mod query;
mod ribbon;
mod units;

pub use builder::FilterBuilder;
pub use layout::{FilterKind, FilterShape, MAX_UNITS};
pub use policy::{FilterPolicy, PolicyError};
pub use simd::prefetch_read;
