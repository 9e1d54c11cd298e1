//! A whole store as one stream of bytes, and back: what `terrace dump` writes and `terrace restore`
//! reads. The format is in `docs/format/dump.md`.
//!
//! [`dump`] writes all column families of a store at one moment, [`restore`] puts them into an empty
//! one. Below them are records ([`RecordWriter`], [`RecordReader`]), and below these chunks, which are
//! compressed and carry checksums. Both ways take the memory of one chunk and one entry.
//!
//! Floor 5: uses the engine. Inside, a module uses only those listed above it.

#![forbid(unsafe_code)]

mod chunk;
mod error;
mod family;
// The two ways, bytes and records each.
mod chunk_reader;
mod chunk_writer;
mod record_reader;
mod record_writer;
// The engine's stores.
mod store;

pub use chunk::{MAGIC, MAX_CHUNK_BYTES};
pub use chunk_writer::ChunkWriter;
pub use error::{Error, Result};
pub use family::DumpedFamily;
pub use record_reader::{Record, RecordReader};
pub use record_writer::{Counts, RecordWriter};
pub use store::{dump, finish_families, restore};
