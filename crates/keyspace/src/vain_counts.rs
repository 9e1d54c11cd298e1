//! In which databases keys were counted in vain lately, since there were more than are counted one by one: for a while
//! they are not counted again.

use crate::key_layout::MAX_DATABASES;
use std::sync::atomic::{AtomicU64, Ordering};

/// It is not counted again for this many times what it took.
const TIMES: u64 = 50;

/// What it takes at least, and at most, as far as that goes.
const TOOK_US: (u64, u64) = (20_000, 1_000_000);

/// Until when that holds, by the monotonic clock; in the past where it does not.
#[derive(Debug)]
pub(crate) struct VainCounts([AtomicU64; MAX_DATABASES]);

impl Default for VainCounts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; MAX_DATABASES])
    }
}

/// What was known when a count began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BeforeCount {
    db: u8,
    until_us: u64,
    now_us: u64,
}

impl BeforeCount {
    /// Whether it would be in vain.
    pub fn is_vain(self) -> bool {
        self.now_us < self.until_us
    }
}

impl VainCounts {
    /// The keys of a database are about to be counted.
    pub fn begin(&self, db: u8, now_us: u64) -> BeforeCount {
        let until_us = self.0.get(usize::from(db)).map_or(0, |it| it.load(Ordering::Relaxed));
        BeforeCount { db, until_us, now_us }
    }

    /// That was in vain; unless the database was flushed meanwhile.
    pub fn note(&self, before: BeforeCount, now_us: u64) {
        let took_us = now_us.saturating_sub(before.now_us).clamp(TOOK_US.0, TOOK_US.1);
        if let Some(until_us) = self.0.get(usize::from(before.db)) {
            let (known, until) = (before.until_us, now_us + TIMES * took_us);
            let _other =
                until_us.compare_exchange(known, until, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Databases, as bits, are flushed.
    pub fn forget(&self, gone: u128, now_us: u64) {
        for (db, until_us) in self.0.iter().enumerate() {
            if gone >> db & 1 == 1 {
                // In the past, and another value than before: a count that is under way has begun before it.
                let past =
                    |known: u64| if known == now_us { known.saturating_sub(1) } else { now_us };
                let passed = |known| Some(past(known));
                let _always = until_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, passed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_in_vain_is_remembered_until_its_time_or_a_flush() {
        let counts = VainCounts::default();
        let before = counts.begin(3, 1_000);
        assert!(!before.is_vain());
        counts.note(before, 31_000);
        assert!(counts.begin(3, 1_530_999).is_vain() && !counts.begin(3, 1_531_000).is_vain());
        assert!(!counts.begin(4, 31_000).is_vain());
        counts.forget(1 << 4, 40_000);
        assert!(counts.begin(3, 40_000).is_vain());
        counts.forget(1 << 3, 40_000);
        assert!(!counts.begin(3, 40_000).is_vain());
        // One that was under way, at whatever time.
        let before = counts.begin(3, 40_000);
        counts.forget(1 << 3, 40_000);
        counts.note(before, 40_000);
        assert!(!counts.begin(3, 40_000).is_vain());
    }
}
