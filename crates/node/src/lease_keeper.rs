//! Keeps the node's lease alive, and takes another one when it is lost. One task, for ever.
//!
//! A keep-alive that is not answered says nothing: the lease may live, and what was claimed with it is
//! kept, but nothing is served once the stamp is over. Only the answer that the lease does not exist
//! ends it.

use crate::shared::Shared;
use std::sync::Arc;
use std::time::Duration;
use terrace_metadata::Error;

/// Keep-alives are sent this often within a lease's time.
const PER_LEASE: u32 = 4;

/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_millis(100);

pub(crate) async fn keep(shared: Arc<Shared>) {
    // Said once for each time that the metadata store is away.
    let mut is_away = false;
    loop {
        let lease = *shared.lease.borrow();
        let ask = async {
            match lease {
                None => shared.metadata.grant(shared.config.lease).await,
                Some(lease) => shared.metadata.keep_alive(lease).await,
            }
        };
        let answer = shared.stamp.confirm(lease, ask).await;
        let pause = match answer {
            Ok(grant) => {
                if std::mem::take(&mut is_away) {
                    tracing::info!("the lease of node {} is kept again", shared.me);
                }
                if lease.is_none() {
                    tracing::info!("node {} has a lease of {:?}", shared.me, grant.ttl);
                    shared.lease.send_replace(Some(grant.lease));
                }
                grant.ttl / PER_LEASE
            }
            Err(Error::LeaseGone) => {
                tracing::warn!("node {} has lost its lease", shared.me);
                shared.stamp.lose();
                shared.lease.send_replace(None);
                Duration::ZERO
            }
            Err(error) => {
                match is_away {
                    false => tracing::warn!(
                        "the lease of node {} is not kept, and is tried again: {error}",
                        shared.me
                    ),
                    true => tracing::debug!("the lease of node {} is not kept: {error}", shared.me),
                }
                is_away = true;
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}
