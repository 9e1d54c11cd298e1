//! Writes a sorted file outside any store, to be ingested into one.

use crate::error::{Error, Result};
use crate::options::{CfOptions, FamilyOptions, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::key::{EXPIRY_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, pack_trailer};
use terrace_base::{Clock, RangeTombstone, RangeTombstones, SeqNo, SystemClock, ValueKind};
use terrace_manifest::LEVEL_COUNT;
use terrace_sst::{EXTERNAL_FILE_NUMBER, SstOptions};
use terrace_vfs::{PosixVfs, Vfs};

/// Writes one file for [`Db::ingest`](crate::Db::ingest). Keys come in ascending order, each once; range deletions
/// in any order. A range deletion of a file is about what the store has, not about keys of the same
/// file.
///
/// Dropped before [`SstWriter::finish`], it removes its file.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-sst-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// let path = dir.join("sorted.sst");
/// let mut writer = terrace::SstWriter::create(&path, &terrace::CfOptions::default())?;
/// writer.put(b"apple", b"red")?;
/// writer.put(b"pear", b"green")?;
/// writer.delete(b"plum")?;
/// assert_eq!(writer.finish()?.entry_count, 3);
///
/// let db = terrace::Db::open(dir.join("store"), terrace::Options::default())?;
/// db.ingest(&[&path], &terrace::IngestOptions::default())?;
/// assert_eq!(db.get(b"pear")?.as_deref(), Some(&b"green"[..]));
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
pub struct SstWriter {
    /// `None` once it is finished.
    writer: Option<terrace_sst::SstWriter>,
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    last_key: Option<Vec<u8>>,
    ranges: Vec<RangeTombstone>,
    /// Whether the options have a merge operator.
    has_operator: bool,
    /// Reused for values with an expiry.
    buffer: Vec<u8>,
}

/// A file that [`SstWriter`] has written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SstFile {
    /// Where it lies, from the root of the file system on.
    pub path: PathBuf,
    /// Its length.
    pub size_bytes: u64,
    /// Keys, those that it deletes included.
    pub entry_count: u64,
    /// Keys that it deletes.
    pub deletion_count: u64,
    /// Ranges that it deletes; those that overlap or touch are one.
    pub range_deletion_count: u64,
    /// The smallest key of an entry or a range deletion.
    pub smallest: Vec<u8>,
    /// The largest key, or the end of the last range deletion.
    pub largest: Vec<u8>,
    /// Whether `largest` is the end of a range, which is not in it.
    pub largest_exclusive: bool,
}

impl SstWriter {
    /// Creates the file at `path`, which must not exist. Of `options` the filters, the compression (of the last
    /// level) and whether an index is learned say how it is written; values are not separated. With a merge operator
    /// the file may have operands, and its name is stored with them. A relative path is that of the call, wherever the program
    /// goes before the file is finished.
    pub fn create(path: impl AsRef<Path>, options: &CfOptions) -> Result<Self> {
        Self::create_on(Arc::new(PosixVfs::new()), path, options)
    }

    /// As [`SstWriter::create`], on another file system than the machine's.
    pub fn create_on(
        vfs: Arc<dyn Vfs>,
        path: impl AsRef<Path>,
        options: &CfOptions,
    ) -> Result<Self> {
        let all = Options { default_family: options.clone(), ..Options::default() };
        all.check()?;
        let path = vfs.absolute(path.as_ref());
        Self::of_family(vfs, path, &all.family(options))
    }

    /// As [`SstWriter::create_on`], as a family of an open store writes its files.
    pub(crate) fn of_family(
        vfs: Arc<dyn Vfs>,
        path: PathBuf,
        options: &FamilyOptions,
    ) -> Result<Self> {
        let sst = options.sst(LEVEL_COUNT - 1, SystemClock::default().wall_ms());
        let sst = SstOptions { family: None, ..sst };
        let writer = terrace_sst::SstWriter::create(&*vfs, &path, EXTERNAL_FILE_NUMBER, sst)?;
        Ok(Self {
            writer: Some(writer),
            vfs,
            path,
            last_key: None,
            ranges: Vec::new(),
            has_operator: options.merge_operator.is_some(),
            buffer: Vec::new(),
        })
    }

