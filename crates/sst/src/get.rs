//! Point lookups in an SST: filter partition, then index partition, then data block, then entry.
//!
//! With a learned index in memory the block is found by the model ([`crate::learned`]); the filter is asked
//! all the same.

use crate::block::{BlockRef, Located};
use crate::counters::Event;
use crate::filter_read_policy::Plan;
use crate::learned::ByModel;
use crate::lookup::{Entry, EntryAt, FilterAt, Lookup};
use crate::lookup_trace::{BlockSaid, FilterSaid, LookupTrace};
use crate::reader::{FilterMemory, SstReader};
use crate::residency::{FilterSlot, ResidentIndex, SlotEntry};
use terrace_base::Result;
use terrace_buf::Buf;

/// What a lookup found out from one index partition.
pub(crate) enum Step {
    Done(Option<Entry>),
    /// Versions of the key may follow in the next partition.
    NextPartition,
}

impl SstReader {
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
    pub fn get_unfiltered(&self, lookup: &Lookup<'_>) -> Result<Option<Entry>> {
        self.get_data(EntryAt::default(), lookup, &mut ())
    }

    #[inline]
    pub(crate) fn get_data(
        &self,
        expected: EntryAt,
        lookup: &Lookup<'_>,
        trace: &mut impl LookupTrace,
    ) -> Result<Option<Entry>> {
        if self.model.is_active()
            && let ByModel::Done(found) = self.get_by_model(expected, lookup, trace)?
        {
            return Ok(found);
        }
        self.find_data(self.top.index_at(lookup.user_key), lookup, trace)
    }

    /// The newest visible version of the key, unless a filter says that there is none.
    #[inline]
    pub fn get(&self, lookup: &Lookup<'_>) -> Result<Option<Entry>> {
        let at = FilterAt(self.top.filter_at(lookup.user_key));
        self.get_at((at, EntryAt::default()), lookup, &mut ())
    }

    /// As [`SstReader::get`], for a key whose filter [`SstReader::prefetch_filter`] has
    /// located, and whose entry [`SstReader::prefetch_entry`] may have.
    #[inline]
    pub fn get_at<T: LookupTrace>(
        &self,
        (at, expected): (FilterAt, EntryAt),
        lookup: &Lookup<'_>,
        trace: &mut T,
    ) -> Result<Option<Entry>> {
        if T::IS_BLIND
            && let Some(entry) = self.get_expected(expected, lookup)
        {
            self.count_passed(at, lookup);
            return Ok(Some(entry));
        }
        let Some(slot) = self.slots.filters.get(at.0) else {
            // Past all filter partitions there is no key, unless the file has no filters at all.
            if self.top.filters().is_empty() {
                trace.filter(at.0, 0, FilterSaid::NoFilter);
                return self.get_data(expected, lookup, trace);
            }
            self.count_filter(false);
            trace.filter(at.0, 0, FilterSaid::Above);
            return Ok(None);
        };
        let may_contain = match &*slot.resident.load() {
            Some(filter) => {
                filter.touch();
                self.counters.count(Event::FilterHit);
                let may_contain = filter.may_contain(lookup.hash);
                trace.filter(at.0, filter.units(), said(may_contain));
                may_contain
            }
            None => return self.get_without_resident_filter((at.0, expected), lookup, trace),
        };
        self.get_if(may_contain, (slot, expected), lookup, trace)
    }

    /// Counts a lookup that has found its key without asking the filter, as if it had asked: filters let keys pass that
    /// are there.
    #[inline]
    pub(crate) fn count_passed(&self, at: FilterAt, lookup: &Lookup<'_>) {
        let Some(slot) = self.slots.filters.get(at.0) else { return };
        let is_resident = match &*slot.resident.load() {
            Some(filter) => {
                // Only a filter that the cache holds can be evicted as unused.
                if self.filter_memory == FilterMemory::Cached {
                    filter.touch();
                }
                true
            }
            None => false,
        };
        if is_resident {
            self.counters.count(Event::FilterHit);
            self.count_filter(true);
        } else {
            self.counters.count(Event::FilterAbsent);
            if self.may_read_filter(slot, lookup) {
                self.filter_read_policy.note(true);
            }
        }
        self.note_outcome(slot, true, is_resident);
    }

    /// Whether a lookup whose filter partition is not in memory may read it.
    #[inline]
    pub(crate) fn may_read_filter(&self, slot: &FilterSlot, lookup: &Lookup<'_>) -> bool {
        let is_done_without = lookup.in_memory || slot.damaged_from().is_some();
        self.filter_memory == FilterMemory::Cached && !is_done_without
    }

