//! What the verbs know of one column family's options: everything resolved and checked, at open.

use super::{CompactionStyle, Learning, ModelCosts};
use crate::compaction_filter::CompactionFilter;
use crate::merge_operator::MergeOperator;
use std::sync::Arc;
use terrace_base::SeqNo;
use terrace_manifest::LEVEL_COUNT;
use terrace_sst::{Compression, FilterPolicy, SstOptions};

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
    /// What one compaction reads ahead at a time from all inputs, and what the writer of one output holds
    /// of its index, filters and models.
    pub job_buffer_bytes: usize,
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
}

impl FamilyOptions {
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
            created_ms,
            family: self.family.clone(),
            flushed_seqno: SeqNo::ZERO,
        }
    }
}
