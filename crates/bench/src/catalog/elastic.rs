//! The variants of `elastic`: which filters are built and who holds how much of them in memory, and
//! the settings under which engines are loaded and read.

use crate::filter::FilterSpec;
use crate::store::{EngineConfig, FilterMemory};
use crate::store_size::StoreSize;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Bits per key of filters in memory, on average.
pub const AVERAGE_BITS: f64 = 4.0;
/// Memory of the uniform variants, relative to the budget of the others.
pub const UNIFORM_SLACK: f64 = 1.25;
/// What the uniform variants may take besides for each piece of the load: small files have small
/// partitions, of which each has a header.
const UNIFORM_FILE_BYTES: usize = 1024;
/// Pieces in which the store is loaded, unless they get too large: a multiple of `L0_TRIGGER` and
/// two.
pub const FLUSHES: u64 = 130;
/// Files of level 0 that start a merge.
pub const L0_TRIGGER: u64 = 4;
const MAX_PIECE_BYTES: u64 = 64 << 20;
/// A memtable takes a key with this many bytes beside it, at most, so that it is never full before
/// its piece is complete.
const MEMTABLE_BYTES_PER_KEY: u64 = 192;
const MIN_MEMTABLE_BYTES: u64 = 256 << 10;
const MIN_FILE_BYTES: u64 = 4096;
/// Data bytes per byte of cache for indexes; an index takes about 1/150 of the data.
const DATA_PER_INDEX_CACHE: u64 = 32;
const MIN_INDEX_CACHE_BYTES: usize = 8 << 20;

/// What is built and who holds it in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// The engine's default; for peers, Bloom filters of [`AVERAGE_BITS`] in memory.
    Default,
    /// Bloom units where they save most reads.
    BudgetBloom,
    /// Bloom units by ElasticBF's queues.
    MqBloom,
    /// A Bloom filter for every partition.
    UniformBloom,
    /// A ribbon for every partition.
    UniformRibbon,
}

impl Variant {
    /// All, the default first.
    pub const ALL: [Self; 5] =
        [Self::Default, Self::BudgetBloom, Self::MqBloom, Self::UniformBloom, Self::UniformRibbon];

    /// The `variant` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::BudgetBloom => "budget-bloom:4x6",
            Self::MqBloom => "mq-bloom:4x6",
            Self::UniformBloom => "uniform-bloom:4",
            Self::UniformRibbon => "uniform-ribbon:4",
        }
    }

    /// The filters to build, unless they are the engine's default.
    fn filter(self) -> Result<Option<FilterSpec>> {
        let text = match self {
            Self::Default => return Ok(None),
            Self::BudgetBloom | Self::MqBloom => "bloom:4x6",
            Self::UniformBloom => "bloom:4",
            Self::UniformRibbon => "ribbon:4",
        };
        text.parse().map(Some)
    }

    /// Whether every partition has the same filter, all of it in memory.
    pub fn is_uniform(self) -> bool {
        matches!(self, Self::UniformBloom | Self::UniformRibbon)
    }

    /// Bytes of filters in memory, at most, of a store of `shape` that is to have `average_bits` per
    /// key of them. The uniform variants have what their filters need.
    pub fn budget_bytes(self, shape: StoreSize, average_bits: f64) -> usize {
        let bytes = |bits: f64| (shape.keys as f64 * bits / 8.0) as usize;
        match self.is_uniform() {
            true => {
                bytes(AVERAGE_BITS * UNIFORM_SLACK) + pieces(shape) as usize * UNIFORM_FILE_BYTES
            }
            false => bytes(average_bits),
        }
    }

    fn filter_memory(self, shape: StoreSize, average_bits: f64) -> FilterMemory {
        let bytes = self.budget_bytes(shape, average_bits);
        match self {
            Self::MqBloom => FilterMemory::Queues(bytes),
            _ => FilterMemory::Budget(bytes),
        }
    }
}

impl FromStr for Variant {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let name = if text == "default" { "" } else { text };
        let known = Self::ALL.into_iter().find(|variant| variant.name() == name);
        let names: Vec<&str> = Self::ALL.iter().skip(1).map(|variant| variant.name()).collect();
        known.ok_or_else(|| {
            let names = names.join(", ");
            anyhow::anyhow!("--set variants: `{text}` is none of default, {names}")
        })
    }
}

