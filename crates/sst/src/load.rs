//! Getting blocks and partitions of an [`SstReader`]: from slot or cache, else from the file.
//!
//! What was read is checked whole, cached, and returned as an owned value, so that a caller makes
//! progress even when the cache is too small to keep it. Two threads that miss the same block
//! both read it; the later one's stays.

use crate::block::{DataBlock, prefetch, prefetch_around};
use crate::block_handle::{self, BlockHandle};
use crate::counters::Event;
use crate::damage::is_damage;
use crate::filter_partition::FilterPartition;
use crate::index::learned::LearnedIndex;
use crate::index::partition::IndexPartition;
use crate::index::top_level::FilterPlace;
use crate::lookup::Lookup;
use crate::multi_get::not_executed;
use crate::reader::SstReader;
use crate::residency::{
    CacheContent, CachedBlock, DataBlockEntry, ResidentIndex, ResidentModel, SlotEntry, Slots,
};
use std::ops::Range;
use std::sync::{Arc, Weak};
use terrace_base::{Error, Result};
use terrace_buf::{Buf, BufMut};
use terrace_cache::CacheKey;
use terrace_compression::Compression;
use terrace_vfs::ReadRequest;

/// What is done about a block or partition that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnMiss {
    /// It is read and goes into the cache.
    Fill,
    /// It is read past the cache.
    Read,
    /// The read is given up.
    Refuse,
}

impl OnMiss {
    pub fn of(fill_cache: bool, in_memory: bool) -> Self {
        match (in_memory, fill_cache) {
            (true, _) => Self::Refuse,
            (false, true) => Self::Fill,
            (false, false) => Self::Read,
        }
    }
}

impl SstReader {
    /// Calls `ask` with data block `at` of `index`: a checked block.
    #[inline]
    pub(crate) fn with_block<R>(
        &self,
        index: &SlotEntry<ResidentIndex>,
        at: usize,
        lookup: &Lookup<'_>,
        ask: impl FnOnce(&Buf) -> R,
    ) -> Result<R> {
        if let Some(slot) = index.block_slot(at)
            && let Some(block) = &*slot.load()
        {
            prefetch(block);
            self.note_block_hit(block, index, at);
            return Ok(ask(block));
        }
        match self.find_in_cache(index, at) {
            Some(block) => Ok(ask(&block)),
            None => Ok(ask(self.load_for(lookup, index.handle(at))?.buf())),
        }
    }

    /// Data block `at` of `index` if it is in memory.
    pub(crate) fn resident_block(
        &self,
        index: &SlotEntry<ResidentIndex>,
        at: usize,
    ) -> Option<DataBlock> {
        if let Some(slot) = index.block_slot(at)
            && let Some(block) = &*slot.load()
        {
            prefetch(block);
            self.note_block_hit(block, index, at);
            return Some(DataBlock::checked(block.clone()));
        }
        self.find_in_cache(index, at).map(DataBlock::checked)
    }

    #[inline]
    fn note_block_hit(&self, block: &Buf, index: &IndexPartition, at: usize) {
        self.counters.count(Event::DataBlockHit);
        if block.mark() {
            self.tell_cache(index.handle(at));
        }
    }

    /// The first use since the cache last looked is also counted by its own means, from which it
    /// tells blocks read once from those read again and again.
    #[cold]
    fn tell_cache(&self, handle: BlockHandle) {
        self.cache.get(&self.cache_key(handle));
    }

    /// Data block `at` of `index` by the cache's hash table. Found there, it moves into its slot;
    /// if the partition has no slots yet, this counts towards getting them.
    #[inline(never)]
    fn find_in_cache(&self, index: &SlotEntry<ResidentIndex>, at: usize) -> Option<Buf> {
        if self.model.is_active()
            && let Some(model) = &*self.slots.model.load()
        {
            let block = self.top.index()[index.at()].first_block as usize + at;
            return self.resident_model_block(model, block);
        }
        let key = self.cache_key(index.handle(at));
        let Some(CachedBlock(CacheContent::Data(entry))) = self.cache.get(&key) else {
            return None;
        };
        let block = entry.block().clone();
        prefetch(&block);
        self.counters.count(Event::DataBlockHit);
        if let Some(slots) = index.blocks() {
            entry.house(slots, at, &self.cache, key);
            return Some(block);
        }
        if index.note_reuse() {
            let housing = SlotEntry::new(index.with_slots(), index.at(), self.slots_weak());
            let handle = self.top.index()[index.at()].handle;
            housing.publish(&self.cache, self.cache_key(handle));
        }
        Some(block)
    }

