//! Optimistic transactions (transaction, from begin to commit): a snapshot to read at, a read set
//! of what was read, a batch of what is to be written. Nothing is locked; the commit finds out.
//!
//! 1. The writer checks the read set up to what is visible ([`crate::write::validate`]); a conflict costs
//!    the others nothing.
//! 2. It queues like any batch ([`crate::write::commit`]).
//! 3. The leader of its group checks what was committed since, and the batches before it in the
//!    group.
//! 4. What has not changed is logged and becomes visible with the group.
//!
//! Why the result is as if transactions had run one after the other (backward validation, Kung and
//! Robinson 1981, section 3): at the moment a transaction becomes visible, everything it read and
//! tracked is still the newest version, so it could have run wholly at that moment.

mod folded;
mod own_ranges;
mod own_writes;
mod refreshed;
mod scan;

use crate::batch::{SavePoint, WriteBatch};
use crate::db::{ColumnFamily, Db, lower, upper};
use crate::error::Result;
use crate::options::WriteOptions;
use crate::read::get::Found;
use crate::read::scan::ReadOptions;
use crate::version::snapshots::Snapshot;
use crate::write::commit;
use crate::write::read_set::ReadSet;
use crate::write::validate;
use folded::Folded;
use own_writes::{Own, OwnWrites};
use std::fmt;
use std::ops::{Range, RangeBounds};
use std::time::Duration;
use terrace_base::sync::Mutex;
use terrace_buf::Slice;

impl Db {
    /// Begins a transaction that reads the store as of now. Costs a snapshot.
    pub fn transaction(&self) -> Transaction {
        let reads = self.read_set();
        let reading =
            ReadOptions { snapshot: Some(reads.snapshot().clone()), ..ReadOptions::default() };
        let (db, default) = (self.clone(), self.default_family());
        let (batch, own, folded) = Default::default();
        Transaction { db, default, reads, reading, batch, own, folded }
    }

    /// An empty read set as of now. Costs a snapshot.
    pub fn read_set(&self) -> ReadSet {
        ReadSet::new(self.snapshot())
    }

    /// Whether no key of `reads` has a newer version now. A key takes one lookup in the memtables,
    /// and more only where something newer than the set was flushed. In a read-only store that was refreshed since, what
    /// is read of a key counts as well: another value or expiry than the set's snapshot shows is a newer version.
    ///
    /// # Errors
    /// `InvalidArgument` if the set is of another store; I/O; corruption.
    pub fn is_unchanged(&self, reads: &ReadSet) -> Result<bool> {
        let env = &self.inner().read;
        let is_own = reads.snapshot().is_of(&env.snapshots);
        Ok(validate::is_unchanged(env, reads)? && !(is_own && refreshed::has_changed(env, reads)?))
    }

    /// Writes `batch` if at the moment it becomes visible no key of `reads` has a newer version.
    /// An empty batch only checks.
    ///
    /// # Errors
    /// `Conflict` if one has, with nothing written; else as [`Db::is_unchanged`] and
    /// [`Db::write_with`].
    pub fn write_if_unchanged(
        &self,
        batch: WriteBatch,
        reads: &ReadSet,
        options: &WriteOptions,
    ) -> Result<()> {
        self.check_families(&batch)?;
        commit::write_if_unchanged(&self.inner().commit, batch, reads, options)
    }
}

impl ReadSet {
    /// Takes in `key`: a version newer than the set itself is a conflict.
    pub fn watch(&mut self, cf: &ColumnFamily, key: impl AsRef<[u8]>) {
        let since = self.snapshot().seqno();
        self.add(cf.family(), key.as_ref(), since);
    }

    /// Takes in `key`, unless it is: only a version newer than this call is a conflict. For keys
    /// that are watched one by one, and read later.
    pub fn watch_from_now(&mut self, cf: &ColumnFamily, key: impl AsRef<[u8]>) {
        self.add(cf.family(), key.as_ref(), cf.inner().read.visible_seqno());
    }

    /// Takes in `key`, also if it is: from here on only a version newer than this call is a conflict. For those who know that
    /// what was written of it before is none.
    pub fn watch_anew(&mut self, cf: &ColumnFamily, key: impl AsRef<[u8]>) {
        self.add_anew(cf.family(), key.as_ref(), cf.inner().read.visible_seqno());
    }

    /// A set with `key` alone, as it is in this one, to ask whether that one has changed; without keys if it was not
    /// taken in. Ranges of this set are not in it. Costs a copy of the key.
    pub fn of_key(&self, cf: &ColumnFamily, key: impl AsRef<[u8]>) -> ReadSet {
        self.only(cf.family(), key.as_ref())
    }

    /// Takes in all keys of `range`, whether they are there or not: a version newer than the set itself is a
    /// conflict, and so is a range delete over any part of it.
    pub fn watch_range<K: AsRef<[u8]>>(&mut self, cf: &ColumnFamily, range: impl RangeBounds<K>) {
        let since = self.snapshot().seqno();
        let start = lower(range.start_bound()).unwrap_or_default();
        self.add_range(cf.family(), &start, upper(range.end_bound()).as_deref(), since);
    }
}

