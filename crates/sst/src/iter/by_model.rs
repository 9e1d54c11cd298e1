//! Seeks through the learned index: to the block without an index partition (scan).
//!
//! What the model says is believed only where the block proves it: the target lies behind the block's first entry
//! and not behind its last, or is the key of the first entry, of which no version ends the block before. Everything
//! else, and everything that is not in a slot of the model, goes through the index partitions.

use super::{Page, SstIter};
use crate::block::{DataBlock, prefetch, prefetch_around};
use crate::residency::{ResidentModel, SlotEntry};
use terrace_buf::Buf;

/// Bytes behind the entry of a seek that are asked for: a few steps are to follow.
const PREFETCH_BYTES: usize = 1024;

/// How far behind its entry a step asks for a line of entries to come.
const STEP_AHEAD_BYTES: usize = 512;

/// Entries that may be left in a block before the one behind it is asked for.
const FEW_ENTRIES: usize = 12;

impl SstIter {
    /// Whether blocks come from memory.
    fn takes_cached_blocks(&self) -> bool {
        self.options.readahead_bytes == 0 || self.options.in_memory
    }

    /// Asks for the block of `user_key` for the seek that follows.
    #[inline]
    pub(super) fn prepare(&mut self, user_key: &[u8]) {
        if self.takes_cached_blocks() {
            self.expected = self.reader.prefetch_entry(user_key);
        }
    }

    /// Stands on the first entry at or after `(user_key, trailer)`, if the model leads there; else the cursor is
    /// not valid.
    pub(super) fn seek_by_model(&mut self, user_key: &[u8], trailer: u64) -> bool {
        let expected = std::mem::take(&mut self.expected);
        if !self.takes_cached_blocks() {
            return false;
        }
        let asked = || self.reader.prefetch_entry(user_key).guess;
        let Some(guess) = expected.guess.or_else(asked) else { return false };
        let block = guess.block as usize;
        let ordinal = block as u64;
        let model = self.reader.slots.model.load();
        let Some(model) = model.as_ref().filter(|_| self.reader.model.is_active()) else {
            return false;
        };
        if self.ordinal != Some(ordinal) {
            let Some(page) = self.reader.slotted_block(model, block) else { return false };
            model.touch();
            self.enter_page(page, ordinal);
        }
        let Some(place) = self.reader.top.partition_of_block(ordinal) else { return false };
        (self.index_at, self.block_at) = place;
        let at = self.block().lower_bound(user_key, trailer);
        if at >= self.layout.count as usize || at == 0 && model.is_continued(block) {
            return false;
        }
        self.settle(at);
        self.valid = at > 0 || self.key == user_key;
        if self.valid {
            self.prefetch_steps(model, block);
        }
        self.valid
    }

    /// Asks for what steps after the next few read.
    #[inline]
    pub(super) fn prefetch_ahead(&self) {
        terrace_filter::prefetch_read(self.page_bytes(), self.value.end + STEP_AHEAD_BYTES);
    }

    /// Asks for what the next steps read.
    #[inline]
    fn prefetch_steps(&self, model: &SlotEntry<ResidentModel>, block: usize) {
        if let Page::Block(page) = &self.page {
            let from = self.value.end;
            page.buf().prefetch(from, (from + PREFETCH_BYTES).min(page.bytes().len()));
        }
        if self.at + FEW_ENTRIES > self.layout.count as usize {
            prefetch_front(model, block + 1);
        }
    }

    fn enter_page(&mut self, page: Buf, ordinal: u64) {
        let page = DataBlock::checked(page);
        self.layout = page.layout();
        self.page = Page::Block(page);
        self.ordinal = Some(ordinal);
        self.begin_key();
    }

    /// Goes from the current block, which must be the one of `index_at` and `block_at`, to the next one if that is
    /// in a slot of the model, and asks for the one behind it.
    pub(super) fn enter_next_by_model(&mut self) -> bool {
        let Some(ordinal) = self.ordinal.map(|ordinal| ordinal + 1) else { return false };
        if !self.takes_cached_blocks() || !self.ahead.is_empty() || !self.reader.model.is_active() {
            return false;
        }
        let block = ordinal as usize;
        let model = self.reader.slots.model.load();
        let Some(model) = &*model else { return false };
        let Some(page) = self.reader.slotted_block(model, block) else { return false };
        prefetch_front(model, block + 1);
        let index = self.reader.top.index();
        let blocks = index.get(self.index_at).map_or(0, |place| place.block_count);
        (self.index_at, self.block_at) = match self.block_at as u64 + 1 == blocks {
            true => (self.index_at + 1, 0),
            false => (self.index_at, self.block_at + 1),
        };
        self.enter_page(page, ordinal);
        true
    }
}

/// Asks for the first entries of a block, if it is in a slot of the model.
#[inline]
fn prefetch_front(model: &SlotEntry<ResidentModel>, block: usize) {
    if let Some(slot) = model.block_slot(block)
        && let Some(page) = &*slot.load()
    {
        prefetch(page);
        prefetch_around(page, model.place_within(0));
    }
}
