//! Point lookups through the learned index, and its life in memory.
//!
//! A lookup goes key → block → entry: the model says the block, the block's slot is reached without
//! an index partition, and the part of the block where the entry should be is asked for together
//! with its header. The block itself proves the answer. Where the model cannot say (keys that tie,
//! a key before the block's first, versions that began in the block before), the block before or
//! the index partitions do.
//!
//! The learned index is one entry of the block cache, with high priority, like an index partition.
//! It is read at the first lookup that wants it; if it is evicted, it is read again only after so
//! many lookups that reading it adds little to theirs. A damaged one is counted and not used again.

use crate::block::{BlockRef, Located, prefetch, prefetch_around};
use crate::block_handle::{self, BlockHandle};
use crate::counters::Event;
use crate::damage::is_damage;
use crate::index::learned::{LearnedIndex, LearnedWriter, Training};
use crate::iter::{ScanOptions, SstIter};
use crate::load::OnMiss;
use crate::lookup::{Entry, EntryAt, Lookup};
use crate::lookup_trace::{BlockSaid, LookupTrace};
use crate::reader::SstReader;
use crate::residency::{ResidentModel, SlotEntry};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::Result;
use terrace_base::sync::Instant;
use terrace_buf::{Buf, prefetch_value};
use terrace_cache::CacheKey;

/// Where the cache keeps a model that was trained in memory: no block lies there.
const TRAINED_OFFSET: u64 = u64::MAX;

/// After an eviction the model is read again when this many lookups went by per 512 bytes of it: each
/// of them may have read a block of 4 KiB.
const BYTES_PER_LOOKUP: u32 = 512;

/// Blocks that one lookup looks at because its key is in the cell of their first keys.
const MAX_TRIES: usize = 2;

/// What the learned index knows of a lookup.
pub(crate) enum ByModel {
    Done(Option<Entry>),
    /// The index partitions know.
    AskIndex,
}

/// What one block says of a key.
pub(crate) enum InBlock {
    Found(Entry),
    /// Found, as the block's first entry.
    FoundFirst(Entry),
    /// The key sorts before the block's first.
    Before,
    /// The block has no visible version, nor has one after it.
    Absent,
    /// All of the block sorts before it.
    PastEnd,
}

pub(crate) fn find_in_block(reader: &SstReader, buf: &Buf, lookup: &Lookup<'_>) -> InBlock {
    let block = BlockRef::checked(buf);
    match block.find_at(lookup.user_key, lookup.trailer) {
        (at, Located::Found { trailer, value }) => {
            match reader.seen(lookup, trailer, value.pinned(buf)) {
                Some(entry) if at == 0 => InBlock::FoundFirst(entry),
                Some(entry) => InBlock::Found(entry),
                None => InBlock::Absent,
            }
        }
        (0, Located::Absent) => InBlock::Before,
        (_, Located::Absent) => InBlock::Absent,
        (_, Located::PastEnd) => InBlock::PastEnd,
    }
}

#[inline]
fn block_said(found: &InBlock) -> BlockSaid {
    match found {
        InBlock::Found(_) | InBlock::FoundFirst(_) => BlockSaid::Found,
        InBlock::Before => BlockSaid::Before,
        InBlock::Absent => BlockSaid::Absent,
        InBlock::PastEnd => BlockSaid::After,
    }
}

impl SstReader {
    /// Where the learned index takes the key to be, if it is in memory; asks for the lines that a search there
    /// reads, if they are, too, and waits for none of them. All models of a file say the same of a key that is
    /// there, so the answer may be used with a later one.
    #[inline]
    pub fn prefetch_entry(&self, user_key: &[u8]) -> EntryAt {
        if !self.model.is_active() {
            return EntryAt::default();
        }
        let model = self.slots.model.load();
        let Some(model) = &*model else { return EntryAt::default() };
        let Some(aim) = model.blocks().aim(user_key) else { return EntryAt::default() };
        // Most likely the slot's line: no wait for the cell first.
        if let Some(slot) = model.block_slot(aim.last_block() as usize) {
            prefetch_value(slot);
        }
        let guess = model.blocks().locate_at(&aim);
        let mut is_in_memory = false;
        if let Some(slot) = model.block_slot(guess.block as usize)
            && let Some(block) = &*slot.load()
        {
            prefetch(block);
            prefetch_around(block, model.place_within(guess.within));
            is_in_memory = true;
        }
        EntryAt { guess: Some(guess), is_in_memory }
    }

    /// The newest visible version of the key, if it is where [`SstReader::prefetch_entry`] expected it, in memory.
    #[inline]
    pub(crate) fn get_expected(&self, expected: EntryAt, lookup: &Lookup<'_>) -> Option<Entry> {
        let block = expected.guess.filter(|_| expected.is_in_memory)?.block as usize;
        let model = self.slots.model.load();
        let model = model.as_ref()?;
        let resident = model.block_slot(block)?.load();
        let resident = resident.as_ref()?;
        let entry = match find_in_block(self, resident, lookup) {
            InBlock::FoundFirst(entry) if !model.is_continued(block) => entry,
            InBlock::Found(entry) => entry,
            _ => return None,
        };
        model.touch();
        self.note_model_block_hit(resident, model, block);
        self.counters.count(Event::LookupByModel);
        Some(entry)
    }

