//! Redis's data types over the engine: strings, hashes, sets, sorted sets and lists in ordered keys.
//!
//! A [`Keyspace`] is one store; commands run inside a [`Turn`], which gathers what many of them
//! write into one commit. How the types lie in keys is in `encode.rs`.
//!
//! Floor 5: uses the engine, and knows no protocol. Inside, a module uses only those listed above
//! it.

#![forbid(unsafe_code)]

// Vocabulary.
mod encode;
mod error;
mod integer;
mod long_double;
mod random;
// Nouns.
mod cursors;
mod databases;
mod locks;
mod mark;
mod written;
// The store, and what is written into it together.
mod space;
mod turn;
mod watch;
// Commands.
mod combine;
mod flush_db;
mod gathered;
mod hashes;
mod key_scan;
mod keys;
mod lists;
mod members;
mod rename;
mod sets;
mod sorted_sets;
mod strings;
mod sweep;
mod usage;

pub use combine::{Aggregation, Scored, Weighted};
pub use encode::{
    COLLECTIONS, ELEMENTS, Kind, MAX_DATABASES, MAX_KEY_BYTES, MAX_MEMBER_BYTES, Meta,
};
pub use error::{Error, Result, Wait};
pub use gathered::{Gathered, MAX_STORED_BYTES};
pub use key_scan::{KeyRange, KeyScan, SeenKey};
pub use keys::{ExpireIf, Type};
pub use lists::{End, Inserted};
pub use long_double::LongDouble;
pub use mark::StoreKind;
pub use members::{Page, ranks};
pub use sorted_sets::{AddRule, Added, MemberEnd, Order, Range, ScoreEnd};
pub use space::Keyspace;
pub use strings::{Lifetime, MAX_STRING_BYTES, PutOptions, PutOutcome, When};
pub use sweep::Swept;
pub use turn::{Mode, Text, Turn, Value};
pub use watch::Watch;
