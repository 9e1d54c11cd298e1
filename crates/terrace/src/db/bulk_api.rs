//! Loading entries in any order.

use super::{ColumnFamily, Db};
use crate::error::Result;
use crate::ingest::bulk::{BulkOptions, Loader};
use crate::ingest::run::Ingested;
use terrace_base::ValueKind;

/// Loads entries, given in any order, as one write: what is not finished is not there, and a finished load is there as a
/// whole and durable. The entries go past the log and the memtables: they are sorted with bounded memory, in
/// temporary files if need be, and ingested ([`Db::ingest`]). Of entries with the same key the last one given counts.
///
/// Dropped before [`BulkLoader::finish`], it removes its temporary files; those of a killed process go with the next
/// open. It needs room on the disk for the entries three times: sorted, as SSTs, and as the store's copies of them.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-bulk-{}", std::process::id()));
/// let db = terrace::Db::open(&dir, terrace::Options::default())?;
/// let mut loader = db.bulk_loader(&terrace::BulkOptions::default())?;
/// for key in ["pear", "apple", "plum"] {
///     loader.put(key, "fruit")?;
/// }
/// loader.put("apple", "the last one counts")?;
/// assert!(db.get("apple")?.is_none(), "not yet");
/// assert_eq!(loader.finish()?.entry_count, 3);
/// assert_eq!(db.get("apple")?.as_deref(), Some(&b"the last one counts"[..]));
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
pub struct BulkLoader {
    loader: Loader,
    /// Keeps the store open.
    _family: ColumnFamily,
}

impl Db {
    /// Begins a load of the default column family.
    ///
    /// # Errors
    /// `InvalidArgument` for an option out of range, or a load below existing data in a column family with a merge operator;
    /// `ReadOnly`, `Closed`, `DiskFull` as a write.
    pub fn bulk_loader(&self, options: &BulkOptions) -> Result<BulkLoader> {
        self.default_family().bulk_loader(options)
    }
}

impl ColumnFamily {
    /// As [`Db::bulk_loader`].
    pub fn bulk_loader(&self, options: &BulkOptions) -> Result<BulkLoader> {
        let loader = Loader::new(&self.inner().background, &self.family, *options)?;
        Ok(BulkLoader { loader, _family: self.clone() })
    }
}

impl BulkLoader {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `InvalidArgument` for a key or value over the limits: the loader is as before. `DiskFull`, I/O, `Closed`: it is of no
    /// more use, and the store is as it was.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.loader.add(key.as_ref(), ValueKind::Put, &[], value.as_ref())
    }

    /// As [`BulkLoader::put`], until `expires_at_ms` (Unix milliseconds).
    pub fn put_until(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires_at_ms: u64,
    ) -> Result<()> {
        let expiry = expires_at_ms.to_le_bytes();
        self.loader.add(key.as_ref(), ValueKind::PutTtl, &expiry, value.as_ref())
    }

    /// Deletes `key`, also if the store has it.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.loader.add(key.as_ref(), ValueKind::Delete, &[], &[])
    }

    /// The most memory that sorting and merging have taken so far, by the loader's own account.
    pub fn peak_memory_bytes(&self) -> usize {
        self.loader.peak_bytes()
    }

    /// Sorts what was given, and makes it part of the store, as [`Db::ingest`] does. Nothing if nothing was given.
    ///
    /// # Errors
    /// As [`Db::ingest`]; the store is as it was, and nothing is left of the load.
    pub fn finish(self) -> Result<Ingested> {
        self.loader.finish()
    }
}
