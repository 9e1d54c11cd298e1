//! What the block cache holds, and the residency slots through which it is read.
//!
//! Everything in memory is in the cache, which charges it and decides when it must go. But a
//! lookup in a hash table costs several waits for memory and a lock, so what is read often also
//! stands in a *slot*, reached from what names it: a filter or index partition from the pinned top
//! level, a data block from its index partition. A read through a slot only marks the value as
//! touched; when the cache lets it go, [`Cached::on_evicted`] empties the slot.
//!
//! Publishing races with eviction: the publisher stores the slot and then looks at `evicted`, the
//! evictor sets `evicted` and then clears the slot. Both in sequentially consistent order, so at
//! least one of them sees the other and no slot keeps what is not charged.
//!
//! A file with a learned index in memory has the slots of its data blocks there ([`ResidentModel`]), and
//! its index partitions have none.
//!
//! Slots of data blocks cost 8 bytes a block, as much as the index itself. A partition gets them
//! only when its blocks have proven to be read from the cache, so that a cache far smaller than
//! the data keeps its memory for partitions ([`ResidentIndex`]).

pub(crate) use block_slots::{BlockSlot, BlockSlots};

use crate::counters::{EXACT_COUNTS, SAMPLE, is_sampled};
use crate::filter_partition::FilterPartition;
use crate::index::learned::LearnedIndex;
use crate::index::partition::IndexPartition;
use arc_swap::ArcSwapOption;
use block_slots::let_go;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::{mem, ptr};
use terrace_buf::{Buf, Slice};
use terrace_cache::{Cache, CacheKey, Cached, ENTRY_BYTES, Priority};

/// The cache of all blocks and metadata partitions of a store.
pub type BlockCache = Cache<CachedBlock>;

/// A block, metadata partition or separated value as the cache holds it. Cheap to clone.
#[derive(Clone)]
pub struct CachedBlock(pub(crate) CacheContent);

#[derive(Clone)]
pub(crate) enum CacheContent {
    Data(Arc<DataBlockEntry>),
    Index(Arc<SlotEntry<ResidentIndex>>),
    Filter(Arc<SlotEntry<FilterPartition>>),
    Model(Arc<SlotEntry<ResidentModel>>),
    Value(Arc<Slice>),
}

// The hash table of the cache moves these around.
const _: () = assert!(size_of::<CachedBlock>() == 16);

/// Bytes that a cached value takes besides its buffer.
const VALUE_OVERHEAD_BYTES: usize = size_of::<Slice>() + 2 * size_of::<usize>();

impl CachedBlock {
    /// A separated value, for the value log; it must keep no other bytes alive.
    pub fn of_value(value: Slice) -> Self {
        Self(CacheContent::Value(Arc::new(value)))
    }

    /// The separated value that this is.
    pub fn into_value(self) -> Option<Slice> {
        match self.0 {
            CacheContent::Value(value) => Some(Slice::clone(&value)),
            _ => None,
        }
    }
}

impl Cached for CachedBlock {
    fn charge_bytes(&self) -> usize {
        let bytes = match &self.0 {
            CacheContent::Data(entry) => entry.charge_bytes(),
            CacheContent::Index(index) => index.charge_bytes(),
            CacheContent::Value(value) => value.pinned_bytes() + VALUE_OVERHEAD_BYTES,
            CacheContent::Filter(filter) => filter.charge_bytes(),
            CacheContent::Model(model) => model.charge_bytes(),
        };
        ENTRY_BYTES + bytes
    }

    fn priority(&self) -> Priority {
        match &self.0 {
            CacheContent::Data(_) | CacheContent::Value(_) => Priority::Normal,
            CacheContent::Index(_) | CacheContent::Filter(_) | CacheContent::Model(_) => {
                Priority::High
            }
        }
    }

    fn take_touched(&self) -> bool {
        match &self.0 {
            CacheContent::Data(entry) => entry.block.take_mark(),
            CacheContent::Index(index) => index.take_touched(),
            // It is read through the cache itself, which notices.
            CacheContent::Value(_) => false,
            CacheContent::Filter(filter) => filter.take_touched(),
            CacheContent::Model(model) => model.take_touched(),
        }
    }

