//! Writing one segment: frames payloads in one reused buffer and hands each call's records to the
//! kernel in one append.
//!
//! After any failed append or sync the writer refuses everything: the file may hold half a record,
//! and what follows half a record is never read. The log goes on in a new segment made with
//! [`LogWriter::create_after`] and [`LogWriter::end`].
//!
//! Used by the engine's commit path and by `terrace-manifest`.

use crate::format::{LogEnd, SyncedThrough};
use std::path::Path;
use terrace_base::Result;
use terrace_vfs::Vfs;

/// How a segment is written.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Room reserved on the device when the segment is created, 0 for none.
    pub preallocate_bytes: u64,
    /// Keep records in the process until [`LogWriter::flush`], [`LogWriter::sync`] or 64 KiB.
    pub buffered: bool,
}

/// Appends records to a segment.
pub struct LogWriter {}

#[allow(unused_variables, clippy::todo)]
impl LogWriter {
    /// Creates segment `segment` (not 0) at `path`, which must not exist. The directory is not
    /// synced: do so before anything in the segment is called durable.
    ///
    /// The header names no predecessor: recovery goes from the segment before to this one if that
    /// one ends cleanly. To continue a log after a rotation, a failed append or a recovery use
    /// [`LogWriter::create_after`].
    pub fn create(vfs: &dyn Vfs, path: &Path, segment: u64, options: &LogOptions) -> Result<Self> {
        todo!()
    }

    /// As [`LogWriter::create`], for a segment that continues the log at `previous`: the
    /// [`LogWriter::end`] of the writer before, or the `end` of a recovery.
    ///
    /// Recovery then reads the previous segment exactly up to there: less is a hole and stops it,
    /// more was dropped before this segment began and stays dropped.
    pub fn create_after(
        vfs: &dyn Vfs,
        path: &Path,
        segment: u64,
        options: &LogOptions,
        previous: Option<LogEnd>,
    ) -> Result<Self> {
        todo!()
    }

    /// Appends one record per payload; returns the file offset of the first. All of them go to
    /// the kernel in one append (in more only past 1 MiB), or stay in the buffer if the writer is
    /// buffered. With no payload only a pending sync marker is written.
    pub fn append(&mut self, payloads: &[&[u8]]) -> Result<u64> {
        todo!()
    }

    /// Hands buffered records to the kernel.
    pub fn flush(&mut self) -> Result<()> {
        todo!()
    }

    /// Makes everything appended durable, and notes that for the next marker.
    pub fn sync(&mut self) -> Result<()> {
        todo!()
    }

    /// Bytes of the segment, header and buffered records included.
    pub fn len_bytes(&self) -> u64 {
        todo!()
    }

    /// The segment number.
    pub fn segment(&self) -> u64 {
        todo!()
    }

    /// Where the log ends if it goes on in another segment now: past the last record that the
    /// kernel took. After a failure this excludes whatever the failed call was about.
    pub fn end(&self) -> LogEnd {
        todo!()
    }

    /// The next append is preceded by a sync marker stating that everything up to `through` is
    /// durable. A statement older than one already made is ignored.
    pub fn note_synced(&mut self, through: SyncedThrough) {
        todo!()
    }

    /// Writes what is buffered and truncates preallocated room away. Does not sync. Idempotent.
    pub fn finish(&mut self) -> Result<()> {
        todo!()
    }
}
