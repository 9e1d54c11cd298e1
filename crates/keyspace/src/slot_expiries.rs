//! When the first collection of each slot may expire: so that the search for what is due goes only to
//! slots that may have something. Called by `command_batch` and `active_expire`; lost with the process.
//!
//! A time is a lower bound of those of the slot's notes. It is lowered after the commit that wrote
//! a note. Who searches takes it out first, then looks at the store, then puts back what it found: a
//! note that is committed in between is in the store or is put in afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use terrace_cluster::{SLOT_COUNT, Slot};

/// Nothing will expire.
const NEVER: u64 = u64::MAX;

/// See the module. In the beginning every slot may have something that is due.
pub(crate) struct SlotExpiries(Box<[AtomicU64]>);

impl SlotExpiries {
    pub fn new() -> Self {
        Self((0..SLOT_COUNT).map(|_| AtomicU64::new(0)).collect())
    }

    /// A note of this time is in the slot.
    pub fn lower(&self, slot: Slot, expires_at_ms: u64) {
        // AcqRel here and in `take_due`: what was committed before is seen by who takes it.
        self.0[usize::from(slot.number())].fetch_min(expires_at_ms, Ordering::AcqRel);
    }

    /// Takes out the times up to `now_ms`: the slots, in order, with the times.
    pub fn take_due(&self, now_ms: u64) -> Vec<(Slot, u64)> {
        let slots = (0..SLOT_COUNT).filter_map(Slot::new);
        slots
            .zip(&self.0)
            .filter(|(_, time)| time.load(Ordering::Relaxed) <= now_ms)
            .map(|(slot, time)| (slot, time.swap(NEVER, Ordering::AcqRel)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_gone_until_it_is_put_back() {
        let (times, slot) = (SlotExpiries::new(), |n| Slot::new(n).unwrap());
        assert_eq!(times.take_due(0).len(), usize::from(SLOT_COUNT));
        assert_eq!(times.take_due(u64::MAX - 1), []);
        times.lower(slot(7), 30);
        times.lower(slot(9), 20);
        times.lower(slot(7), 40);
        assert_eq!(times.take_due(19), []);
        assert_eq!(times.take_due(20), [(slot(9), 20)]);
        assert_eq!(times.take_due(50), [(slot(7), 30)]);
        assert_eq!(times.take_due(50), []);
    }
}
