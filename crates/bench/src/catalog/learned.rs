//! The variants of `learned`: what guides lookups in a file.

use super::key_set::KeySet;
use crate::engine::Engine;
use crate::store::EngineConfig;
use crate::store_size::StoreSize;
use serde::{Deserialize, Serialize};

/// Keys and value bytes.
pub const DEFAULT_SIZE: (u64, usize) = (5_000_000, 64);
/// Turns of each variant.
pub const ROUNDS: u64 = 3;
/// Seconds of lookups in which models of whole levels should appear.
pub const LEVEL_WAIT_S: f64 = 20.0;
/// Files of the whole store: what 5 million keys make of the engines' default of 64 MiB. Smaller
/// stores have smaller files, so that there is a file to be searched for at every size.
const FILES: u64 = 6;
const MIN_FILE_BYTES: u64 = 1 << 20;
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The first level, in files; the engines' default.
const LEVEL_FILES: u64 = 4;
/// About as many names there are.
const NAMES: u64 = 230_000;

/// Sets the sizes of files for a store of `shape` with keys of kind `set`. Names of settings are the
/// engine's own.
pub fn configure(config: &mut EngineConfig, engine: Engine, set: KeySet, shape: StoreSize) {
    let most = if set == KeySet::Packages { NAMES } else { u64::MAX };
    let shape = StoreSize { keys: shape.keys.min(most), ..shape };
    let file = (shape.raw_bytes() / FILES).clamp(MIN_FILE_BYTES, MAX_FILE_BYTES);
    config.memtable_bytes = config.memtable_bytes.min(file as usize);
    let (file_name, level_name) = match engine {
        Engine::Terrace => ("target_file_bytes", "level_base_bytes"),
        Engine::Rocksdb | Engine::Speedb => ("target_file_size_base", "max_bytes_for_level_base"),
        Engine::Leveldb | Engine::Fjall | Engine::Lmdb | Engine::Redb => return,
    };
    for (name, bytes) in [(file_name, file), (level_name, LEVEL_FILES * file)] {
        config.extra.push((name.to_owned(), bytes.to_string()));
    }
}

/// What guides lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// Terrace's default: models of files, trained while these are written.
    Build,
    /// Terrace's indexes.
    Off,
    /// Models of whole levels.
    Level,
    /// Binary search in a peer's index.
    Binary,
    /// Interpolation search in a peer's index.
    Interpolation,
}

impl Variant {
    /// Those of `engine`, `interpolation` telling whether its library knows that.
    pub fn of(engine: Engine, interpolation: bool) -> Vec<Self> {
        match engine {
            Engine::Terrace => vec![Self::Build, Self::Off, Self::Level],
            _ if interpolation => vec![Self::Binary, Self::Interpolation],
            _ => vec![Self::Binary],
        }
    }

    /// The `variant` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Build | Self::Binary => "",
            Self::Off => "off",
            Self::Level => "level",
            Self::Interpolation => "interpolation",
        }
    }

    /// Whether others are compared with it.
    pub fn is_baseline(self) -> bool {
        matches!(self, Self::Off | Self::Binary)
    }

    /// For which of `variants` a store is filled; the first of these is the one that all then read.
    pub fn stores(variants: &[Self]) -> Vec<Self> {
        let has = |variant| variants.contains(&variant);
        let mut stores = Vec::new();
        if has(Self::Build) || has(Self::Level) {
            stores.push(Self::Build);
        }
        if has(Self::Off) {
            stores.push(Self::Off);
        }
        if has(Self::Binary) || has(Self::Interpolation) {
            stores.push(Self::Binary);
        }
        stores
    }

    /// The directory of its store.
    pub fn store_name(self) -> &'static str {
        match self {
            Self::Build | Self::Level => "build",
            Self::Off => "off",
            Self::Binary | Self::Interpolation => "peer",
        }
    }

    /// Sets what makes it; what the user set wins.
    pub fn configure(self, config: &mut EngineConfig) {
        let (name, value) = match self {
            Self::Build | Self::Level => ("learning", "build"),
            Self::Off => ("learning", "off"),
            Self::Interpolation => ("table.index_block_search_type", "kInterpolation"),
            Self::Binary => return,
        };
        config.extra.insert(0, (name.to_owned(), value.to_owned()));
        if self == Self::Level {
            // These stores have fewer files than levels must have by default.
            config.extra.insert(0, ("level_model_files".to_owned(), "2".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_filled_once_for_all_that_can_share_them() {
        let terrace = Variant::of(Engine::Terrace, false);
        assert_eq!(Variant::stores(&terrace), [Variant::Build, Variant::Off]);
        assert_eq!(Variant::stores(&[Variant::Level]), [Variant::Build]);
        assert_eq!(Variant::stores(&[Variant::Off]), [Variant::Off]);
        let peer = Variant::of(Engine::Rocksdb, true);
        assert_eq!(peer, [Variant::Binary, Variant::Interpolation]);
        assert_eq!(Variant::stores(&peer), [Variant::Binary]);
        assert_eq!(Variant::of(Engine::Fjall, false), [Variant::Binary]);
    }
}
