//! The engines by name: what each can do, where its library is found, how it is opened.

mod c_database;
mod c_library;
mod fjall;
mod leveldb;
mod lmdb;
mod redb;
mod rocksdb;
mod terrace;

use crate::filter::{FilterSpec, PeerFilter};
use crate::store::{EngineConfig, Store};
use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

/// An engine that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// This project's.
    Terrace,
    /// RocksDB through its C API.
    Rocksdb,
    /// Speedb, which exports RocksDB's C API.
    Speedb,
    /// LevelDB through its C API.
    Leveldb,
    /// The fjall crate.
    Fjall,
    /// LMDB through the heed crate.
    Lmdb,
    /// The redb crate.
    Redb,
}

impl Engine {
    /// Every engine, Terrace first.
    pub const ALL: [Self; 7] = [
        Self::Terrace,
        Self::Rocksdb,
        Self::Speedb,
        Self::Leveldb,
        Self::Fjall,
        Self::Lmdb,
        Self::Redb,
    ];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Terrace => "terrace",
            Self::Rocksdb => "rocksdb",
            Self::Speedb => "speedb",
            Self::Leveldb => "leveldb",
            Self::Fjall => "fjall",
            Self::Lmdb => "lmdb",
            Self::Redb => "redb",
        }
    }

    /// True if reads and compaction can bypass the page cache, and metadata can be charged to the
    /// block cache and be partitioned or not.
    pub fn has_direct_io(self) -> bool {
        matches!(self, Self::Terrace | Self::Rocksdb | Self::Speedb)
    }

    /// True if the engine is a B tree, which has neither filters nor compaction.
    pub fn is_tree(self) -> bool {
        matches!(self, Self::Lmdb | Self::Redb)
    }

    /// True if the engine sorts a load by itself before it ingests it.
    pub fn has_bulk_loader(self) -> bool {
        self == Self::Terrace
    }

    /// True if the engine takes in files that were written outside a store, and makes backups that share files.
    pub fn has_ingestion_and_backups(self) -> bool {
        matches!(self, Self::Terrace | Self::Rocksdb | Self::Speedb)
    }

    /// True if the engine tells what its filters are like.
    pub fn tells_of_filters(self) -> bool {
        matches!(self, Self::Terrace | Self::Rocksdb | Self::Speedb)
    }

    /// True if reads of this engine may go through an `io_uring`, so that the kernel's count of read calls does not have
    /// them.
    pub fn reads_by_io_uring(self) -> bool {
        self == Self::Terrace
    }

    /// True if the engine builds such filters, or needs none.
    pub fn has_filter(self, spec: FilterSpec) -> bool {
        match spec.for_peers() {
            _ if self == Self::Terrace => true,
            None => false,
            Some(PeerFilter::None | PeerFilter::Bloom(_)) => true,
            Some(PeerFilter::Ribbon(_)) => matches!(self, Self::Rocksdb | Self::Speedb),
            Some(PeerFilter::Paired(_)) => self == Self::Speedb,
        }
    }

    /// The shared library this engine needs, found but not loaded; `None` for those built in.
    /// `given` is `--rocksdb-lib`.
    pub fn library(self, given: Option<&Path>) -> Result<Option<PathBuf>> {
        match self {
            Self::Terrace | Self::Fjall | Self::Lmdb | Self::Redb => Ok(None),
            Self::Rocksdb => c_library::find(&rocksdb::ROCKSDB, given).map(Some),
            Self::Speedb => c_library::find(&rocksdb::SPEEDB, None).map(Some),
            Self::Leveldb => c_library::find(&leveldb::LEVELDB, None).map(Some),
        }
    }

    /// True if the indexes of this engine, in the library at `library`, can be searched by
    /// interpolation.
    pub fn has_interpolation(self, library: Option<&Path>) -> bool {
        let known = |path| c_library::mentions(path, rocksdb::INTERPOLATION);
        matches!(self, Self::Rocksdb | Self::Speedb) && library.is_some_and(known)
    }

    /// Opens the store in `dir`, creating it if `dir` is empty. `library` is what
    /// [`Engine::library`] returned.
    pub fn open(
        self,
        dir: &Path,
        config: &EngineConfig,
        library: Option<&Path>,
    ) -> Result<Box<dyn Store>> {
        if let Some(spec) = config.filter {
            ensure!(self.has_filter(spec), "{self} has no filter like {spec}");
        }
        ensure!(!config.direct_io || self.has_direct_io(), "{self} has no direct I/O");
        std::fs::create_dir_all(dir)?;
        match (self, library) {
            (Self::Terrace, _) => terrace::open(dir, config),
            (Self::Fjall, _) => fjall::open(dir, config),
            (Self::Lmdb, _) => lmdb::open(dir, config),
            (Self::Redb, _) => redb::open(dir, config),
            (Self::Rocksdb | Self::Speedb, Some(path)) => rocksdb::open(self, path, dir, config),
            (Self::Leveldb, Some(path)) => leveldb::open(path, dir, config),
            (_, None) => bail!("{self} needs its shared library; run `cargo xtask peers`"),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|engine| engine.name() == text) {
            Some(engine) => Ok(engine),
            None => bail!(
                "there is no engine `{text}`; known are {}",
                Self::ALL.map(Self::name).join(", ")
            ),
        }
    }
}

/// Polls `idle` until it says so `enough_polls` times in a row, at most for [`SETTLE_LIMIT`]; gives the time of the first
/// of these, so that being sure is no part of what is measured. For engines without a call that waits.
fn wait_until_idle(enough_polls: u32, mut idle: impl FnMut() -> Result<bool>) -> Result<Instant> {
    let start = Instant::now();
    let (mut calm_since, mut calm_polls) = (start, 0);
    loop {
        let asked = Instant::now();
        match idle()? {
            true if calm_polls == 0 => (calm_since, calm_polls) = (asked, 1),
            true => calm_polls += 1,
            false => calm_polls = 0,
        }
        if calm_polls == enough_polls {
            return Ok(calm_since);
        }
        ensure!(start.elapsed() < SETTLE_LIMIT, "compaction did not settle in {SETTLE_LIMIT:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);
/// For an engine that can be asked whether work is running or due.
const CALM_POLLS: u32 = 5;
/// For an engine that must be guessed at: a second.
const LONG_CALM_POLLS: u32 = 50;
/// The longest wait for compactions to finish.
const SETTLE_LIMIT: std::time::Duration = std::time::Duration::from_secs(1800);

#[cfg(test)]
mod tests;
