//! An open SST: what is pinned, and the lookups.
//!
//! A lookup goes top-level index → index partition → data block → entry. The top level is pinned;
//! an index or filter partition is reached through its residency slot ([`crate::cached`]) if it is
//! in memory; a data block through the cache. What is missing is read by [`crate::load`]. A fully
//! cached lookup allocates nothing, takes no lock but the cache's, and copies no value.

mod tail;

pub(crate) use tail::payload;

use crate::block::{BlockRef, Located};
use crate::cached::{BlockCache, FilterSlot, LiveIndex, Resident, Slots};
use crate::counters::{Event, ReadCounters};
use crate::footer::Footer;
use crate::index::top_level::TopLevel;
use crate::iter::{ScanOptions, SstIter};
use crate::learned::{ByModel, ModelUse};
use crate::load::OnMiss;
use crate::multi_get::{BatchLookup, multi_get};
use crate::presence::{Plan, Presence};
use crate::properties::{COMPARATOR, Properties};
use crate::salvage::{self, TakeEntry, Unreadable};
use crate::stored::{Handle, Place};
use crate::tombstone_block;
use crate::verify::{self, VerifyReport};
use crate::watch::{BlockSaid, FilterSaid, Watch};
use std::path::Path;
use std::sync::Arc;
use tail::{Tail, check_top_level};
use terrace_base::checksum::hash_key;
use terrace_base::key::{SeqNo, seek_trailer};
use terrace_base::{Error, RangeTombstones, Result};
use terrace_cache::CacheKey;
use terrace_vfs::{Buf, OpenMode, RandomFile, Slice, Vfs};

/// Who decides which filter units are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilterMemory {
    /// The block cache: a filter partition is read whole when a lookup wants it, and evicted like
    /// any other metadata.
    #[default]
    Cached,
    /// Whoever calls [`crate::load_filter_units`] and [`crate::drop_filter_units`]: a lookup uses
    /// the units that are there and never reads any.
    Elastic,
}

/// What readers of one store share.
#[derive(Clone)]
pub struct ReaderOptions {
    /// Where blocks and metadata partitions live.
    pub cache: Arc<BlockCache>,
    /// Who decides which filter units are in memory.
    pub filter_memory: FilterMemory,
    /// Use learned indexes where files have them.
    pub models: bool,
    /// Read past the page cache.
    pub direct: bool,
    /// Where reads are counted.
    pub counters: Arc<ReadCounters>,
}

/// A point lookup: the key, its hash, and the newest version it may see.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    /// The key looked for.
    pub user_key: &'a [u8],
    /// [`hash_key`] of the key.
    pub hash: u64,
    /// The first trailer that is visible: [`seek_trailer`] of the read's sequence number.
    pub trailer: u64,
    /// Whether a data block that has to be read goes into the cache.
    pub fill_cache: bool,
    /// Read nothing: a lookup that needs a block or an index partition which is not in memory
    /// gives [`Error::NotInMemory`]; one that lacks a filter or a model goes on without.
    pub in_memory: bool,
}

impl<'a> Lookup<'a> {
    /// A lookup of the newest version of `user_key` at or below `seqno`, which fills the cache.
    #[inline]
    pub fn new(user_key: &'a [u8], seqno: SeqNo) -> Self {
        let (hash, trailer) = (hash_key(user_key), seek_trailer(seqno));
        Self { user_key, hash, trailer, fill_cache: true, in_memory: false }
    }
}

/// Which filter partition of a file covers a key ([`SstReader::prefetch_filter`]).
#[derive(Debug, Clone, Copy)]
pub struct FilterAt(pub(crate) usize);

/// A version found by a lookup.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its sequence number and kind.
    pub trailer: u64,
    /// Its stored value (with the expiry in front for `PutTtl`), pinned to its block.
    pub value: Slice,
}

/// An open SST. Shared by any number of threads; all methods take `&self`.
pub struct SstReader {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) file: Arc<dyn RandomFile>,
    pub(crate) file_number: u64,
    pub(crate) cache: Arc<BlockCache>,
    /// This reader's number in the cache.
    pub(crate) cache_file: u64,
    pub(crate) counters: Arc<ReadCounters>,
    pub(crate) filter_memory: FilterMemory,
    pub(crate) top: TopLevel,
    pub(crate) slots: Arc<Slots>,
    pub(crate) footer: Footer,
    pub(crate) model: ModelUse,
    presence: Presence,
    properties: Properties,
    range_tombstones: RangeTombstones,
    size_bytes: u64,
}

