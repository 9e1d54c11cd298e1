//! Epochs that instances know from metadata that were lost: the revisions of the new ones begin again below them,
//! and in a cluster in which nothing happens they would not grow. Revisions are made until the next claim has a
//! later epoch.

use crate::shared::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_cluster::{Epoch, ShardId};
use terrace_metadata::{Error, Transaction};
use tokio::task::JoinSet;

/// Epochs grow with claims and memberships only: who knows one that is further away is damaged, or no node of this cluster.
const MAX_PASSED: u64 = 1_000_000;

/// Commits at the same time.
const COMMITS: usize = 32;

/// Commits until the revision of the metadata, which was `epoch` at least, is not below the epoch that an instance knows.
/// If that is of a later owner, the revision is there already, and one commit is made for nothing. Nothing is done, and
/// an error logged, if the epoch is too far away.
///
/// # Errors
/// The metadata store fails.
pub(crate) async fn pass(
    shared: &Arc<Shared>,
    shard: ShardId,
    epoch: Epoch,
    known: Epoch,
) -> Result<(), Error> {
    if known.0.saturating_sub(epoch.0) > MAX_PASSED {
        tracing::error!(
            "the instance of shard {shard} knows epoch {known}, more than {MAX_PASSED} above the revision {epoch} \
             of the metadata: they are not of one cluster, and the shard is not served"
        );
        return Ok(());
    }
    let reached = Arc::new(AtomicU64::new(epoch.0));
    let before = commit(shared, known, &reached).await?;
    let mut commits = JoinSet::new();
    for _ in 0..COMMITS.min(known.0.saturating_sub(before) as usize) {
        let (shared, reached) = (shared.clone(), reached.clone());
        commits.spawn(async move {
            while reached.load(Ordering::Relaxed) < known.0 {
                commit(&shared, known, &reached).await?;
            }
            Ok(())
        });
    }
    while let Some(committed) = commits.join_next().await {
        committed.unwrap_or_else(|_| Err(Error::Unavailable("the node is ending".into())))?;
    }
    Ok(())
}

/// One revision more: it.
async fn commit(shared: &Shared, known: Epoch, reached: &AtomicU64) -> Result<u64, Error> {
    let write = Transaction::new().put(shared.layout.passed(), known.to_string());
    let revision = shared.metadata.commit(write).await?.unwrap_or(0);
    reached.fetch_max(revision, Ordering::Relaxed);
    Ok(revision)
}
