//! Changing options while the store is open: by typed methods, and by name and text for a program that
//! takes them from people. Those of column families are stored with them; others are not: name them at the next open.
//!
//! What is not listed in [`LIVE_OPTIONS`] is decided at open; `docs/options.md` says why.

use super::{Db, decision_options, family_options};
use crate::admin::families;
use crate::background::rebalance;
use crate::error::{Error, Result};
use crate::options::refuse::refusal;
use crate::options::{
    CfOptions, HotTableMode, LIVE_FAMILY_OPTIONS, LIVE_OPTIONS, MemorySplit, Options, SyncMode,
};
use crate::write::log_segments;

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
        let set = |jobs: usize| {
            decision_options::change(self.inner(), |options| {
                options.background_jobs = jobs;
                Ok(())
            })
        };
        let before = self.inner().base.dynamic.options().background_jobs;
        set(jobs)?;
        let fitted = self.default.store.fit_workers();
        if fitted.is_err() {
            set(before)?;
        }
        fitted
    }

    /// Changes whether keys that are written again and again stay in memory. Off: with the next write
    /// what is hot goes into memtables that are flushed.
    pub fn set_hot_table(&self, mode: HotTableMode) {
        self.inner().base.dynamic.set_hot_table(mode);
    }

    /// Changes one of [`LIVE_OPTIONS`] by its name, to what [`Options::set_option`] takes for it; from the next decision on
    /// that depends on it, it holds. Those of column families are set for all families together, and stored; the others are
    /// not.
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
        if LIVE_FAMILY_OPTIONS.contains(&name) {
            let change = |options: &mut CfOptions| family_options::set(options, name, value);
            return families::change_options(self.inner(), None, &change);
        }
        if !LIVE_OPTIONS.contains(&name) {
            return Err(Error::InvalidArgument(format!(
                "`{name}` cannot be changed while the store is open; these can: {}",
                LIVE_OPTIONS.join(", ")
            )));
        }
        let mut asked = Options::default();
        asked.set_option(name, value)?;
        let advanced = &asked.advanced;
        match name {
            "sync" => self.set_sync(asked.sync)?,
            "memory_budget" => self.set_memory_budget(asked.memory_budget)?,
            "memory_split" => self.set_memory_split(advanced.memory_split),
            "rate_limit_bytes_per_s" => {
                self.set_rate_limit_bytes_per_s(advanced.rate_limit_bytes_per_s);
            }
            "gc_garbage_ratio" => self.set_gc_garbage_ratio(advanced.gc_garbage_ratio)?,
            "hot_table" => self.set_hot_table(advanced.hot_table),
            "log_retention_bytes" => self.set_log_retention_bytes(advanced.log_retention_bytes),
            "background_jobs" => self.set_background_jobs(asked.background_jobs)?,
            _ => {
                let change = |options: &mut Options| options.set_option(name, value);
                decision_options::change(self.inner(), change)?;
            }
        }
        Ok(())
    }

    /// What one of [`LIVE_OPTIONS`] is now, as [`Db::set_option`] takes it; of those of column families, what it is in
    /// the default one. `None` for other names.
    pub fn option(&self, name: &str) -> Option<String> {
        if !LIVE_OPTIONS.contains(&name) {
            return None;
        }
        let base = &self.inner().base;
        let mut options = base.dynamic.options();
        options.sync = base.dynamic.sync();
        options.memory_budget = base.dynamic.memory_budget();
        options.advanced.memory_split = base.dynamic.memory_split();
        options.advanced.rate_limit_bytes_per_s = base.limiter.rate();
        options.advanced.gc_garbage_ratio = base.dynamic.gc_garbage_ratio();
        options.advanced.hot_table = base.dynamic.hot_table();
        options.advanced.log_retention_bytes = base.dynamic.log_retention_bytes();
        options.default_family = self.default.options();
        options.option(name)
    }
}
