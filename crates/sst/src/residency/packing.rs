//! Moves what the cache holds out of memory that is mostly free.
//!
//! Buffers lie in chunks of up to 2 MiB, and a chunk goes back to the system once all of it is free. What a cache evicts
//! lies anywhere, so that a cache that is made smaller frees a part of every chunk and no chunk as a whole. What is moved
//! ([`Buf::packed`]) is evicted when it would have been, and stands in the same slot. Models lie in no chunk, and filter
//! units outside of the cache are not moved.

use super::{
    BlockCache, CacheContent, CachedBlock, DataBlockEntry, ResidentIndex, SlotContent, SlotEntry,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use terrace_buf::Buf;

/// Moves what lies in memory that is not needed for all that is in use, so that the system gets it back. Looks at every
/// entry of the cache: some 30 ms for a GiB of blocks, and as long for each 100 MiB that are moved. `before_each` is called
/// before each entry is looked at, without a lock of the cache.
pub fn pack_cache(cache: &BlockCache, before_each: impl Fn()) {
    let packed = |entry: &CachedBlock| {
        before_each();
        packed(entry)
    };
    cache.replace_each(packed, place);
}

/// `entry` in another place, if it is to be moved.
fn packed(entry: &CachedBlock) -> Option<CachedBlock> {
    let content = match &entry.0 {
        CacheContent::Data(entry) => CacheContent::Data(entry.packed()?),
        CacheContent::Value(value) => CacheContent::Value(Arc::new(value.packed()?)),
        CacheContent::Index(index) => CacheContent::Index(index.moved(index.content.packed()?)),
        CacheContent::Filter(filter) => CacheContent::Filter(filter.moved(filter.packed()?)),
        CacheContent::Model(_) => return None,
    };
    Some(CachedBlock(content))
}

/// What the cache has taken in the place of something goes to its slot.
fn place(entry: &CachedBlock) {
    match &entry.0 {
        CacheContent::Data(entry) => entry.fill_slot(),
        CacheContent::Index(index) => index.fill_slot(),
        CacheContent::Filter(filter) => filter.fill_slot(),
        CacheContent::Value(_) | CacheContent::Model(_) => {}
    }
}

impl DataBlockEntry {
    fn packed(&self) -> Option<Arc<Self>> {
        let block: Buf = self.block.packed()?;
        let (evicted, home) = (AtomicBool::new(false), self.home.clone());
        Some(Arc::new(Self { block, evicted, home }))
    }
}

impl<T: SlotContent> SlotEntry<T> {
    /// The same with `content`, which has moved.
    fn moved(&self, content: T) -> Arc<Self> {
        let touched = AtomicBool::new(self.touched.load(Ordering::Relaxed));
        let (evicted, slots) = (AtomicBool::new(false), self.slots.clone());
        Arc::new(Self { content, touched, evicted, at: self.at, slots })
    }
}

impl ResidentIndex {
    fn packed(&self) -> Option<Self> {
        let index = self.index.packed()?;
        let reuses = AtomicUsize::new(self.reuses.load(Ordering::Relaxed));
        Some(Self { index, blocks: self.blocks.clone(), reuses })
    }
}
