//! Terrace for programs on tokio: [`AsyncDb`] over an open [`Db`].
//!
//! A read that memory can answer is answered at once, on the thread that asks. All else goes to tokio's threads for
//! blocking calls (module `calls`), of which at most [`AsyncOptions::max_calls`] are under way; further ones wait for their turn.
//! Answers from memory count against the budget that tokio gives a task before it has to yield: a loop of them keeps no
//! thread to itself, and a timeout can end it.
//!
//! **Cancellation.** A future that is dropped before its turn has done nothing. One that is dropped later has lost only
//! its answer: the call runs to its end on its thread, so a write is there whole or not at all, and its turn is
//! given back then. `docs/async.md` says more.

mod calls;
mod scan;
mod transaction;

use calls::Calls;
pub use scan::{Scan, ScanChunk};
pub use terrace;
pub use transaction::AsyncTransaction;

use terrace::{
    ColumnFamily, Db, Error, ReadOptions, Result, Slice, Snapshot, Transaction, WriteBatch,
    WriteOptions,
};
use tokio::task::coop::consume_budget;

/// How an [`AsyncDb`] works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncOptions {
    /// Calls of this store that may be on blocking threads at a time; at least 1.
    pub max_calls: usize,
}

impl Default for AsyncOptions {
    /// 64 calls.
    fn default() -> Self {
        Self { max_calls: 64 }
    }
}

/// An open store, for asynchronous callers. Clones share the store and the bound on its calls.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-async-{}", std::process::id()));
/// # let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
/// # runtime.block_on(async {
/// use terrace_async::{AsyncDb, AsyncOptions};
/// use tokio_stream::StreamExt;
///
/// let db = terrace::Db::open(&dir, terrace::Options::default())?;
/// let db = AsyncDb::new(db, AsyncOptions::default());
/// db.put("rice/1", "sown").await?;
/// db.put("rice/2", "ripe").await?;
/// assert_eq!(db.get("rice/2").await?.as_deref(), Some(&b"ripe"[..]));
///
/// let mut chunks = db.scan("rice/".."rice0");
/// while let Some(chunk) = chunks.next().await {
///     for (key, value) in chunk? {
///         println!("{key:?} is {value:?}");
///     }
/// }
/// db.close().await?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncDb {
    db: Db,
    calls: Calls,
}

impl AsyncDb {
    /// The store, for asynchronous callers in a runtime of tokio.
    pub fn new(db: Db, options: AsyncOptions) -> Self {
        Self { db, calls: Calls::new(options.max_calls.max(1)) }
    }

    /// Opens a store on a blocking thread.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub async fn open(
        path: impl AsRef<std::path::Path>,
        store: terrace::Options,
        options: AsyncOptions,
    ) -> Result<Self> {
        let path = store.advanced.vfs.absolute(path.as_ref());
        let calls = Calls::new(options.max_calls.max(1));
        let db = calls.run(move || Db::open(path, store)).await?;
        Ok(Self { db, calls })
    }

    /// The store itself. Its calls may wait for the device: not for a thread that others share.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_cf(&self.db.default_family(), key, &ReadOptions::default()).await
    }

    /// The value of `key` in a column family.
    ///
    /// # Errors
    /// As [`Db::get_with`].
    pub async fn get_cf(
        &self,
        cf: &ColumnFamily,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<Slice>> {
        let at_once = ReadOptions { in_memory: true, ..options.clone() };
        match cf.get_with(key.as_ref(), &at_once) {
            Err(Error::NotInMemory) if !options.in_memory => {
                let (cf, key, options) = (cf.clone(), key.as_ref().to_vec(), options.clone());
                self.calls.run(move || cf.get_with(key, &options)).await
            }
            answer => {
                // After the work, so that each turn of the task has some.
                consume_budget().await;
                answer
            }
        }
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        self.write(batch).await
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`Db::delete`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(key);
        self.write(batch).await
    }

    /// Merges `operand` into the value of `key`.
    ///
    /// # Errors
    /// As [`Db::merge`].
    pub async fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.merge(key, operand);
        self.write(batch).await
    }

    /// Writes a batch, all of it or nothing.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, WriteOptions::default()).await
    }

    /// As [`AsyncDb::write`], with options.
    ///
    /// # Errors
    /// As [`Db::write_with`].
    pub async fn write_with(&self, batch: WriteBatch, options: WriteOptions) -> Result<()> {
        self.run(move |db| db.write_with(batch, &options)).await
    }

    /// The entries of a range, in chunks.
    pub fn scan<K: AsRef<[u8]>>(&self, range: impl std::ops::RangeBounds<K>) -> Scan {
        let options = scan::bounded(range, ReadOptions::default());
        self.scan_cf(&self.db.default_family(), options)
    }

    /// The entries of a column family that `options` show, in chunks. They are of one moment: that of the snapshot in
    /// `options`, or of the first chunk.
    pub fn scan_cf(&self, cf: &ColumnFamily, options: ReadOptions) -> Scan {
        Scan::new(self.db.clone(), cf.clone(), options, self.calls.clone())
    }

    /// A snapshot of the whole store; taking one may wait for a write to the manifest.
    ///
    /// # Errors
    /// The runtime shuts down.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.run(|db| Ok(db.snapshot())).await
    }

    /// Writes all memtables to SSTs.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub async fn flush(&self) -> Result<()> {
        self.run(|db| db.flush()).await
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// As [`Db::sync`].
    pub async fn sync(&self) -> Result<()> {
        self.run(|db| db.sync()).await
    }

    /// Closes the store, for all that use it.
    ///
    /// # Errors
    /// As [`Db::close`].
    pub async fn close(&self) -> Result<()> {
        self.run(|db| db.close()).await
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// The runtime shuts down.
    pub async fn transaction(&self) -> Result<AsyncTransaction> {
        let transaction = self.run(|db| Ok(db.transaction())).await?;
        Ok(AsyncTransaction::new(transaction, self.calls.clone()))
    }

    /// Runs `body` in a transaction on a blocking thread and commits, again from the start as long as that conflicts.
    ///
    /// # Errors
    /// What `body` returns, with nothing written; else as [`Transaction::commit`].
    pub async fn transact<T, F>(&self, mut body: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction) -> Result<T> + Send + 'static,
    {
        self.run(move |db| {
            loop {
                let mut transaction = db.transaction();
                let made = body(&mut transaction)?;
                match transaction.commit() {
                    Err(Error::Conflict) => {}
                    done => return done.map(|()| made),
                }
            }
        })
        .await
    }

    /// Runs any call of the store on a blocking thread, when its turn comes.
    ///
    /// # Errors
    /// What `call` returns; [`Error::Closed`] if the runtime shuts down.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let db = self.db.clone();
        self.calls.run(move || call(&db)).await
    }
}

/// The examples of the page, compiled as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/async.md")]
struct Page;
