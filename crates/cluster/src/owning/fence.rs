//! The fence of a shard at an instance: calls of former owners are refused. The largest epoch that was
//! ever seen is durable, so that a restart forgets nothing.
//!
//! A call of a later owner first raises the fence: 1 make the epoch durable; 2 [`Fence::raise`]: calls of
//! former owners are refused from now on; 3 wait until those that run have ended
//! ([`Fence::is_drained`]); then the call is executed.

use crate::id::Epoch;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Fence {
    epoch: Epoch,
    /// How many calls are being executed, by epoch.
    running: BTreeMap<Epoch, usize>,
}

/// Whether a call may be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admission {
    /// Now; it counts as running until [`Fence::leave`].
    Entered,
    /// After the fence is raised to its epoch, durably, and drained: ask again.
    RaiseFirst,
    /// Never: a later owner, of this epoch, was here.
    Deposed(Epoch),
}

impl Fence {
    /// The fence with the epoch that the store has.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, running: BTreeMap::new() }
    }

    /// The largest epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// A call comes.
    pub fn enter(&mut self, epoch: Epoch) -> Admission {
        if epoch < self.epoch {
            return Admission::Deposed(self.epoch);
        }
        if epoch > self.epoch || !self.is_drained() {
            return Admission::RaiseFirst;
        }
        *self.running.entry(epoch).or_default() += 1;
        Admission::Entered
    }

    /// A call that entered has ended.
    pub fn leave(&mut self, epoch: Epoch) {
        if let Some(running) = self.running.get_mut(&epoch) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&epoch);
            }
        }
    }

    /// The epoch is durable: refuse all smaller ones.
    pub fn raise(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// Whether no call of a former owner is running.
    pub fn is_drained(&self) -> bool {
        self.running.range(..self.epoch).next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_owner_waits_for_calls_of_former_ones_and_then_refuses_them() {
        let mut fence = Fence::new(Epoch(3));
        assert_eq!(fence.enter(Epoch(2)), Admission::Deposed(Epoch(3)));
        assert_eq!(fence.enter(Epoch(3)), Admission::Entered);
        assert_eq!(fence.enter(Epoch(3)), Admission::Entered);
        assert_eq!(fence.enter(Epoch(5)), Admission::RaiseFirst);
        fence.raise(Epoch(5));
        assert_eq!(fence.enter(Epoch(3)), Admission::Deposed(Epoch(5)));
        assert_eq!(fence.enter(Epoch(5)), Admission::RaiseFirst);
        fence.leave(Epoch(3));
        assert!(!fence.is_drained());
        fence.leave(Epoch(3));
        assert!(fence.is_drained());
        assert_eq!(fence.enter(Epoch(5)), Admission::Entered);
        fence.raise(Epoch(4));
        assert_eq!(fence.epoch(), Epoch(5));
    }
}