    /// Calls `ask` with data block `at` of the file, a checked block; the entry that is wanted should
    /// be `within` / 256 of the way through it.
    #[inline]
    pub(crate) fn with_model_block<R>(
        &self,
        model: &SlotEntry<ResidentModel>,
        at: usize,
        within: u8,
        lookup: &Lookup<'_>,
        ask: impl FnOnce(&Buf) -> R,
    ) -> Result<R> {
        if let Some(slot) = model.block_slot(at)
            && let Some(block) = &*slot.load()
        {
            prefetch(block);
            prefetch_around(block, model.place_within(within));
            self.note_model_block_hit(block, model, at);
            return Ok(ask(block));
        }
        match self.find_model_block_in_cache(model, at) {
            Some(block) => Ok(ask(&block)),
            None => {
                let block = self.load_for(lookup, model.handle(at))?;
                model.note_miss();
                Ok(ask(block.buf()))
            }
        }
    }

    /// Data block `at` of the file if it is in memory.
    pub(crate) fn resident_model_block(
        &self,
        model: &SlotEntry<ResidentModel>,
        at: usize,
    ) -> Option<Buf> {
        self.slotted_block(model, at).or_else(|| self.find_model_block_in_cache(model, at))
    }

    /// Data block `at` of the file, if it is in a slot of its learned index.
    #[inline]
    pub(crate) fn slotted_block(&self, model: &SlotEntry<ResidentModel>, at: usize) -> Option<Buf> {
        let block = model.block_slot(at)?.load();
        let block = block.as_ref()?;
        prefetch(block);
        self.note_model_block_hit(block, model, at);
        Some(block.clone())
    }

    #[inline]
    pub(crate) fn note_model_block_hit(&self, block: &Buf, model: &LearnedIndex, at: usize) {
        self.counters.count(Event::DataBlockHit);
        if block.mark() {
            self.tell_cache(model.handle(at));
        }
    }

    /// As [`Self::find_in_cache`], of a file with a learned index.
    #[inline(never)]
    fn find_model_block_in_cache(
        &self,
        model: &SlotEntry<ResidentModel>,
        at: usize,
    ) -> Option<Buf> {
        let key = self.cache_key(model.handle(at));
        let Some(CachedBlock(CacheContent::Data(entry))) = self.cache.get(&key) else {
            return None;
        };
        let block = entry.block().clone();
        prefetch(&block);
        self.counters.count(Event::DataBlockHit);
        if let Some(slots) = model.slots() {
            entry.house(slots, at, &self.cache, key);
            return Some(block);
        }
        if model.note_reuse() {
            let housing = SlotEntry::new(model.with_slots(), 0, self.slots_weak());
            let offset = model.offset();
            housing.publish(&self.cache, CacheKey { file: self.cache_file, offset });
        }
        Some(block)
    }

    /// Gives each data block that the cache has, and that has no other, its slot in the learned index, if that got slots since
    /// this was last called: a lookup that finds its block by the hash table takes twice as long. Costs some 300 ns a block, once for as
    /// long as the slots live. Returns how many blocks got one.
    pub fn house_cached_blocks(&self) -> usize {
        let model = self.slots.model.load();
        let Some(model) = model.as_ref().filter(|model| model.take_unhoused()) else { return 0 };
        let slots =
            model.slots().into_iter().flat_map(|slots| slots.iter().map(move |slot| (slots, slot)));
        let empty = slots.enumerate().filter(|(_, (_, slot))| slot.load().is_none());
        let housed = empty.filter(|(at, (slots, _))| {
            match self.cache.peek(&self.cache_key(model.handle(*at))) {
                Some(CachedBlock(CacheContent::Data(entry))) => entry.house_here(slots, *at),
                _ => false,
            }
        });
        housed.count()
    }

    fn slots_weak(&self) -> Weak<Slots> {
        Arc::downgrade(&self.slots)
    }

    /// The data block at `handle`, which is not in memory, unless the lookup may not read.
    #[cold]
    fn load_for(&self, lookup: &Lookup<'_>, handle: BlockHandle) -> Result<DataBlock> {
        self.load_data_block(handle, OnMiss::of(lookup.fill_cache, lookup.in_memory))
    }

    #[cold]
    pub(crate) fn load_data_block(
        &self,
        handle: BlockHandle,
        on_miss: OnMiss,
    ) -> Result<DataBlock> {
        if on_miss == OnMiss::Refuse {
            return Err(Error::NotInMemory);
        }
        let fill_cache = on_miss == OnMiss::Fill;
        self.adopt_data_block(handle, self.read(handle)?, fill_cache)
    }

