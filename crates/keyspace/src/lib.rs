//! Redis's data types over the engine: strings, hashes, sets, sorted sets and lists in ordered keys.
//!
//! Floor 5: uses the engine, and knows no protocol.

#![forbid(unsafe_code)]
