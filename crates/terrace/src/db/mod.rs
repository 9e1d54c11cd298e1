//! The store as its user sees it: [`Db`] and [`ColumnFamily`], thin over the verbs.

mod bulk_api;
mod decision_options;
mod family_options;
mod family_writes;
mod ingest_api;
mod introspect;
mod live_options;
mod merge;
mod read_only_api;
mod store;
mod updates_api;

pub use bulk_api::BulkLoader;
pub use introspect::QuarantinedFile;

use store::Store;

use crate::admin::checkpoint;
use crate::admin::families;
use crate::admin::verify;
use crate::background::collect_garbage::{self, GcProgress};
use crate::background::compact_range::{self, Progress};
use crate::background::flush;
use crate::background::settle;
use crate::background::worker::Workers;
use crate::batch::WriteBatch;
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::metrics::Metrics;
use crate::observe::current_metrics;
use crate::open::for_writing;
use crate::options::{CfOptions, Options, SyncMode, WriteOptions};
use crate::read::get;
use crate::read::get::{EntryInfo, Found, Reading};
use crate::read::scan::{self, Iter, ReadOptions};
use crate::version::family::Family;
use crate::version::snapshots::Snapshot;
use crate::write::commit;
use crate::write::log_segments;
use crate::write::stall;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use terrace_base::ValueKind;
use terrace_buf::Slice;

/// An open store. Clones share it; the last one to go closes it.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-db-{}", std::process::id()));
/// let db = terrace::Db::open(&dir, terrace::Options::default())?;
/// db.put(b"apple", b"red")?;
/// db.put(b"pear", b"green")?;
/// for entry in db.prefix(b"ap")?.entries() {
///     let (key, value) = entry?;
///     assert_eq!((key.as_slice(), value.as_slice()), (&b"apple"[..], &b"red"[..]));
/// }
/// db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    default: ColumnFamily,
}

/// A column family: a key space of its own within a store, with its own options. The handle keeps
/// the store open.
///
/// Once the family is dropped, every call for it fails with [`Error::NoSuchFamily`]: reads, also at a
/// snapshot from before, writes, batches and transactions that write to it, compaction, estimates.
/// Iterators and values that were there before stay good. A family that is created later under
/// the same name is another one: ask for its handle.
#[derive(Clone)]
pub struct ColumnFamily {
    family: Arc<Family>,
    store: Arc<Store>,
}