/// Pieces in which a store of `shape` is loaded: two more than a multiple of `L0_TRIGGER`.
pub fn pieces(shape: StoreSize) -> u64 {
    let needed = shape.raw_bytes().div_ceil(MAX_PIECE_BYTES);
    FLUSHES + needed.saturating_sub(FLUSHES).next_multiple_of(L0_TRIGGER)
}

/// Sets what `elastic` needs for a store of `shape`. Names of settings are the engine's own.
pub fn configure(
    config: &mut EngineConfig,
    is_terrace: bool,
    variant: Variant,
    shape: StoreSize,
    average_bits: f64,
) -> Result<()> {
    let piece_keys = shape.keys.div_ceil(pieces(shape));
    let piece_bytes = piece_keys * (shape.key_size + shape.value_size) as u64;
    let memtable = piece_bytes + piece_keys * MEMTABLE_BYTES_PER_KEY + MIN_MEMTABLE_BYTES;
    config.memtable_bytes = memtable as usize;
    config.write_bytes = config.memtable_bytes * 4;
    config.cache_bytes =
        ((shape.raw_bytes() / DATA_PER_INDEX_CACHE) as usize).max(MIN_INDEX_CACHE_BYTES);
    config.direct_io = true;
    config.fill_cache = false;
    config.statistics = true;
    config.filter_memory = variant.filter_memory(shape, average_bits);
    config.filter = match is_terrace {
        true => variant.filter()?,
        false => Some("blocked:4".parse()?),
    };
    let mut set = |name: &str, value: u64| config.extra.push((name.to_owned(), value.to_string()));
    let file = piece_bytes.max(MIN_FILE_BYTES);
    if is_terrace {
        set("level_base_bytes", 4 * file);
        set("target_file_bytes", file);
        set("l0_compaction_trigger", L0_TRIGGER);
        // Level 0 is merged at the trigger even if its files came fast.
        set("l0_slowdown", L0_TRIGGER);
        config.extra.push(("compact_when_idle".to_owned(), "false".to_owned()));
        // Values lie where keys do, as in ElasticBF's setting: a stored key needs one read.
        config.extra.push(("value_separation_threshold".to_owned(), "off".to_owned()));
    } else {
        set("max_bytes_for_level_base", 4 * file);
        set("target_file_size_base", file);
        set("level0_file_num_compaction_trigger", L0_TRIGGER);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_found_by_name() {
        for variant in Variant::ALL {
            let name = if variant == Variant::Default { "default" } else { variant.name() };
            assert_eq!(name.parse::<Variant>().unwrap(), variant);
            assert!(variant.filter().is_ok());
        }
        let text = "lru".parse::<Variant>().unwrap_err().to_string();
        assert!(text.contains("mq-bloom:4x6"), "{text}");
    }

    #[test]
    fn two_pieces_are_left_in_level_0_whatever_the_size() {
        for keys in [3_000, 100_000, 8_000_000, 80_000_000, 1_234_567_890] {
            let shape = StoreSize { keys, key_size: 16, value_size: 1024 };
            let pieces = pieces(shape);
            assert!(shape.raw_bytes() / pieces <= MAX_PIECE_BYTES, "{keys}");
            assert_eq!(pieces % L0_TRIGGER, 2, "{keys}");
        }
    }

    #[test]
    fn the_budget_is_four_bits_a_key_unless_the_user_says_otherwise() {
        let shape = |keys| StoreSize { keys, key_size: 16, value_size: 1024 };
        let large = shape(8_000_000);
        assert_eq!(Variant::Default.budget_bytes(large, AVERAGE_BITS), 4_000_000);
        assert_eq!(Variant::BudgetBloom.budget_bytes(large, 0.0), 0);
        for bits in [0.0, 4.0] {
            assert_eq!(Variant::UniformBloom.budget_bytes(large, bits), 5_000_000 + 130 * 1024);
        }
        assert_eq!(Variant::MqBloom.filter_memory(shape(800), 8.0), FilterMemory::Queues(800));
    }
}
