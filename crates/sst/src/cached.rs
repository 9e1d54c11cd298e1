//! What the block cache holds, and the residency slots that let metadata be read past it.
//!
//! A reader owns one [`Slots`] entry per index and filter partition. A resident partition is in
//! its slot *and* in the cache: lookups go through the slot, without the cache's hash table and
//! locks, and only mark it touched; the cache charges it and decides when it must go, and then
//! [`Cached::on_evicted`] empties the slot.
//!
//! Publishing races with eviction: the loader stores the slot and then looks at `evicted`, the
//! evictor sets `evicted` and then clears the slot. Both in sequentially consistent order, so at
//! least one of them sees the other and no slot keeps an uncharged partition.

use crate::block::DataBlock;
use crate::filter_partition::FilterPartition;
use crate::index::partition::IndexPartition;
use arc_swap::ArcSwapOption;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use terrace_cache::{Cache, CacheKey, Cached, Priority};

/// The cache of all blocks and metadata partitions of a store.
pub type BlockCache = Cache<CachedBlock>;

/// A block or metadata partition as the cache holds it. Cheap to clone.
#[derive(Clone)]
pub struct CachedBlock(pub(crate) Content);

#[derive(Clone)]
pub(crate) enum Content {
    Data(DataBlock),
    Index(Arc<Resident<IndexPartition>>),
    Filter(Arc<Resident<FilterPartition>>),
}

// The hash table of the cache moves these around.
const _: () = assert!(size_of::<CachedBlock>() == 16);

impl CachedBlock {
    pub(crate) fn data(block: DataBlock) -> Self {
        Self(Content::Data(block))
    }
}

impl Cached for CachedBlock {
    fn charge_bytes(&self) -> usize {
        match &self.0 {
            Content::Data(block) => block.charge_bytes(),
            Content::Index(index) => index.charge_bytes(),
            Content::Filter(filter) => filter.charge_bytes(),
        }
    }

    fn priority(&self) -> Priority {
        match &self.0 {
            Content::Data(_) => Priority::Normal,
            Content::Index(_) | Content::Filter(_) => Priority::High,
        }
    }

    fn take_touched(&self) -> bool {
        match &self.0 {
            Content::Data(_) => false,
            Content::Index(index) => index.touched.swap(false, Ordering::Relaxed),
            Content::Filter(filter) => filter.touched.swap(false, Ordering::Relaxed),
        }
    }

    fn on_evicted(&self) {
        match &self.0 {
            Content::Data(_) => {}
            Content::Index(index) => Resident::evict(index),
            Content::Filter(filter) => Resident::evict(filter),
        }
    }
}

/// A metadata partition in memory, and the slot it is read through.
pub(crate) struct Resident<P> {
    partition: P,
    touched: AtomicBool,
    evicted: AtomicBool,
    /// Which of the slots is this partition's.
    at: usize,
    slots: Weak<Slots>,
}

impl<P> std::ops::Deref for Resident<P> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        &self.partition
    }
}

impl<P: Partition> Resident<P> {
    pub fn new(partition: P, at: usize, slots: &Arc<Slots>) -> Arc<Self> {
        Arc::new(Self {
            partition,
            touched: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            at,
            slots: Arc::downgrade(slots),
        })
    }

    /// Remembers a use for the cache; a store only for the first since it last asked.
    #[inline]
    pub fn touch(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    fn charge_bytes(&self) -> usize {
        size_of::<Self>() + self.partition.buffer_bytes()
    }

    /// Hands the partition to the cache and, unless that refused it, to its slot.
    pub fn publish(self: &Arc<Self>, cache: &BlockCache, key: CacheKey) {
        cache.insert(key, P::cached(self.clone()));
        if let Some(slots) = self.slots.upgrade()
            && !self.evicted.load(Ordering::SeqCst)
        {
            P::slots(&slots)[self.at].store(Some(self.clone()));
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

    /// Empties the slot if this very partition is in it.
    fn clear(self: &Arc<Self>, slots: &Slots) {
        P::slots(slots)[self.at].compare_and_swap(self, None);
    }
}

/// One slot per metadata partition of a file.
pub(crate) struct Slots {
    pub index: Box<[ArcSwapOption<Resident<IndexPartition>>]>,
    pub filters: Box<[ArcSwapOption<Resident<FilterPartition>>]>,
}

impl Slots {
    pub fn new(index_count: usize, filter_count: usize) -> Arc<Self> {
        Arc::new(Self {
            index: (0..index_count).map(|_| ArcSwapOption::empty()).collect(),
            filters: (0..filter_count).map(|_| ArcSwapOption::empty()).collect(),
        })
    }

    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.index) + size_of_val(&*self.filters)
    }
}

/// The two kinds of metadata partitions.
pub(crate) trait Partition: Sized + Send + Sync + 'static {
    fn slots(slots: &Slots) -> &[ArcSwapOption<Resident<Self>>];
    fn cached(resident: Arc<Resident<Self>>) -> CachedBlock;
    fn buffer_bytes(&self) -> usize;
}

impl Partition for IndexPartition {
    fn slots(slots: &Slots) -> &[ArcSwapOption<Resident<Self>>] {
        &slots.index
    }

    fn cached(resident: Arc<Resident<Self>>) -> CachedBlock {
        CachedBlock(Content::Index(resident))
    }

    fn buffer_bytes(&self) -> usize {
        self.charge_bytes()
    }
}

impl Partition for FilterPartition {
    fn slots(slots: &Slots) -> &[ArcSwapOption<Resident<Self>>] {
        &slots.filters
    }

    fn cached(resident: Arc<Resident<Self>>) -> CachedBlock {
        CachedBlock(Content::Filter(resident))
    }

    fn buffer_bytes(&self) -> usize {
        self.charge_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_vfs::Buf;

    fn resident(slots: &Arc<Slots>) -> Arc<Resident<FilterPartition>> {
        let kind = terrace_filter::FilterKind::BlockedBloom;
        let partition = FilterPartition::load(Buf::from(&[0; 64][..]), kind).unwrap();
        Resident::new(partition, 0, slots)
    }

    #[test]
    fn an_evicted_partition_leaves_its_slot_but_not_that_of_its_successor() {
        let slots = Slots::new(0, 1);
        let cache = BlockCache::new(1 << 20);
        let key = CacheKey { file: 1, offset: 0 };
        let (first, second) = (resident(&slots), resident(&slots));
        first.publish(&cache, key);
        assert!(Arc::ptr_eq(&slots.filters[0].load_full().unwrap(), &first));
        second.publish(&cache, key);
        CachedBlock(Content::Filter(first)).on_evicted();
        assert!(Arc::ptr_eq(&slots.filters[0].load_full().unwrap(), &second));
        cache.remove(&key);
        CachedBlock(Content::Filter(second.clone())).on_evicted();
        assert!(slots.filters[0].load().is_none());
        // Publishing what is evicted already keeps nothing.
        second.publish(&BlockCache::new(0), key);
        assert!(slots.filters[0].load().is_none());
    }

    #[test]
    fn touching_is_seen_once() {
        let slots = Slots::new(0, 1);
        let filter = resident(&slots);
        let cached = CachedBlock(Content::Filter(filter.clone()));
        assert!(!cached.take_touched());
        filter.touch();
        assert!(cached.take_touched() && !cached.take_touched());
    }
}
