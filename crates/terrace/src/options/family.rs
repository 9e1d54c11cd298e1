//! What the verbs know of one column family's options: everything resolved and checked, at open.

use super::{CompactionStyle, Learning, ModelCosts};
use crate::compaction_filter::CompactionFilter;
use crate::merge_operator::MergeOperator;
use std::sync::Arc;
use terrace_base::{FileNumber, SeqNo};
use terrace_manifest::LEVEL_COUNT;
use terrace_sst::{Compression, DEFAULT_WRITE_BYTES, FilterPolicy, SstOptions};

/// Buffers of a piece of a compaction, in parts of the budget and in bytes: they are no part of it, so that a small
/// budget must not be dwarfed by them.
const JOB_BUFFER_SHARE: usize = 32;
const MIN_JOB_BUFFER_BYTES: usize = 1 << 20;
const MAX_JOB_BUFFER_BYTES: usize = 8 << 20;
/// This many pieces at once have as much each; more of them share what these have, down to the least that is of use.
const FULL_PIECES: usize = 2;
const LEAST_JOB_BUFFER_BYTES: usize = 256 << 10;

/// Threads that merge where `background_jobs` were asked for.
pub(crate) fn compaction_threads(background_jobs: usize) -> usize {
    background_jobs.max(2) - 1
}

/// [`FamilyOptions::job_buffer_bytes`] where up to `pieces` are merged at once.
pub(crate) fn job_buffer_bytes(memory_budget: usize, pieces: usize) -> usize {
    let one = (memory_budget / JOB_BUFFER_SHARE).clamp(MIN_JOB_BUFFER_BYTES, MAX_JOB_BUFFER_BYTES);
    (FULL_PIECES * one / pieces.max(FULL_PIECES)).max(LEAST_JOB_BUFFER_BYTES)
}

/// One family's options, resolved.
#[derive(Debug, Clone)]
pub(crate) struct FamilyOptions {
    pub compression: [Compression; LEVEL_COUNT],
    pub filter: [FilterPolicy; LEVEL_COUNT],
    /// 0: filters know whole keys only.
    pub prefix_len: usize,
    pub style: CompactionStyle,
    pub block_size: usize,
    pub metadata_block_size: usize,
    pub partitioned_metadata: bool,
    pub direct_write: bool,
    pub memtable_bytes: usize,
    pub l0_compaction_trigger: usize,
    pub l0_slowdown: usize,
    pub l0_stop: usize,
    pub level_base_bytes: u64,
    pub level_multiplier: f64,
    pub target_file_bytes: u64,
    /// What one piece of a compaction reads ahead at a time from all inputs, and what the writer of one output holds
    /// of its index, filters and models; and of its blocks, if that is less than [`DEFAULT_WRITE_BYTES`].
    pub job_buffer_bytes: usize,
    /// How many pieces may be merged at once in the whole store.
    pub most_pieces: usize,
    pub max_subcompactions: usize,
    pub compact_when_idle: bool,
    pub pending_compaction_slowdown_bytes: u64,
    pub value_separation_threshold: usize,
    pub value_compression: Compression,
    pub learning: Learning,
    pub merge_operator: Option<Arc<dyn MergeOperator>>,
    pub compaction_filter: Option<Arc<dyn CompactionFilter>>,
    /// Whether entries of the deepest level keep their sequence numbers: by them a repair tells which
    /// operands a value has in it already.
    pub keeps_seqnos: bool,
    pub model_costs: Option<ModelCosts>,
    /// Id and name of the family, which its SSTs record.
    pub family: Option<(u32, String)>,
    /// The file that what is written is as old as, which SSTs record: of a repair.
    pub as_old_as: Option<FileNumber>,
}

impl FamilyOptions {
    /// These with what `fresh` says that can change while the family is open.
    pub fn changed(&self, fresh: Self) -> Self {
        Self {
            style: self.style,
            block_size: self.block_size,
            metadata_block_size: self.metadata_block_size,
            partitioned_metadata: self.partitioned_metadata,
            direct_write: self.direct_write,
            memtable_bytes: self.memtable_bytes,
            merge_operator: self.merge_operator.clone(),
            compaction_filter: self.compaction_filter.clone(),
            keeps_seqnos: self.keeps_seqnos,
            model_costs: self.model_costs,
            family: self.family.clone(),
            ..fresh
        }
    }

