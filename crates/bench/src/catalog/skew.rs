//! The variants of `skew` and `cluster-skew`: what becomes of hot keys, and the settings of each engine.
//!
//! Sizes are those of the published setting (a power-law partitioner for LSM instances, 2019): memtables
//! of 16 MiB and a first level of 64 MiB for 4 million keys of 8 bytes with values of 4 KB. With
//! less data they shrink by as much, so that every store has the same shape.

pub mod exponents;
pub mod layout;

use crate::engine::Engine;
use crate::store::EngineConfig;
use crate::store_size::StoreSize;
use serde::{Deserialize, Serialize};

/// Keys and value bytes.
pub const DEFAULT_SIZE: (u64, usize) = (4_000_000, 4096);
/// Bytes of a key, unless `--key-size` says otherwise.
pub const KEY_BYTES: usize = 8;
/// Tenths of the exponents of Zipf's law that `skew` goes through.
pub const TENTHS: std::ops::RangeInclusive<u32> = 5..=18;
/// The exponent of `cluster-skew`.
pub const CLUSTER_EXPONENT: f64 = 0.9;
/// Instances of `cluster-skew`.
pub const INSTANCES: usize = 3;
/// The share of the writes after which plans are carried out.
pub const PLAN_AFTER: f64 = 0.25;

/// A hot table has at most one in this many bytes of a memtable.
pub const HOT_SHARE: u64 = 4;

/// Bytes of keys and values of the published setting, and of its memtables and first level.
const FULL_BYTES: u64 = DEFAULT_SIZE.0 * (KEY_BYTES + DEFAULT_SIZE.1) as u64;
const FULL_MEMTABLE_BYTES: u64 = 16 << 20;
const LEVEL_MEMTABLES: u64 = 4;
/// A memtable is not cut smaller than this.
const MIN_MEMTABLE_BYTES: u64 = 64 << 10;
/// The mutable memtable and one that waits for its flush: what is flushed is one memtable at a time.
const MEMTABLES: usize = 2;
const CACHE_BYTES: usize = 32 << 20;
/// Sorted runs of a tiered store.
const TIERED_RUNS: u64 = 12;

/// What becomes of hot keys, and how files are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// Leveled, values in the tables, no hot table.
    Default,
    /// With a hot table.
    Hot,
    /// Tiered.
    Tiered,
    /// Tiered, with a hot table.
    TieredHot,
    /// Values stay in the log.
    Separated,
    /// Values stay in the log, with a hot table, which takes no separated values.
    SeparatedHot,
}

impl Variant {
    /// All, the default first.
    pub const ALL: [Self; 6] = [
        Self::Default,
        Self::Hot,
        Self::Tiered,
        Self::TieredHot,
        Self::Separated,
        Self::SeparatedHot,
    ];

    /// The `variant` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Hot => "hot",
            Self::Tiered => "tiered",
            Self::TieredHot => "tiered-hot",
            Self::Separated => "separated",
            Self::SeparatedHot => "separated-hot",
        }
    }

    /// Whether there is such a variant of this engine.
    pub fn suits(self, engine: Engine) -> bool {
        match self {
            Self::Default => matches!(engine, Engine::Terrace | Engine::Rocksdb | Engine::Speedb),
            _ => engine == Engine::Terrace,
        }
    }

    /// Whether hot keys stay in memory.
    pub fn is_hot(self) -> bool {
        matches!(self, Self::Hot | Self::TieredHot | Self::SeparatedHot)
    }
}

/// Bytes of a memtable for a store of `shape`.
pub fn memtable_bytes(shape: StoreSize) -> u64 {
    let scaled = u128::from(FULL_MEMTABLE_BYTES) * u128::from(shape.raw_bytes());
    ((scaled / u128::from(FULL_BYTES)) as u64).max(MIN_MEMTABLE_BYTES)
}

/// Sets what the workloads need for a store of `shape`. Names of settings are the engine's own.
pub fn configure(config: &mut EngineConfig, engine: Engine, variant: Variant, shape: StoreSize) {
    let memtable = memtable_bytes(shape);
    config.memtable_bytes = memtable as usize;
    config.write_bytes = config.memtable_bytes * MEMTABLES;
    config.cache_bytes = CACHE_BYTES;
    config.statistics = true;
    let mut set = |name: &str, value: &str| config.extra.push((name.to_owned(), value.to_owned()));
    let level = (LEVEL_MEMTABLES * memtable).to_string();
    if engine != Engine::Terrace {
        set("max_bytes_for_level_base", &level);
        set("target_file_size_base", &level);
        return;
    }
    set("level_base_bytes", &level);
    set("target_file_bytes", &level);
    // What merges when there is nothing to do writes is no cost of the writes.
    set("compact_when_idle", "false");
    set("hot_table", if variant.is_hot() { "auto" } else { "off" });
    if matches!(variant, Variant::Tiered | Variant::TieredHot) {
        set("compaction", "tiered");
        set("l0_compaction_trigger", &TIERED_RUNS.to_string());
    }
    match variant {
        Variant::Separated | Variant::SeparatedHot => set("segment_bytes", &level),
        _ => set("value_separation_threshold", "off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memtables_shrink_with_the_data() {
        let shape = |keys, value_size| StoreSize { keys, key_size: KEY_BYTES, value_size };
        assert_eq!(memtable_bytes(shape(4_000_000, 4096)), 16 << 20);
        assert_eq!(memtable_bytes(shape(1_000_000, 4096)), 4 << 20);
        let eighth = memtable_bytes(shape(4_000_000, 512));
        assert!((2_100_000..2_200_000).contains(&eighth), "{eighth}");
        assert_eq!(memtable_bytes(shape(10, 10)), 64 << 10);
    }

    #[test]
    fn peers_have_one_variant() {
        for engine in Engine::ALL {
            let count = Variant::ALL.into_iter().filter(|variant| variant.suits(engine)).count();
            let expected = match engine {
                Engine::Terrace => Variant::ALL.len(),
                Engine::Rocksdb | Engine::Speedb => 1,
                Engine::Leveldb | Engine::Fjall | Engine::Lmdb | Engine::Redb => 0,
            };
            assert_eq!(count, expected, "{engine}");
        }
    }
}