    /// Adds `key`, which must be above all that were added before.
    ///
    /// # Errors
    /// `InvalidArgument` for a key out of order, one that was added already, and keys and values over the
    /// limits; the writer is as before then. I/O: the file is useless.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), ValueKind::Put, value.as_ref())
    }

    /// As [`SstWriter::put`], until `expires_at_ms` (Unix milliseconds).
    pub fn put_until(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        let value = value.as_ref();
        // Before it is copied: no memory may have a length that is over the limit.
        if value.len() > MAX_VALUE_BYTES {
            return Err(too_long_value());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(&expires_at_ms.to_le_bytes());
        buffer.extend_from_slice(value);
        let added = self.add(key.as_ref(), ValueKind::PutTtl, &buffer);
        self.buffer = buffer;
        added
    }

    /// Deletes `key`, which takes its place among the keys.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(key.as_ref(), ValueKind::Delete, &[])
    }

    /// Merges `operand` into the value that the store has at `key` when the file is ingested; one operand for a key, and
    /// none beside a put.
    ///
    /// # Errors
    /// As [`SstWriter::put`]; `InvalidArgument` if the options have no merge operator.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        if !self.has_operator {
            let text = "the options that the file is written with name no merge operator";
            return Err(Error::InvalidArgument(text.into()));
        }
        self.add(key.as_ref(), ValueKind::Merge, operand.as_ref())
    }

    /// Deletes every key in `[start, end)` that the store has when the file is ingested. In any order, beside
    /// the keys; an empty range is nothing.
    pub fn delete_range(&mut self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let (start, end) = (start.as_ref(), end.as_ref());
        if start.len().max(end.len()) > MAX_KEY_BYTES {
            return Err(Error::InvalidArgument("a key is longer than 64 KiB".into()));
        }
        if start < end {
            let (start, end) = (start.to_vec(), end.to_vec());
            self.ranges.push(RangeTombstone { start, end, seqno: SeqNo::ZERO });
        }
        Ok(())
    }

    /// About how long the file would be if it were finished now.
    pub fn estimated_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, terrace_sst::SstWriter::estimated_bytes)
    }

    /// Finishes the file and makes it durable.
    ///
    /// # Errors
    /// `InvalidArgument` if nothing was added; I/O. The file is removed.
    pub fn finish(mut self) -> Result<SstFile> {
        let Some(mut writer) = self.writer.take() else { return Err(Error::Closed) };
        if self.last_key.is_none() && self.ranges.is_empty() {
            self.writer = Some(writer);
            let text = "nothing was added to the file: there would be nothing to ingest";
            return Err(Error::InvalidArgument(text.into()));
        }
        // All have the same number, so a bound inside of another range says nothing.
        let mut joined = RangeTombstones::default();
        let cut = RangeTombstones::new(std::mem::take(&mut self.ranges));
        cut.fragments().for_each(|fragment| joined.push_joined(fragment));
        writer.set_range_tombstones(joined);
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let finished = writer.finish().and_then(|end| {
            self.vfs.sync_dir(parent.unwrap_or(Path::new(".")))?;
            Ok(end)
        });
        let end = finished.inspect_err(|_| drop(self.vfs.remove(&self.path)))?;
        Ok(SstFile {
            path: self.path.clone(),
            size_bytes: end.size_bytes,
            entry_count: end.entry_count,
            deletion_count: end.tombstone_count,
            range_deletion_count: end.range_tombstone_count,
            smallest: end.smallest,
            largest: end.largest,
            largest_exclusive: end.largest_exclusive,
        })
    }

    /// Adds an entry; `value` as an SST has it.
    pub(crate) fn add(&mut self, key: &[u8], kind: ValueKind, value: &[u8]) -> Result<()> {
        if let Some(last) = &self.last_key
            && key <= last.as_slice()
        {
            let (key, last) = (shown(key), shown(last));
            let text = format!(
                "the key `{key}` comes after `{last}`: keys are added in ascending order, each once"
            );
            return Err(Error::InvalidArgument(text));
        }
        // An SST leaves room for an expiry in every value.
        let expiry_bytes = if kind.expires() { EXPIRY_BYTES } else { 0 };
        if value.len() > MAX_VALUE_BYTES + expiry_bytes {
            return Err(too_long_value());
        }
        let Some(writer) = &mut self.writer else { return Err(Error::Closed) };
        writer.add(key, pack_trailer(SeqNo::ZERO, kind), value)?;
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }
}

impl Drop for SstWriter {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            // Nobody has it, and nobody can be told.
            let _ = self.vfs.remove(&self.path);
        }
    }
}

fn too_long_value() -> Error {
    Error::InvalidArgument("a value is longer than 1 GiB".into())
}

/// A key in a message: escaped, and cut.
fn shown(key: &[u8]) -> String {
    const SHOWN_BYTES: usize = 40;
    match key.get(..SHOWN_BYTES) {
        Some(front) => format!("{}...", front.escape_ascii()),
        None => key.escape_ascii().to_string(),
    }
}
