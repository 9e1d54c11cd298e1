//! The settings of an engine on a store: what all have alike, and what the store is about.

use super::Request;
use super::settings::set_engine;
use crate::args::BenchArgs;
use crate::catalog::tiny_cache::{self, TinyCache};
use crate::catalog::{StoreKind, budget_curve, elastic, large_values, learned, mixed_phases, skew};
use crate::engine::Engine;
use crate::store::{Compression, Durability, EngineConfig, FilterMemory, MetadataPlace};
use crate::store_size::StoreSize;
use anyhow::Result;
use terrace_workload::usage;

const DEFAULT_FILTER: &str = "blocked:10";
/// Memtables get a quarter of the memory, up to this much.
const MAX_WRITE_BYTES: usize = 256 << 20;
/// A memtable gets a quarter of that, up to this much.
const MAX_MEMTABLE_BYTES: usize = 64 << 20;
/// The least default memory, and the step it grows in.
const MEMORY_STEP_BYTES: u64 = 256 << 20;

impl Request {
    /// The settings of `engine` on this store.
    pub(super) fn config(
        &self,
        args: &BenchArgs,
        engine: Engine,
        store: StoreKind,
        shape: StoreSize,
    ) -> Result<EngineConfig> {
        let memory = self.memory_bytes.unwrap_or_else(|| default_memory(shape.raw_bytes()));
        let write_bytes = (memory / 4).min(MAX_WRITE_BYTES);
        let mut config = EngineConfig {
            cache_bytes: memory - write_bytes,
            write_bytes,
            memtable_bytes: (write_bytes / 4).min(MAX_MEMTABLE_BYTES),
            filter: Some(self.filter.map_or_else(|| DEFAULT_FILTER.parse(), Ok)?),
            filter_memory: FilterMemory::AsMetadata,
            fill_cache: true,
            statistics: false,
            compression: Compression::None,
            sync: Durability::None,
            direct_io: args.direct_io,
            background_jobs: 2,
            subcompactions: 1,
            block_size: 4096,
            metadata: MetadataPlace::Fastest,
            extra: Vec::new(),
        };
        match store {
            StoreKind::TinyCache(tiny) => self.configure_tiny_cache(&mut config, engine, tiny),
            StoreKind::BudgetCurve => budget_curve::configure(&mut config, engine, self.filter),
            StoreKind::Elastic(variant) => {
                let bits = self.settings.average_bits;
                elastic::configure(&mut config, engine == Engine::Terrace, variant, shape, bits)?;
            }
            // The sizes that the workload has of its own, unless one was asked for.
            StoreKind::Filters => config.filter = self.filter,
            StoreKind::LargeValues(variant) => {
                large_values::configure(&mut config, engine, variant, shape);
                config.cache_bytes = self.memory_bytes.unwrap_or(config.cache_bytes);
            }
            // Its variants open one store with more settings.
            StoreKind::Learned(set) => learned::configure(&mut config, engine, set, shape),
            StoreKind::Skew(variant) => {
                skew::configure(&mut config, engine, variant, shape);
                config.cache_bytes = self.memory_bytes.unwrap_or(config.cache_bytes);
            }
            StoreKind::MixedPhases(variant) => {
                let memory = self.memory_bytes.unwrap_or(mixed_phases::MEMORY_BYTES);
                mixed_phases::configure(&mut config, variant, memory);
            }
            StoreKind::Basic | StoreKind::Ycsb | StoreKind::Packages => {}
            StoreKind::BulkLoad | StoreKind::Ingest | StoreKind::Backup | StoreKind::Paired => {}
        }
        for (name, value) in &self.sets {
            set_engine(&mut config, engine, name, value)?;
        }
        Ok(config)
    }

    /// The settings of the two stores of `paired`: `config`, and what each side alone has.
    pub(super) fn sides(&self, config: &EngineConfig, engine: Engine) -> Result<Vec<EngineConfig>> {
        let of_side = |sets: &Vec<(String, String)>| {
            let mut config = config.clone();
            for (name, value) in sets {
                set_engine(&mut config, engine, name, value)?;
            }
            Ok(config)
        };
        self.side_sets.iter().map(of_side).collect()
    }

    fn configure_tiny_cache(&self, config: &mut EngineConfig, engine: Engine, tiny: TinyCache) {
        use tiny_cache::{CACHE_BYTES, MEMTABLE_BYTES, WRITE_BYTES};
        let memory_bytes = self.memory_bytes.unwrap_or(CACHE_BYTES);
        if tiny == TinyCache::Default {
            budget_curve::configure(config, engine, self.filter);
            *config = budget_curve::with_memory(config, memory_bytes);
            return;
        }
        config.cache_bytes = memory_bytes;
        (config.write_bytes, config.memtable_bytes) = (WRITE_BYTES, MEMTABLE_BYTES);
        config.direct_io = true;
        config.metadata = MetadataPlace::InCache { partitioned: tiny != TinyCache::Whole };
    }
}

/// Twice the data, so that all of it is cached, but at most half of the machine's memory.
fn default_memory(raw_bytes: u64) -> usize {
    let wanted = raw_bytes.saturating_mul(2).max(1).next_multiple_of(MEMORY_STEP_BYTES);
    let half = (usage::memory_bytes() / 2).max(MEMORY_STEP_BYTES);
    usize::try_from(wanted.min(half)).unwrap_or(usize::MAX)
}
