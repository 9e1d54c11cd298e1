//! Open SST readers, one slot per live file: opened on first use, closed least recently used
//! first when more are open than the file-descriptor limit allows, or when they pin too much memory.
//!
//! A read state keeps the slots of its files, so a read reaches an open reader without a lock.

use crate::memory::family_totals::FamilyTotals;
use crate::memory::filter_budget::FilterBudget;
use crate::memory::left_memtables::LeftMemtables;
use crate::memory::memtable_loan::{self, MemtableLoan};
use crate::memory::reader_slot::{ReaderGuard, ReaderSlot};
use crate::metrics::Sharded;
use crate::metrics::training::TrainingTally;
use arc_swap::Guard;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_base::sync::Mutex;
use terrace_base::{Error, FileNumber, Result};
use terrace_manifest::{FileMeta, names};
use terrace_sst::{BlockCache, Properties, ReadCounters, ReaderOptions, SstReader};
use terrace_vfs::Vfs;

/// What is wrong with a sound SST that is not the one that the manifest names.
pub(crate) const ANOTHER_FILE: &str = "this is another file than the manifest names: its counts of entries and bytes, or the time at which it \
     was made, are others; it may be of another store or an older copy";

/// What an SST says of itself, in the order of [`FileMeta::marks`].
fn marks(properties: &Properties) -> [u64; 5] {
    [
        properties.entry_count,
        properties.tombstone_count,
        properties.range_tombstone_count,
        properties.raw_key_bytes.saturating_add(properties.raw_value_bytes),
        properties.created_ms,
    ]
}

/// The part of its share that the block cache keeps whatever filters could save with it, so that other traffic
/// does not find it empty.
const KEPT_PART: usize = 4;
/// And where memtables lend it more than that.
const LEAST_KEPT_PART: usize = 8;
/// And of what metadata take, this part more, for blocks on their way through, which are some in each shard.
const KEPT_SLACK_PART: usize = 16;
const KEPT_SLACK_BYTES: usize = 16 << 10;

/// Memory outside the block cache that is charged to it until this is dropped.
pub(crate) struct Pinned {
    table_cache: Arc<TableCache>,
    bytes: usize,
}

impl Pinned {
    /// From now on it is this many bytes.
    pub fn resize(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes == before {
            return;
        }
        let pinned = &self.table_cache.pinned_bytes;
        pinned.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        self.table_cache.charge();
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.table_cache.pinned_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.table_cache.charge();
    }
}

/// Memory that a group of writes is about to take in memtables, until this is dropped: then it has.
pub(crate) struct MemtableClaim<'a> {
    table_cache: &'a TableCache,
    bytes: usize,
}

