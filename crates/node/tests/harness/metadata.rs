//! Metadata that one node can be cut from.

use async_trait::async_trait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use terrace_metadata::{
    Changes, Error, Grant, LeaseId, Metadata, Result, Snapshot, Transaction, Watch,
};

pub struct Cuttable {
    inner: Arc<dyn Metadata>,
    is_cut: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
}

impl Cuttable {
    pub fn new(inner: Arc<dyn Metadata>) -> Self {
        Self { inner, is_cut: Arc::default(), refused: Arc::default() }
    }

    /// Cuts the node off, or lets it in again.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// How many calls the cut has failed: the proof that it happened.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    fn check(&self) -> Result<()> {
        check(&self.is_cut, &self.refused)
    }
}

fn check(is_cut: &AtomicBool, refused: &AtomicUsize) -> Result<()> {
    if is_cut.load(Ordering::SeqCst) {
        refused.fetch_add(1, Ordering::SeqCst);
        return Err(Error::Unavailable("cut off".into()));
    }
    Ok(())
}

struct CuttableWatch {
    inner: Box<dyn Watch>,
    is_cut: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
}

#[async_trait]
impl Watch for CuttableWatch {
    async fn next(&mut self) -> Result<Changes> {
        loop {
            check(&self.is_cut, &self.refused)?;
            let step = Duration::from_millis(20);
            if let Ok(changes) = tokio::time::timeout(step, self.inner.next()).await {
                check(&self.is_cut, &self.refused)?;
                return changes;
            }
        }
    }
}

#[async_trait]
impl Metadata for Cuttable {
    async fn snapshot(&self, prefix: &[u8]) -> Result<Snapshot> {
        self.check()?;
        self.inner.snapshot(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Option<u64>> {
        self.check()?;
        self.inner.commit(transaction).await
    }

    async fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Box<dyn Watch>> {
        self.check()?;
        let inner = self.inner.watch(prefix, from_revision).await?;
        let (is_cut, refused) = (self.is_cut.clone(), self.refused.clone());
        Ok(Box::new(CuttableWatch { inner, is_cut, refused }))
    }

    async fn grant(&self, ttl: Duration) -> Result<Grant> {
        self.check()?;
        self.inner.grant(ttl).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Grant> {
        self.check()?;
        self.inner.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        self.check()?;
        self.inner.revoke(lease).await
    }
}
