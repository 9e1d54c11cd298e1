//! Learned indexes over byte strings: where a key is in a sorted file, from a few hundred bytes.
//!
//! Pure: bytes in, bytes out, no I/O and no clock. Five parts, each of use by itself:
//!
//! - [`Projection`]: an order-preserving map from keys of any kind to `u64`, learned from keys;
//! - [`regression`]: piecewise linear regression with an error bound, greedy and optimal;
//! - [`ModelBuilder`] and [`Model`]: both put together for the keys of a file, stored, read back
//!   and looked up in;
//! - [`BlockModelBuilder`] and [`BlockModel`]: the same for the first keys of data blocks, exact to
//!   the block;
//! - [`analyzer`]: whether training pays, from what lookups and training cost.
//!
//! ```
//! use terrace_learned::{Model, ModelBuilder, ModelOptions};
//! let keys: Vec<String> = (0..10_000).map(|n| format!("user:{:06}:name", n * 7)).collect();
//! let mut builder = ModelBuilder::new(ModelOptions::default());
//! for (position, key) in (0..).zip(&keys) {
//!     builder.push(key.as_bytes(), position);
//! }
//! let bytes = builder.finish().model?;
//! assert!(bytes.len() < 100);
//! let model = Model::decode(&bytes)?;
//! // Key number 700 is near position 100; a key that is not there would be before number 701.
//! let range = model.search_range_of(b"user:000700:name");
//! assert!(range.low <= 100 && 100 <= range.high && range.high - range.low <= 17);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The method is Bourbon's (Dai et al., "From WiscKey to Bourbon: A Learned Index for
//! Log-Structured Merge Trees", OSDI 2020), which knew integers of fixed size only; the projection
//! is what lets it have any keys. A model promises a range, not a key: what is found in it is
//! compared.

#![forbid(unsafe_code)]

pub mod analyzer;
mod blocks;
mod builder;
mod heads;
mod line;
mod model;
mod projection;
pub mod regression;
mod stats;
mod trainer;

pub use blocks::{
    BlockAim, BlockGuess, BlockModel, BlockModelBuilder, BlockTraining, DrawnSegment, SAMPLED_KEYS,
};
pub use builder::{
    BlockHead, DEFAULT_DELTA, DEFAULT_MAX_BUFFER_BYTES, DEFAULT_MAX_RUN_PERCENT,
    DEFAULT_MAX_SEGMENTS_PER_1000_KEYS, ModelBuilder, ModelOptions, NoModel, Training,
};
pub use line::SearchRange;
pub use model::{Malformed, Model};
pub use projection::{Projection, ProjectionBuilder};
pub use regression::Fit;
pub use stats::{ERROR_SLOTS, ErrorDistribution, ModelStats};