/// A transaction: reads at one moment, sees its own writes, and commits whole or not at all.
///
/// It is optimistic: nobody waits for it, and it waits for nobody. [`Transaction::get`] remembers
/// the key and [`Transaction::scan`] the range; if one of them has a newer version when the transaction commits, the commit is refused
/// with [`Error::Conflict`](crate::Error::Conflict), and the caller runs it again. Transactions
/// that commit are serializable: each could have run alone at the moment of its commit.
///
/// Keys that were only written are no conflict, nor are those of a range that was deleted: the last commit
/// wins. Iterators of the store are not part of a transaction; one at [`Transaction::snapshot`] sees the same moment, but
/// neither the transaction's writes, nor does it remember what it showed. A transaction that wrote nothing
/// commits always: all it saw was of one moment.
///
/// While it lives, its snapshot keeps what is overwritten or deleted meanwhile on disk. Dropping it
/// takes it back.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-txn-{}", std::process::id()));
/// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
/// fn transfer(db: &terrace::Db, from: &[u8], to: &[u8], amount: u8) -> terrace::Result<bool> {
///     loop {
///         let mut transaction = db.transaction();
///         let mut balance = |key| {
///             transaction.get(key).map(|value| value.map_or(0, |bytes| bytes[0]))
///         };
///         let (left, right) = (balance(from)?, balance(to)?);
///         if left < amount {
///             return Ok(false);
///         }
///         transaction.put(from, [left - amount]);
///         transaction.put(to, [right + amount]);
///         match transaction.commit() {
///             Ok(()) => return Ok(true),
///             Err(terrace::Error::Conflict) => {} // Somebody was faster.
///             Err(error) => return Err(error),
///         }
///     }
/// }
///
/// db.put(b"anna", [100])?;
/// assert!(transfer(&db, b"anna", b"bert", 30)?);
/// assert!(!transfer(&db, b"anna", b"bert", 80)?);
/// assert_eq!(db.get(b"bert")?.as_deref(), Some(&[30][..]));
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    db: Db,
    default: ColumnFamily,
    reads: ReadSet,
    /// At the snapshot of `reads`.
    reading: ReadOptions,
    batch: WriteBatch,
    own: OwnWrites,
    folded: Mutex<Folded>,
}

