//! Terrace for C: `terrace.h` is made of this crate by cbindgen, and its functions are the only symbols
//! that the shared library exports.
//!
//! Every function that can fail returns a `terrace_error`, NULL for success. Handles are boxes: made by one
//! function, given back by one other. NULL is an error where a handle is needed, never a crash; a panic
//! ends in the error `TERRACE_PANIC`; a handle of before a fork is refused in the child
//! ([`terrace_binding::Kept`]). The rules for callers stand at the head of `terrace.h` (`cbindgen.toml`).
//!
//! Floor 6: uses the engine and what the bindings share, and of the keyspace how a repair knows a server's store.

#![allow(unsafe_code, reason = "C passes pointers")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the rules for all functions stand in terrace.h once"
)]

// In the order of the header; the empty lines keep it.
mod error;

mod options;

mod merge_operator;

mod compaction_filter;

mod callback;

mod store;

mod family;

mod write;

mod snapshot;

mod read_options;

mod read;

mod iter;

mod batch;

mod transaction;

mod entries;

mod admin;

mod ingest;

mod bulk;

mod backup;

mod updates;

mod text;

mod arguments;

pub use admin::*;
pub use backup::*;
pub use batch::*;
pub use bulk::*;
pub use callback::FreeContext;
pub use compaction_filter::*;
pub use entries::*;
pub use error::*;
pub use family::*;
pub use ingest::*;
pub use iter::*;
pub use merge_operator::*;
pub use options::*;
pub use read::*;
pub use read_options::*;
pub use snapshot::*;
pub use store::*;
pub use text::*;
pub use transaction::*;
pub use updates::*;
pub use write::*;