impl Db {
    /// Opens the store in directory `path`, creating it if the options say so. A relative one is that of the call,
    /// wherever the program goes while the store is open, and errors name files from the root on.
    ///
    /// # Errors
    /// `Locked` if it is open elsewhere; `NotAStore`; `Corruption` if its files are damaged in a
    /// way that would lose acknowledged writes; `InvalidArgument` for an option out of range.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::start(for_writing::open(path.as_ref(), options)?)
    }

    pub(crate) fn start(inner: Inner) -> Result<Self> {
        let inner = Arc::new(inner);
        // Every store has its default family: a manifest without it is refused.
        let family = inner.read.family(0);
        let family = family.ok_or_else(|| Error::NoSuchFamily(families::DEFAULT_FAMILY.into()))?;
        let workers = Workers::start(&inner.background)?;
        let store = Arc::new(Store::new(inner, workers));
        Ok(Self { default: ColumnFamily { family, store } })
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.default.store.inner
    }

    /// The value of `key`, as a slice that stays valid as long as it is kept; `None` if absent.
    /// A read from the cache copies nothing.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.default.get(key)
    }

    /// As [`Db::get`], with options.
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Slice>> {
        self.default.get_with(key, options)
    }

    /// The value of `key` and when it expires.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-entry-{}", std::process::id()));
    /// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
    /// let next_century = 4_102_444_800_000;
    /// let mut batch = terrace::WriteBatch::new();
    /// batch.put_until(b"coupon", b"10%", next_century);
    /// db.write(batch)?;
    /// let found = db.get_entry(b"coupon", &terrace::ReadOptions::default())?;
    /// assert_eq!(found.and_then(|found| found.expires_at_ms), Some(next_century));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_entry(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Found>> {
        self.default.get_entry(key, options)
    }

    /// What is known of `key` without its value: a separated value is not read, so one that is not in memory is
    /// not waited for, nor refused by [`ReadOptions::in_memory`]. Operands of merges are folded.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-info-{}", std::process::id()));
    /// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
    /// db.put(b"picture", vec![7; 100_000])?;
    /// let info = db.get_info(b"picture", &terrace::ReadOptions::default())?;
    /// assert_eq!(info.and_then(|info| info.value_bytes), Some(100_000));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_info(
        &self,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<EntryInfo>> {
        self.default.get_info(key, options)
    }

    /// The values of `keys`, in their order, all as of one moment; device reads are batched. A value keeps the block
    /// that it lies in; after the first 64, short ones are copies and keep little more than themselves.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.default.multi_get(keys)
    }

    /// As [`Db::multi_get`], with options.
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &ReadOptions,
    ) -> Result<Vec<Option<Slice>>> {
        self.default.multi_get_with(keys, options)
    }

    /// Sets `key` (at most 64 KiB) to `value` (at most 1 GiB).
    ///
    /// While it is written a large value takes one copy beside the caller's, in the batch; one more
    /// in the memtable if it does not stay in the log (because of
    /// [`CfOptions::value_separation_threshold`], or since it has exactly 1 GiB), and two more for
    /// a moment if it is compressed.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// Sets `key` to `value` until `ttl` from now; then the key is absent, and its disk space is
    /// freed by itself.
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.default.put_with_ttl(key, value, ttl)
    }

    /// Removes `key`.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// Removes every key in `[start, end)` at the cost of one write.
    pub fn delete_range(&self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete_range(start, end)
    }

    /// Writes a batch: all of it becomes visible together, or nothing.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, &WriteOptions::default())
    }

    /// As [`Db::write`], with options.
    pub fn write_with(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        self.check_families(&batch)?;
        commit::write(&self.inner().commit, batch, options)
    }

    /// Whether a write may have to wait for the device now: for a sync, since the store's
    /// durability is [`SyncMode::Batch`], or because writes are held back until flush, compaction
    /// or garbage collection catch up. For programs that leave such writes to another thread; it
    /// promises nothing, since things change. Costs less than a microsecond.
    pub fn write_may_wait(&self) -> bool {
        let inner = self.inner();
        inner.base.dynamic.sync() == SyncMode::Batch || stall::may_hold_back(&inner.commit)
    }

    /// Refuses a family of another store, and one that was dropped.
    pub(crate) fn check_family(&self, cf: &ColumnFamily) -> Result<()> {
        if cf.inner().base.open_id != self.inner().base.open_id {
            let text = format!("the column family `{}` is of another store", cf.name());
            return Err(Error::InvalidArgument(text));
        }
        cf.family.check_exists()
    }

    /// Refuses a batch that writes to a family of another store, or to one which does not exist.
    pub(crate) fn check_families(&self, batch: &WriteBatch) -> Result<()> {
        if batch.store().is_some_and(|store| store != self.inner().base.open_id) {
            let text = "the batch writes to column families of another store";
            return Err(Error::InvalidArgument(text.into()));
        }
        for id in batch.families() {
            if self.inner().read.family(id).is_none() {
                return Err(Error::NoSuchFamily(format!("number {id}")));
            }
        }
        Ok(())
    }

    /// A consistent view of the whole store, all column families, as of now.
    pub fn snapshot(&self) -> Snapshot {
        self.inner().versions.snapshot()
    }

    /// An iterator over all keys, not positioned yet.
    pub fn iter(&self) -> Result<Iter> {
        self.default.iter()
    }

    /// An iterator with options: snapshot, bounds, prefix.
    pub fn iter_with(&self, options: &ReadOptions) -> Result<Iter> {
        self.default.iter_with(options)
    }

    /// An iterator over the keys in `range`.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.default.range(range)
    }

    /// An iterator over the keys that start with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.default.prefix(prefix)
    }

    /// Writes all memtables to SSTs and returns when they are durable.
    pub fn flush(&self) -> Result<()> {
        flush::all(&self.inner().background)
    }

    /// Merges everything in `range` of the default family down to the last level, dropping what
    /// nobody can see any more.
    ///
    /// # Errors
    /// [`Error::DiskFull`] without room for what it merges, with room left for writes; I/O; corruption.
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.default.compact_range(range)
    }

    /// As [`Db::compact_range`], telling how far it is after every file.
    pub fn compact_range_with<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        self.default.compact_range_with(range, progress)
    }

    /// Collects every segment of the value log of which at least the part `min_share` is garbage,
    /// and waits until they are gone; 0.0 collects all of it, which also puts values into the order
    /// of their keys. Collection of what is over
    /// [`gc_garbage_ratio`](crate::AdvancedOptions::gc_garbage_ratio) goes on by itself and needs
    /// no call. What merges of the background write meanwhile is not collected again.
    ///
    /// Costs one write of every value that is moved, and of the SSTs that refer to them.
    ///
    /// # Errors
    /// A share that is not from 0 to 1; [`Error::DiskFull`], as of [`Db::compact_range`]; I/O; corruption, with nothing lost.
    pub fn collect_garbage(&self, min_share: f64) -> Result<()> {
        self.collect_garbage_with(min_share, &mut |_| {})
    }

    /// As [`Db::collect_garbage`], telling how far it is after every compaction.
    pub fn collect_garbage_with(
        &self,
        min_share: f64,
        progress: &mut dyn FnMut(GcProgress),
    ) -> Result<()> {
        collect_garbage::run(&self.inner().background, min_share, progress)
    }

    /// Waits until no flush or compaction is running or wanted, idle compaction included, and the
    /// filters of new SSTs are in memory as far as they deserve it.
    pub fn wait_idle(&self) -> Result<()> {
        settle::wait_idle(&self.inner().background)
    }

    /// Makes directory `path` (new or empty) a store with the present contents of this one, of
    /// hard links where the file system allows; later writes here do not show there. It is filled
    /// beside its place, as `path.partial`, and gets its name when it is whole.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `path` is not empty, ends in no name, or is a directory that a store has for its own use, or if
    /// `path.partial` has files of others or is being filled, by another checkpoint to the same path.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        checkpoint::create(self.inner(), path.as_ref())
    }

    /// As [`Db::checkpoint`], in the store's own directory for that: for the crate that makes backups.
    #[doc(hidden)]
    pub fn checkpoint_for_backup(&self) -> Result<()> {
        checkpoint::create_for_backup(self.inner())
    }

    /// Makes everything written so far durable, whatever the sync mode.
    pub fn sync(&self) -> Result<()> {
        log_segments::sync(&self.inner().commit)
    }

    /// Reads every SST of the store and checks every checksum and the order of all entries.
    /// Gives the number of SSTs checked; the first damage found is the error.
    pub fn verify(&self) -> Result<u64> {
        verify::all(self.inner())
    }

    /// Flushes, stops background work, and releases the directory, for all clones and handles.
    /// Dropping the last clone does the same but cannot tell of an error.
    ///
    /// Other threads may go on calling the store. Once this has returned `Ok`, every write that has returned `Ok`
    /// is durable, whatever the sync mode; what comes too late has failed with [`Error::Closed`], and so have bulk
    /// loads and ingestions that were under way, of which nothing is left. A call while another thread closes
    /// the store waits for it, and gives the same, as do later calls; only a listener's call returns at once.
    ///
    /// # Errors
    /// That of the last flush or sync. `Poisoned`: acknowledged writes may be lost. The store is closed all the same.
    pub fn close(&self) -> Result<()> {
        self.default.store.close()
    }

    /// Whether writes are refused because the disk is full, but for batches that only remove.
    /// Costs nothing.
    pub fn is_disk_full(&self) -> bool {
        self.inner().base.health.is_disk_full()
    }

    /// The state of the store and what it did since the open.
    pub fn metrics(&self) -> Metrics {
        current_metrics::of(self.inner())
    }

    /// The directory, from the root of the file system on.
    pub fn path(&self) -> &Path {
        &self.inner().base.dir
    }

    /// The options it was opened with.
    pub fn options(&self) -> &Options {
        &self.inner().given
    }

    /// The default column family, which the methods of `Db` work on.
    pub fn default_family(&self) -> ColumnFamily {
        self.default.clone()
    }

    /// The column family called `name`, if there is one.
    pub fn column_family(&self, name: &str) -> Option<ColumnFamily> {
        let family = self.inner().read.family_named(name)?;
        Some(ColumnFamily { family, store: self.default.store.clone() })
    }

    /// The names of all column families, `default` among them.
    pub fn column_families(&self) -> Vec<String> {
        self.inner().read.families.load().iter().map(|family| family.name.clone()).collect()
    }

    /// Creates a column family. Its options are stored with it, but for code; see [`CfOptions`].
    pub fn create_column_family(&self, name: &str, options: CfOptions) -> Result<ColumnFamily> {
        let family = families::create(self.inner(), name, &options)?;
        Ok(ColumnFamily { family, store: self.default.store.clone() })
    }

    /// Drops a column family with all its keys; its disk space is freed when no iterator needs it
    /// any more. Calls with its handles fail from then on, see [`ColumnFamily`]. The default family
    /// cannot be dropped.
    pub fn drop_column_family(&self, name: &str) -> Result<()> {
        families::drop(self.inner(), name)
    }
}

