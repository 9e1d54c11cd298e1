//! LevelDB's C interface (`leveldb/c.h` of LevelDB 1.23) over Terrace, and what its interface for C++ in `cxx/` is made
//! of: programs for `libleveldb.so.1` run unchanged. Their data are a Terrace store; a directory of LevelDB's own
//! files is refused and left as it is.
//!
//! What a function does, who frees what, and what is undefined is as in LevelDB. Comparators of the program's are
//! supported by a tree over the engine (`tree/mod.rs`), which also has the keys that are too long for the
//! engine. Custom filter policies and info logs are taken and not used.
//!
//! Floor 6: uses the engine and what the bindings share.

#![allow(unsafe_code, reason = "C passes pointers")]
#![allow(clippy::missing_safety_doc, reason = "the rules are LevelDB's")]
#![allow(missing_docs, reason = "the functions are LevelDB's")]
#![allow(clippy::too_many_arguments, reason = "the signatures are LevelDB's")]

mod admin;
mod batch;
mod bridge;
mod cursor;
mod db;
mod directory;
mod iter;
mod memory;
mod open_files;
mod options;
mod order;
mod policies;
mod repair;
mod snapshot;
mod store;
mod tree;

pub use admin::*;
pub use batch::*;
pub use bridge::*;
pub use db::*;
pub use iter::*;
pub use options::*;
pub use policies::*;
pub use snapshot::*;
