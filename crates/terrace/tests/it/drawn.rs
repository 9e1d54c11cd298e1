//! Options drawn at random, for tests of what options must not change.

use crate::harness::small_options;
use std::sync::Arc;
use std::time::Duration;
use terrace::vfs::Vfs;
use terrace::{Compression, HotTableMode, Learning, MemorySplit, Options, SyncMode};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// As [`small_options`], with what matters for recovery drawn at random.
pub fn drawn_options(vfs: Arc<dyn Vfs>, clock: &ManualClock, rng: &mut SplitMix64) -> Options {
    let mut options = small_options(vfs, clock);
    options.sync = [SyncMode::None, SyncMode::Batch, SyncMode::Interval(Duration::from_millis(1))]
        [rng.below(3) as usize];
    if rng.one_in(6) {
        options.sync = SyncMode::Buffered;
    }
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    let compression = vec![all[rng.below(3) as usize]; 1];
    options.default_family.compression.clone_from(&compression);
    if rng.one_in(4) {
        options.default_family.compaction = terrace::CompactionStyle::Tiered;
    }
    options.background_jobs = 1 + rng.below(3) as usize;
    options.advanced.memtable_bytes = 16 << (10 + rng.below(2));
    options.advanced.compact_when_idle = rng.one_in(2);
    draw_separation(&mut options, rng);
    options
}

/// Draws which values stay in the log, how they are compressed, and how soon garbage is collected;
/// and when files get models.
pub fn draw_separation(options: &mut Options, rng: &mut SplitMix64) {
    let mut other = rng.clone();
    let learning = [Learning::Build, Learning::Analyze, Learning::Off];
    let families = options.column_families.iter_mut().map(|(_, family)| family);
    for family in std::iter::once(&mut options.default_family).chain(families) {
        family.value_separation_threshold = [0, 16, 64, 1024, usize::MAX][rng.below(5) as usize];
        let all = [Compression::None, Compression::None, Compression::Lz4, Compression::Zstd];
        family.value_compression = all[rng.below(4) as usize];
        family.learning = learning[other.below(3) as usize];
    }
    let modes = [HotTableMode::Off, HotTableMode::Auto];
    options.advanced.hot_table = modes[other.below(2) as usize];
    let splits = [MemorySplit::Fixed, MemorySplit::Auto];
    options.advanced.memory_split = splits[other.below(2) as usize];
    options.advanced.segment_bytes = (4 << 10) << rng.below(5);
    options.advanced.gc_garbage_ratio = [0.05, 0.3, 1.0][rng.below(3) as usize];
}