    fn on_evicted(&self) {
        match &self.0 {
            CacheContent::Data(entry) => entry.evict(),
            CacheContent::Index(index) => SlotEntry::evict(index),
            CacheContent::Value(_) => {}
            CacheContent::Filter(filter) => SlotEntry::evict(filter),
            CacheContent::Model(model) => SlotEntry::evict(model),
        }
    }
}

/// Something in memory, and the slot it may be read through.
pub(crate) struct SlotEntry<T: SlotContent> {
    content: T,
    touched: AtomicBool,
    evicted: AtomicBool,
    /// Which of the slots is this one's.
    at: usize,
    /// Dangling if it has none.
    slots: Weak<T::Slots>,
}

impl<T: SlotContent> Deref for SlotEntry<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.content
    }
}

impl<T: SlotContent> SlotEntry<T> {
    /// Bytes that a resident value takes besides its content.
    pub const OVERHEAD_BYTES: usize = size_of::<Self>() + 2 * size_of::<usize>();

    pub fn new(content: T, at: usize, slots: Weak<T::Slots>) -> Arc<Self> {
        let (touched, evicted) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { content, touched, evicted, at, slots })
    }

    /// Number of its slot, and with it of the partition or block.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Remembers a use for the cache; whether it is the first since the cache last asked. A store
    /// only then.
    #[inline]
    pub fn touch(&self) -> bool {
        let first = !self.touched.load(Ordering::Relaxed);
        if first {
            self.touched.store(true, Ordering::Relaxed);
        }
        first
    }

    fn take_touched(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }

    fn charge_bytes(&self) -> usize {
        Self::OVERHEAD_BYTES + self.content.memory_bytes()
    }

    /// Hands this to the cache and, unless that refused it, to its slot.
    pub fn publish(self: &Arc<Self>, cache: &BlockCache, key: CacheKey) {
        cache.insert(key, CachedBlock(T::cached(self.clone())));
        self.fill_slot();
    }

    /// Puts what the cache has taken into its slot, unless it has left.
    fn fill_slot(self: &Arc<Self>) {
        if let Some(slots) = self.slots.upgrade()
            && !self.evicted.load(Ordering::SeqCst)
        {
            T::slot(&slots, self.at).store(Some(self.clone()));
            if self.evicted.load(Ordering::SeqCst) {
                self.clear(&slots);
            }
        }
    }

    fn evict(this: &Arc<Self>) {
        this.evicted.store(true, Ordering::SeqCst);
        if let Some(slots) = this.slots.upgrade() {
            this.clear(&slots);
        }
    }

    /// Puts this into its slot without the cache's knowledge: somebody else accounts for it.
    pub fn put_uncharged(self: &Arc<Self>, slots: &T::Slots) {
        T::slot(slots, self.at).store(Some(self.clone()));
    }

    /// Empties the slot if this very value is in it.
    fn clear(self: &Arc<Self>, slots: &T::Slots) {
        T::slot(slots, self.at).compare_and_swap(self, None);
    }
}

/// What can be read through a slot.
pub(crate) trait SlotContent: Sized + Send + Sync + 'static {
    /// What holds the slots of this kind.
    type Slots: Send + Sync;

    fn slot(slots: &Self::Slots, at: usize) -> &Slot<Self>;
    fn cached(resident: Arc<SlotEntry<Self>>) -> CacheContent;
    fn memory_bytes(&self) -> usize;
}

pub(crate) type Slot<T> = ArcSwapOption<SlotEntry<T>>;

/// One slot per metadata partition of a file.
pub(crate) struct Slots {
    pub model: Slot<ResidentModel>,
    pub index: Box<[Slot<ResidentIndex>]>,
    pub filters: Box<[FilterSlot]>,
}

