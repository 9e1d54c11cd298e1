//! Where a client stands between two commands: the state machine of a connection.
//!
//! ```text
//!            a request                   its commit may wait
//!   Ready ──────────────► InBatch ───────────────────────────► AwaitCommit
//!     ▲                      │                                      │
//!     │                      │ committed, replies are sent          │ committed
//!     ├──────────────────────┴──────────────────────────────────────┤
//!     │                                                             │ the same, and its next
//!     │   executed, the state is given back                         ▼ command may block
//!     └─────────────────────────────────────────────────── Blocked(reason)
//! ```
//! Reasons are `Command` (for the device or a key) and, in a cluster, `Cluster`: replies of other nodes have yet to come.
//!
//! A client in a batch whose next command may block is not served further (`then`); it becomes blocked when the batch
//! is committed, since what it wrote must be visible to that command. While it is blocked by a command its `ClientState` is
//! with the executor, and replies are sent by the thread there or by the loop when the state is back.
//! That a connection ends, and that replies wait for the socket, is beside this: both can be in every phase.

use terrace_keyspace::Wait;

/// Why the loop does not serve a client. Commands that wait for an element (BLPOP) and subscriptions will
/// be further reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// Its next command may wait for the device, or for the lock of a key: it is offloaded.
    Command(Wait),
    /// Commands of it are executed by other nodes of the cluster, or its next command waits until the
    /// cluster lets it go on, or for the commit of its batch. Its state stays with the loop.
    Cluster,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// Nothing of it is uncommitted.
    #[default]
    Ready,
    /// Commands of it were executed in the loop's open batch.
    InBatch {
        /// It wrote in the batch, or read an uncommitted write: its replies wait for the commit.
        is_bound: bool,
        /// Its next command may block.
        then: Option<Blocked>,
    },
    /// Its batch is with the executor.
    AwaitCommit {
        /// Its next command may block.
        then: Option<Blocked>,
    },
    /// Its state is with the executor, or about to go there.
    Blocked(Blocked),
}

impl Phase {
    /// Whether the loop may execute commands of it.
    pub fn can_serve(self) -> bool {
        matches!(self, Self::Ready | Self::InBatch { then: None, .. })
    }

    /// Whether its replies belong to a batch that is not committed.
    pub fn is_in_batch(self) -> bool {
        matches!(self, Self::InBatch { .. } | Self::AwaitCommit { .. })
    }

    /// Whether it has a write, or a read of one, in the open batch.
    pub fn is_bound(self) -> bool {
        matches!(self, Self::InBatch { is_bound: true, .. })
    }

    /// Whether it gets the error if its batch fails: it wrote in it, or read an uncommitted write.
    pub fn shares_failure(self) -> bool {
        matches!(self, Self::InBatch { is_bound: true, .. } | Self::AwaitCommit { .. })
    }

    /// Enters the open batch; whether it was not in it yet.
    pub fn enter_batch(&mut self) -> bool {
        let is_new = *self == Self::Ready;
        if is_new {
            *self = Self::InBatch { is_bound: false, then: None };
        }
        is_new
    }

    /// A command of it wrote in the open batch, or read an uncommitted write.
    pub fn bind(&mut self) {
        if let Self::InBatch { is_bound, .. } = self {
            *is_bound = true;
        }
    }

    /// Its next command may block; or it is to be served no further, in no batch either.
    pub fn block(&mut self, why: Blocked) {
        match self {
            Self::InBatch { then, .. } => *then = Some(why),
            Self::Ready if why == Blocked::Cluster => *self = Self::Blocked(why),
            _ => {}
        }
    }

    /// Its batch goes to the executor.
    pub fn await_commit(&mut self) {
        if let Self::InBatch { then, .. } = *self {
            *self = Self::AwaitCommit { then };
        }
    }

    /// Its batch is committed, or given up.
    pub fn leave_batch(&mut self) {
        if let Self::InBatch { then, .. } | Self::AwaitCommit { then } = *self {
            *self = then.map_or(Self::Ready, Self::Blocked);
        }
    }

    /// Its state is back from the executor.
    pub fn unblock(&mut self) {
        if matches!(self, Self::Blocked(_)) {
            *self = Self::Ready;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Blocked = Blocked::Command(Wait::Device);

    #[test]
    fn a_client_goes_round_by_every_way() {
        for (commits_elsewhere, blocks) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let mut phase = Phase::default();
            assert!(phase.can_serve() && phase.enter_batch() && !phase.enter_batch());
            assert!(phase.can_serve() && !phase.is_bound());
            phase.bind();
            assert!(phase.is_bound() && phase.is_in_batch() && phase.shares_failure());
            if blocks {
                phase.block(DEVICE);
                assert!(!phase.can_serve(), "it waits for the commit");
            }
            if commits_elsewhere {
                phase.await_commit();
                assert!(phase.is_in_batch() && !phase.can_serve() && !phase.is_bound());
                assert!(phase.shares_failure());
            }
            phase.leave_batch();
            assert!(!phase.is_in_batch());
            assert_eq!(phase, if blocks { Phase::Blocked(DEVICE) } else { Phase::Ready });
            assert_eq!(phase.can_serve(), !blocks);
            phase.unblock();
            assert_eq!(phase, Phase::Ready);
        }
    }

    #[test]
    fn the_cluster_blocks_a_client_in_a_batch_or_out_of_it() {
        let mut phase = Phase::Ready;
        phase.block(Blocked::Cluster);
        assert!(!phase.can_serve() && !phase.is_in_batch());
        phase.unblock();
        assert!(phase.enter_batch());
        phase.block(Blocked::Cluster);
        assert!(!phase.can_serve() && phase.is_in_batch());
        phase.unblock();
        assert!(!phase.can_serve(), "its batch is not committed");
        phase.leave_batch();
        assert_eq!(phase, Phase::Blocked(Blocked::Cluster));
    }

    #[test]
    fn what_does_not_fit_the_phase_changes_nothing() {
        for before in [Phase::Ready, Phase::Blocked(DEVICE)] {
            let mut phase = before;
            phase.bind();
            phase.block(DEVICE);
            phase.await_commit();
            phase.leave_batch();
            assert_eq!(phase, before);
        }
        let mut away = Phase::Blocked(DEVICE);
        assert!(!away.enter_batch());
        let mut waiting = Phase::AwaitCommit { then: None };
        assert!(!waiting.enter_batch());
        waiting.unblock();
        assert_eq!(waiting, Phase::AwaitCommit { then: None });
    }
}
