//! A transaction whose calls are awaited one by one. A call that is dropped while it runs finishes on its thread and
//! gives the transaction back, so that the next call has it.

use crate::calls::Calls;
use std::ops::RangeBounds;
use std::sync::Arc;
use terrace::{Error, Result, Slice, Transaction, WriteOptions};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// A [`Transaction`], made by [`AsyncDb::transaction`](crate::AsyncDb::transaction). Dropping it takes back its writes.
///
/// It holds a snapshot until then, so do not keep it while waiting for people. Several calls at once take turns.
pub struct AsyncTransaction {
    calls: Calls,
    /// `None` once it is committed.
    transaction: Arc<Mutex<Option<Transaction>>>,
}

impl AsyncTransaction {
    pub(crate) fn new(transaction: Transaction, calls: Calls) -> Self {
        Self { calls, transaction: Arc::new(Mutex::new(Some(transaction))) }
    }

    async fn held(&self) -> OwnedMutexGuard<Option<Transaction>> {
        self.transaction.clone().lock_owned().await
    }

    /// Runs any call of the transaction on a blocking thread.
    ///
    /// # Errors
    /// What `call` returns; [`Error::Closed`] if the runtime shuts down.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut held = self.held().await;
        let work = move || held.as_mut().map_or(Err(Error::Closed), call);
        self.calls.run(work).await
    }

    /// The value of `key` as this transaction sees it; the key must not change until the commit.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let key = key.as_ref().to_vec();
        self.run(move |transaction| transaction.get(key)).await
    }

    /// The first `limit` entries of `range`, which must not change until the commit.
    ///
    /// # Errors
    /// As [`Transaction::scan`].
    pub async fn scan<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Slice)>> {
        let owned = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let range = (owned(range.start_bound()), owned(range.end_bound()));
        self.run(move |transaction| transaction.scan::<Vec<u8>>(range, limit)).await
    }

    /// Sets `key` to `value` with the commit.
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        if let Some(transaction) = self.held().await.as_mut() {
            transaction.put(key, value);
        }
    }

    /// Removes `key` with the commit.
    pub async fn delete(&self, key: impl AsRef<[u8]>) {
        if let Some(transaction) = self.held().await.as_mut() {
            transaction.delete(key);
        }
    }

    /// Merges `operand` into the value of `key` with the commit.
    pub async fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        if let Some(transaction) = self.held().await.as_mut() {
            transaction.merge(key, operand);
        }
    }

    /// Commits. If the future is dropped before it is done, the transaction is committed whole or not at all.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub async fn commit(self) -> Result<()> {
        self.commit_with(WriteOptions::default()).await
    }

    /// As [`AsyncTransaction::commit`], with options.
    ///
    /// # Errors
    /// As [`Transaction::commit_with`].
    pub async fn commit_with(self, options: WriteOptions) -> Result<()> {
        let mut held = self.held().await;
        let commit = move |transaction: Transaction| transaction.commit_with(&options);
        let work = move || held.take().map_or(Err(Error::Closed), commit);
        self.calls.run(work).await
    }
}
