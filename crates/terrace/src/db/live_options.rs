//! Changing options while the store is open: by typed methods, and by name and text for a program that
//! takes them from people (`CONFIG SET` of the server). None is stored: name it at the next open.
//!
//! What is not listed in [`LIVE_OPTIONS`] is decided at open: files, threads and the log's buffer are
//! made by it.

use super::Db;
use crate::background::rebalance;
use crate::error::{Error, Result};
use crate::options::dynamic_options::{SyncText, parse_sync};
use crate::options::{HotTableMode, MemorySplit, Options, SyncMode};
use crate::write::log_segments;
use std::fmt::Display;
use std::str::FromStr;

/// The names that [`Db::set_option`] takes.
pub const LIVE_OPTIONS: [&str; 8] = [
    "sync",
    "memory_budget",
    "memory_split",
    "rate_limit_bytes_per_s",
    "gc_garbage_ratio",
    "value_separation_threshold",
    "hot_table",
    "log_retention_bytes",
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

    /// Changes whether keys that are written again and again stay in memory. Off: with the next write
    /// what is hot goes into memtables that are flushed.
    pub fn set_hot_table(&self, mode: HotTableMode) {
        self.inner().base.dynamic.set_hot_table(mode);
    }

    /// Changes one of [`LIVE_OPTIONS`] by its name. `sync` is `none`, `batch`, `buffered` or
    /// `interval:` with milliseconds, `memory_split` is `fixed` or `auto`, `hot_table` is `off` or
    /// `auto`, all others are numbers; `value_separation_threshold` holds for all column families.
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
    /// Another name, or a value out of range.
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
            "value_separation_threshold" => {
                let bytes = number(name, value)?;
                for family in self.inner().read.families.load().iter() {
                    family.set_value_separation_threshold(bytes);
                }
                Ok(())
            }
            "hot_table" => {
                self.set_hot_table(value.parse()?);
                Ok(())
            }
            "log_retention_bytes" => {
                self.set_log_retention_bytes(number(name, value)?);
                Ok(())
            }
            _ => Err(Error::InvalidArgument(format!(
                "`{name}` cannot be changed while the store is open; these can: {}",
                LIVE_OPTIONS.join(", ")
            ))),
        }
    }

    /// What one of [`LIVE_OPTIONS`] is now, as [`Db::set_option`] takes it; of
    /// `value_separation_threshold`, what it is in the default column family. `None` for other
    /// names.
    pub fn option(&self, name: &str) -> Option<String> {
        let inner = self.inner();
        Some(match name {
            "sync" => SyncText(inner.base.dynamic.sync()).to_string(),
            "memory_budget" => inner.base.dynamic.memory_budget().to_string(),
            "memory_split" => inner.base.dynamic.memory_split().to_string(),
            "rate_limit_bytes_per_s" => inner.base.limiter.rate().to_string(),
            "gc_garbage_ratio" => inner.base.dynamic.gc_garbage_ratio().to_string(),
            "value_separation_threshold" => {
                inner.read.family(0)?.separation().threshold.to_string()
            }
            "hot_table" => inner.base.dynamic.hot_table().to_string(),
            "log_retention_bytes" => inner.base.dynamic.log_retention_bytes().to_string(),
            _ => return None,
        })
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| refusal(name, &value, "a number"))
}

fn refusal(name: &str, value: &dyn Display, allowed: &str) -> Error {
    Error::InvalidArgument(format!("{name} is {value}; it must be {allowed}"))
}