impl ColumnFamily {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.family.name
    }

    pub(crate) fn id(&self) -> u32 {
        self.family.id
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.store.inner
    }

    pub(crate) fn family(&self) -> &Arc<Family> {
        &self.family
    }

    /// What `options` say about a point read.
    fn reading<'a>(&self, options: &'a ReadOptions) -> Result<Reading<'a>> {
        let snapshot = self.inner().read.snapshots.check(options.snapshot.as_ref())?;
        let ReadOptions { fill_cache, in_memory, now_ms, .. } = *options;
        Ok(Reading { snapshot, fill_cache, in_memory, now_ms, ..Reading::default() })
    }

    /// As [`Db::get`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        get::get(&self.inner().read, &self.family, key.as_ref(), Reading::default())
    }

    /// As [`Db::get_with`].
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Slice>> {
        get::get(&self.inner().read, &self.family, key.as_ref(), self.reading(options)?)
    }

    /// As [`Db::get_entry`].
    pub fn get_entry(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Found>> {
        get::get_entry(&self.inner().read, &self.family, key.as_ref(), self.reading(options)?)
    }

    /// As [`Db::get_info`].
    pub fn get_info(
        &self,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<EntryInfo>> {
        self.get_info_within(key, options, 0)
    }

    /// As [`Db::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
        self.multi_get_with(keys, &ReadOptions::default())
    }

    /// As [`Db::multi_get_with`].
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &ReadOptions,
    ) -> Result<Vec<Option<Slice>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        get::multi_get(&self.inner().read, &self.family, &keys, self.reading(options)?)
    }

    fn put_one(&self, key: &[u8], ttl: Option<Duration>, value: &[u8]) -> Result<()> {
        self.family.check_exists()?;
        let mut batch = WriteBatch::for_one(key.len(), value.len());
        batch.put_value(self.family.id, key, ttl, value, self.family.separation());
        commit::write(&self.inner().commit, batch, &WriteOptions::default())
    }

    fn write_one(&self, kind: ValueKind, key: &[u8], value: &[u8]) -> Result<()> {
        self.family.check_exists()?;
        let mut batch = WriteBatch::for_one(key.len(), value.len());
        batch.push(self.family.id, kind, key, value);
        commit::write(&self.inner().commit, batch, &WriteOptions::default())
    }

    /// As [`Db::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_one(key.as_ref(), None, value.as_ref())
    }

    /// As [`Db::put_with_ttl`].
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_one(key.as_ref(), Some(ttl), value.as_ref())
    }

    /// As [`Db::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write_one(ValueKind::Delete, key.as_ref(), &[])
    }

    /// As [`Db::delete_range`].
    pub fn delete_range(&self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.write_one(ValueKind::RangeDelete, start.as_ref(), end.as_ref())
    }

    /// As [`Db::iter`].
    pub fn iter(&self) -> Result<Iter> {
        self.iter_with(&ReadOptions::default())
    }

    /// As [`Db::iter_with`].
    pub fn iter_with(&self, options: &ReadOptions) -> Result<Iter> {
        scan::iter(&self.inner().read, &self.family, options)
    }

    /// As [`Db::range`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.iter_with(&ReadOptions {
            lower_bound: lower(range.start_bound()),
            upper_bound: upper(range.end_bound()),
            ..ReadOptions::default()
        })
    }

    /// As [`Db::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        let prefix = Some(prefix.as_ref().to_vec());
        let mut iter = self.iter_with(&ReadOptions { prefix, ..ReadOptions::default() })?;
        iter.seek_to_first()?;
        Ok(iter)
    }

    /// As [`Db::compact_range`].
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.compact_range_with(range, &mut |_| {})
    }

    /// As [`Db::compact_range_with`].
    pub fn compact_range_with<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        self.family.check_exists()?;
        let start = lower(range.start_bound());
        let end = upper(range.end_bound());
        compact_range::range(
            &self.store.inner.background,
            &self.family,
            start.as_deref(),
            end.as_deref(),
            progress,
        )
    }
}

/// The inclusive lower bound that `bound` means: the successor of a key is the key plus a 0 byte.
pub(crate) fn lower<K: AsRef<[u8]>>(bound: Bound<&K>) -> Option<Vec<u8>> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(key.as_ref().to_vec()),
        Bound::Excluded(key) => Some([key.as_ref(), &[0]].concat()),
    }
}

/// The exclusive upper bound that `bound` means.
pub(crate) fn upper<K: AsRef<[u8]>>(bound: Bound<&K>) -> Option<Vec<u8>> {
    match bound {
        Bound::Unbounded => None,
        Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        Bound::Included(key) => Some([key.as_ref(), &[0]].concat()),
    }
}
