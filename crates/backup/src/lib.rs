//! Incremental backups: many states of a store in one directory, which share the files that did not
//! change between them.
//!
//! ```text
//! BACKUPS/LOCK                    held by the process that works here
//! BACKUPS/files/HASH-SIZE         content, named by its XXH3 of 128 bits and its length
//! BACKUPS/backups/ID              a record: the files of one backup (record.rs)
//! ```
//! A backup is there when its record is: the record is written last, whole and synced, and removed
//! first. Files that no record names are rests of a crash; the next call that writes removes them.
//! SSTs and log segments never change, so a backup copies what is new since the one before it.
//!
//! Floor 5: uses the engine. Inside, a module uses only those listed above it.

#![forbid(unsafe_code)]

mod error;
mod record;
// Copies with a hash, and checks.
mod copy;
mod sound;
// The directory, and what is done with it.
mod backups;
mod create;
mod remove;
mod restore;

pub use backups::{Backups, Listed};
pub use create::Created;
pub use error::{Error, Result};
pub use record::{Backup, BackupFile};
