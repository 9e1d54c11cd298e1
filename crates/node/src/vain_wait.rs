//! How long a command waits for a topology that its node does not know.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_cluster::Revision;

/// How often a fresh snapshot is asked for while a revision is waited for.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// With which topology the last wait for a later one ended in vain. As long as there is none, further waits are short: a
/// command that is routed by it is routed again very often, and is to be answered some time.
pub(crate) struct VainWait(AtomicU64);

impl VainWait {
    /// Before the first one.
    pub fn none() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// As it was with this one.
    pub fn note(&self, known: Revision) {
        self.0.store(known.0, Ordering::Relaxed);
    }

    /// How long to wait for a later topology than the one that is `known`.
    pub fn limit(&self, known: Revision, lease: Duration) -> Duration {
        match self.0.load(Ordering::Relaxed) == known.0 {
            true => LOOK.min(lease),
            false => lease,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_what_did_not_come_before_does_not_wait_for_a_lease_again() {
        let (lease, wait) = (Duration::from_secs(3), VainWait::none());
        assert_eq!(wait.limit(Revision(0), lease), lease);
        wait.note(Revision(7));
        assert_eq!(wait.limit(Revision(7), lease), LOOK);
        assert_eq!(wait.limit(Revision(8), lease), lease, "the metadata are read again");
    }
}
