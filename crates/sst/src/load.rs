//! Getting blocks and partitions of an [`SstReader`]: from slot or cache, else from the file.
//!
//! What was read is checked whole, cached, and returned as an owned value, so that a caller makes
//! progress even when the cache is too small to keep it. Two threads that miss the same block
//! both read it; the later one's stays.

use crate::block::DataBlock;
use crate::cached::{CachedBlock, Content, Resident};
use crate::counters::Event;
use crate::filter_partition::FilterPartition;
use crate::index::partition::IndexPartition;
use crate::multi_get::not_executed;
use crate::reader::SstReader;
use crate::stored::{self, Handle};
use std::sync::Arc;
use terrace_base::Result;
use terrace_vfs::{BufMut, ReadRequest};

impl SstReader {
    /// Data block at `handle`.
    #[inline]
    pub(crate) fn data_block(&self, handle: Handle) -> Result<DataBlock> {
        match self.cached_data_block(handle) {
            Some(block) => Ok(block),
            None => self.load_data_block(handle, true),
        }
    }

    /// Data block at `handle` if the cache has it.
    #[inline]
    pub(crate) fn cached_data_block(&self, handle: Handle) -> Option<DataBlock> {
        match self.cache.get(&self.cache_key(handle)) {
            Some(CachedBlock(Content::Data(block))) => {
                self.counters.count(Event::DataBlockHit);
                Some(block)
            }
            _ => None,
        }
    }

    #[cold]
    pub(crate) fn load_data_block(&self, handle: Handle, fill_cache: bool) -> Result<DataBlock> {
        self.adopt_data_block(handle, self.read(handle)?, fill_cache)
    }

    /// Checks a data block that was read and caches it.
    pub(crate) fn adopt_data_block(
        &self,
        handle: Handle,
        stored: BufMut,
        fill_cache: bool,
    ) -> Result<DataBlock> {
        self.counters.count(Event::DataBlockMiss);
        let place = self.place(handle);
        let buf = stored::unpack(stored, &place)?;
        let block = DataBlock::load(buf).map_err(|detail| place.corrupt(detail))?;
        if fill_cache {
            self.cache.insert(self.cache_key(handle), CachedBlock::data(block.clone()));
        }
        Ok(block)
    }

    /// Calls `ask` with index partition `at`, which must exist.
    #[inline]
    pub(crate) fn with_index<R>(
        &self,
        at: usize,
        ask: impl FnOnce(&IndexPartition) -> R,
    ) -> Result<R> {
        if let Some(index) = &*self.slots.index[at].load() {
            index.touch();
            self.counters.count(Event::IndexHit);
            return Ok(ask(index));
        }
        Ok(ask(&*self.load_index(at, true)?))
    }

    /// Calls `ask` with filter partition `at`, which must exist.
    #[inline]
    pub(crate) fn with_filter<R>(
        &self,
        at: usize,
        ask: impl FnOnce(&FilterPartition) -> R,
    ) -> Result<R> {
        if let Some(filter) = &*self.slots.filters[at].load() {
            filter.touch();
            self.counters.count(Event::FilterHit);
            return Ok(ask(filter));
        }
        Ok(ask(&*self.load_filter(at)?))
    }

    /// Index partition `at` to keep; `fill_cache` decides whether a read makes it resident.
    pub(crate) fn index_partition(
        &self,
        at: usize,
        fill_cache: bool,
    ) -> Result<Arc<Resident<IndexPartition>>> {
        match self.slots.index[at].load_full() {
            Some(index) => {
                index.touch();
                self.counters.count(Event::IndexHit);
                Ok(index)
            }
            None => self.load_index(at, fill_cache),
        }
    }

    pub(crate) fn index_is_missing(&self, at: usize) -> bool {
        self.slots.index.get(at).is_some_and(|slot| slot.load().is_none())
    }

    pub(crate) fn filter_is_missing(&self, at: usize) -> bool {
        self.slots.filters.get(at).is_some_and(|slot| slot.load().is_none())
    }

    #[cold]
    fn load_index(&self, at: usize, fill_cache: bool) -> Result<Arc<Resident<IndexPartition>>> {
        let handle = self.top.index()[at].handle;
        self.adopt_index(at, self.read(handle)?, fill_cache)
    }

    #[cold]
    fn load_filter(&self, at: usize) -> Result<Arc<Resident<FilterPartition>>> {
        let handle = self.top.filters()[at].handle;
        self.adopt_filter(at, self.read(handle)?, true)
    }

    /// Reads a filter and an index partition in one batch.
    #[cold]
    #[expect(clippy::type_complexity, reason = "a pair of what the two adopt functions return")]
    pub(crate) fn load_filter_and_index(
        &self,
        filter_at: usize,
        index_at: usize,
    ) -> Result<(Arc<Resident<FilterPartition>>, Arc<Resident<IndexPartition>>)> {
        let filter = self.top.filters()[filter_at].handle;
        let index = self.top.index()[index_at].handle;
        let mut bufs = self.read_many(&[filter, index])?.into_iter();
        let (Some(filter), Some(index)) = (bufs.next(), bufs.next()) else {
            return Err(self.place(index).corrupt("a batch of two reads returned fewer"));
        };
        Ok((self.adopt_filter(filter_at, filter, true)?, self.adopt_index(index_at, index, true)?))
    }

    /// Checks an index partition that was read, also against what the top level says of it.
    pub(crate) fn adopt_index(
        &self,
        at: usize,
        stored: BufMut,
        fill_cache: bool,
    ) -> Result<Arc<Resident<IndexPartition>>> {
        self.counters.count(Event::IndexMiss);
        let listed = self.top.index()[at];
        let place = self.place(listed.handle);
        let buf = stored::unpack(stored, &place)?;
        let index = IndexPartition::load(buf).map_err(|detail| place.corrupt(detail))?;
        if index.data_range() != (listed.data_offset, self.data_end(at))
            || index.count() as u64 != listed.block_count
        {
            return Err(place.corrupt("the partition does not cover what the top level says"));
        }
        let resident = Resident::new(index, at, &self.slots);
        if fill_cache {
            resident.publish(&self.cache, self.cache_key(listed.handle));
        }
        Ok(resident)
    }

    /// Checks a filter partition that was read.
    pub(crate) fn adopt_filter(
        &self,
        at: usize,
        stored: BufMut,
        fill_cache: bool,
    ) -> Result<Arc<Resident<FilterPartition>>> {
        self.counters.count(Event::FilterMiss);
        let handle = self.top.filters()[at].handle;
        let place = self.place(handle);
        let Some(kind) = self.top.filter_kind() else {
            return Err(place.corrupt("a filter partition in a file without filters"));
        };
        let buf = stored::unpack(stored, &place)?;
        let filter = FilterPartition::load(buf, kind).map_err(|detail| place.corrupt(detail))?;
        let resident = Resident::new(filter, at, &self.slots);
        if fill_cache {
            resident.publish(&self.cache, self.cache_key(handle));
        }
        Ok(resident)
    }

    /// The stored bytes of a block. Handles were checked against the length of the file.
    pub(crate) fn read(&self, handle: Handle) -> Result<BufMut> {
        let mut buf = BufMut::for_overwrite(handle.stored_len as usize);
        self.count_read(buf.len());
        self.file.read_at(handle.offset, &mut buf)?;
        Ok(buf)
    }

    /// The stored bytes of several blocks, read together.
    pub(crate) fn read_many(&self, handles: &[Handle]) -> Result<Vec<BufMut>> {
        let buf = |handle: &Handle| BufMut::for_overwrite(handle.stored_len as usize);
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