    /// The rest of a lookup whose filter was asked.
    #[inline]
    fn get_if(
        &self,
        may_contain: bool,
        (slot, expected): (&FilterSlot, EntryAt),
        lookup: &Lookup<'_>,
        trace: &mut impl LookupTrace,
    ) -> Result<Option<Entry>> {
        self.count_filter(may_contain);
        if !may_contain {
            self.note_stopped(slot);
            return Ok(None);
        }
        let found = self.get_data(expected, lookup, trace)?;
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
    /// filters, depends on how often keys are found in this file: see `filter_read_policy.rs`.
    #[cold]
    fn get_without_resident_filter(
        &self,
        (filter_at, expected): (usize, EntryAt),
        lookup: &Lookup<'_>,
        trace: &mut impl LookupTrace,
    ) -> Result<Option<Entry>> {
        let slot = &self.slots.filters[filter_at];
        let index_at = self.top.index_at(lookup.user_key);
        let mut unfiltered = || {
            self.counters.count(Event::FilterAbsent);
            trace.filter(filter_at, 0, FilterSaid::NotInMemory);
            let found = self.get_data(expected, lookup, trace)?;
            self.note_outcome(slot, found.is_some(), false);
            Ok(found)
        };
        if !self.may_read_filter(slot, lookup) {
            return unfiltered();
        }
        let found = match self.filter_read_policy.plan() {
            Plan::SkipFilter => unfiltered()?,
            Plan::Together if !self.model.is_active() && self.index_is_missing(index_at) => {
                self.get_together(filter_at, index_at, lookup, trace)?
            }
            _ => match self.load_filter(filter_at)? {
                Some(filter) => {
                    let may_contain = filter.may_contain(lookup.hash);
                    trace.filter(filter_at, filter.units(), said(may_contain));
                    self.get_if(may_contain, (slot, expected), lookup, trace)?
                }
                None => unfiltered()?,
            },
        };
        self.filter_read_policy.note(found.is_some());
        Ok(found)
    }

    /// Reads filter and index partition at once: one wait for the device instead of two.
    fn get_together(
        &self,
        filter_at: usize,
        index_at: usize,
        lookup: &Lookup<'_>,
        trace: &mut impl LookupTrace,
    ) -> Result<Option<Entry>> {
        let slot = &self.slots.filters[filter_at];
        let (filter, index) = self.load_filter_and_index(filter_at, index_at)?;
        if let Some(filter) = &filter {
            let may_contain = filter.may_contain(lookup.hash);
            trace.filter(filter_at, filter.units(), said(may_contain));
            self.count_filter(may_contain);
            if !may_contain {
                self.note_stopped(slot);
                return Ok(None);
            }
        } else {
            self.counters.count(Event::FilterAbsent);
            trace.filter(filter_at, 0, FilterSaid::NotInMemory);
        }
        let found = match self.find_in(&*index?, lookup, trace)? {
            Step::Done(found) => found,
            Step::NextPartition => self.find_data(index_at + 1, lookup, trace)?,
        };
        self.note_outcome(slot, found.is_some(), filter.is_some());
        Ok(found)
    }

    /// The newest visible version of the key in index partition `at` or a later one.
    #[inline]
    fn find_data(
        &self,
        mut at: usize,
        lookup: &Lookup<'_>,
        trace: &mut impl LookupTrace,
    ) -> Result<Option<Entry>> {
        self.counters.count(Event::LookupByIndex);
        while at < self.top.index().len() {
            match self.with_index(at, lookup, |index| self.find_in(index, lookup, trace))?? {
                Step::Done(found) => return Ok(found),
                Step::NextPartition => at += 1,
            }
        }
        Ok(None)
    }

    #[inline]
    fn find_in(
        &self,
        index: &SlotEntry<ResidentIndex>,
        lookup: &Lookup<'_>,
        trace: &mut impl LookupTrace,
    ) -> Result<Step> {
        let mut at = index.lower_bound(lookup.user_key);
        trace.index(index.at(), at);
        while at < index.count() {
            let find = |block: &Buf| match BlockRef::checked(block)
                .find(lookup.user_key, lookup.trailer)
            {
                Located::Found { trailer, value } => {
                    Some(Step::Done(self.seen(lookup, trailer, value.pinned(block))))
                }
                Located::Absent => Some(Step::Done(None)),
                Located::PastEnd => None,
            };
            let done = self.with_block(index, at, lookup, find)?;
            trace.block(Some(index.at()), at, step_said(&done));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::residency::{CacheContent, CachedBlock};
    use crate::test_files::{KEYS, file_in_memory, key};
    use terrace_base::MAX_SEQNO;
    use terrace_cache::Cached;

    /// The cache would evict it before what is used less.
    #[test]
    fn a_filter_is_used_by_lookups_that_find_their_key_before_they_ask_it() {
        let reader = file_in_memory(b"value");
        let was_used = |at: usize| {
            let filter = reader.slots.filters[at].resident.load_full().unwrap();
            CachedBlock(CacheContent::Filter(filter)).take_touched()
        };
        for at in 0..KEYS {
            let user_key = key(at);
            let lookup = Lookup::new(&user_key, MAX_SEQNO);
            let filter_at = reader.filter_at(&lookup);
            was_used(filter_at.0);
            let expected = reader.prefetch_entry(&user_key);
            assert!(expected.is_in_memory() && !was_used(filter_at.0));
            assert!(reader.get_at((filter_at, expected), &lookup, &mut ()).unwrap().is_some());
            assert!(was_used(filter_at.0), "key {at}");
        }
    }
}
