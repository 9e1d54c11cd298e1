//! Changing options while the store is open: by typed methods, and by name and text for a program that
//! takes them from people. Those of column families are stored with them; others are not: name them at the next open.
//!
//! What is not listed in [`LIVE_OPTIONS`] is decided at open; `docs/options.md` says why.

use super::decision_options::{self, number};
use super::{Db, family_options};
use crate::admin::families;
use crate::background::rebalance;
use crate::error::{Error, Result};
use crate::options::dynamic_options::{SyncText, parse_sync};
use crate::options::refuse::refusal;
use crate::options::{CfOptions, HotTableMode, MemorySplit, Options, SyncMode};
use crate::write::log_segments;

/// The names that [`Db::set_option`] takes: options of the store, and at the end those of column families.
pub const LIVE_OPTIONS: [&str; 27] = [
    "sync",
    "memory_budget",
    "memory_split",
    "rate_limit_bytes_per_s",
    "gc_garbage_ratio",
    "hot_table",
    "log_retention_bytes",
    "max_open_files",
    "background_jobs",
    "l0_compaction_trigger",
    "l0_slowdown",
    "l0_stop",
    "level_base_bytes",
    "level_multiplier",
    "target_file_bytes",
    "max_subcompactions",
    "compact_when_idle",
    "pending_compaction_slowdown_bytes",
    "level_model_files",
    "reserve_bytes",
    "max_reader_pinned_bytes",
    "compression",
    "filter",
    "prefix_len",
    "value_separation_threshold",
    "value_compression",
    "learning",
];

impl Db {
    /// Changes when writes are durable that do not say so themselves, from the next commit on. What was acknowledged
    /// under [`SyncMode::Buffered`] is handed to the kernel when it is left.
    ///
    /// # Errors
    /// [`SyncMode::Buffered`] in a store that was not opened with it; an interval below
    /// [`MIN_SYNC_INTERVAL`](crate::MIN_SYNC_INTERVAL); the log cannot be written, which ends all writes.
    pub fn set_sync(&self, sync: SyncMode) -> Result<()> {
        let inner = self.inner();
        let was_buffered = inner.base.dynamic.sync() == SyncMode::Buffered;
        inner.base.dynamic.set_sync(sync)?;
        match was_buffered && sync != SyncMode::Buffered && !inner.base.read_only {
            true => log_segments::hand_over(&inner.background.commit),
            false => Ok(()),
        }
    }

    /// Changes the cap on what the store holds in memory. Memtables, filters and the block cache get the
    /// same shares of it as at open or, with [`MemorySplit::Auto`], as they have now. The block cache is
    /// smaller when this returns; memtables that are too large now are flushed, and filters leave, within
    /// seconds. How compaction picks its work still follows the size of memtables at open.
    ///
    /// # Errors
    /// Less than 4 MiB.
    pub fn set_memory_budget(&self, bytes: usize) -> Result<()> {
        let inner = self.inner();
        let changed = Options { memory_budget: bytes, ..inner.base.options.clone() };
        changed.check()?;
        rebalance::set_budget(&inner.background, &changed);
        Ok(())
    }

    /// Changes whether the memory budget moves between its pools. With [`MemorySplit::Fixed`] they get
    /// the shares that the store was opened with again.
    pub fn set_memory_split(&self, split: MemorySplit) {
        rebalance::set_split(&self.inner().background, split);
    }

    /// Changes the bound on bytes written per second by flush and compaction; 0 is unbounded.
    pub fn set_rate_limit_bytes_per_s(&self, bytes_per_s: u64) {
        self.inner().base.limiter.set_rate(bytes_per_s);
    }

    /// Changes the share of garbage that the value log may hold, from 0.05 to 1.
    pub fn set_gc_garbage_ratio(&self, ratio: f64) -> Result<()> {
        if !(0.05..=1.0).contains(&ratio) {
            return Err(refusal("gc_garbage_ratio", &ratio, "0.05 to 1"));
        }
        self.inner().base.dynamic.set_gc_garbage_ratio(ratio);
        Ok(())
    }

    /// Changes how many bytes of log segments are kept for [`Db::updates_since`]. What is above a smaller bound goes
    /// within a second. A larger one keeps what is there now and what is written later; name it at the
    /// open, too, if it is to hold for updates of before.
    pub fn set_log_retention_bytes(&self, bytes: u64) {
        self.inner().base.dynamic.set_log_retention_bytes(bytes);
    }