    /// Checks a data block that was read and caches it.
    pub(crate) fn adopt_data_block(
        &self,
        handle: BlockHandle,
        stored: BufMut,
        fill_cache: bool,
    ) -> Result<DataBlock> {
        self.counters.count(Event::DataBlockMiss);
        let place = self.place(handle);
        let buf = block_handle::unpack(stored, &place)?;
        let block = DataBlock::load(buf).map_err(|detail| place.corrupt(detail))?;
        if fill_cache {
            DataBlockEntry::new(block.buf().clone()).publish(&self.cache, self.cache_key(handle));
        }
        Ok(block)
    }

    /// Calls `ask` with index partition `at`, which must exist.
    #[inline]
    pub(crate) fn with_index<R>(
        &self,
        at: usize,
        lookup: &Lookup<'_>,
        ask: impl FnOnce(&SlotEntry<ResidentIndex>) -> R,
    ) -> Result<R> {
        if let Some(index) = &*self.slots.index[at].load() {
            index.touch();
            self.counters.count(Event::IndexHit);
            return Ok(ask(index));
        }
        let index = self.load_index(at, OnMiss::of(true, lookup.in_memory))?;
        Ok(ask(&index))
    }

    /// Index partition `at` to keep.
    pub(crate) fn index_partition(
        &self,
        at: usize,
        on_miss: OnMiss,
    ) -> Result<Arc<SlotEntry<ResidentIndex>>> {
        match self.slots.index[at].load_full() {
            Some(index) => {
                index.touch();
                self.counters.count(Event::IndexHit);
                Ok(index)
            }
            None => self.load_index(at, on_miss),
        }
    }

    pub(crate) fn index_is_missing(&self, at: usize) -> bool {
        self.slots.index.get(at).is_some_and(|slot| slot.load().is_none())
    }

    #[cold]
    fn load_index(&self, at: usize, on_miss: OnMiss) -> Result<Arc<SlotEntry<ResidentIndex>>> {
        if on_miss == OnMiss::Refuse {
            return Err(Error::NotInMemory);
        }
        let handle = self.top.index()[at].handle;
        self.adopt_index(at, self.read(handle)?, on_miss == OnMiss::Fill)
    }

    /// Filter partition `at`, read; `None` if it is damaged.
    #[cold]
    pub(crate) fn load_filter(&self, at: usize) -> Result<Option<Arc<SlotEntry<FilterPartition>>>> {
        let handle = self.top.filters()[at].whole();
        let stored = self.read(handle);
        self.unless_damaged(at, stored.and_then(|stored| self.adopt_filter(at, stored, true)))
    }

    /// What was read of filter partition `at`; `None` if it is damaged. That is noted then: lookups go on without it, and
    /// nobody reads it again.
    pub(crate) fn unless_damaged(
        &self,
        at: usize,
        filter: Result<Arc<SlotEntry<FilterPartition>>>,
    ) -> Result<Option<Arc<SlotEntry<FilterPartition>>>> {
        match filter {
            Err(error) if is_damage(&error) => {
                self.slots.filters[at].note_damage(0);
                self.counters.count(Event::FilterUnitDamage);
                Ok(None)
            }
            filter => filter.map(Some),
        }
    }

    /// Reads a filter and an index partition in one batch. `None` for a filter that is damaged; the index may not be
    /// needed once the filter has been asked.
    #[cold]
    #[expect(clippy::type_complexity, reason = "a pair of what the two adopt functions return")]
    pub(crate) fn load_filter_and_index(
        &self,
        filter_at: usize,
        index_at: usize,
    ) -> Result<(Option<Arc<SlotEntry<FilterPartition>>>, Result<Arc<SlotEntry<ResidentIndex>>>)>
    {
        let filter = self.top.filters()[filter_at].whole();
        let index = self.top.index()[index_at].handle;
        let bufs = match self.read_many(&[filter, index]) {
            // One of the two.
            Err(error) if is_damage(&error) => {
                return Ok((self.load_filter(filter_at)?, self.load_index(index_at, OnMiss::Fill)));
            }
            bufs => bufs?,
        };
        let mut bufs = bufs.into_iter();
        let (Some(filter), Some(index)) = (bufs.next(), bufs.next()) else {
            return Err(self.place(index).corrupt("a batch of two reads returned fewer"));
        };
        let filter = self.unless_damaged(filter_at, self.adopt_filter(filter_at, filter, true))?;
        Ok((filter, self.adopt_index(index_at, index, true)))
    }