    /// These with buffers of merges for `memory_budget`, which may have changed since the open.
    pub fn of_budget(self: Arc<Self>, memory_budget: usize) -> Arc<Self> {
        let job_buffer_bytes = job_buffer_bytes(memory_budget, self.most_pieces);
        match job_buffer_bytes == self.job_buffer_bytes {
            true => self,
            false => Arc::new(Self { job_buffer_bytes, ..Self::clone(&self) }),
        }
    }

    /// Files of L0 at which writes stop: more than those at which they are slowed.
    pub fn l0_stops_at(&self) -> usize {
        self.l0_stop.max(self.l0_slowdown.saturating_add(1))
    }

    /// Options of an SST written at `level`.
    pub fn sst(&self, level: usize, created_ms: u64) -> SstOptions {
        SstOptions {
            block_size: self.block_size,
            metadata_block_size: self.metadata_block_size,
            compression: self.compression[level.min(LEVEL_COUNT - 1)],
            filter: self.filter[level.min(LEVEL_COUNT - 1)],
            prefix_len: self.prefix_len,
            partitioned: self.partitioned_metadata,
            learning: self.learning == Learning::Build,
            direct_write: self.direct_write,
            write_bytes: self.job_buffer_bytes.min(DEFAULT_WRITE_BYTES),
            created_ms,
            family: self.family.clone(),
            flushed_seqno: SeqNo::ZERO,
            is_hot_checkpoint: false,
            as_old_as: self.as_old_as,
            merge_operator: self.merge_operator.as_ref().map(|operator| operator.name().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Options};
    use terrace_vfs::SimVfs;

    #[test]
    fn buffers_of_merges_follow_the_budget_of_an_open_store() {
        let mut options = Options { memory_budget: 512 << 20, ..Options::default() };
        options.advanced.vfs = Arc::new(SimVfs::new(1));
        options.advanced.reserve_bytes = 0;
        let db = Db::open("/db", options).unwrap();
        let inner = db.inner();
        let family = inner.read.family(0).unwrap();
        let buffer_bytes = || family.job_options(&inner.base.dynamic).job_buffer_bytes;
        assert_eq!(buffer_bytes(), 8 << 20);
        db.set_memory_budget(16 << 20).unwrap();
        assert_eq!(buffer_bytes(), 1 << 20);
        db.set_memory_budget(512 << 20).unwrap();
        assert_eq!(buffer_bytes(), 8 << 20);
    }

    #[test]
    fn what_writers_hold_of_their_blocks_is_shared_by_many_threads() {
        for (background_jobs, pieces) in [(2, 2), (16, 30), (64, 126)] {
            let options =
                Options { background_jobs, memory_budget: 64 << 20, ..Options::default() };
            let family = options.family(&options.default_family);
            let bytes = family.sst(1, 0).write_bytes;
            assert_eq!(compaction_threads(background_jobs) * family.max_subcompactions, pieces);
            assert!(
                bytes * pieces <= FULL_PIECES * (2 << 20) || bytes == LEAST_JOB_BUFFER_BYTES,
                "{pieces} pieces: {bytes}"
            );
            assert!(bytes <= DEFAULT_WRITE_BYTES);
        }
    }

    #[test]
    fn buffers_of_merges_do_not_grow_with_the_number_of_threads() {
        let budgets = [4 << 20, 64 << 20, 256 << 20, 64 << 30];
        for (budget, one) in budgets.into_iter().zip([1 << 20, 2 << 20, 8 << 20, 8 << 20]) {
            for jobs in 1..=64 {
                for subcompactions in [1, 2, 3, 16] {
                    let pieces = compaction_threads(jobs) * subcompactions;
                    let bytes = job_buffer_bytes(budget, pieces);
                    match pieces {
                        ..=FULL_PIECES => assert_eq!(bytes, one),
                        _ => assert!(
                            bytes * pieces <= FULL_PIECES * one || bytes == LEAST_JOB_BUFFER_BYTES
                        ),
                    }
                }
            }
        }
    }
}
