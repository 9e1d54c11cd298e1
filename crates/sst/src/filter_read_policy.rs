//! How often lookups find their key in a file: what a filter that is not in memory is worth.
//!
//! Reading a filter partition pays when it spares reading an index partition and a data block,
//! that is when the key is absent. Where nearly all keys that are looked for are present it only
//! costs a read and the memory of what it drives out. The share is estimated from the lookups
//! that met a filter partition that was not resident; cached lookups neither read nor write it.

use std::sync::atomic::{AtomicU32, Ordering};

/// The share 1 as it is stored.
const ONE: u32 = 1 << 16;
/// A new outcome weighs one part in this many.
const MEMORY: u32 = 16;

/// What to read when the filter partition of a key is not resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The filter, and what follows only if it says so.
    FilterFirst,
    /// The filter and the index partition at once.
    Together,
    /// No filter: the key is most likely there.
    SkipFilter,
}

/// The moving share of lookups that found their key.
#[derive(Debug)]
pub(crate) struct FilterReadPolicy(AtomicU32);

impl Default for FilterReadPolicy {
    fn default() -> Self {
        Self(AtomicU32::new(ONE / 2 + ONE / 8))
    }
}

impl FilterReadPolicy {
    /// Notes an outcome. Racing updates may lose one of the two; it is an estimate.
    pub fn note(&self, found: bool) {
        let share = self.0.load(Ordering::Relaxed);
        let target = if found { ONE } else { 0 };
        let moved = share - share / MEMORY + target / MEMORY;
        // Where all lookups agree, threads do not take the line from each other.
        if moved != share {
            self.0.store(moved, Ordering::Relaxed);
        }
    }

    /// What pays, by the reads it costs on average.
    pub fn plan(&self) -> Plan {
        self.plan_after(0)
    }

    /// As [`Self::plan`], for a lookup of a batch of which `skipped` others have done without the same filter, with
    /// outcomes that are not known yet. One read of it serves them all, so it pays once one of them is to be expected
    /// in vain. Their share is taken for at least one in [`MEMORY`], since the estimate forgets older outcomes.
    pub fn plan_after(&self, skipped: u32) -> Plan {
        let share = self.0.load(Ordering::Relaxed);
        let vain = ONE.saturating_sub(share).max(ONE / MEMORY);
        if share > ONE / 10 * 9 && skipped < ONE / vain {
            Plan::SkipFilter
        } else if share > ONE / 2 {
            Plan::Together
        } else {
            Plan::FilterFirst
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_follows_what_lookups_find() {
        let filter_read_policy = FilterReadPolicy::default();
        assert_eq!(filter_read_policy.plan(), Plan::Together);
        (0..100).for_each(|_| filter_read_policy.note(true));
        assert_eq!(filter_read_policy.plan(), Plan::SkipFilter);
        (0..4).for_each(|_| filter_read_policy.note(false));
        assert_eq!(filter_read_policy.plan(), Plan::Together);
        (0..100).for_each(|_| filter_read_policy.note(false));
        assert_eq!(filter_read_policy.plan(), Plan::FilterFirst);
        (0..100).for_each(|n| filter_read_policy.note(n % 2 == 0));
        assert_ne!(filter_read_policy.plan(), Plan::SkipFilter);
    }

    #[test]
    fn a_batch_skips_a_filter_until_one_of_its_lookups_is_likely_in_vain() {
        let filter_read_policy = FilterReadPolicy::default();
        assert_eq!(filter_read_policy.plan_after(0), Plan::Together);
        (0..1000).for_each(|_| filter_read_policy.note(true));
        let skips = || {
            let skips = |skipped: &u32| filter_read_policy.plan_after(*skipped) == Plan::SkipFilter;
            (0..1000).take_while(skips).count()
        };
        assert_eq!(skips(), MEMORY as usize);
        assert_eq!(filter_read_policy.plan_after(1000), Plan::Together);
        (0..3).for_each(|_| filter_read_policy.note(false));
        while filter_read_policy.plan() != Plan::SkipFilter {
            filter_read_policy.note(true);
        }
        assert!((9..=11).contains(&skips()), "{} where nearly one in ten is absent", skips());
    }
}
