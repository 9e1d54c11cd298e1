//! The commit log: segment files of checksummed records, their writer, reader and recovery; and
//! the separated values in them.
//!
//! Floor 2: uses `terrace-base`, `terrace-buf`, `terrace-vfs` and `terrace-compression`. The engine writes its
//! batches here before they reach a memtable; `terrace-manifest` writes its edits in the same
//! framing. A payload is opaque: this crate knows no keys, except those of separated values
//! ([`value`]), which are part of their checksums.
//!
//! [`mod@format`] is the byte layout, which [`writer`] and [`reader`] share and nothing else;
//! [`recover()`] replays many segments under the rule "a prefix without holes"; [`dump`] prints a
//! segment whatever its state; [`salvage()`] replays what is sound of one; [`Links`] tell which
//! numbers a log has passed over. The format is specified in `docs/format/log.md`.

#![forbid(unsafe_code)]

pub mod dump;
pub mod format;
mod links;
pub mod reader;
pub mod recover;
mod salvage;
mod scan;
pub mod value;
mod window;
pub mod writer;

pub use format::LogPosition;
pub use links::Links;
pub use reader::{
    LogReader, Record, RecordKind, Step, read_header, read_header_around_loss, unsupported_version,
};
pub use recover::{LogSegments, Recovered, SegmentFile, Setting, recover, recover_with, unlinked};
pub use salvage::{Gap, salvage};
pub use writer::{LogOptions, LogWriter};
