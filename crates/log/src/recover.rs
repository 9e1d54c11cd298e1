//! Replaying segments: the longest prefix without holes, or an error if damage reaches into what
//! was proven durable.

use crate::format::LogEnd;
use std::path::PathBuf;
use terrace_base::Result;
use terrace_vfs::Vfs;

/// What a replay found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Data records applied.
    pub records: u64,
    /// Segment and file offset of the end of the prefix: what the next segment continues
    /// ([`crate::LogWriter::create_after`]). `None` only if there were no segments.
    pub end: Option<LogEnd>,
    /// Bytes after the prefix that are not zeros, later segments included.
    pub dropped_bytes: u64,
    /// Why the prefix ends where it does; `None` if the log ends cleanly.
    pub torn: Option<String>,
}

/// Replays `segments` (number and path, ascending): calls `apply` with segment, offset and
/// payload of each data record of the prefix. Writes nothing.
///
/// `segments` must be all that are at or above the oldest one still needed; obsolete ones are
/// left out, whether or not they still exist.
///
/// # Errors
/// `Corruption` naming file and offset if a sync marker proves that a record which cannot be read
/// had been durable; what `apply` returns; I/O.
#[allow(unused_variables, clippy::todo)]
pub fn recover(
    vfs: &dyn Vfs,
    segments: &[(u64, PathBuf)],
    apply: &mut dyn FnMut(u64, u64, &[u8]) -> Result<()>,
) -> Result<Recovered> {
    todo!()
}