    /// Changes how many threads flush and merge, from 1 to 64. Those that are over end when they have done what they do.
    ///
    /// # Errors
    /// A number out of range; the system has no thread to give: then there are as many as before, or some more. `Closed`.
    pub fn set_background_jobs(&self, jobs: usize) -> Result<()> {
        let (inner, name) = (self.inner(), "background_jobs");
        let before = inner.base.dynamic.options().background_jobs;
        decision_options::change(inner, name, &jobs.to_string())?;
        let fitted = self.default.store.fit_workers();
        if fitted.is_err() {
            decision_options::change(inner, name, &before.to_string())?;
        }
        fitted
    }

    /// Changes whether keys that are written again and again stay in memory. Off: with the next write
    /// what is hot goes into memtables that are flushed.
    pub fn set_hot_table(&self, mode: HotTableMode) {
        self.inner().base.dynamic.set_hot_table(mode);
    }

    /// Changes one of [`LIVE_OPTIONS`] by its name; from the next decision on that depends on it, it holds. `sync` is `none`,
    /// `batch`, `buffered` or `interval:` with milliseconds, `memory_split` is `fixed` or `auto`, `hot_table` is `off` or
    /// `auto`, `compact_when_idle` is `true` or `false`, `max_reader_pinned_bytes` may be `none`; else those of the store are
    /// numbers. Those of column families are set for all families together, as
    /// [`ColumnFamily::set_option`](crate::ColumnFamily::set_option) takes them, and stored; the others are not.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-live-{}", std::process::id()));
    /// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
    /// db.set_option("sync", "interval:100")?;
    /// assert_eq!(db.option("sync").as_deref(), Some("interval:100"));
    /// assert!(db.set_option("block_size", "8192").is_err());
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`: another name, or a value that no store opens with, as `l0_slowdown` below `l0_compaction_trigger`.
    /// Of options of column families also what a write to the manifest gives.
    pub fn set_option(&self, name: &str, value: &str) -> Result<()> {
        match name {
            "sync" => {
                let allowed = "none, batch, buffered or interval:<ms>";
                self.set_sync(parse_sync(value).ok_or_else(|| refusal(name, &value, allowed))?)
            }
            "memory_budget" => self.set_memory_budget(number(name, value)?),
            "memory_split" => {
                self.set_memory_split(value.parse()?);
                Ok(())
            }
            "rate_limit_bytes_per_s" => {
                self.set_rate_limit_bytes_per_s(number(name, value)?);
                Ok(())
            }
            "gc_garbage_ratio" => self.set_gc_garbage_ratio(number(name, value)?),
            "hot_table" => {
                self.set_hot_table(value.parse()?);
                Ok(())
            }
            "log_retention_bytes" => {
                self.set_log_retention_bytes(number(name, value)?);
                Ok(())
            }
            _ if family_options::LIVE_FAMILY_OPTIONS.contains(&name) => {
                let change = |options: &mut CfOptions| family_options::set(options, name, value);
                families::change_options(self.inner(), None, &change)
            }
            "background_jobs" => self.set_background_jobs(number(name, value)?),
            _ if decision_options::change(self.inner(), name, value)? => Ok(()),
            _ => Err(Error::InvalidArgument(format!(
                "`{name}` cannot be changed while the store is open; these can: {}",
                LIVE_OPTIONS.join(", ")
            ))),
        }
    }

    /// What one of [`LIVE_OPTIONS`] is now, as [`Db::set_option`] takes it; of those of column families, what it is in
    /// the default one. `None` for other names.
    pub fn option(&self, name: &str) -> Option<String> {
        let inner = self.inner();
        Some(match name {
            "sync" => SyncText(inner.base.dynamic.sync()).to_string(),
            "memory_budget" => inner.base.dynamic.memory_budget().to_string(),
            "memory_split" => inner.base.dynamic.memory_split().to_string(),
            "rate_limit_bytes_per_s" => inner.base.limiter.rate().to_string(),
            "gc_garbage_ratio" => inner.base.dynamic.gc_garbage_ratio().to_string(),
            "hot_table" => inner.base.dynamic.hot_table().to_string(),
            "log_retention_bytes" => inner.base.dynamic.log_retention_bytes().to_string(),
            _ if family_options::LIVE_FAMILY_OPTIONS.contains(&name) => {
                self.default.option(name)?
            }
            _ => decision_options::get(inner, name)?,
        })
    }
}
