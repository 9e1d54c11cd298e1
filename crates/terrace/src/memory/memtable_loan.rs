//! How much of the memtables' memory the block cache has while they do not use it; pure.
//!
//! It comes in steps, an eighth of what is free after [`WINDOW`] lookups or block reads, and goes at once, when a
//! write needs it. Each time that it goes doubles the wait for the next step, up to [`MAX_WAIT`]: under steady
//! writes the cache does not take in what it would soon evict. The wait shrinks with each step.

/// Lookups, or reads of blocks if there are more, between two steps of a loan that nobody takes back.
const WINDOW: u64 = 2048;
/// And the most of them.
const MAX_WAIT: u64 = 64 * WINDOW;
/// A step is one part in this many of what is free.
const STEP_PART: usize = 8;
/// Less than one part in this many of the memtables' share is not lent, so that the loan comes to rest.
const REST_PART: usize = 64;
/// A write that takes back takes this part of the memtables' share more than it needs, or [`MAX_AHEAD_BYTES`], so
/// that not every write does.
const AHEAD_PART: usize = 64;
/// What a write evicts at once, besides what it needs: some hundreds of blocks.
const MAX_AHEAD_BYTES: usize = 1 << 20;

/// What is remembered between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemtableLoan {
    /// What was lent after the last look.
    lent_bytes: usize,
    /// Accesses when the last step was taken or something was taken back.
    since: u64,
    wait: u64,
}

impl Default for MemtableLoan {
    fn default() -> Self {
        Self { lent_bytes: 0, since: 0, wait: WINDOW }
    }
}

impl MemtableLoan {
    /// Bytes to be lent after `accesses` since the open, of a share of `share_bytes` of which memtables use
    /// `used_bytes`, while `lent_bytes` are.
    pub fn plan(
        &mut self,
        accesses: u64,
        lent_bytes: usize,
        used_bytes: usize,
        share_bytes: usize,
    ) -> usize {
        let free = share_bytes.saturating_sub(used_bytes);
        if lent_bytes < self.lent_bytes || lent_bytes > free {
            self.lent_bytes = lent_bytes.min(free);
            self.since = accesses;
            self.wait = (2 * self.wait).min(MAX_WAIT);
            return self.lent_bytes;
        }
        let more = (free - lent_bytes).div_ceil(STEP_PART);
        if accesses.saturating_sub(self.since) < self.wait
            || more < share_bytes / REST_PART / STEP_PART
        {
            return lent_bytes;
        }
        self.since = accesses;
        self.wait = (self.wait - self.wait / STEP_PART as u64).max(WINDOW);
        self.lent_bytes = lent_bytes + more;
        self.lent_bytes
    }
}

/// What may stay lent of `lent_bytes` when memtables are about to use `used_bytes` of their share.
pub(crate) fn left_for(used_bytes: usize, lent_bytes: usize, share_bytes: usize) -> usize {
    let free = share_bytes.saturating_sub(used_bytes);
    if lent_bytes <= free {
        return lent_bytes;
    }
    free.saturating_sub((share_bytes / AHEAD_PART).min(MAX_AHEAD_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: usize = 8 << 20;

    #[test]
    fn all_that_is_free_is_lent_in_steps() {
        let mut loan = MemtableLoan::default();
        let (mut lent, mut steps) = (0, 0);
        for look in 0..100 {
            let next = loan.plan(look * WINDOW, lent, SHARE / 2, SHARE);
            assert!(next - lent <= SHARE / 2 / STEP_PART, "{next} after {lent}");
            steps += u64::from(next > lent);
            lent = next;
        }
        assert!(lent <= SHARE / 2 && lent > SHARE / 2 - SHARE / REST_PART, "{lent}");
        assert!(steps < 60, "it rests: {steps}");
    }

    #[test]
    fn nothing_is_lent_without_accesses() {
        let mut loan = MemtableLoan::default();
        assert_eq!(loan.plan(0, 0, 0, SHARE), 0);
        assert_eq!(loan.plan(WINDOW - 1, 0, 0, SHARE), 0);
        assert_eq!(loan.plan(WINDOW, 0, 0, SHARE), SHARE / STEP_PART);
        assert_eq!(loan.plan(WINDOW, SHARE / STEP_PART, 0, SHARE), SHARE / STEP_PART);
    }

    #[test]
    fn a_look_takes_back_what_memtables_use() {
        let mut loan = MemtableLoan { lent_bytes: SHARE, ..MemtableLoan::default() };
        assert_eq!(loan.plan(1, SHARE, 1000, SHARE), SHARE - 1000);
        assert_eq!(
            loan.plan(2, SHARE - 1000, 2 * SHARE, SHARE),
            0,
            "also of a share that has shrunk"
        );
    }

    /// Writes fill and empty the memtables again and again, with few lookups between.
    #[test]
    fn what_is_soon_taken_back_comes_back_slowly() {
        let mut loan = MemtableLoan::default();
        let (mut accesses, mut lent, mut moved) = (0, 0, Vec::new());
        for _ in 0..100 {
            let mut most = 0;
            for _ in 0..4 {
                accesses += WINDOW;
                lent = loan.plan(accesses, lent, 0, SHARE);
                most = most.max(lent);
            }
            moved.push(most);
            lent = left_for(SHARE, lent, SHARE);
            assert_eq!(lent, 0);
        }
        assert!(moved[0] > SHARE / 3, "{moved:?}");
        assert!(moved[50..].iter().sum::<usize>() < SHARE, "{moved:?}");
        // And all of it when the writes have ended.
        for _ in 0..1000 {
            accesses += WINDOW;
            lent = loan.plan(accesses, lent, 0, SHARE);
        }
        assert!(lent > SHARE - SHARE / REST_PART, "{lent}");
    }

    #[test]
    fn a_write_takes_back_some_more_than_it_needs() {
        assert_eq!(left_for(1000, SHARE - 1000, SHARE), SHARE - 1000);
        assert_eq!(left_for(1001, SHARE - 1000, SHARE), SHARE - 1001 - SHARE / AHEAD_PART);
        assert_eq!(left_for(SHARE, 10, SHARE), 0);
        assert_eq!(left_for(usize::MAX, 10, SHARE), 0);
    }
}