impl Drop for MemtableClaim<'_> {
    fn drop(&mut self) {
        // Release, in SeqCst: a thread that reads what is left of the claims finds what was inserted.
        self.table_cache.claimed_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// What the block cache may have, besides what memtables lend.
#[derive(Debug, Clone, Copy)]
struct CacheMemory {
    /// Its part of the budget.
    share_bytes: usize,
    /// What it has besides, from filters that do not need it; below zero, what filters have of its share.
    loan_bytes: isize,
}

/// The fewest readers that may be kept open.
const LEAST_OPEN: usize = 4;

/// Readers leave blocks one part in this many of the cache's share: of a store whose data is thousands of times its memory,
/// or with long keys, all of them together may pin more than the whole budget.
const BLOCKS_PART: usize = 8;
/// But these bytes they may pin beside it: a reader that was closed costs reads, and its filters and index partitions, to open again.
const BESIDE_SHARE_BYTES: usize = 16 << 20;

/// The most readers that are left open of `count`, which is not 0, when some are closed.
fn less_an_eighth(count: usize) -> usize {
    count - (count / 8).max(1)
}

/// All slots, and the means to open a file.
pub(crate) struct TableCache {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    options: ReaderOptions,
    max_open: AtomicUsize,
    /// Another process may remove files.
    read_only: bool,
    open: AtomicUsize,
    /// What open readers pin, and what is pinned beside them.
    reader_bytes: AtomicUsize,
    pinned_bytes: AtomicUsize,
    left_memtables: LeftMemtables,
    totals: Arc<FamilyTotals>,
    slots: Mutex<BTreeMap<FileNumber, Arc<ReaderSlot>>>,
    filters: Arc<FilterBudget>,
    trainings: TrainingTally,
    seeks: Sharded,
    /// Held while the capacity of the block cache is set to what follows from it.
    cache_memory: Mutex<CacheMemory>,
    /// What memtables lend, written under `cache_memory`: a write looks at it without a lock.
    memtable_loan_bytes: AtomicUsize,
    /// What groups of writes are about to take in memtables. A write adds its part and then looks at the loan; who
    /// enlarges the loan looks at this afterwards: one of the two sees the other.
    claimed_bytes: AtomicUsize,
    /// Held while a reader enters or leaves its slot, so that the filter budget is called for both in
    /// the order in which they happen.
    turn: Mutex<()>,
}

impl TableCache {
    /// A cache of at most `max_open` readers over the SSTs in `dir`.
    pub fn new(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        cache: Arc<BlockCache>,
        counters: Arc<ReadCounters>,
        filters: Arc<FilterBudget>,
        direct: bool,
        max_open: usize,
    ) -> Self {
        let cache_memory = CacheMemory { share_bytes: cache.capacity_bytes(), loan_bytes: 0 };
        Self {
            vfs,
            dir: dir.to_path_buf(),
            options: ReaderOptions {
                cache,
                filter_memory: filters.filter_memory(),
                models: true,
                direct,
                counters,
            },
            max_open: AtomicUsize::new(max_open.max(LEAST_OPEN)),
            read_only: false,
            open: AtomicUsize::new(0),
            reader_bytes: AtomicUsize::new(0),
            pinned_bytes: AtomicUsize::new(0),
            left_memtables: LeftMemtables::default(),
            totals: Arc::default(),
            slots: Mutex::new(BTreeMap::new()),
            filters,
            trainings: TrainingTally::default(),
            seeks: Sharded::default(),
            cache_memory: Mutex::new(cache_memory),
            memtable_loan_bytes: AtomicUsize::new(0),
            claimed_bytes: AtomicUsize::new(0),
            turn: Mutex::new(()),
        }
    }

    /// The same, of a store that is open read-only if `read_only`.
    pub fn read_only(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// Changes how many readers are kept open; what is over is closed when the next one is opened.
    pub fn set_max_open(&self, max_open: usize) {
        self.max_open.store(max_open.max(LEAST_OPEN), Ordering::Relaxed);
    }

    /// The slot of file `number`, made if there is none.
    pub fn slot(&self, number: FileNumber) -> Arc<ReaderSlot> {
        self.slots.lock().entry(number).or_insert_with(|| ReaderSlot::new(true)).clone()
    }

    /// Readers of file `number` are not to use learned indexes; to be called before others see the
    /// file.
    pub fn forgo_models(&self, number: FileNumber) {
        self.slots.lock().entry(number).or_insert_with(|| ReaderSlot::new(false));
    }

    /// The reader of `file` for one read through its slot. With `in_memory` it is not opened: there
    /// is none if it is not open. Otherwise there always is.
    #[inline]
    pub fn enter(
        &self,
        slot: &ReaderSlot,
        file: &FileMeta,
        in_memory: bool,
    ) -> Result<ReaderGuard> {
        let guard = slot.reader.load();
        if guard.is_some() {
            if !slot.touched.load(Ordering::Relaxed) {
                slot.touched.store(true, Ordering::Relaxed);
            }
            return Ok(guard);
        }
        if in_memory {
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

    /// The reader of `file`, to keep, for a read.
    pub fn reader(&self, file: &FileMeta) -> Result<Arc<SstReader>> {
        let slot = self.slot(file.number);
        match self.enter(&slot, file, false)?.as_ref() {
            Some(reader) => Ok(Arc::clone(reader)),
            None => self.open(&slot, file),
        }
    }

    /// As [`Self::reader`], for work in the background: that a file is merged is no reason to keep it open.
    pub fn reader_for_work(&self, file: &FileMeta) -> Result<Arc<SstReader>> {
        let slot = self.slot(file.number);
        match slot.reader.load_full() {
            Some(reader) => Ok(reader),
            None => self.open(&slot, file),
        }
    }

    fn open(&self, slot: &ReaderSlot, file: &FileMeta) -> Result<Arc<SstReader>> {
        let path = names::sst_path(&self.dir, file.number);
        let options = ReaderOptions { models: slot.models, ..self.options.clone() };
        let open = || SstReader::open(&self.vfs, &path, file.number, file.size_bytes, &options);
        let reader = match open() {
            // The process is short of descriptors, which others take too.
            Err(error) if error.is_transient() && self.close_part(slot) => open(),
            opened => opened,
        };
        let reader = reader.map_err(|error| match self.read_only {
            true if error.is_not_found() => Error::Removed { path: path.clone() },
            _ => error,
        })?;
        if file.marks() != marks(reader.properties()) {
            return Err(Error::corruption(&path, 0, ANOTHER_FILE));
        }
        slot.touched.store(true, Ordering::Relaxed);
        // Counted before others can see and close it, so that the counts never fall below zero.
        self.reader_bytes.fetch_add(reader.pinned_bytes(), Ordering::Relaxed);
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        let before = {
            let _turn = self.turn.lock();
            let none = &None::<Arc<SstReader>>;
            let before = slot.reader.compare_and_swap(none, Some(reader.clone()));
            if before.is_none() {
                self.filters.reader_opened(file.number, &reader);
            }
            before
        };
        if let Some(theirs) = before.as_ref() {
            // Somebody else opened it meanwhile: theirs stays.
            self.reader_bytes.fetch_sub(reader.pinned_bytes(), Ordering::Relaxed);
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Ok(theirs.clone());
        }
        let max_open = self.max_open.load(Ordering::Relaxed);
        if open > max_open {
            self.close_down_to(less_an_eighth(max_open), slot);
        }
        self.close_heavy(Some(slot));
        self.charge();
        Ok(reader)
    }

    /// Closes an eighth of the readers that are open; false if there are none.
    fn close_part(&self, keep: &ReaderSlot) -> bool {
        let open = self.open_count();
        if open > 0 {
            self.close_down_to(less_an_eighth(open), keep);
        }
        open > 0
    }

    /// Closes readers until no more than `goal` are open.
    fn close_down_to(&self, goal: usize, keep: &ReaderSlot) {
        let (slots, is_enough) = (self.open_slots(), || self.open_count() <= goal);
        self.close_until(&slots, Some(keep), true, &is_enough);
        self.close_until(&slots, Some(keep), false, &is_enough);
    }

    /// Closes readers if all of them pin more than they may. Those that pin little stay: without them it would be hardly less, and
    /// the next reads would open them again. So do a few that are in use, however much they pin.
    fn close_heavy(&self, keep: Option<&ReaderSlot>) {
        let (most, bytes) = (self.most_reader_bytes(), self.reader_bytes());
        if bytes <= most {
            return;
        }
        // Readers below half of the mean have less than half of all.
        let much = bytes / self.open_count().max(1) / 2;
        let mut heavy = self.open_slots();
        heavy.retain(|slot| {
            slot.open_reader().as_ref().is_some_and(|reader| reader.pinned_bytes() >= much)
        });
        let goal = less_an_eighth(most);
        let is_enough = || self.reader_bytes() <= goal;
        self.close_until(&heavy, keep, true, &is_enough);
        heavy.retain(|slot| slot.open_reader().is_some());
        heavy.truncate(heavy.len().saturating_sub(LEAST_OPEN));
        self.close_until(&heavy, keep, false, &is_enough);
    }

    /// Bytes that open readers pin.
    fn reader_bytes(&self) -> usize {
        self.reader_bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that they may.
    fn most_reader_bytes(&self) -> usize {
        let share = self.cache_share_bytes();
        (share - share / BLOCKS_PART).saturating_add(BESIDE_SHARE_BYTES)
    }

    /// Those with a reader: there may be many more files than descriptors.
    fn open_slots(&self) -> Vec<Arc<ReaderSlot>> {
        let is_open = |slot: &&Arc<ReaderSlot>| slot.reader.load().is_some();
        self.slots.lock().values().filter(is_open).cloned().collect()
    }

    /// Closes the readers of `slots` one after the other until it `is_enough`, and clears their marks; all but that of
    /// `keep` and, if it `spares_used`, those that have a mark.
    fn close_until(
        &self,
        slots: &[Arc<ReaderSlot>],
        keep: Option<&ReaderSlot>,
        spares_used: bool,
        is_enough: &dyn Fn() -> bool,
    ) {
        for slot in slots {
            if is_enough() {
                return;
            }
            let is_spared = slot.touched.swap(false, Ordering::Relaxed) && spares_used;
            let is_kept = keep.is_some_and(|keep| std::ptr::eq(Arc::as_ptr(slot), keep));
            if !is_spared && !is_kept {
                self.close(slot);
            }
        }
    }

    fn close(&self, slot: &ReaderSlot) {
        let _turn = self.turn.lock();
        if let Some(reader) = slot.reader.swap(None) {
            self.filters.reader_closed(reader.file_number(), &reader);
            self.reader_bytes.fetch_sub(reader.pinned_bytes(), Ordering::Relaxed);
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes and forgets a file that is no longer live.
    pub fn forget(&self, number: FileNumber) {
        let slot = self.slots.lock().remove(&number);
        if let Some(slot) = slot {
            self.close(&slot);
            self.charge();
        }
        self.filters.forget(number);
    }

    /// Whether another reader can be opened without closing one.
    pub fn has_room(&self) -> bool {
        let max_open = self.max_open.load(Ordering::Relaxed);
        self.open_count() < less_an_eighth(max_open)
            && self.reader_bytes() < less_an_eighth(self.most_reader_bytes())
    }

    /// Takes this many bytes from the block cache's share until the result is dropped.
    pub fn pin(this: &Arc<Self>, bytes: usize) -> Pinned {
        this.pinned_bytes.fetch_add(bytes, Ordering::Relaxed);
        this.charge();
        Pinned { table_cache: this.clone(), bytes }
    }

    /// Bytes that the block cache may hold while nothing is pinned or lent.
    pub fn cache_share_bytes(&self) -> usize {
        self.cache_memory.lock().share_bytes
    }

    /// Changes that, and what is lent to the block cache or, below zero, taken from it. A smaller cache is smaller
    /// when this returns, and what readers may not pin any more is given back.
    pub fn set_cache_memory(&self, share_bytes: usize, loan_bytes: isize) {
        {
            let mut memory = self.cache_memory.lock();
            *memory = CacheMemory { share_bytes, loan_bytes };
            self.options.cache.set_capacity_bytes(self.wanted_bytes(&memory));
        }
        self.close_heavy(None);
        self.charge();
    }

    /// Bytes that the block cache has since memtables do not use them.
    #[inline]
    pub fn memtable_loan_bytes(&self) -> usize {
        self.memtable_loan_bytes.load(Ordering::SeqCst)
    }

    /// A group of writes is about to take at most this many bytes in memtables.
    pub fn claim_for_memtables(&self, bytes: usize) -> MemtableClaim<'_> {
        self.claimed_bytes.fetch_add(bytes, Ordering::SeqCst);
        MemtableClaim { table_cache: self, bytes }
    }

    /// What groups of writes are about to take in memtables. To be read before what memtables have: a group that ends
    /// in between counts twice then, and never not at all.
    pub fn claimed_bytes(&self) -> usize {
        self.claimed_bytes.load(Ordering::SeqCst)
    }

    /// What the block cache may hold now, and what of it memtables lend; of one moment.
    pub fn cache_limits(&self) -> (usize, usize) {
        let _memory = self.cache_memory.lock();
        (self.options.cache.capacity_bytes(), self.memtable_loan_bytes())
    }

    /// Lends the block cache as much as `loan` plans after `accesses`, with memtables that use `used_bytes` of
    /// `share_bytes`.
    pub fn lend_from_memtables(
        &self,
        loan: &mut MemtableLoan,
        accesses: u64,
        used_bytes: usize,
        share_bytes: usize,
    ) {
        self.change_memtable_loan(|lent| loan.plan(accesses, lent, used_bytes, share_bytes));
    }

    /// Memtables are about to use `used_bytes` of `share_bytes`: the block cache gives back what it has of them, and is
    /// smaller when this returns.
    pub fn give_back_to_memtables(&self, used_bytes: usize, share_bytes: usize) {
        self.change_memtable_loan(|lent| memtable_loan::left_for(used_bytes, lent, share_bytes));
    }

    /// Memtables lend nothing.
    pub fn end_memtable_loan(&self) {
        self.change_memtable_loan(|_| 0);
    }

    /// Changes what memtables lend. `wanted` is arithmetic only: the last owner of a version that is dropped under this
    /// lock would wait for it, since what the version pins is charged under it ([`Pinned`]).
    fn change_memtable_loan(&self, wanted: impl FnOnce(usize) -> usize) {
        let memory = self.cache_memory.lock();
        let before = self.memtable_loan_bytes();
        let bytes = wanted(before);
        if bytes != before {
            self.memtable_loan_bytes.store(bytes, Ordering::SeqCst);
            self.options.cache.set_capacity_bytes(self.wanted_bytes(&memory));
        }
    }

    /// How often iterators were positioned: here, since they hold this and none of the other counters.
    pub fn seeks(&self) -> &Sharded {
        &self.seeks
    }

    /// What came of training.
    pub fn trainings(&self) -> &TrainingTally {
        &self.trainings
    }

    /// Lends the block cache this many bytes besides its share or, if they are below zero, takes them from it.
    pub fn lend(&self, bytes: isize) {
        let mut memory = self.cache_memory.lock();
        memory.loan_bytes = bytes;
        self.options.cache.set_capacity_bytes(self.wanted_bytes(&memory));
    }

    /// The most that filters may borrow of a share of this many bytes. The cache keeps what is pinned, and what
    /// metadata take: models and index partitions are what is left of a cache that is small beside the data, and are
    /// seldom read again when they have left it, so that the ghosts tell little of what they save. Where memtables
    /// lend it as much, it keeps little of its own: when they take it back, filters have more than this, and return it.
    pub fn most_borrowed_bytes(&self, share_bytes: usize) -> usize {
        let cache = &self.options.cache;
        let metadata = cache.stats().high_used_bytes;
        let slack = (metadata / KEPT_SLACK_PART).max(cache.shard_count() * KEPT_SLACK_BYTES);
        let kept = (metadata + slack).clamp(share_bytes / KEPT_PART, share_bytes / 2);
        let kept =
            kept.saturating_sub(self.memtable_loan_bytes()).max(share_bytes / LEAST_KEPT_PART);
        (share_bytes - kept).saturating_sub(self.pinned_bytes())
    }

    /// What readers pin is taken from the block cache's share of the budget; what they no longer pin comes back in
    /// larger pieces.
    fn charge(&self) {
        let memory = self.cache_memory.lock();
        let want = self.wanted_bytes(&memory);
        let have = self.options.cache.capacity_bytes();
        if want < have || want - have > memory.share_bytes / 128 {
            self.options.cache.set_capacity_bytes(want);
        }
    }

    fn wanted_bytes(&self, memory: &CacheMemory) -> usize {
        let pinned = self.pinned_bytes();
        let CacheMemory { share_bytes: all, loan_bytes: loan } = *memory;
        let taken = pinned.saturating_add(loan.min(0).unsigned_abs());
        // Where filters have borrowed, what is pinned since may take nearly all, until they have given back.
        let least = if loan < 0 { all / 64 } else { all / 16 };
        let lent = loan.max(0).unsigned_abs().saturating_add(self.memtable_loan_bytes());
        // What is lent goes before more than the share is taken.
        all.saturating_add(lent).saturating_sub(taken).max(least)
    }

    /// Where the SSTs lie.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Readers open now.
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Memtables that no read state has any more, and somebody may hold.
    pub fn left_memtables(&self) -> &LeftMemtables {
        &self.left_memtables
    }

    /// What the families have together.
    pub fn totals(&self) -> &Arc<FamilyTotals> {
        &self.totals
    }

    /// Bytes of top-level indexes and range tombstones that open readers pin, of level models, of memtables that
    /// only iterators and snapshots hold, of references to value segments, and of the registry of filters.
    pub fn pinned_bytes(&self) -> usize {
        self.reader_bytes() + self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// Of these, what is not that of readers.
    #[cfg(test)]
    pub fn bytes_pinned_beside_readers(&self) -> usize {
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

#[cfg(test)]
mod tests;