    /// The newest visible version of the key as the learned index finds it.
    #[inline]
    pub(crate) fn get_by_model(
        &self,
        expected: EntryAt,
        lookup: &Lookup<'_>,
        trace: &mut impl LookupTrace,
    ) -> Result<ByModel> {
        if let Some(model) = &*self.slots.model.load() {
            model.touch();
            return self.find_by_model(model, expected, lookup, trace);
        }
        match self.load_model_for(lookup) {
            Some(model) => self.find_by_model(&model, expected, lookup, trace),
            None => Ok(ByModel::AskIndex),
        }
    }

    #[inline]
    fn find_by_model(
        &self,
        model: &SlotEntry<ResidentModel>,
        expected: EntryAt,
        lookup: &Lookup<'_>,
        trace: &mut impl LookupTrace,
    ) -> Result<ByModel> {
        let guess = expected.guess.or_else(|| model.locate(lookup.user_key));
        trace.model(guess.map(|guess| guess.block));
        let Some(guess) = guess else { return Ok(ByModel::AskIndex) };
        let (mut block, mut within) = (guess.block as usize, guess.within);
        for _ in 0..MAX_TRIES {
            let find = |buf: &Buf| find_in_block(self, buf, lookup);
            let found = match self.with_model_block(model, block, within, lookup, find) {
                Ok(found) => found,
                // The block, or what the model says of its place: the index partition will tell.
                Err(error) if is_damage(&error) => return Ok(ByModel::AskIndex),
                Err(error) => return Err(error),
            };
            trace.block(None, block, block_said(&found));
            match found {
                InBlock::FoundFirst(_) if model.is_continued(block) => break,
                InBlock::Found(entry) | InBlock::FoundFirst(entry) => {
                    self.counters.count(Event::LookupByModel);
                    return Ok(ByModel::Done(Some(entry)));
                }
                InBlock::Before if block > 0 => (block, within) = (block - 1, u8::MAX),
                InBlock::Absent | InBlock::PastEnd | InBlock::Before => {
                    self.counters.count(Event::LookupByModel);
                    return Ok(ByModel::Done(None));
                }
            }
        }
        Ok(ByModel::AskIndex)
    }

    /// The learned index if it is in memory and used.
    pub(crate) fn resident_model(&self) -> Option<Arc<SlotEntry<ResidentModel>>> {
        if self.model.is_active() { self.slots.model.load_full() } else { None }
    }

    /// The learned index, read if that is allowed now.
    pub(crate) fn model_or_load(&self) -> Option<Arc<SlotEntry<ResidentModel>>> {
        if !self.model.is_active() {
            return None;
        }
        self.slots.model.load_full().or_else(|| self.load_model())
    }

    /// The learned index, which is not in memory, unless the lookup may not read; such a lookup
    /// does not count towards reading it either.
    #[cold]
    fn load_model_for(&self, lookup: &Lookup<'_>) -> Option<Arc<SlotEntry<ResidentModel>>> {
        if lookup.in_memory { None } else { self.load_model() }
    }

    #[cold]
    fn load_model(&self) -> Option<Arc<SlotEntry<ResidentModel>>> {
        let handle = self.model.stored?;
        let waited = self.model.waited.fetch_add(1, Ordering::Relaxed);
        if waited < handle.stored_len / BYTES_PER_LOOKUP {
            return None;
        }
        self.model.waited.store(0, Ordering::Relaxed);
        // Without the model the file is as readable as with it.
        let stored = self.read(handle).ok()?;
        let place = self.place(handle);
        let decoded = block_handle::unpack(stored, &place).and_then(|payload| {
            self.decode_model(&payload).map_err(|detail| place.corrupt(detail))
        });
        match decoded {
            Ok(index) => Some(self.attach_model(index, handle.offset)),
            Err(_) => {
                self.counters.count(Event::ModelDamage);
                self.model.set_active(false);
                None
            }
        }
    }

    /// Where the file has its learned index, if it has one and models are allowed.
    pub(crate) fn stored_model(&self) -> Option<BlockHandle> {
        self.model.stored.filter(|_| self.model.allowed)
    }

    pub(crate) fn decode_model(&self, payload: &[u8]) -> block_handle::Checked<LearnedIndex> {
        let properties = self.properties();
        LearnedIndex::decode(payload, properties.data_block_count, properties.data_bytes)
    }

    fn attach_model(&self, index: LearnedIndex, offset: u64) -> Arc<SlotEntry<ResidentModel>> {
        self.counters.count(Event::ModelLoad);
        let slots = Arc::downgrade(&self.slots);
        let resident = SlotEntry::new(ResidentModel::new(index, offset, self.model.span), 0, slots);
        resident.publish(&self.cache, CacheKey { file: self.cache_file, offset });
        resident
    }

