//! Open SST readers, one slot per live file: opened on first use, closed least recently used
//! first when more are open than the file-descriptor limit allows.
//!
//! A read state keeps the slots of its files, so a read reaches an open reader without a lock.

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use terrace_base::Result;
use terrace_manifest::{FileMeta, names};
use terrace_sst::{BlockCache, FilterMemory, ReadCounters, ReaderOptions, SstReader};
use terrace_vfs::Vfs;

/// Where the reader of one file is while it is open.
pub(crate) struct ReaderSlot {
    reader: ArcSwapOption<SstReader>,
    touched: AtomicBool,
}

/// A reader held for the length of one read; no shared counter is touched.
pub(crate) type ReaderGuard = Guard<Option<Arc<SstReader>>>;

/// All slots, and the means to open a file.
pub(crate) struct TableCache {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    options: ReaderOptions,
    cache_bytes: usize,
    max_open: usize,
    open: AtomicUsize,
    pinned_bytes: AtomicUsize,
    slots: Mutex<HashMap<u64, Arc<ReaderSlot>>>,
}

impl TableCache {
    /// A cache of at most `max_open` readers over the SSTs in `dir`.
    pub fn new(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        cache: Arc<BlockCache>,
        counters: Arc<ReadCounters>,
        direct: bool,
        max_open: usize,
    ) -> Self {
        let cache_bytes = cache.capacity_bytes();
        Self {
            vfs,
            dir: dir.to_path_buf(),
            options: ReaderOptions { cache, filter_memory: FilterMemory::Cached, direct, counters },
            cache_bytes,
            max_open: max_open.max(4),
            open: AtomicUsize::new(0),
            pinned_bytes: AtomicUsize::new(0),
            slots: Mutex::new(HashMap::new()),
        }
    }

    /// The slot of file `number`, made if there is none.
    pub fn slot(&self, number: u64) -> Arc<ReaderSlot> {
        let fresh = || {
            Arc::new(ReaderSlot { reader: ArcSwapOption::empty(), touched: AtomicBool::new(false) })
        };
        self.slots.lock().entry(number).or_insert_with(fresh).clone()
    }

    /// The reader of `file` for one read through its slot.
    #[inline]
    pub fn enter(&self, slot: &ReaderSlot, file: &FileMeta) -> Result<ReaderGuard> {
        let guard = slot.reader.load();
        if guard.is_some() {
            if !slot.touched.load(Ordering::Relaxed) {
                slot.touched.store(true, Ordering::Relaxed);
            }
            return Ok(guard);
        }
        self.open(slot, file)?;
        // Another thread may close it again at once when the limit is very small.
        let guard = slot.reader.load();
        match guard.is_some() {
            true => Ok(guard),
            false => Ok(Guard::from_inner(Some(self.open(slot, file)?))),
        }
    }

    /// The reader of `file`, to keep.
    pub fn reader(&self, file: &FileMeta) -> Result<Arc<SstReader>> {
        let slot = self.slot(file.number);
        match slot.reader.load_full() {
            Some(reader) => Ok(reader),
            None => self.open(&slot, file),
        }
    }

    fn open(&self, slot: &ReaderSlot, file: &FileMeta) -> Result<Arc<SstReader>> {
        let path = names::sst_path(&self.dir, file.number);
        let reader =
            SstReader::open(&self.vfs, &path, file.number, file.size_bytes, &self.options)?;
        slot.touched.store(true, Ordering::Relaxed);
        // Counted before others can see and close it, so that the counts never fall below zero.
        self.pinned_bytes.fetch_add(reader.pinned_bytes(), Ordering::Relaxed);
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        let before = slot.reader.compare_and_swap(&None::<Arc<SstReader>>, Some(reader.clone()));
        if let Some(theirs) = before.as_ref() {
            // Somebody else opened it meanwhile: theirs stays.
            self.pinned_bytes.fetch_sub(reader.pinned_bytes(), Ordering::Relaxed);
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Ok(theirs.clone());
        }
        if open > self.max_open {
            self.close_some(slot);
        }
        self.charge();
        Ok(reader)
    }

    /// Closes untouched readers, clearing marks as it goes, until an eighth of the limit is free.
    fn close_some(&self, keep: &ReaderSlot) {
        let goal = self.max_open - (self.max_open / 8).max(1);
        let slots: Vec<Arc<ReaderSlot>> = self.slots.lock().values().cloned().collect();
        for round in 0..2 {
            for slot in &slots {
                if self.open.load(Ordering::Relaxed) <= goal {
                    return;
                }
                let spared = slot.touched.swap(false, Ordering::Relaxed) && round == 0;
                if !spared && !std::ptr::eq(Arc::as_ptr(slot), keep) {
                    self.close(slot);
                }
            }
        }
    }

    fn close(&self, slot: &ReaderSlot) {
        if let Some(reader) = slot.reader.swap(None) {
            self.pinned_bytes.fetch_sub(reader.pinned_bytes(), Ordering::Relaxed);
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes and forgets a file that is no longer live.
    pub fn forget(&self, number: u64) {
        let slot = self.slots.lock().remove(&number);
        if let Some(slot) = slot {
            self.close(&slot);
            self.charge();
        }
    }

    /// What readers pin is taken from the block cache's share of the budget.
    fn charge(&self) {
        let pinned = self.pinned_bytes.load(Ordering::Relaxed);
        let want = self.cache_bytes.saturating_sub(pinned).max(self.cache_bytes / 16);
        let have = self.options.cache.capacity_bytes();
        if want.abs_diff(have) > self.cache_bytes / 128 {
            self.options.cache.set_capacity_bytes(want);
        }
    }

    /// Where the SSTs lie.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Readers open now.
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Bytes of top-level indexes and range tombstones that open readers pin.
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// The block cache.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.options.cache
    }

    /// The read counters.
    pub fn counters(&self) -> &Arc<ReadCounters> {
        &self.options.counters
    }
}