    /// Checks an index partition that was read, also against what the top level says of it.
    pub(crate) fn adopt_index(
        &self,
        at: usize,
        stored: BufMut,
        fill_cache: bool,
    ) -> Result<Arc<SlotEntry<ResidentIndex>>> {
        self.counters.count(Event::IndexMiss);
        let listed = self.top.index()[at];
        let place = self.place(listed.handle);
        let buf = block_handle::unpack(stored, &place)?;
        let index = IndexPartition::load(buf).map_err(|detail| place.corrupt(detail))?;
        if index.data_range() != (listed.data_offset, self.data_end(at))
            || index.count() as u64 != listed.block_count
        {
            return Err(place.corrupt("the partition does not cover what the top level says"));
        }
        let resident = SlotEntry::new(ResidentIndex::new(index), at, self.slots_weak());
        if fill_cache {
            resident.publish(&self.cache, self.cache_key(listed.handle));
        }
        Ok(resident)
    }

    /// Checks a filter partition of which all units were read.
    pub(crate) fn adopt_filter(
        &self,
        at: usize,
        stored: BufMut,
        fill_cache: bool,
    ) -> Result<Arc<SlotEntry<FilterPartition>>> {
        self.counters.count(Event::FilterMiss);
        let listed = self.top.filters()[at];
        let units = listed.shape.unit_count;
        let buf = self.unpack_units(&listed, 0..units, stored)?;
        let filter = FilterPartition::load(buf, listed.shape, units)
            .map_err(|detail| self.place(listed.whole()).corrupt(detail))?;
        let resident = SlotEntry::new(filter, at, self.slots_weak());
        if fill_cache {
            resident.publish(&self.cache, self.cache_key(listed.whole()));
        }
        Ok(resident)
    }

    /// Checks `units` of a filter partition, which lie in `stored` as in the file, and brings their
    /// payloads together.
    fn unpack_units(
        &self,
        listed: &FilterPlace,
        units: Range<u8>,
        mut stored: BufMut,
    ) -> Result<Buf> {
        let mut end = 0;
        for unit in units.clone() {
            let start = self.check_unit(listed, units.start, unit, &stored)?;
            stored.copy_within(start.clone(), end);
            end += start.len();
        }
        stored.truncate(end);
        Ok(stored.freeze())
    }

    /// Checks unit `unit` of a filter partition in `stored`, which starts with unit `first`; says
    /// where in `stored` its payload is.
    pub(crate) fn check_unit(
        &self,
        listed: &FilterPlace,
        first: u8,
        unit: u8,
        stored: &[u8],
    ) -> Result<Range<usize>> {
        let handle = listed.unit(unit);
        let place = self.place(handle);
        let start = (handle.offset - listed.unit(first).offset) as usize;
        let block = stored.get(start..start + handle.stored_len as usize);
        let block = block.ok_or_else(|| place.corrupt("a filter unit is cut off"))?;
        match block_handle::check(block, &place)? {
            (payload, Compression::None) => Ok(start..start + payload.len()),
            _ => Err(place.corrupt("a filter unit is compressed")),
        }
    }

    /// The stored bytes of a block. Handles were checked against the length of the file.
    pub(crate) fn read(&self, handle: BlockHandle) -> Result<BufMut> {
        let mut buf = BufMut::for_overwrite(handle.stored_len as usize);
        self.count_read(buf.len());
        self.file.read_at(handle.offset, &mut buf)?;
        Ok(buf)
    }

    /// The stored bytes of several blocks, read together.
    pub(crate) fn read_many(&self, handles: &[BlockHandle]) -> Result<Vec<BufMut>> {
        let buf = |handle: &BlockHandle| BufMut::for_overwrite(handle.stored_len as usize);
        let mut bufs: Vec<BufMut> = handles.iter().map(buf).collect();
        let requests = handles.iter().zip(&mut bufs);
        let mut requests: Vec<ReadRequest<'_>> = requests
            .map(|(handle, buf)| ReadRequest::new(&*self.file, handle.offset, buf))
            .collect();
        self.vfs.read_batch(&mut requests);
        for request in requests {
            self.count_read(request.buf.len());
            request.result.unwrap_or_else(not_executed)?;
        }
        Ok(bufs)
    }

    pub(crate) fn count_read(&self, bytes: usize) {
        self.counters.count(Event::DeviceRead);
        self.counters.add(Event::DeviceReadBytes, bytes as u64);
    }
}

#[cfg(test)]
mod tests;
