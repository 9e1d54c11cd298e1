//! The slots of data blocks, and how slots of any kind are dropped.

use arc_swap::{ArcSwapAny, RefCnt};
use std::mem;
use std::sync::Arc;
use terrace_buf::Buf;

/// The slot of a data block: the block's memory.
pub(crate) type BlockSlot = ArcSwapAny<Option<Buf>>;

/// One slot per data block of an index partition.
pub(crate) struct BlockSlots(pub(super) Box<[BlockSlot]>);

impl BlockSlots {
    pub fn empty(count: usize) -> Arc<Self> {
        Arc::new(Self((0..count).map(|_| BlockSlot::new(None)).collect()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &BlockSlot> {
        self.0.iter()
    }
}

impl Drop for BlockSlots {
    fn drop(&mut self) {
        mem::take(&mut self.0).into_iter().for_each(let_go);
    }
}

/// Drops a slot; one that is empty at no cost. A drop sees to it that no reader still borrows what the slot held: some nine
/// atomic operations for each thread that the process has had at once.
pub(super) fn let_go<T>(slot: ArcSwapAny<Option<T>>)
where
    Option<T>: RefCnt,
{
    if slot.load().is_none() {
        // It owns nothing.
        mem::forget(slot);
    }
}
