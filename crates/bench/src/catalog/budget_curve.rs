//! What `budget-curve` gives an engine: shares of the data, and how they become settings.

use crate::engine::Engine;
use crate::filter::FilterSpec;
use crate::store::{EngineConfig, FilterMemory, MetadataPlace};

/// Memory in percent of the bytes of keys and values.
pub const PERCENTS: [f64; 9] = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0];
/// The least memory that an engine is opened with; smaller shares are not measured.
pub const MIN_MEMORY_BYTES: usize = 4 << 20;
/// Memtables get this part of it, as Terrace's do by default.
const WRITE_PART: usize = 4;
/// One memtable gets this part of theirs.
const MEMTABLE_PART: usize = 4;

/// The memories to measure for `raw_bytes` of keys and values, in ascending order, each once.
pub fn memories(raw_bytes: u64) -> Vec<usize> {
    let of = |percent: f64| (raw_bytes as f64 * percent / 100.0) as usize;
    let mut memories: Vec<usize> =
        PERCENTS.iter().map(|percent| of(*percent).max(MIN_MEMORY_BYTES)).collect();
    memories.dedup();
    memories
}

/// What does not depend on the memory: direct I/O, index and filters in partitions in the cache; Terrace is as it is by
/// default, but for a `filter` that was asked for, and chooses the size of memtables.
pub fn configure(config: &mut EngineConfig, engine: Engine, filter: Option<FilterSpec>) {
    config.direct_io = true;
    config.metadata = MetadataPlace::InCache { partitioned: true };
    if engine == Engine::Terrace {
        config.filter = filter;
        config.filter_memory = FilterMemory::Default;
        config.extra.push(("memtable_bytes".to_owned(), "0".to_owned()));
    }
}

/// `config` with `memory_bytes` for everything.
pub fn with_memory(config: &EngineConfig, memory_bytes: usize) -> EngineConfig {
    let write_bytes = memory_bytes / WRITE_PART;
    EngineConfig {
        cache_bytes: memory_bytes - write_bytes,
        write_bytes,
        memtable_bytes: write_bytes / MEMTABLE_PART,
        ..config.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{MIN_MEMORY_BYTES, memories};

    #[test]
    fn memories_ascend_and_begin_with_the_least() {
        let all = memories(5_400_000_000);
        assert_eq!(all.len(), 9);
        assert_eq!((all[0], all[8]), (MIN_MEMORY_BYTES, 1_080_000_000));
        assert!(all.is_sorted());
        // Several shares of little data are less than the least memory.
        assert_eq!(memories(100 << 20).len(), 4);
    }
}
