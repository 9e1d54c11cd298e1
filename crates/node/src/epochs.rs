//! Epochs that instances know from metadata that were lost: the revisions of the new ones begin again below them,
//! and in a cluster in which nothing happens they would not grow. Revisions are made until the next claim has a
//! later epoch.

use crate::shared::Shared;
use crate::too_far::TooFar;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_cluster::{Epoch, NodeId, ShardId};
use terrace_metadata::{Error, Transaction};
use tokio::task::JoinSet;

/// Epochs grow with everything that is written in the metadata store. Each that is passed is a revision that etcd keeps until
/// it is compacted, some 100 bytes; by default etcd has 2 GiB for all of them.
const MAX_PASSED: u64 = 5_000_000;

/// Commits at the same time.
const COMMITS: usize = 32;

/// How often it is logged how far it has come.
const PROGRESS: Duration = Duration::from_secs(10);

/// What became of an epoch that is to be passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The next claim has a later one.
    Yes,
    /// It is too far away: nothing was done, and the node's status says so.
    TooFar,
}

/// Commits until the revision of the metadata, which was `epoch` at least, is not below the epoch that an instance knows.
/// If that is of a later owner, the revision is there already, and two commits are made for nothing.
///
/// # Errors
/// The metadata store fails.
pub(crate) async fn pass(
    shared: &Arc<Shared>,
    shard: ShardId,
    epoch: Epoch,
    known: Epoch,
) -> Result<Passed, Error> {
    if known.0.saturating_sub(epoch.0) > MAX_PASSED {
        note_too_far(shared, shard, epoch, known);
        return Ok(Passed::TooFar);
    }
    let Some(_turn) = shared.passing.turn(known.0).await else { return show(shared, known).await };
    let reached = Arc::new(AtomicU64::new(0));
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
    let mut progress = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
    loop {
        tokio::select! {
            committed = commits.join_next() => match committed {
                Some(committed) => {
                    committed.unwrap_or_else(|_| Err(Error::Unavailable("the node is ending".into())))?;
                }
                None => break,
            },
            _ = progress.tick() => {
                let reached = reached.load(Ordering::Relaxed);
                tracing::info!("shard {shard}: epoch {known} is being passed, at revision {reached}");
            }
        }
    }
    show(shared, known).await
}

/// A revision that all nodes see: the epoch is passed.
async fn show(shared: &Shared, known: Epoch) -> Result<Passed, Error> {
    let seen = Transaction::new().put(shared.layout.passed(), known.to_string());
    shared.metadata.commit(seen.delete(shared.layout.passing())).await?;
    Ok(Passed::Yes)
}

/// One revision more: it. No node watches what is written.
async fn commit(shared: &Shared, known: Epoch, reached: &AtomicU64) -> Result<u64, Error> {
    let write = Transaction::new().put(shared.layout.passing(), known.to_string());
    let revision = shared.metadata.commit(write).await?.unwrap_or(0);
    reached.fetch_max(revision, Ordering::Relaxed);
    shared.passing.note(revision);
    Ok(revision)
}

fn note_too_far(shared: &Shared, shard: ShardId, epoch: Epoch, known: Epoch) {
    let why = format!(
        "an instance knows epoch {known} of shard {shard}, more than {MAX_PASSED} above the revision {epoch} of the \
         metadata: they are not of one cluster, and the shard is not served with it"
    );
    let before = shared.too_far.lock().insert(shard, TooFar::new(why.clone()));
    if before.is_none_or(|before| before.why != why) {
        tracing::error!("{why}");
    }
}

/// Makes the epoch of a shard's owner, this node, known at an instance. False if that knows a later one: then the owner is
/// deposed, and the next one has an epoch that is later still.
///
/// # Errors
/// The instance or the metadata store does not answer, or the epoch is too far away.
pub(crate) async fn introduce(
    shared: &Arc<Shared>,
    at: NodeId,
    shard: ShardId,
    epoch: Epoch,
) -> Result<bool, String> {
    let known = shared.fence_at(at, shard, epoch).await;
    let known = known.map_err(|status| status.message().to_string())?;
    if known <= epoch {
        // What is known of this node's own instance is for the fence of the next term.
        if at != shared.me {
            shared.too_far.lock().remove(&shard);
        }
        return Ok(true);
    }
    match pass(shared, shard, epoch, known).await.map_err(|error| error.to_string())? {
        Passed::Yes => {
            shared.forget_shard(shard, |owned| owned == epoch);
            let _ = shared.deposed.send((shard, epoch, Some(known)));
            Ok(false)
        }
        Passed::TooFar => Err(format!("it knows epoch {known}, which is too far away")),
    }
}
