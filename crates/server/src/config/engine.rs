//! What the settings mean for the engine.

use super::table::Settings;
use super::value::{AppendFsync, DirectIoUse};
use crate::descriptors;
use std::time::Duration;
use terrace::{
    AdvancedOptions, CfOptions, DirectIo, Options, StoredOptions, SyncMode, WriteTracking,
};

impl Settings {
    /// Options to open the store with. All families are alike, and what CONFIG SET changed ends with the server: the
    /// configuration says what they are, not the store.
    pub fn engine_options(&self) -> Options {
        Options {
            memory_budget: usize::try_from(self.maxmemory).unwrap_or(usize::MAX),
            sync: self.sync_mode(),
            background_jobs: self.background_jobs,
            max_open_files: descriptors::of_store(terrace::vfs::open_file_limit()),
            direct_io: DirectIo {
                reads: matches!(self.direct_io, DirectIoUse::Reads | DirectIoUse::Yes),
                writes: matches!(self.direct_io, DirectIoUse::Writes | DirectIoUse::Yes),
            },
            default_family: CfOptions {
                compression: self.compression.clone(),
                filter: self.filter.clone(),
                compaction: self.compaction,
                value_separation_threshold: self.separation_threshold(),
                learning: self.learning,
                ..CfOptions::default()
            },
            stored_options: StoredOptions::Replace,
            advanced: AdvancedOptions {
                rate_limit_bytes_per_s: self.rate_limit_bytes,
                gc_garbage_ratio: self.gc_garbage_ratio,
                hot_table: self.hot_table,
                write_tracking: WriteTracking {
                    keys: if self.cluster_enabled { self.cluster_plan_keys } else { 0 },
                    ..WriteTracking::default()
                },
                memory_split: self.memory_split,
                ..AdvancedOptions::default()
            },
            ..Options::default()
        }
    }

    /// `appendfsync` in the engine's words.
    pub fn sync_mode(&self) -> SyncMode {
        match self.appendfsync {
            AppendFsync::Always => SyncMode::Batch,
            AppendFsync::EverySecond => SyncMode::Interval(Duration::from_secs(1)),
            AppendFsync::No => SyncMode::None,
        }
    }

    /// `value-separation-threshold` in the engine's words.
    pub fn separation_threshold(&self) -> usize {
        self.value_separation_threshold
            .map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }
}
