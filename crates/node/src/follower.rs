//! Follows the metadata: a snapshot, then its changes; again from a snapshot whenever the watch ends, for
//! whatever reason, or somebody knows of a later revision. One task, for ever.

use crate::directory::Directory;
use crate::shared::Shared;
use crate::vain_wait::LOOK;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_cluster::Revision;

/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_millis(100);

pub(crate) async fn follow(shared: Arc<Shared>) {
    // Said once for each time that the metadata store is away.
    let mut is_away = false;
    loop {
        if let Err(error) = follow_once(&shared, &mut is_away).await {
            match is_away {
                false => tracing::warn!(
                    "the cluster's metadata cannot be read, and is tried again: {error}"
                ),
                true => tracing::debug!("node {} reads the metadata again: {error}", shared.me),
            }
            is_away = true;
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Until the watch ends, or a fresh snapshot is wanted.
async fn follow_once(shared: &Shared, is_away: &mut bool) -> Result<(), terrace_metadata::Error> {
    let prefix = shared.layout.prefix();
    let snapshot = shared.metadata.snapshot(prefix).await?;
    if std::mem::take(is_away) {
        tracing::info!("the cluster's metadata can be read again");
    }
    let mut directory = Directory::new(shared.layout.clone(), snapshot);
    publish(shared, &directory);
    let mut watch = shared.metadata.watch(prefix, directory.revision + 1).await?;
    loop {
        tokio::select! {
            changes = watch.next() => {
                directory.apply(changes?);
                publish(shared, &directory);
            }
            () = shared.refresh.notified() => return Ok(()),
        }
    }
}

fn publish(shared: &Shared, directory: &Directory) {
    match directory.topology() {
        Ok(topology) if shared.config.placement.is_some_and(|own| own != topology.placement) => {
            let (wanted, own) = (topology.placement, shared.config.placement);
            let own = own.map_or(String::new(), |own| own.to_string());
            shared.refusal.send_replace(Some(format!(
                "the cluster \"{}\" has placement {wanted}, and the store {own}; \
                 `terrace convert DIR TARGET --placement {wanted}` makes a store of it that has that",
                shared.config.cluster
            )));
            return;
        }
        Ok(topology) => {
            // Before anybody can route by it.
            shared.part_check.see(&topology);
            let (revision, topology) = (topology.revision, Arc::new(topology));
            // First the revision, then the routes that follow it, then those who wait for them.
            shared.revision.fetch_max(revision.0, Ordering::SeqCst);
            shared.change_view(|view| {
                let known = view.topology.as_ref().map_or(Revision(0), |known| known.revision);
                if known <= revision {
                    view.topology = Some(topology.clone());
                }
            });
            shared.published.send_if_modified(|known| {
                let is_later = revision > *known;
                *known = revision.max(*known);
                is_later
            });
        }
        Err(why) => tracing::debug!("no topology yet: {why}"),
    }
    shared.directory.send_replace(Some(Arc::new(directory.clone())));
}

/// Waits until the topology has a revision, for at most as long as a lease lives; for a moment only if that was in vain
/// before.
pub(crate) async fn wait_for(shared: &Shared, revision: Revision) {
    let known = *shared.published.borrow();
    if known >= revision {
        return;
    }
    let limit = shared.vain_wait.limit(known, shared.config.lease);
    let mut seen = shared.published.subscribe();
    let mut waited = Duration::ZERO;
    while *seen.borrow_and_update() < revision && waited < limit {
        if tokio::time::timeout(LOOK, seen.changed()).await.is_err() {
            // The revision may be of a change that this prefix does not show.
            waited += LOOK;
            shared.refresh.notify_one();
        }
    }
    let known = *seen.borrow();
    if known < revision {
        shared.vain_wait.note(known);
    }
}