/// The slot of a filter partition, and how lookups fared there. The counts are estimates: racing
/// increments may lose one, and outcomes that cost next to nothing are sampled from
/// [`EXACT_COUNTS`] on.
#[derive(Default)]
pub(crate) struct FilterSlot {
    pub resident: Slot<FilterPartition>,
    /// Lookups that the filter ended.
    pub stopped: AtomicU32,
    /// Lookups that went on to the data and found nothing.
    pub vain: AtomicU32,
    /// Lookups that found their key.
    pub found: AtomicU32,
    /// One more than the first unit that turned out to be damaged; 0: none.
    damaged_from: AtomicU8,
}

impl FilterSlot {
    /// Adds to one of the counts. A plain load and store: losing an increment to another thread
    /// is cheaper than never losing one.
    #[inline]
    pub fn count(count: &AtomicU32, amount: u32) {
        count.store(count.load(Ordering::Relaxed).saturating_add(amount), Ordering::Relaxed);
    }

    /// Adds 1 to a count that grows fast where it matters for speed: above [`EXACT_COUNTS`] only
    /// one call in this many writes to memory that threads share.
    #[inline]
    pub fn count_often(count: &AtomicU32) {
        if count.load(Ordering::Relaxed) < EXACT_COUNTS {
            Self::count(count, 1);
        } else if is_sampled() {
            Self::count(count, SAMPLE);
        }
    }

    /// Notes that units from `unit` on are damaged.
    pub fn note_damage(&self, unit: u8) {
        self.damaged_from.store(unit.saturating_add(1), Ordering::Relaxed);
    }

    /// From which unit on they are known to be damaged.
    pub fn damaged_from(&self) -> Option<u8> {
        self.damaged_from.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Takes one back from what [`FilterSlot::count`] counts.
    pub fn take_back(count: &AtomicU32) {
        count.store(count.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }

    /// Takes one back from what [`FilterSlot::count_often`] counts, on average.
    pub fn take_back_often(count: &AtomicU32) {
        let known = count.load(Ordering::Relaxed);
        if known <= EXACT_COUNTS {
            Self::take_back(count);
        } else if is_sampled() {
            count.store(known.saturating_sub(SAMPLE), Ordering::Relaxed);
        }
    }
}

impl Slots {
    pub fn new(index_count: usize, filter_count: usize) -> Arc<Self> {
        Arc::new(Self {
            model: Slot::empty(),
            index: (0..index_count).map(|_| Slot::empty()).collect(),
            filters: (0..filter_count).map(|_| FilterSlot::default()).collect(),
        })
    }

    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.index) + size_of_val(&*self.filters)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        mem::take(&mut self.index).into_iter().for_each(let_go);
        mem::take(&mut self.filters).into_iter().for_each(|filter| let_go(filter.resident));
    }
}

/// A data block in memory. Unlike [`SlotEntry`] it is not what its slot holds: that is the block's
/// memory itself, so that a lookup waits for memory once less. A use is marked there.
pub(crate) struct DataBlockEntry {
    block: Buf,
    evicted: AtomicBool,
    /// Which slot is this one's, if it has got one: once for all.
    home: OnceLock<BlockHome>,
}

/// The slot of one data block.
#[derive(Clone)]
struct BlockHome {
    slots: Weak<BlockSlots>,
    at: usize,
}

impl DataBlockEntry {
    /// An entry without a slot for a checked block.
    pub fn new(block: Buf) -> Arc<Self> {
        Arc::new(Self { block, evicted: AtomicBool::new(false), home: OnceLock::new() })
    }

    /// Gives this, which the cache has, slot `at` of `slots`, unless it has left the cache. An entry that has a slot
    /// elsewhere, as of an index that was there before, goes, and another takes its place under `key`.
    pub fn house(&self, slots: &Arc<BlockSlots>, at: usize, cache: &BlockCache, key: CacheKey) {
        if !self.house_here(slots, at) {
            let other = Self::new(self.block.clone());
            cache.insert(key, CachedBlock(CacheContent::Data(other.clone())));
            other.house_here(slots, at);
        }
    }

