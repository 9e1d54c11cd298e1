//! The options of a round: other ones at every reopen, of everything that may change between two.

use crate::script::{JOINT, MERGED, SHARED, SWEPT, sweep};
use std::sync::Arc;
use std::time::Duration;
use terrace::vfs::Vfs;
use terrace::{
    AppendOperator, CfOptions, CompactionFilter, CompactionStyle, Compression, DirectIo,
    FilterAllocator, FilterContext, FilterDecision, FilterEntry, FilterError, FilterJob,
    FilterPolicy, HotTableMode, Learning, MemoryShares, Options, SyncMode,
};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// The compaction filter of the family at [`SWEPT`].
struct Sweeps {
    flushes: bool,
}

impl CompactionFilter for Sweeps {
    fn name(&self) -> &str {
        "sweeps"
    }

    fn filter(
        &self,
        _: &FilterContext,
        entry: &FilterEntry<'_>,
    ) -> Result<FilterDecision, FilterError> {
        Ok(sweep(entry.value()?))
    }

    fn applies_to(&self, job: &FilterContext) -> bool {
        self.flushes || job.job == FilterJob::Compaction
    }
}

fn one<T: Clone>(rng: &mut SplitMix64, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize].clone()
}

fn family(rng: &mut SplitMix64) -> CfOptions {
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    let filters = [
        FilterPolicy::None,
        FilterPolicy::Ribbon { columns: 16 },
        FilterPolicy::Ribbon { columns: 7 },
        "bloom:10".parse().unwrap(),
    ];
    CfOptions {
        compression: vec![one(rng, &compressions), one(rng, &compressions)],
        filter: vec![one(rng, &filters)],
        prefix_len: one(rng, &[None, None, Some(3)]),
        compaction: one(rng, &[CompactionStyle::Leveled, CompactionStyle::Tiered]),
        value_separation_threshold: one(rng, &[16, 64, 400, 1024, usize::MAX]),
        value_compression: one(rng, &compressions),
        learning: one(rng, &[Learning::Build, Learning::Analyze, Learning::Off]),
        merge_operator: None,
        compaction_filter: None,
    }
}

/// Options for the round of `seed`. The families that are named exist already.
pub fn options(seed: u64, vfs: Arc<dyn Vfs>, now_ms: u64, families: &[String]) -> Options {
    let mut rng = SplitMix64::new(seed ^ 0x0971_0215);
    let rng = &mut rng;
    let mut options = Options {
        memory_budget: one(rng, &[4, 4, 8, 32]) << 20,
        sync: one(
            rng,
            &[
                SyncMode::None,
                SyncMode::None,
                SyncMode::Batch,
                SyncMode::Interval(Duration::from_millis(2)),
                SyncMode::Buffered,
            ],
        ),
        max_open_files: one(rng, &[0, 24, 200]),
        background_jobs: one(rng, &[1, 2, 4]),
        direct_io: DirectIo { reads: rng.one_in(3), writes: rng.one_in(3) },
        default_family: family(rng),
        ..Options::default()
    };
    options.column_families = families.iter().map(|name| (name.clone(), family(rng))).collect();
    for (name, family) in &mut options.column_families {
        match SHARED.iter().position(|shared| shared == name) {
            Some(MERGED) => family.merge_operator = Some(Arc::new(AppendOperator::new(JOINT))),
            Some(SWEPT) if !rng.one_in(4) => {
                family.compaction_filter = Some(Arc::new(Sweeps { flushes: rng.one_in(2) }));
            }
            _ => {}
        }
    }
    let a = &mut options.advanced;
    a.vfs = vfs;
    a.clock = Arc::new(ManualClock::wall_at(now_ms));
    a.filter_allocator = one(
        rng,
        &[
            FilterAllocator::Budget,
            FilterAllocator::Budget,
            FilterAllocator::Cached,
            FilterAllocator::Mq,
        ],
    );
    // A small share makes recovery write files while it replays.
    match rng.below(4) {
        0 => a.memory_shares = MemoryShares { memtables: 0.5, cache: 0.4, filters: 0.0 },
        1 => a.memory_shares = MemoryShares { memtables: 0.01, cache: 0.5, filters: 0.2 },
        _ => {}
    }
    a.memtable_bytes = one(rng, &[0, 16 << 10, 64 << 10, 64 << 10]);
    a.block_size = one(rng, &[512, 4096]);
    a.metadata_block_size = one(rng, &[256, 4096]);
    a.partitioned_metadata = !rng.one_in(5);
    a.l0_compaction_trigger = one(rng, &[2, 4]);
    a.level_base_bytes = one(rng, &[16 << 10, 128 << 10, 1 << 20]);
    a.level_multiplier = one(rng, &[3.0, 10.0]);
    a.target_file_bytes = one(rng, &[8 << 10, 64 << 10, 1 << 20]);
    a.max_subcompactions = one(rng, &[1, 3]);
    a.compact_when_idle = rng.one_in(2);
    a.reserve_bytes = one(rng, &[0, 64 << 10]);
    a.segment_bytes = one(rng, &[4 << 10, 64 << 10, 1 << 20]);
    a.gc_garbage_ratio = one(rng, &[0.1, 0.3, 0.5]);
    a.level_model_files = one(rng, &[2, 32]);
    a.log_retention_bytes = one(rng, &[0, 0, 64 << 10, 1 << 20]);
    a.hot_table = one(rng, &[HotTableMode::Off, HotTableMode::Auto]);
    options
}
