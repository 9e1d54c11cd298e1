//! Files of sorted entries that become part of the store.

use super::{ColumnFamily, Db};
use crate::error::Result;
use crate::ingest::run::{self, IngestOptions, Ingested};
use std::path::{Path, PathBuf};

impl Db {
    /// Makes files that [`SstWriter`](crate::SstWriter) has written part of the default family, all of them as one
    /// write, or none if there is an error or a crash. Durable when it returns.
    ///
    /// The files are checked whole and copied while writes go on. Then writers wait for a flush of the
    /// family's memtables, a sync of each file's end, and one edit of the manifest.
    ///
    /// # Errors
    /// `Corruption` for a damaged file, and one of a store; `Unsupported` for one of an unknown version or order of
    /// keys; `InvalidArgument` for no files, an empty one, key ranges that overlap, operands for another merge operator, and for
    /// [`IngestPosition::Below`](crate::IngestPosition::Below) if what is there is in the way; I/O. Nothing has changed then.
    pub fn ingest<P: AsRef<Path>>(&self, files: &[P], options: &IngestOptions) -> Result<Ingested> {
        self.default_family().ingest(files, options)
    }
}

/// The example of the page, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/ingest.md")]
struct Page;

impl ColumnFamily {
    /// As [`Db::ingest`].
    pub fn ingest<P: AsRef<Path>>(&self, files: &[P], options: &IngestOptions) -> Result<Ingested> {
        let vfs = &self.inner().base.vfs;
        let files: Vec<PathBuf> = files.iter().map(|file| vfs.absolute(file.as_ref())).collect();
        run::ingest(&self.inner().background, &self.family, &files, options)
    }
}