    /// As [`Self::house`], if it has no slot elsewhere; whether that is so.
    pub fn house_here(&self, slots: &Arc<BlockSlots>, at: usize) -> bool {
        let home = self.home.get_or_init(|| BlockHome { slots: Arc::downgrade(slots), at });
        let is_here = ptr::eq(home.slots.as_ptr(), Arc::as_ptr(slots));
        if is_here {
            // With the one in `evict`: it finds the home, or this finds that it left.
            fence(Ordering::SeqCst);
            self.fill(slots, at);
        }
        is_here
    }

    pub fn block(&self) -> &Buf {
        &self.block
    }

    fn charge_bytes(&self) -> usize {
        size_of::<Self>() + 2 * size_of::<usize>() + self.block.charge_bytes()
    }

    /// Hands this to the cache. It has no slot yet: it gets one when it is found again.
    pub fn publish(self: Arc<Self>, cache: &BlockCache, key: CacheKey) {
        cache.insert(key, CachedBlock(CacheContent::Data(self)));
    }

    /// As [`SlotEntry::fill_slot`].
    fn fill_slot(&self) {
        if let Some(home) = self.home.get()
            && let Some(slots) = home.slots.upgrade()
        {
            self.fill(&slots, home.at);
        }
    }

    fn fill(&self, slots: &BlockSlots, at: usize) {
        if !self.evicted.load(Ordering::SeqCst) {
            slots.0[at].store(Some(self.block.clone()));
            if self.evicted.load(Ordering::SeqCst) {
                self.clear(slots, at);
            }
        }
    }

    fn evict(&self) {
        self.evicted.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if let Some(home) = self.home.get()
            && let Some(slots) = home.slots.upgrade()
        {
            self.clear(&slots, home.at);
        }
    }

    /// Empties the slot if this block is in it. Another entry of the same block may have put it
    /// there; it is then found by the cache's hash table and housed again.
    fn clear(&self, slots: &BlockSlots, at: usize) {
        slots.0[at].compare_and_swap(&Some(self.block.clone()), None);
    }
}

/// The learned index of a file and, once they pay, the slots of all its data blocks.
pub(crate) struct ResidentModel {
    index: LearnedIndex,
    blocks: Option<Arc<BlockSlots>>,
    /// Where the entries of a typical block lie.
    span: (u32, u32),
    /// Under which offset the cache has it.
    offset: u64,
    /// Data blocks found in the cache by its hash table, less those that were not, while there are
    /// no slots.
    reuses: AtomicUsize,
    /// Whether blocks that were in the cache when there came to be slots may still have none.
    unhoused: AtomicBool,
}

impl ResidentModel {
    pub fn new(index: LearnedIndex, offset: u64, span: (u32, u32)) -> Self {
        let (reuses, unhoused) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { index, blocks: None, span, offset, reuses, unhoused }
    }

    /// The same with slots for the file's blocks.
    pub fn with_slots(&self) -> Self {
        let blocks = Some(BlockSlots::empty(self.index.block_count()));
        let unhoused = AtomicBool::new(true);
        Self { blocks, unhoused, ..Self::new(self.index.clone(), self.offset, self.span) }
    }

    /// Whether blocks that are in the cache may have no slot since there are slots. Says so once.
    pub fn take_unhoused(&self) -> bool {
        self.unhoused.load(Ordering::Relaxed) && self.unhoused.swap(false, Ordering::Relaxed)
    }

    pub fn slots(&self) -> Option<&Arc<BlockSlots>> {
        self.blocks.as_ref()
    }

