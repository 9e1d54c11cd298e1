//! Transactions that other nodes have not answered in time.
//!
//! All that one may wait for at another node has shorter limits (`docs/cluster.md`), and a node that is gone is noticed sooner: what
//! is later than this is executed for long, or its device hangs. Its client is answered that the outcome is not known, and goes
//! on; a reply that comes after that is ignored.

use super::EventLoop;
use std::time::{Duration, Instant};

/// How long a client waits for the reply to its transaction.
const EXEC_LIMIT: Duration = Duration::from_secs(60);

/// The reply to one that is late.
const LATE: &[u8] =
    b"-CLUSTERDOWN the transaction has had no answer from another node for 60 seconds; \
    it may or may not have been executed, or may be executed yet\r\n";

impl EventLoop {
    /// Answers the transactions that were sent too long ago.
    pub(super) fn give_up_late_transactions(&mut self, now: Instant) {
        let Some(sent_by) = now.checked_sub(EXEC_LIMIT) else { return };
        let mut late = Vec::new();
        for (token, client) in &mut self.clients {
            // What waits until its client has read was not sent.
            if client.deferred.is_empty()
                && let Some(state) = &mut client.state
                && state.remote.give_up_transactions(sent_by, LATE)
            {
                late.push((token, client.id));
            }
        }
        for (token, id) in late {
            tracing::warn!(client = id, "a transaction at another node was given up after 60 s");
            if !self.ends_over_limit(token) {
                self.go_on(token, id);
            }
        }
    }
}
