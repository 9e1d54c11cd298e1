//! Redis's data types over the engine: strings, hashes, sets, sorted sets and lists in ordered keys.
//!
//! A [`Keyspace`] is one store; commands run inside a [`Turn`], which gathers what many of them
//! write into one commit. How the types lie in keys is in `encode.rs`.
//!
//! Floor 5: uses the engine, and knows no protocol. Inside, a module uses only those listed above
//! it.

#![forbid(unsafe_code)]

mod encode;
mod error;
mod locks;
mod long_double;
mod written;

mod space;
mod turn;

pub use encode::{
    COLLECTIONS, ELEMENTS, Kind, MAX_DATABASES, MAX_KEY_BYTES, MAX_MEMBER_BYTES, Meta,
};
pub use error::{Error, Result, Wait};
pub use long_double::LongDouble;
pub use space::Keyspace;
pub use turn::{Mode, Text, Turn, Value};
