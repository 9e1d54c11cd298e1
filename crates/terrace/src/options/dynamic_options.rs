//! Options that can be changed while the store is open, and what they are now.
//!
//! [`crate::options::Options`] keeps what the store was opened with. Code that obeys one of these
//! options asks here, each time; so a change holds from the next commit, look or request on.

use crate::error::{Error, Result};
use crate::options::{HotTableMode, MemorySplit, Options, SyncMode, memtable_bytes};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use terrace_base::sync::Mutex;

/// How [`SyncMode`] lies in a word: those without an interval, then intervals in microseconds.
const BUFFERED: u64 = 0;
const NONE: u64 = 1;
const BATCH: u64 = 2;
const FIRST_INTERVAL: u64 = 3;

/// What is in force now.
#[derive(Debug)]
pub(crate) struct DynamicOptions {
    sync: AtomicU64,
    gc_garbage_ratio: AtomicU64,
    log_retention_bytes: AtomicU64,
    memory_budget: AtomicUsize,
    /// Whether it moves between its pools.
    moves: AtomicBool,
    /// Bytes of it for all memtables together, and bytes at which one is full.
    memtables_bytes: AtomicUsize,
    memtable_bytes: AtomicUsize,
    memtables_shrank: AtomicBool,
    has_hot_table: AtomicBool,
    compact_when_idle: AtomicBool,
    level_model_files: AtomicUsize,
    reserve_bytes: AtomicU64,
    options: Mutex<Options>,
    /// Whether the log is written through a buffer, which is decided at open.
    buffered: bool,
}

impl DynamicOptions {
    /// As the store is opened.
    pub fn new(options: &Options) -> Self {
        Self {
            sync: AtomicU64::new(encode(options.sync)),
            gc_garbage_ratio: AtomicU64::new(options.advanced.gc_garbage_ratio.to_bits()),
            log_retention_bytes: AtomicU64::new(options.advanced.log_retention_bytes),
            memory_budget: AtomicUsize::new(options.memory_budget),
            moves: AtomicBool::new(options.advanced.memory_split == MemorySplit::Auto),
            memtables_bytes: AtomicUsize::new(options.memtables_bytes()),
            memtable_bytes: AtomicUsize::new(options.memtable_bytes()),
            memtables_shrank: AtomicBool::new(false),
            has_hot_table: AtomicBool::new(options.advanced.hot_table == HotTableMode::Auto),
            compact_when_idle: AtomicBool::new(options.advanced.compact_when_idle),
            level_model_files: AtomicUsize::new(options.advanced.level_model_files),
            reserve_bytes: AtomicU64::new(options.advanced.reserve_bytes),
            options: Mutex::new(options.clone()),
            buffered: options.sync == SyncMode::Buffered,
        }
    }

    /// The options of the open, with what [`Self::set_options`] has changed since; what families have of them follows from
    /// these. What has a setter of its own here is in it as it was at open.
    pub fn options(&self) -> Options {
        self.options.lock().clone()
    }

    /// Changes options that are looked at for each decision; to be checked before. The caller has the manifest's lock,
    /// under which families are made, and sees to the families that there are.
    pub fn set_options(&self, options: Options) {
        let advanced = &options.advanced;
        self.compact_when_idle.store(advanced.compact_when_idle, Ordering::Relaxed);
        self.level_model_files.store(advanced.level_model_files, Ordering::Relaxed);
        self.reserve_bytes.store(advanced.reserve_bytes, Ordering::Relaxed);
        *self.options.lock() = options;
    }

    /// Whether leftovers are merged when the store is idle.
    pub fn compact_when_idle(&self) -> bool {
        self.compact_when_idle.load(Ordering::Relaxed)
    }