    /// Whether lookups go through a learned index: that of the file, or one that
    /// [`SstReader::train`] made and the cache has kept.
    pub fn has_model(&self) -> bool {
        let stored = self.model.stored.is_some() || self.slots.model.load().is_some();
        self.model.is_active() && stored
    }

    /// Bytes of memory that the learned index takes now, slots of data blocks left out; 0 if it is
    /// not in memory. They are charged to the block cache.
    pub fn model_memory_bytes(&self) -> usize {
        self.slots.model.load().as_ref().map_or(0, |model| model.index_bytes())
    }

    /// Bytes of memory that the resident index partitions take now, slots of data blocks left out.
    pub fn index_memory_bytes(&self) -> usize {
        let bytes = |slot: &crate::residency::Slot<crate::residency::ResidentIndex>| {
            slot.load().as_ref().map_or(0, |index| index.charge_bytes())
        };
        self.slots.index.iter().map(bytes).sum()
    }

    /// Makes lookups go through a learned index: the one in the file if it has one, else one that
    /// is trained now, over all data blocks, read past the cache (about 40 ms for 64 MB that are in
    /// the page cache). It lives in the block cache; if that evicts it, the file has none again.
    /// `None` if the options of the reader forbid models. A model that does not pay is not used:
    /// see [`Training::model`].
    pub fn train(self: &Arc<Self>) -> Result<Option<Training>> {
        if !self.model.allowed {
            return Ok(None);
        }
        if let Some(handle) = self.model.stored {
            self.model.set_active(true);
            let model = Ok(u64::from(handle.stored_len));
            let stats = self.model_or_load().map(|model| *model.blocks_model().stats());
            return Ok(Some(Training { model, stats: stats.unwrap_or_default(), training_ns: 0 }));
        }
        let start = Instant::now();
        let mut writer = LearnedWriter::default();
        let mut key = Vec::new();
        self.for_each_block(|_, last_before, first, block, handle| {
            writer.start_block(last_before, first);
            for at in 0..block.count() {
                block.read_key(at, &mut key);
                writer.add(&key);
            }
            writer.finish_block(handle.stored_len);
        })?;
        let (payload, mut training) = writer.finish(self.properties().index_bytes);
        training.training_ns = start.elapsed().as_nanos() as u64;
        self.counters.add(Event::TrainingNs, training.training_ns);
        if let Some(payload) = payload {
            let place = self.place(BlockHandle::default());
            let index = self.decode_model(&payload).map_err(|detail| place.corrupt(detail))?;
            self.attach_model(index, TRAINED_OFFSET);
            self.model.set_active(true);
        }
        Ok(Some(training))
    }

    /// Makes lookups go through the index partitions, until [`SstReader::train`] is called.
    pub fn drop_model(&self) {
        self.model.set_active(false);
        self.remove_model();
    }

    pub(crate) fn remove_model(&self) {
        let Some(model) = self.slots.model.load_full() else { return };
        let slots = model.slots().into_iter().flat_map(|slots| slots.iter()).enumerate();
        let filled = slots.filter(|(_, slot)| slot.load().is_some());
        let blocks: Vec<CacheKey> =
            filled.map(|(at, _)| self.cache_key(model.handle(at))).collect();
        let key = CacheKey { file: self.cache_file, offset: model.offset() };
        // The slots go before what is in them, which has none to empty then.
        drop(model);
        self.cache.remove(&key);
        blocks.iter().for_each(|key| self.cache.remove(key));
    }

    /// Calls `visit` with every data block in order: its ordinal, the last key of the block before
    /// (empty for the first), and its first key; what a model over several files learns from.
    /// Reads the data past the cache in large pieces.
    pub fn for_each_first_key(
        self: &Arc<Self>,
        mut visit: impl FnMut(u32, &[u8], &[u8]),
    ) -> Result<()> {
        self.for_each_block(|block, last_before, first, _, _| visit(block, last_before, first))
    }

    fn for_each_block(
        self: &Arc<Self>,
        mut visit: impl FnMut(u32, &[u8], &[u8], BlockRef<'_>, BlockHandle),
    ) -> Result<()> {
        let mut iter = SstIter::new(self.clone(), ScanOptions::compaction());
        let (mut last, mut first) = (Vec::new(), Vec::new());
        let mut ordinal = 0;
        for index_at in 0..self.top.index().len() {
            let index = self.index_partition(index_at, OnMiss::Read)?;
            for block_at in 0..index.count() {
                let block = iter.visit_block(index_at, block_at)?;
                block.read_key(0, &mut first);
                visit(ordinal, &last, &first, block, index.handle(block_at));
                block.read_key(block.count() - 1, &mut last);
                ordinal += 1;
            }
        }
        Ok(())
    }

    /// Data blocks of the file.
    pub fn block_count(&self) -> u64 {
        self.properties().data_block_count
    }
}