impl Transaction {
    /// The value of `key` as this transaction sees it. If it has not written the key itself, the
    /// key must not change until the commit.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let default = self.default.clone();
        self.get_cf(&default, key)
    }

    /// As [`Transaction::get`], in a column family.
    pub fn get_cf(&mut self, cf: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.db.check_family(cf)?;
        let key = key.as_ref();
        if self.own.get(cf.id(), key).is_none_or(Own::needs_the_store) {
            self.reads.watch(cf, key);
        }
        self.get_untracked_cf(cf, key)
    }

    /// As [`Transaction::get`], but the key may change: for values that the outcome does not hang
    /// on.
    pub fn get_untracked(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_untracked_cf(&self.default, key)
    }

    /// As [`Transaction::get_untracked`], in a column family.
    pub fn get_untracked_cf(
        &self,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Slice>> {
        self.db.check_family(cf)?;
        self.resolve(cf, key.as_ref(), self.own.get(cf.id(), key.as_ref()))
    }

    /// What `own`, the last write to `key`, makes of it.
    fn resolve(&self, cf: &ColumnFamily, key: &[u8], own: Option<&Own>) -> Result<Option<Slice>> {
        let mut operands: Vec<&[u8]> = Vec::new();
        let place = |place: &Range<usize>| self.batch.encoded().get(place.clone());
        let newest = match own {
            Some(Own::Merged { at, .. }) => Some(at.start),
            _ => None,
        };
        // The operand after which the value is known.
        let mut known_at = None;
        let now_ms = || self.db.inner().base.clock.wall_ms();
        let lasting = |value: &[u8]| Found { value: value.into(), expires_at_ms: None };
        let (mut own, folded) = (own, self.folded.lock());
        let known = loop {
            match own {
                Some(Own::Deleted) => break Some(None),
                Some(Own::Value(at)) => break Some(place(at).map(lasting)),
                Some(Own::Merged { below, at, .. }) => {
                    if let Some(found) = folded.get(at.start, now_ms) {
                        known_at = Some(at.start);
                        break Some(Some(found));
                    }
                    operands.extend(place(at));
                    own = below.as_deref();
                }
                None => break None,
            }
        };
        drop(folded);
        let existing = match known {
            Some(known) => known,
            None => cf.get_entry(key, &self.reading)?,
        };
        let Some(newest) = newest.filter(|_| !operands.is_empty()) else {
            return Ok(existing.map(|found| found.value));
        };
        operands.reverse();
        let below = existing.as_ref().map(|found| &*found.value);
        let value: Slice = cf.family().merged(key, below, &operands)?.into();
        let expires_at_ms = existing.and_then(|found| found.expires_at_ms);
        let batch_bytes = self.batch.encoded().len();
        let found = Found { value: value.clone(), expires_at_ms };
        self.folded.lock().put(newest, found, known_at, batch_bytes);
        Ok(Some(value))
    }

    /// Sets `key` to `value`. What is over a limit is refused by the commit.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let default = self.default.clone();
        self.put_cf(&default, key, value);
    }

    /// As [`Transaction::put`], in a column family.
    pub fn put_cf(&mut self, cf: &ColumnFamily, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.batch.put_cf(cf, key.as_ref(), value.as_ref());
        self.own.note_put(&self.batch, cf.id(), key.as_ref(), value.as_ref().len());
    }

    /// Sets `key` to `value` until `ttl` from the commit on; the transaction itself sees it without
    /// an end.
    pub fn put_with_ttl(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) {
        let default = self.default.clone();
        self.put_with_ttl_cf(&default, key, value, ttl);
    }

    /// As [`Transaction::put_with_ttl`], in a column family.
    pub fn put_with_ttl_cf(
        &mut self,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) {
        self.batch.put_with_ttl_cf(cf, key.as_ref(), value.as_ref(), ttl);
        self.own.note_put(&self.batch, cf.id(), key.as_ref(), value.as_ref().len());
    }

    /// Merges `operand` into the value of `key`, as [`Db::merge`] does. A read of the key by the transaction sees it,
    /// and then the key must not change until the commit; without a read it may, and the operand counts
    /// on top of what is there at the commit.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        let default = self.default.clone();
        self.merge_cf(&default, key, operand);
    }

    /// As [`Transaction::merge`], in a column family.
    pub fn merge_cf(
        &mut self,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) {
        self.batch.merge_cf(cf, key.as_ref(), operand.as_ref());
        self.own.note_merge(&self.batch, cf.id(), key.as_ref(), operand.as_ref().len());
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        let default = self.default.clone();
        self.delete_cf(&default, key);
    }

    /// As [`Transaction::delete`], in a column family.
    pub fn delete_cf(&mut self, cf: &ColumnFamily, key: impl AsRef<[u8]>) {
        self.batch.delete_cf(cf, key.as_ref());
        self.own.note_delete(&self.batch, cf.id(), key.as_ref());
    }

    /// Removes every key in `[start, end)`, also those that others write before the commit, and those that
    /// the transaction has put; nothing if `start >= end`. Later reads of its own there find
    /// nothing, and need no check.
    pub fn delete_range(&mut self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) {
        let default = self.default.clone();
        self.delete_range_cf(&default, start, end);
    }

    /// As [`Transaction::delete_range`], in a column family.
    pub fn delete_range_cf(
        &mut self,
        cf: &ColumnFamily,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) {
        let (start, end) = (start.as_ref(), end.as_ref());
        self.batch.delete_range_cf(cf, start, end);
        self.own.note_delete_range(&self.batch, cf.id(), start, end);
    }

    /// What was written so far, for [`Transaction::roll_back_to`].
    pub fn save_point(&self) -> SavePoint {
        self.folded.lock().note_point(self.batch.encoded().len());
        self.batch.save_point()
    }

    /// Takes back what was written since `point`, as [`WriteBatch::roll_back_to`] does; a save
    /// point that does not hold makes the commit fail with `InvalidArgument`. What was read since
    /// must still not change: it has been seen.
    pub fn roll_back_to(&mut self, point: SavePoint) {
        self.batch.roll_back_to(point);
        self.own.cut(self.batch.len());
        self.folded.get_mut().cut(self.batch.encoded().len());
    }

    /// The moment the transaction reads at.
    pub fn snapshot(&self) -> &Snapshot {
        self.reads.snapshot()
    }

    /// The keys and ranges that must not change until the commit.
    pub fn read_set(&self) -> &ReadSet {
        &self.reads
    }

    /// The number of writes.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Commits: all writes become visible together, if no key or range that was read has changed.
    ///
    /// # Errors
    /// `Conflict` if one has: run the transaction again, from [`Db::transaction`] on. Any other
    /// error as of [`Db::write`].
    pub fn commit(self) -> Result<()> {
        self.commit_with(&WriteOptions::default())
    }

    /// As [`Transaction::commit`], with options.
    pub fn commit_with(self, options: &WriteOptions) -> Result<()> {
        match self.batch.is_empty() {
            // Nothing is written, so nothing is waited for. What was refused is reported, too.
            true if options.sync.is_none() => {
                self.db.inner().base.health.check_open()?;
                self.batch.check_refused()
            }
            true => self.db.write_with(self.batch, options),
            false => self.db.write_if_unchanged(self.batch, &self.reads, options),
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reads, writes) = (&self.reads, self.batch.len());
        f.debug_struct("Transaction").field("reads", reads).field("writes", &writes).finish()
    }
}

/// The code of the page, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/transactions.md")]
struct Page;

#[cfg(test)]
mod tests;
