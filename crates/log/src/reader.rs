//! Reading one segment record by record with bounded memory, and finding the next sound record
//! after damage.

use crate::format::{LogEnd, SyncedThrough};
use std::path::Path;
use terrace_base::Result;
use terrace_vfs::Vfs;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A payload of the log's user.
    Data,
    /// A statement about durability.
    SyncMarker(SyncedThrough),
}

/// One sound record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// File offset of its first byte.
    pub offset: u64,
    /// Data or marker.
    pub kind: RecordKind,
    /// The payload; of a marker too.
    pub payload: &'a [u8],
}

/// What the next read of a segment found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// A sound record.
    Record(Record<'a>),
    /// No sound record follows directly. Stays so until [`LogReader::resync`].
    End {
        /// Where the sound records end.
        offset: u64,
        /// Why the bytes there are no record; `None` at the end of the file or where only zeros
        /// (preallocated room) follow.
        torn: Option<String>,
    },
}

/// Streams the records of one segment.
pub struct LogReader {}

#[allow(unused_variables, clippy::todo)]
impl LogReader {
    /// Opens segment `segment`. A header that a crash can leave behind (missing, cut, zeros, bad
    /// checksum) is reported by the first [`LogReader::next`] as an end at offset 0.
    ///
    /// # Errors
    /// `Unsupported` for another format version; `Corruption` for a sound header of another
    /// segment, which means that files were swapped or renamed.
    pub fn open(vfs: &dyn Vfs, path: &Path, segment: u64) -> Result<Self> {
        todo!()
    }

    /// The end of the log that this segment continues, from its header.
    pub fn previous(&self) -> Option<LogEnd> {
        todo!()
    }

    /// The next record, or why there is none.
    ///
    /// # Errors
    /// I/O; `Unsupported` for a sound record of a type this build does not know.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Step<'_>> {
        todo!()
    }

    /// Skips damage: moves to the next sound record after the current position and returns its
    /// offset, or `None` if there is none. For inspection only; recovery never reads past damage.
    pub fn resync(&mut self) -> Result<Option<u64>> {
        todo!()
    }
}
