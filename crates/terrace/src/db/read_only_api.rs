//! Stores beside a writer: opened read-only, and refreshed.

use super::Db;
use crate::error::Result;
use crate::open::read_only;
use crate::options::Options;
use std::path::Path;

impl Db {
    /// Opens the store in `path` as it is now, without writing anything. A process that has it open
    /// for writing may go on: this store shows a prefix of its history, at least what the operating
    /// system had when this was called, until it is [refreshed](Db::refresh). What it shows stays on
    /// disk until it is refreshed or closed, unless
    /// [`max_reader_pinned_bytes`](crate::AdvancedOptions::max_reader_pinned_bytes) or a full disk
    /// ends that.
    ///
    /// The log that is in no SST yet is held in memory: beyond the memtables' share it is taken from
    /// the cache, and beyond that refused.
    ///
    /// # Errors
    /// `NotAStore`; `Corruption`; `InvalidArgument` for an option out of range, or a log that does not
    /// fit the memory budget; `Outdated` if the writer removed files faster than they could be read
    /// (a writer of an older build, or a file system without shared locks).
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::start(read_only::open(path.as_ref(), options)?)
    }

    /// Shows, in a store that is open read-only, what was written since it was opened or refreshed;
    /// gives whether there may be anything new: writes, column families, or SSTs, since what a flush or a
    /// compaction writes may show less or other than before if the writer has a
    /// [compaction filter](crate::CompactionFilter). Column families come and go with it. Iterators and
    /// snapshots of before keep what they show, and keep it on disk. Reads that run meanwhile see
    /// each family as before or as after; for several families as of one moment take a snapshot.
    ///
    /// Costs a listing of the directory if nothing was written, else the manifest and the log are
    /// read again. A store that is open for writing always shows everything: this does nothing there.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-fresh-{}", std::process::id()));
    /// let writer = terrace::Db::open(&dir, terrace::Options::default())?;
    /// let reader = terrace::Db::open_read_only(&dir, terrace::Options::default())?;
    /// writer.put(b"news", b"today")?;
    /// assert!(reader.get(b"news")?.is_none());
    /// assert!(reader.refresh()?);
    /// assert_eq!(reader.get(b"news")?.as_deref(), Some(&b"today"[..]));
    /// # drop(reader);
    /// # writer.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Db::open_read_only`]; the store shows what it did before, and can be refreshed again.
    pub fn refresh(&self) -> Result<bool> {
        read_only::refresh(self.inner())
    }
}

/// The example of the page, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/secondary.md")]
struct Page;
