//! When blocks are moved together, so that the system gets back what the block cache has freed between them.
//!
//! A cache that gives memory to memtables or filters, or is made smaller, evicts blocks that lie anywhere. Without this
//! the process would keep what they had until those beside them are evicted, too, and have it a second time in
//! the other pool. Looked at by the house thread; in a read-only store by the thread that looks after models.

use std::time::Duration;
use terrace_base::sync::Instant;
use terrace_buf::{SlabStats, slab_stats};
use terrace_sst::{BlockCache, pack_cache};

/// Blocks are moved when this much more is free than after the last time, or one part in [`STEP_PART`] of all that
/// buffers take: to look at every block costs time.
const STEP_BYTES: usize = 8 << 20;
const STEP_PART: usize = 256;

/// Nobody looks for this many times as long as it took to move blocks: what comes and goes beside the cache, as the blocks of a
/// large `multi_get`, is free again and again, and often there is nothing to move.
const RESTS: u32 = 20;

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    /// What was free after blocks were moved, or at a look since then if that was less.
    left_bytes: usize,
    /// Until when nobody looks.
    rests_until: Option<Instant>,
}

impl Packing {
    /// Moves what `cache` holds, if that may give memory back. Of a large cache that takes a second and more.
    pub fn step(&mut self, cache: &BlockCache) {
        let start = Instant::now();
        if !self.rests(start) && self.is_due(slab_stats()) {
            pack_cache(cache, || {});
            self.moved(slab_stats(), start.elapsed(), Instant::now());
        }
    }

    fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|end| now < end)
    }

    fn is_due(&mut self, stats: SlabStats) -> bool {
        let free = free_bytes(stats);
        self.left_bytes = self.left_bytes.min(free);
        free - self.left_bytes >= STEP_BYTES.max(stats.reserved_bytes / STEP_PART)
    }

    /// Blocks were moved, which `took` a while and has left `stats`.
    fn moved(&mut self, stats: SlabStats, took: Duration, now: Instant) {
        self.left_bytes = free_bytes(stats);
        self.rests_until = Some(now + took * RESTS);
    }
}

fn free_bytes(stats: SlabStats) -> usize {
    // The two are not of one moment.
    stats.reserved_bytes.saturating_sub(stats.used_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn blocks_are_moved_when_more_is_free_than_what_moving_them_has_left() {
        let mut packing = Packing::default();
        let mut is_due = |used_mib: usize, free_mib: usize| {
            let used_bytes = used_mib * MIB;
            let due = packing
                .is_due(SlabStats { reserved_bytes: used_bytes + free_mib * MIB, used_bytes });
            if due {
                // Two thirds can be given back.
                packing.left_bytes = free_mib * MIB / 3;
            }
            due
        };
        assert!(!is_due(100, 7));
        assert!(is_due(100, 9));
        // 3 MiB are left.
        assert!(!is_due(100, 10));
        assert!(is_due(100, 12));
        // 4 MiB are left, of which 2 are used by now.
        assert!(!is_due(102, 2));
        assert!(is_due(102, 10));
        // A step of a large cache is larger.
        assert!(!is_due(16 << 10, 40));
        assert!(is_due(16 << 10, 80));
    }

    #[test]
    fn blocks_are_seldom_moved_however_often_others_take_and_free_memory() {
        const LOOK: Duration = Duration::from_millis(1);
        let stats = |free_mib: usize| {
            let used_bytes = 100 * MIB;
            SlabStats { reserved_bytes: used_bytes + free_mib * MIB, used_bytes }
        };
        let (mut packing, took) = (Packing::default(), 10 * LOOK);
        let (mut now, mut free_mib, mut moves) = (Instant::now(), 0, 0);
        let end = now + 2000 * LOOK;
        while now < end {
            now += LOOK;
            free_mib = 20 - free_mib;
            if !packing.rests(now) && packing.is_due(stats(free_mib)) {
                now += took;
                packing.moved(stats(free_mib), took, now);
                moves += 1;
            }
        }
        // Every 210 ms, and a look or two.
        assert!((8..=10).contains(&moves), "{moves}");
    }
}
