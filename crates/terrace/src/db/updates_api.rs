//! The change feed of a store.

use super::{ColumnFamily, Db};
use crate::batch::WriteBatch;
use crate::error::{Error, Result};
use crate::updates::feed::{self, UpdateOptions, Updates};
use crate::updates::update::{UpdateBatch, UpdateOp};

impl Db {
    /// The batches that were committed from sequence number `seqno` on, in the order of their commits; the first
    /// may begin before it. All column families come in one feed. At the end the iterator gives `None`, and
    /// later what has been written since.
    ///
    /// The feed reads the log, so it goes back as far as that does: to what is not in SSTs yet, and with
    /// [`log_retention_bytes`](crate::AdvancedOptions::log_retention_bytes) further. An open feed keeps what it has
    /// not read. See `docs/change-feed.md`.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-feed-{}", std::process::id()));
    /// use terrace::UpdateOp;
    /// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
    /// let mut feed = db.updates_since(db.latest_seqno() + 1)?;
    /// db.put(b"apple", b"red")?;
    /// for batch in &mut feed {
    ///     for update in batch?.updates() {
    ///         let UpdateOp::Put { key, value, .. } = update?.op else { unreachable!() };
    ///         assert_eq!((key, &*value), (&b"apple"[..], &b"red"[..]));
    ///     }
    /// }
    /// assert!(feed.next().is_none(), "nothing new");
    /// db.delete(b"apple")?;
    /// assert_eq!(feed.next().unwrap()?.first_seqno(), db.latest_seqno());
    /// # drop(feed);
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::UpdatesGone`] with the oldest number that there is; `InvalidArgument` for a number that is not given
    /// out yet; `Corruption`; I/O.
    pub fn updates_since(&self, seqno: u64) -> Result<Updates> {
        self.updates_with(seqno, &UpdateOptions::default())
    }

    /// As [`Db::updates_since`], with options.
    pub fn updates_with(&self, seqno: u64, options: &UpdateOptions) -> Result<Updates> {
        Updates::open(self.inner(), seqno, *options)
    }

    /// The oldest sequence number that [`Db::updates_since`] takes now; one above the newest if there is none.
    pub fn oldest_update(&self) -> Result<u64> {
        feed::oldest(self.inner())
    }

    /// The sequence number of the newest write that reads see; 0 in an empty store.
    pub fn latest_seqno(&self) -> u64 {
        self.inner().read.visible_seqno().get()
    }
}

/// The example of the page, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/change-feed.md")]
struct Page;

impl UpdateBatch {
    /// The same operations for `target`, another store, in its column families of the same names. Those of column families
    /// that were dropped since are left out.
    ///
    /// # Errors
    /// `NoSuchFamily` if `target` has no such column family; `InvalidArgument` if files were ingested
    /// ([`UpdateOp::Ingested`]), which the log does not have; `Corruption`.
    pub fn to_write_batch(&self, target: &Db) -> Result<WriteBatch> {
        let mut batch = WriteBatch::new();
        let mut family: Option<ColumnFamily> = None;
        for update in self.updates() {
            let update = update?;
            let Some(name) = update.family else { continue };
            let cf = match family.take().filter(|cf| cf.name() == name) {
                Some(cf) => cf,
                None => {
                    let found = target.column_family(name);
                    found.ok_or_else(|| Error::NoSuchFamily(name.into()))?
                }
            };
            match update.op {
                UpdateOp::Put { key, value, expires_at_ms: None } => batch.put_cf(&cf, key, value),
                UpdateOp::Put { key, value, expires_at_ms: Some(at) } => {
                    batch.put_until_cf(&cf, key, value, at);
                }
                UpdateOp::Delete { key } => batch.delete_cf(&cf, key),
                UpdateOp::DeleteRange { start, end } => batch.delete_range_cf(&cf, start, end),
                UpdateOp::Merge { key, operand } => batch.merge_cf(&cf, key, operand),
                UpdateOp::Ingested { .. } => {
                    let text = format!(
                        "update {} of `{name}` is an ingested file, which is not in the log: read its keys from the store",
                        update.seqno
                    );
                    return Err(Error::InvalidArgument(text));
                }
            }
            family = Some(cf);
        }
        Ok(batch)
    }
}
