//! What the server counts beside the engine, and how it sums up what the engine counts.

use std::sync::atomic::{AtomicU64, Ordering};
use terrace_keyspace::Lookups;

/// A number that only grows, until it is reset.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of the server. `CONFIG RESETSTAT` sets all but what is so now to 0.
#[derive(Debug, Default)]
pub struct Stats {
    /// Bytes read from clients.
    pub received_bytes: Counter,
    /// Bytes sent to clients.
    pub sent_bytes: Counter,
    /// Requests that were none.
    pub protocol_errors: Counter,
    /// Commands that do not exist.
    pub unknown_commands: Counter,
    /// Connections that were refused.
    pub rejected_connections: Counter,
    /// Turns that could not be committed.
    pub failed_batches: Counter,
    /// Clients that were idle for too long.
    pub timed_out: Counter,
    /// Clients that had too many unread replies.
    pub output_limit_closed: Counter,
    /// Clients that sent too many requests without reading the replies.
    pub query_limit_closed: Counter,
    /// Failed logins.
    pub auth_failures: Counter,
    /// Reads that found their key.
    pub keyspace_hits: Counter,
    /// Reads that did not.
    pub keyspace_misses: Counter,
    /// Commands that had to wait for the device or for a key.
    pub offloads: Counter,
    /// Turns whose commit might have had to wait, and was left to a committer.
    pub waited_batches: Counter,
    /// Turns of clients in which nothing was executed, since their replies have to leave first.
    pub held_turns: Counter,
    /// In a cluster: commands, or parts of some, that were sent to other nodes.
    pub forwarded: Counter,
    /// In a cluster: calls of other nodes that were executed.
    pub calls: Counter,
    /// Those of them that no loop was woken for.
    pub calls_at_once: Counter,
    /// In a cluster: commands that were routed again, since they had come to the wrong node.
    pub rerouted: Counter,
    /// In a cluster: connections that ended since the node's lease did.
    pub unsure_closed: Counter,
    /// Batches of many bytes that are being committed.
    pub large_commits: AtomicU64,
    /// Clients that wait for the device or a key now.
    pub waiting: AtomicU64,
}

impl Stats {
    /// A command has looked for keys to read them.
    pub fn note_lookups(&self, lookups: Lookups) {
        if lookups.hits > 0 {
            self.keyspace_hits.add(lookups.hits);
        }
        if lookups.misses > 0 {
            self.keyspace_misses.add(lookups.misses);
        }
    }

    /// Sets the counters to 0.
    pub fn reset(&self) {
        for counter in [
            &self.received_bytes,
            &self.sent_bytes,
            &self.protocol_errors,
            &self.unknown_commands,
            &self.rejected_connections,
            &self.failed_batches,
            &self.timed_out,
            &self.output_limit_closed,
            &self.query_limit_closed,
            &self.auth_failures,
            &self.keyspace_hits,
            &self.keyspace_misses,
            &self.offloads,
            &self.waited_batches,
            &self.held_turns,
            &self.forwarded,
            &self.calls,
            &self.calls_at_once,
            &self.rerouted,
            &self.unsure_closed,
        ] {
            counter.0.store(0, Ordering::Relaxed);
        }
    }
}

/// How many of something happen in a second, by the last look at its counter.
#[derive(Debug, Default)]
pub struct Rate {
    last: AtomicU64,
    per_second: AtomicU64,
}

impl Rate {
    /// The counter a second later.
    pub fn take(&self, now: u64) {
        let last = self.last.swap(now, Ordering::Relaxed);
        self.per_second.store(now.saturating_sub(last), Ordering::Relaxed);
    }

    /// In the second before the last look.
    pub fn per_second(&self) -> u64 {
        self.per_second.load(Ordering::Relaxed)
    }
}

/// Bytes of SSTs, of value segments and of the log that recovery would need; the manifest, which is
/// small, is not counted.
pub fn disk_bytes(engine: &terrace::Metrics) -> u64 {
    let tables: u64 = engine.levels.iter().map(|level| level.size_bytes).sum();
    tables + engine.value_segment_bytes + engine.live_log_bytes
}
