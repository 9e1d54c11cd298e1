//! When enough of a file will have expired for a compaction to pay: a bounded histogram of the
//! expiries written, weighted by entry bytes.

/// The share of the entry bytes, in percent, whose expiry makes a file due.
pub const TTL_DUE_PERCENT: u64 = 30;

/// Buckets kept; above, neighbours are merged.
const MAX_BUCKETS: usize = 512;

/// Expiries and how many entry bytes have them.
#[derive(Debug, Default)]
pub(crate) struct ExpiryHistogram {
    /// `(expiry_ms, bytes)`; sorted only after [`ExpiryHistogram::shrink`].
    buckets: Vec<(u64, u64)>,
    expiring_bytes: u64,
}

impl ExpiryHistogram {
    pub fn add(&mut self, expiry_ms: u64, entry_bytes: u64) {
        self.expiring_bytes += entry_bytes;
        if let Some(last) = self.buckets.last_mut()
            && last.0 == expiry_ms
        {
            last.1 += entry_bytes;
            return;
        }
        if self.buckets.len() == MAX_BUCKETS {
            self.shrink();
        }
        self.buckets.push((expiry_ms, entry_bytes));
    }

    /// Merges neighbours in pairs. A pair takes the later expiry, so a file is never called due
    /// before its share has expired.
    fn shrink(&mut self) {
        self.buckets.sort_unstable();
        let pairs = self.buckets.chunks(2).map(|pair| match pair {
            [(_, a), (expiry, b)] => (*expiry, a + b),
            rest => rest[0],
        });
        self.buckets = pairs.collect();
    }

    /// When [`TTL_DUE_PERCENT`] of `total_bytes` will have expired; `None` if never.
    pub fn due_ms(mut self, total_bytes: u64) -> Option<u64> {
        let share = u128::from(total_bytes) * u128::from(TTL_DUE_PERCENT);
        if self.expiring_bytes == 0 || u128::from(self.expiring_bytes) * 100 < share {
            return None;
        }
        self.buckets.sort_unstable();
        let mut expired = 0;
        for (expiry_ms, bytes) in &self.buckets {
            expired += bytes;
            if u128::from(expired) * 100 >= share {
                return Some(*expiry_ms);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn due_is_never_early_and_not_much_late(
            entries in proptest::collection::vec((0u64..1_000_000, 1u64..100), 1..3000), rest in 0u64..100_000,
        ) {
            let mut histogram = ExpiryHistogram::default();
            entries.iter().for_each(|(expiry, bytes)| histogram.add(*expiry, *bytes));
            let expiring: u64 = entries.iter().map(|e| e.1).sum();
            let total = expiring + rest;
            let expired_by = |ms: u64| entries.iter().filter(|e| e.0 <= ms).map(|e| e.1).sum::<u64>();
            match histogram.due_ms(total) {
                None => prop_assert!(expiring * 100 < total * TTL_DUE_PERCENT),
                Some(due) => {
                    prop_assert!(expired_by(due) * 100 >= total * TTL_DUE_PERCENT);
                    let share = total * TTL_DUE_PERCENT / 100;
                    prop_assert!(expired_by(due) <= share + expiring / 8 + 400);
                }
            }
        }
    }
}