    #[inline]
    pub fn block_slot(&self, at: usize) -> Option<&BlockSlot> {
        self.blocks.as_ref()?.0.get(at)
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Memory without the slots.
    pub fn index_bytes(&self) -> usize {
        self.index.memory_bytes()
    }

    /// The model over first keys of blocks.
    pub fn blocks_model(&self) -> &terrace_learned::Model {
        self.index.blocks().model()
    }

    /// About where in a block the entry is that is `within` / 256 of the way through it.
    #[inline]
    pub fn place_within(&self, within: u8) -> usize {
        let (from, to) = self.span;
        let length = u64::from(to.saturating_sub(from));
        from as usize + ((length * u64::from(within)) >> 8) as usize
    }

    /// Notes that a block was found in the cache; whether slots pay from now on: when as many
    /// blocks as every eighth one of the file were found, more than were not.
    pub fn note_reuse(&self) -> bool {
        self.reuses.fetch_add(1, Ordering::Relaxed) == self.index.block_count() / 8
    }

    /// Notes that a block was not in the cache. Racing updates may lose one.
    pub fn note_miss(&self) {
        let reuses = self.reuses.load(Ordering::Relaxed);
        self.reuses.store(reuses.saturating_sub(1), Ordering::Relaxed);
    }
}

impl Deref for ResidentModel {
    type Target = LearnedIndex;

    #[inline]
    fn deref(&self) -> &LearnedIndex {
        &self.index
    }
}

impl SlotContent for ResidentModel {
    type Slots = Slots;

    fn slot(slots: &Slots, _: usize) -> &Slot<Self> {
        &slots.model
    }

    fn cached(resident: Arc<SlotEntry<Self>>) -> CacheContent {
        CacheContent::Model(resident)
    }

    fn memory_bytes(&self) -> usize {
        let slots = self.blocks.as_ref().map_or(0, |blocks| size_of_val(&*blocks.0));
        self.index.memory_bytes() + slots
    }
}

/// An index partition and, once they pay, the slots of its data blocks.
pub(crate) struct ResidentIndex {
    index: IndexPartition,
    blocks: Option<Arc<BlockSlots>>,
    /// Data blocks found in the cache by its hash table, while there are no slots.
    reuses: AtomicUsize,
}

impl ResidentIndex {
    pub fn new(index: IndexPartition) -> Self {
        Self { index, blocks: None, reuses: AtomicUsize::new(0) }
    }

    /// The same partition with slots for its blocks.
    pub fn with_slots(&self) -> Self {
        Self {
            index: self.index.clone(),
            blocks: Some(BlockSlots::empty(self.index.count())),
            reuses: AtomicUsize::new(0),
        }
    }

    pub fn blocks(&self) -> Option<&Arc<BlockSlots>> {
        self.blocks.as_ref()
    }

    #[inline]
    pub fn block_slot(&self, at: usize) -> Option<&BlockSlot> {
        self.blocks.as_ref()?.0.get(at)
    }

    /// Notes that a block was found in the cache; whether slots pay from now on: when about every
    /// second block has been found once.
    pub fn note_reuse(&self) -> bool {
        self.reuses.fetch_add(1, Ordering::Relaxed) == self.index.count() / 2
    }
}

impl Deref for ResidentIndex {
    type Target = IndexPartition;

    #[inline]
    fn deref(&self) -> &IndexPartition {
        &self.index
    }
}

impl SlotContent for ResidentIndex {
    type Slots = Slots;

    fn slot(slots: &Slots, at: usize) -> &Slot<Self> {
        &slots.index[at]
    }

    fn cached(resident: Arc<SlotEntry<Self>>) -> CacheContent {
        CacheContent::Index(resident)
    }

    fn memory_bytes(&self) -> usize {
        let slots = self.blocks.as_ref().map_or(0, |blocks| size_of_val(&*blocks.0));
        self.index.charge_bytes() + slots
    }
}

impl SlotContent for FilterPartition {
    type Slots = Slots;

    fn slot(slots: &Slots, at: usize) -> &Slot<Self> {
        &slots.filters[at].resident
    }

    fn cached(resident: Arc<SlotEntry<Self>>) -> CacheContent {
        CacheContent::Filter(resident)
    }

    fn memory_bytes(&self) -> usize {
        self.charge_bytes()
    }
}

mod block_slots;
pub(crate) mod packing;
#[cfg(test)]
mod tests;
