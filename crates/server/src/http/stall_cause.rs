//! Why writers were held back within the last second, in words.
//!
//! The engine counts stalls, but the cause of each is only in its events. This looks at the state
//! that the rules of the engine (its `stall.rs`) look at, once a stall has been counted: the state of
//! a moment, at most a second late.

use terrace::{Metrics, Options, Shape};

/// Words for too many files in L0.
pub(super) const L0_FILES: &str = "too many L0 files";
/// Words for memtables that are full.
pub(super) const MEMTABLES: &str = "memtables wait for their flush";
/// Words for levels that are far over their size.
pub(super) const PENDING: &str = "pending compaction";
/// Words for garbage in the value log.
pub(super) const GARBAGE: &str = "garbage collection is behind";

/// Whether stalls were counted between two looks.
pub(super) fn has_stalled(before: &Metrics, now: &Metrics) -> bool {
    let counts = |m: &Metrics| (m.slowdowns, m.stops, m.stall_us);
    counts(before) != counts(now)
}

/// The cause of stalls between `before` and `now`, and whether writes stood still.
pub(super) fn cause(
    before: &Metrics,
    now: &Metrics,
    shape: &Shape,
    options: &Options,
) -> (&'static str, bool) {
    let has_stopped = now.stops > before.stops;
    let l0 = |family: &terrace::FamilyShape| family.levels.first().map_or(0, Vec::len);
    let most_l0 = shape.families.iter().map(l0).max().unwrap_or(0);
    let waiting = shape.families.iter().map(|family| family.immutable_memtables).max();
    let full = waiting.is_some_and(|waiting| waiting > 1);
    let cause = if most_l0 >= options.advanced.l0_slowdown {
        L0_FILES
    } else if has_stopped || full {
        // Only these two stop writers.
        MEMTABLES
    } else if now.gc_doomed_segments > 0 {
        GARBAGE
    } else {
        PENDING
    };
    (cause, has_stopped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace::{FamilyShape, FileShape};

    fn with(l0: usize, immutable_memtables: u64) -> Shape {
        let levels = vec![vec![FileShape::default(); l0]];
        let family = FamilyShape { levels, immutable_memtables, ..FamilyShape::default() };
        Shape { families: vec![FamilyShape::default(), family], ..Shape::default() }
    }

    #[test]
    fn the_rules_of_the_engine_name_the_cause() {
        let options = Options::default();
        let calm = Metrics::default();
        let slowed = Metrics { slowdowns: 3, stall_us: 50, ..calm.clone() };
        let stopped = Metrics { stops: 1, stall_us: 900, ..calm.clone() };
        let collecting = Metrics { gc_doomed_segments: 2, ..slowed.clone() };
        assert!(!has_stalled(&calm, &calm) && has_stalled(&calm, &slowed));
        let cause = |now: &Metrics, shape: Shape| cause(&calm, now, &shape, &options);
        assert_eq!(cause(&slowed, with(20, 0)), (L0_FILES, false));
        assert_eq!(cause(&stopped, with(36, 3)), (L0_FILES, true));
        assert_eq!(cause(&stopped, with(3, 2)), (MEMTABLES, true));
        assert_eq!(cause(&collecting, with(3, 0)), (GARBAGE, false));
        assert_eq!(cause(&slowed, with(3, 0)), (PENDING, false));
    }
}
