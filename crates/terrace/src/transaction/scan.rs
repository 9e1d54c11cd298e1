//! Range reads of a transaction: what the store had, with the transaction's own writes in their places.

use super::Transaction;
use crate::db::{ColumnFamily, lower, upper};
use crate::error::Result;
use crate::read::scan::{Iter, ReadOptions};
use std::ops::RangeBounds;
use terrace_buf::Slice;

/// A key and its value.
type Entry = (Vec<u8>, Slice);

impl Transaction {
    /// The first `limit` entries of `range` in the order of keys, as this transaction sees them, its own writes
    /// included. What was read must not change until the commit: a key that is put into it, deleted, or covered by a range delete by
    /// somebody else is a conflict, also one that was absent. With `limit` entries the range ends for that after the last
    /// of them. To go on, scan again from behind the last key.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-txn-scan-{}", std::process::id()));
    /// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
    /// // At most two may sit at a table, in whatever order they come.
    /// let sit_down = |name: &str| -> terrace::Result<bool> {
    ///     let mut transaction = db.transaction();
    ///     if transaction.scan("table/1/".."table/10", 2)?.len() == 2 {
    ///         return Ok(false);
    ///     }
    ///     transaction.put(format!("table/1/{name}"), b"");
    ///     transaction.commit()?;
    ///     Ok(true)
    /// };
    /// assert!(sit_down("anna")? && sit_down("bert")? && !sit_down("cleo")?);
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan<K: AsRef<[u8]>>(
        &mut self,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let default = self.default.clone();
        self.scan_cf(&default, range, limit)
    }

    /// As [`Transaction::scan`], in a column family.
    pub fn scan_cf<K: AsRef<[u8]>>(
        &mut self,
        cf: &ColumnFamily,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        self.db.check_family(cf)?;
        let start = lower(range.start_bound()).unwrap_or_default();
        let end = upper(range.end_bound());
        if limit == 0 || end.as_ref().is_some_and(|end| start >= *end) {
            return Ok(Vec::new());
        }
        let entries = self.entries_between(cf, &start, end.as_deref(), limit)?;
        let read_to = match entries.last() {
            Some((last, _)) if entries.len() == limit => Some([last, &[0][..]].concat()),
            _ => end,
        };
        let since = self.reads.snapshot().seqno();
        self.reads.add_range(cf.family(), &start, read_to.as_deref(), since);
        Ok(entries)
    }

    fn entries_between(
        &self,
        cf: &ColumnFamily,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let options = ReadOptions {
            lower_bound: Some(start.to_vec()),
            upper_bound: end.map(<[u8]>::to_vec),
            ..self.reading.clone()
        };
        let mut stored = cf.iter_with(&options)?;
        let begun = stored.seek_to_first();
        self.pass_hidden(cf, &mut stored, start.to_vec(), begun)?;
        let mut written = self.own.keys_between(cf.id(), start, end).peekable();
        let mut entries = Vec::new();
        while entries.len() < limit {
            let named = written.peek().copied();
            let key = match (stored.valid().then(|| stored.key()), named) {
                (None, None) => break,
                (Some(stored), Some(named)) => stored.min(named).to_vec(),
                (Some(key), None) | (None, Some(key)) => key.to_vec(),
            };
            let is_stored = stored.valid() && stored.key() == key;
            let value = match self.own.get(cf.id(), &key) {
                None => is_stored.then(|| Slice::from(stored.value())),
                own => self.resolve(cf, &key, own)?,
            };
            if is_stored {
                let moved = stored.next();
                self.pass_hidden(cf, &mut stored, [&key, &[0][..]].concat(), moved)?;
            }
            if named == Some(key.as_slice()) {
                written.next();
            }
            entries.extend(value.map(|value| (key, value)));
        }
        Ok(entries)
    }

    /// Passes entries from `from` on that cannot be read and that the transaction has written over: `moved` is the
    /// outcome of the move to the first of them.
    fn pass_hidden(
        &self,
        cf: &ColumnFamily,
        stored: &mut Iter,
        mut from: Vec<u8>,
        mut moved: Result<()>,
    ) -> Result<()> {
        while let Err(error) = moved {
            let keys_only = ReadOptions { keys_only: true, ..self.reading.clone() };
            let mut keys = cf.iter_with(&keys_only)?;
            keys.seek(&from)?;
            let is_hidden =
                |key: &[u8]| self.own.get(cf.id(), key).is_some_and(|own| !own.needs_the_store());
            if !keys.valid() || !is_hidden(keys.key()) {
                return Err(error);
            }
            from = [keys.key(), &[0][..]].concat();
            moved = stored.seek(&from);
        }
        Ok(())
    }
}