/// What the end of the SST at `path` says of the file, without opening it for reads.
///
/// # Errors
/// `Corruption` if the file does not end as a finished SST of this number does; I/O; `Unsupported`.
pub fn read_properties(vfs: &dyn Vfs, path: &Path, file_number: u64) -> Result<Properties> {
    let file = vfs.open(path, OpenMode::default())?;
    let tail = Tail::read(&*file, file_number, &ReadCounters::new())?;
    tail.decode(tail.footer.properties, Properties::decode)
}

/// What a lookup found out from one index partition.
pub(crate) enum Step {
    Done(Option<Entry>),
    /// Versions of the key may follow in the next partition.
    NextPartition,
}

impl SstReader {
    /// Opens the file with one read of its end, or two if its top level is large. `file_number`
    /// and `size_bytes` are what the manifest says; a file that is another or of another length
    /// is corrupt.
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        path: &Path,
        file_number: u64,
        size_bytes: u64,
        options: &ReaderOptions,
    ) -> Result<Arc<Self>> {
        let file = vfs.open(path, OpenMode { direct: options.direct, random: true })?;
        if file.len() != size_bytes {
            let detail = format!("the file has {} bytes, not {size_bytes}", file.len());
            return Err(Error::corruption(path, file.len().min(size_bytes), detail));
        }
        let tail = Tail::read(&*file, file_number, &options.counters)?;
        let properties = tail.decode(tail.footer.properties, Properties::decode)?;
        if properties.comparator != COMPARATOR {
            let detail = format!("unknown key order `{}`", properties.comparator.escape_debug());
            return Err(Error::Unsupported { path: path.to_path_buf(), detail });
        }
        let file_end = tail.footer.tail_offset();
        let top = tail.decode(tail.footer.top_level, |bytes| TopLevel::decode(bytes, file_end))?;
        check_top_level(&top, &properties, file_end)
            .map_err(|detail| Error::corruption(path, tail.footer.top_level.offset, detail))?;
        let range_tombstones = match tail.footer.range_tombstones {
            Some(handle) => tail.decode(handle, tombstone_block::decode)?,
            None => RangeTombstones::default(),
        };
        Ok(Arc::new(Self {
            vfs: vfs.clone(),
            footer: tail.footer,
            presence: Presence::default(),
            model: ModelUse::new(options.models, &top, &properties),
            file,
            file_number,
            cache_file: options.cache.next_file_id(),
            cache: options.cache.clone(),
            counters: options.counters.clone(),
            filter_memory: options.filter_memory,
            slots: Slots::new(top.index().len(), top.filters().len()),
            top,
            properties,
            range_tombstones,
            size_bytes,
        }))
    }

    /// Where the filter of a key is; asks for the cache line its probes touch if it is in memory.
    /// For [`SstReader::get_at`], a little later.
    #[inline]
    pub fn prefetch_filter(&self, lookup: &Lookup<'_>) -> FilterAt {
        let at = self.top.filter_at(lookup.user_key);
        if let Some(slot) = self.slots.filters.get(at)
            && let Some(filter) = &*slot.resident.load()
        {
            filter.prefetch(lookup.hash);
        }
        FilterAt(at)
    }

    pub(crate) fn count_filter(&self, may_contain: bool) {
        self.counters.count(Event::FilterCheck);
        if !may_contain {
            self.counters.count(Event::FilterNegative);
        }
    }

    /// The newest visible version of the key, without asking a filter.
    #[inline]
    pub fn get(&self, lookup: &Lookup<'_>) -> Result<Option<Entry>> {
        self.get_watched(lookup, &mut ())
    }

    #[inline]
    pub(crate) fn get_watched(
        &self,
        lookup: &Lookup<'_>,
        watch: &mut impl Watch,
    ) -> Result<Option<Entry>> {
        if self.model.is_active()
            && let ByModel::Done(found) = self.get_by_model(lookup, watch)?
        {
            return Ok(found);
        }
        self.find_watched(self.top.index_at(lookup.user_key), lookup, watch)
    }

    /// The newest visible version of the key, unless a filter says that there is none.
    #[inline]
    pub fn get_with_filter(&self, lookup: &Lookup<'_>) -> Result<Option<Entry>> {
        self.get_at(FilterAt(self.top.filter_at(lookup.user_key)), lookup)
    }

    /// As [`SstReader::get_with_filter`], for a key whose filter [`SstReader::prefetch_filter`] has
    /// located.
    #[inline]
    pub fn get_at(&self, at: FilterAt, lookup: &Lookup<'_>) -> Result<Option<Entry>> {
        self.get_at_watched(at, lookup, &mut ())
    }

    /// As [`SstReader::get_at`]; `watch` sees what happens.
    #[inline]
    pub fn get_at_watched(
        &self,
        at: FilterAt,
        lookup: &Lookup<'_>,
        watch: &mut impl Watch,
    ) -> Result<Option<Entry>> {
        let Some(slot) = self.slots.filters.get(at.0) else {
            // Past all filter partitions there is no key, unless the file has no filters at all.
            if self.top.filters().is_empty() {
                watch.filter(at.0, 0, FilterSaid::NoFilter);
                return self.get_watched(lookup, watch);
            }
            self.count_filter(false);
            watch.filter(at.0, 0, FilterSaid::Above);
            return Ok(None);
        };
        let may_contain = match &*slot.resident.load() {
            Some(filter) => {
                filter.touch();
                self.counters.count(Event::FilterHit);
                let may_contain = filter.may_contain(lookup.hash);
                watch.filter(at.0, filter.units(), said(may_contain));
                may_contain
            }
            None => return self.get_without_resident_filter(at.0, lookup, watch),
        };
        self.get_if(may_contain, slot, lookup, watch)
    }

    /// The rest of a lookup whose filter was asked.
    #[inline]
    fn get_if(
        &self,
        may_contain: bool,
        slot: &FilterSlot,
        lookup: &Lookup<'_>,
        watch: &mut impl Watch,
    ) -> Result<Option<Entry>> {
        self.count_filter(may_contain);
        if !may_contain {
            self.note_stopped(slot);
            return Ok(None);
        }
        let found = self.get_watched(lookup, watch)?;
        self.note_outcome(slot, found.is_some(), true);
        Ok(found)
    }

    #[inline]
    pub(crate) fn note_stopped(&self, slot: &FilterSlot) {
        if self.filter_memory == FilterMemory::Elastic {
            FilterSlot::count_often(&slot.stopped);
        }
    }

    /// Counts a lookup that searched the data. One in vain is counted in any case: it cost a read,
    /// or would have if the data were not in memory.
    #[inline]
    pub(crate) fn note_outcome(&self, slot: &FilterSlot, found: bool, filtered: bool) {
        if found {
            if self.filter_memory == FilterMemory::Elastic {
                FilterSlot::count_often(&slot.found);
            }
            return;
        }
        FilterSlot::count(&slot.vain, 1);
        self.counters.count(Event::WastedLookup);
        if filtered {
            self.counters.count(Event::FilterFalsePositive);
        }
    }

    /// A lookup whose filter partition is not in memory. What is read then, if the cache holds the
    /// filters, depends on how often keys are found in this file: see `presence.rs`.
    #[cold]
    fn get_without_resident_filter(
        &self,
        filter_at: usize,
        lookup: &Lookup<'_>,
        watch: &mut impl Watch,
    ) -> Result<Option<Entry>> {
        let slot = &self.slots.filters[filter_at];
        let index_at = self.top.index_at(lookup.user_key);
        let mut unfiltered = || {
            self.counters.count(Event::FilterAbsent);
            watch.filter(filter_at, 0, FilterSaid::NotInMemory);
            let found = self.get_watched(lookup, watch)?;
            self.note_outcome(slot, found.is_some(), false);
            Ok(found)
        };
        if self.filter_memory == FilterMemory::Elastic || lookup.in_memory {
            return unfiltered();
        }
        let found = match self.presence.plan() {
            Plan::SkipFilter => unfiltered()?,
            Plan::Together if !self.model.is_active() && self.index_is_missing(index_at) => {
                self.get_together(filter_at, index_at, lookup, watch)?
            }
            _ => {
                let filter = self.load_filter(filter_at)?;
                let may_contain = filter.may_contain(lookup.hash);
                watch.filter(filter_at, filter.units(), said(may_contain));
                self.get_if(may_contain, slot, lookup, watch)?
            }
        };
        self.presence.note(found.is_some());
        Ok(found)
    }

    /// Reads filter and index partition at once: one wait for the device instead of two.
    fn get_together(
        &self,
        filter_at: usize,
        index_at: usize,
        lookup: &Lookup<'_>,
        watch: &mut impl Watch,
    ) -> Result<Option<Entry>> {
        let slot = &self.slots.filters[filter_at];
        let (filter, index) = self.load_filter_and_index(filter_at, index_at)?;
        let may_contain = filter.may_contain(lookup.hash);
        watch.filter(filter_at, filter.units(), said(may_contain));
        self.count_filter(may_contain);
        if !may_contain {
            self.note_stopped(slot);
            return Ok(None);
        }
        let found = match self.find_in(&index, lookup, watch)? {
            Step::Done(found) => found,
            Step::NextPartition => self.find_watched(index_at + 1, lookup, watch)?,
        };
        self.note_outcome(slot, found.is_some(), true);
        Ok(found)
    }

    /// The newest visible version of the key in index partition `at` or a later one.
    #[inline]
    pub(crate) fn find(&self, at: usize, lookup: &Lookup<'_>) -> Result<Option<Entry>> {
        self.find_watched(at, lookup, &mut ())
    }

    #[inline]
    fn find_watched(
        &self,
        mut at: usize,
        lookup: &Lookup<'_>,
        watch: &mut impl Watch,
    ) -> Result<Option<Entry>> {
        self.counters.count(Event::LookupByIndex);
        while at < self.top.index().len() {
            match self.with_index(at, lookup, |index| self.find_in(index, lookup, watch))?? {
                Step::Done(found) => return Ok(found),
                Step::NextPartition => at += 1,
            }
        }
        Ok(None)
    }

    #[inline]
    fn find_in(
        &self,
        index: &Resident<LiveIndex>,
        lookup: &Lookup<'_>,
        watch: &mut impl Watch,
    ) -> Result<Step> {
        let mut at = index.lower_bound(lookup.user_key);
        watch.index(index.at(), at);
        while at < index.count() {
            let find = |block: &Buf| match BlockRef::checked(block)
                .find(lookup.user_key, lookup.trailer)
            {
                Located::Found { trailer, value } => {
                    Some(Step::Done(Some(Entry { trailer, value: value.pinned(block) })))
                }
                Located::Absent => Some(Step::Done(None)),
                Located::PastEnd => None,
            };
            let done = self.with_block(index, at, lookup, find)?;
            watch.block(Some(index.at()), at, step_said(&done));
            if let Some(done) = done {
                return Ok(done);
            }
            if !index.separator_is(at, lookup.user_key) {
                return Ok(Step::Done(None));
            }
            at += 1;
        }
        Ok(Step::NextPartition)
    }

    /// Many lookups, each as by [`SstReader::get_with_filter`]; in every round all partitions and
    /// blocks that are missing are read together. [`multi_get`] does this across files.
    pub fn multi_get(&self, lookups: &[Lookup<'_>]) -> Result<Vec<Option<Entry>>> {
        let mut batch: Vec<_> =
            lookups.iter().map(|lookup| BatchLookup::new(self, *lookup)).collect();
        multi_get(&mut batch)?;
        Ok(batch.into_iter().map(|lookup| lookup.found).collect())
    }

    /// A cursor over the entries; not valid before its first seek.
    pub fn iter(self: &Arc<Self>, options: ScanOptions) -> SstIter {
        SstIter::new(self.clone(), options)
    }

    /// Reads the whole file past the cache and checks every checksum and invariant. Fails with
    /// the first damage found.
    pub fn verify(self: &Arc<Self>) -> Result<VerifyReport> {
        verify::verify(self)
    }

    /// Gives every entry that can be read to `take`, in order, and tells what cannot: for a file that
    /// [`SstReader::verify`] refuses. Nothing else reads past damage.
    ///
    /// # Errors
    /// What `take` returns; I/O that is no damage ([`is_damage`](crate::is_damage)).
    pub fn salvage(self: &Arc<Self>, take: &mut TakeEntry<'_>) -> Result<Vec<Unreadable>> {
        salvage::entries(self, take)
    }

    /// The range tombstones of the file.
    pub fn range_tombstones(&self) -> &RangeTombstones {
        &self.range_tombstones
    }

    /// What the writer recorded.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The number under which the file was written.
    pub fn file_number(&self) -> u64 {
        self.file_number
    }

    /// The length of the file.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The name of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Bytes that stay in memory while the file is open, whatever the cache does.
    pub fn pinned_bytes(&self) -> usize {
        size_of::<Self>()
            + self.top.memory_bytes()
            + self.slots.memory_bytes()
            + self.range_tombstones.memory_bytes()
            + self.properties.memory_bytes()
    }

    /// About how many bytes of the file's data precede `user_key`. Reads nothing: exact to a
    /// block if the learned index or the index partition is resident, else to half a partition.
    pub fn approximate_offset(&self, user_key: &[u8]) -> u64 {
        if let Some(model) = self.resident_model()
            && let Some(guess) = model.locate(user_key)
            && user_key <= self.properties.largest.as_slice()
        {
            return model.handle(guess.block as usize).offset;
        }
        let at = self.top.index_at(user_key);
        let Some(place) = self.top.index().get(at) else { return self.properties.data_bytes };
        if let Some(index) = &*self.slots.index[at].load() {
            let block = index.lower_bound(user_key).min(index.count() - 1);
            return index.handle(block).offset;
        }
        place.data_offset.midpoint(self.data_end(at))
    }

    /// At most `count` user keys, ascending, that cut the data into parts of about equal size,
    /// for work that is to be split. Reads index partitions, past the cache, if there are few.
    pub fn index_separators(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let partitions = self.top.index().len();
        // (separator, where the data at or below it ends)
        let mut cuts: Vec<(Vec<u8>, u64)> = Vec::new();
        for at in 0..partitions {
            if partitions > count.saturating_mul(8) {
                cuts.push((self.top.index_separator(at).to_vec(), self.data_end(at)));
                continue;
            }
            let index = self.index_partition(at, OnMiss::Read)?;
            for block in 0..index.count() {
                let end = index.handle(block).end().unwrap_or(u64::MAX);
                cuts.push((index.separator(block), end));
            }
        }
        cuts.pop();
        let data_bytes = self.properties.data_bytes as u128;
        let wanted = |part: usize| (data_bytes * part as u128 / (count as u128 + 1)) as u64;
        let nearest = |part: usize| cuts.partition_point(|(_, end)| *end < wanted(part));
        let mut picked: Vec<usize> = (1..=count).map(nearest).collect();
        picked.dedup();
        let mut keys: Vec<Vec<u8>> =
            picked.into_iter().filter_map(|at| cuts.get(at).map(|cut| cut.0.clone())).collect();
        keys.dedup();
        Ok(keys)
    }

    /// Where the data of index partition `at` ends.
    pub(crate) fn data_end(&self, at: usize) -> u64 {
        let next = self.top.index().get(at + 1);
        next.map_or(self.properties.data_bytes, |next| next.data_offset)
    }

    #[inline]
    pub(crate) fn cache_key(&self, handle: Handle) -> CacheKey {
        CacheKey { file: self.cache_file, offset: handle.offset }
    }

    pub(crate) fn place(&self, handle: Handle) -> Place<'_> {
        let (path, file_number) = (self.file.path(), self.file_number);
        Place { path, file_number, offset: handle.offset }
    }
}

impl Drop for SstReader {
    /// Nobody can reach this reader's partitions and blocks any more. Blocks without a slot age
    /// out of the cache, everything else leaves now.
    fn drop(&mut self) {
        self.remove_model();
        for (place, slot) in self.top.index().iter().zip(&*self.slots.index) {
            if let Some(index) = slot.load_full() {
                let slots = index.blocks().into_iter().flat_map(|blocks| blocks.iter());
                for (at, _) in slots.enumerate().filter(|(_, slot)| slot.load().is_some()) {
                    self.cache.remove(&self.cache_key(index.handle(at)));
                }
            }
            self.cache.remove(&self.cache_key(place.handle));
        }
        if self.filter_memory == FilterMemory::Cached {
            for place in self.top.filters() {
                self.cache.remove(&self.cache_key(place.whole()));
            }
        }
    }
}

#[inline]
fn said(may_contain: bool) -> FilterSaid {
    if may_contain { FilterSaid::Maybe } else { FilterSaid::No }
}

#[inline]
fn step_said(step: &Option<Step>) -> BlockSaid {
    match step {
        Some(Step::Done(Some(_))) => BlockSaid::Found,
        Some(_) => BlockSaid::Absent,
        None => BlockSaid::After,
    }
}