    /// Bytes of the reserve file.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes.load(Ordering::Relaxed)
    }

    /// A level of at least this many files may get a model over all of them.
    pub fn level_model_files(&self) -> usize {
        self.level_model_files.load(Ordering::Relaxed)
    }

    /// When a write is durable that does not say.
    #[inline]
    pub fn sync(&self) -> SyncMode {
        match self.sync.load(Ordering::Relaxed) {
            BUFFERED => SyncMode::Buffered,
            NONE => SyncMode::None,
            BATCH => SyncMode::Batch,
            interval => SyncMode::Interval(Duration::from_micros(interval - FIRST_INTERVAL)),
        }
    }

    /// Changes it; `Buffered` only where the store was opened so.
    pub fn set_sync(&self, sync: SyncMode) -> Result<()> {
        sync.check()?;
        if sync == SyncMode::Buffered && !self.buffered {
            let text = "sync can become buffered only in a store that was opened so; reopen it";
            return Err(Error::InvalidArgument(text.into()));
        }
        self.sync.store(encode(sync), Ordering::Relaxed);
        Ok(())
    }

    /// Share of garbage in the value log that is allowed.
    #[inline]
    pub fn gc_garbage_ratio(&self) -> f64 {
        f64::from_bits(self.gc_garbage_ratio.load(Ordering::Relaxed))
    }

    /// Changes it; to be checked before.
    pub fn set_gc_garbage_ratio(&self, ratio: f64) {
        self.gc_garbage_ratio.store(ratio.to_bits(), Ordering::Relaxed);
    }

    /// Bytes of log segments that are kept for change feeds.
    pub fn log_retention_bytes(&self) -> u64 {
        self.log_retention_bytes.load(Ordering::Relaxed)
    }

    /// Changes it.
    pub fn set_log_retention_bytes(&self, bytes: u64) {
        self.log_retention_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether keys that are written again and again stay in memory.
    #[inline]
    pub fn hot_table(&self) -> HotTableMode {
        match self.has_hot_table.load(Ordering::Relaxed) {
            true => HotTableMode::Auto,
            false => HotTableMode::Off,
        }
    }

    /// Changes it.
    pub fn set_hot_table(&self, mode: HotTableMode) {
        self.has_hot_table.store(mode == HotTableMode::Auto, Ordering::Relaxed);
    }

    /// The cap on what the store holds in memory.
    pub fn memory_budget(&self) -> usize {
        self.memory_budget.load(Ordering::Relaxed)
    }

    /// Bytes for all memtables together.
    #[inline]
    pub fn memtables_bytes(&self) -> usize {
        self.memtables_bytes.load(Ordering::Relaxed)
    }

    /// Bytes at which a memtable is full.
    #[inline]
    pub fn memtable_bytes(&self) -> usize {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    /// How many memtables of one family may wait for their flush before writes stop.
    pub fn max_immutables(&self) -> usize {
        (self.memtables_bytes() / self.memtable_bytes()).saturating_sub(1).max(1)
    }

    /// Changes the cap. The caller sees to its parts.
    pub fn set_memory_budget(&self, bytes: usize) {
        self.memory_budget.store(bytes, Ordering::Relaxed);
    }

    /// Changes what memtables get of it; `asked` is the size of one that was asked for at open, or 0.
    pub fn set_memtables_bytes(&self, memtables: usize, asked: usize) {
        let one = memtable_bytes(memtables, asked);
        let before = self.memtables_bytes.swap(memtables, Ordering::Relaxed);
        let one_before = self.memtable_bytes.swap(one, Ordering::Relaxed);
        if memtables < before || one < one_before {
            self.note_large_memtables();
        }
    }

    /// Memtables may be larger than they may be now.
    pub fn note_large_memtables(&self) {
        // Release: who takes the mark sees the smaller sizes.
        self.memtables_shrank.store(true, Ordering::Release);
    }

    /// Whether memtables may have been larger than they may be now; said once.
    pub fn take_large_memtables(&self) -> bool {
        self.memtables_shrank.swap(false, Ordering::Acquire)
    }

    /// Whether the budget moves between its pools.
    pub fn memory_split(&self) -> MemorySplit {
        match self.moves.load(Ordering::Relaxed) {
            true => MemorySplit::Auto,
            false => MemorySplit::Fixed,
        }
    }

    /// Changes it; gives what it was.
    pub fn set_memory_split(&self, split: MemorySplit) -> MemorySplit {
        match self.moves.swap(split == MemorySplit::Auto, Ordering::Relaxed) {
            true => MemorySplit::Auto,
            false => MemorySplit::Fixed,
        }
    }
}

fn encode(sync: SyncMode) -> u64 {
    match sync {
        SyncMode::Buffered => BUFFERED,
        SyncMode::None => NONE,
        SyncMode::Batch => BATCH,
        SyncMode::Interval(interval) => {
            let us = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
            us.saturating_add(FIRST_INTERVAL)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_memtables_fit_into_their_share_from_the_open_on() {
        for (budget, asked, one) in [
            (4 << 20, 64 << 20, 512 << 10),
            (4 << 20, 100 << 10, 100 << 10),
            (64 << 20, 0, 4 << 20),
        ] {
            let mut options = Options { memory_budget: budget, ..Options::default() };
            options.advanced.memtable_bytes = asked;
            let live = DynamicOptions::new(&options);
            assert_eq!((live.memtable_bytes(), options.memtable_bytes()), (one, one), "{asked}");
            // The budget that it has already changes nothing.
            live.set_memtables_bytes(options.memtables_bytes(), asked);
            assert_eq!(live.memtable_bytes(), one);
        }
    }

    #[test]
    fn every_mode_is_kept() {
        let ms = Duration::from_millis;
        let options = Options { sync: SyncMode::Buffered, ..Options::default() };
        let live = DynamicOptions::new(&options);
        let all = [SyncMode::None, SyncMode::Batch, SyncMode::Interval(ms(1)), SyncMode::Buffered];
        for mode in all.into_iter().chain([SyncMode::Interval(ms(86_400_000))]) {
            live.set_sync(mode).unwrap();
            assert_eq!(live.sync(), mode);
        }
        let live = DynamicOptions::new(&Options::default());
        assert!(live.set_sync(SyncMode::Buffered).is_err());
        assert_eq!(live.sync(), SyncMode::None);
    }
}
