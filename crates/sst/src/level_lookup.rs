//! Lookups for callers that know more than a reader, or want to know more: in the data block that
//! a model of a whole level names, and with the way and the time that a lookup took.

use crate::block::{prefetch, prefetch_around};
use crate::counters::Event;
use crate::damage::is_damage;
use crate::learned::{InBlock, find_in_block};
use crate::lookup::{BlockPlace, FilterAt, InLevel, Lookup};
use crate::reader::{FilterMemory, SstReader};
use crate::residency::FilterSlot;
use terrace_base::Result;
use terrace_buf::Buf;

/// Whether a lookup passes a filter.
enum Passage<'a> {
    /// It does: the partition, unless the file has no filters, and whether it was asked.
    To(Option<(&'a FilterSlot, bool)>),
    Ended(InLevel),
}

impl SstReader {
    /// Which filter partition covers the key.
    #[inline]
    pub fn filter_at(&self, lookup: &Lookup<'_>) -> FilterAt {
        FilterAt(self.top.filter_at(lookup.user_key))
    }

    /// Asks the filter at `at` and then looks into data block `guess.ordinal` alone. If the key is
    /// most likely there, the block's lines are asked for first, so that one wait for memory hides
    /// the other.
    #[inline]
    pub fn get_at_block(
        &self,
        at: FilterAt,
        guess: BlockPlace,
        lookup: &Lookup<'_>,
    ) -> Result<InLevel> {
        if guess.likely
            && self.model.is_active()
            && let Some(model) = &*self.slots.model.load()
            && let Some(slot) = model.block_slot(guess.ordinal as usize)
            && let Some(block) = &*slot.load()
        {
            prefetch(block);
            prefetch_around(block, model.place_within(guess.within));
        }
        match self.ask_filter(at, lookup) {
            Passage::To(slot) => {
                let answer = self.look_into(guess, lookup)?;
                Ok(self.noted(slot, answer))
            }
            Passage::Ended(answer) => Ok(answer),
        }
    }

    /// What the filter partition at `at` says, as far as it is in memory.
    #[inline]
    fn ask_filter(&self, at: FilterAt, lookup: &Lookup<'_>) -> Passage<'_> {
        let Some(slot) = self.slots.filters.get(at.0) else {
            return match self.top.filters().is_empty() {
                true => Passage::To(None),
                // Past all filter partitions of this file, there may be another.
                false => Passage::Ended(InLevel::Unknown),
            };
        };
        match &*slot.resident.load() {
            Some(filter) => {
                filter.touch();
                self.counters.count(Event::FilterHit);
                let may_contain = filter.may_contain(lookup.hash);
                self.count_filter(may_contain);
                if !may_contain {
                    self.note_stopped(slot);
                    return Passage::Ended(InLevel::Stopped);
                }
                Passage::To(Some((slot, true)))
            }
            None if self.filter_memory == FilterMemory::Elastic => {
                self.counters.count(Event::FilterAbsent);
                Passage::To(Some((slot, false)))
            }
            None => Passage::Ended(InLevel::Unknown),
        }
    }

    /// `answer`, counted for the filter that let it pass.
    #[inline]
    fn noted(&self, filter: Option<(&FilterSlot, bool)>, answer: InLevel) -> InLevel {
        if let Some((slot, filtered)) = filter {
            match answer {
                InLevel::Found(_) => self.note_outcome(slot, true, filtered),
                InLevel::Absent => self.note_outcome(slot, false, filtered),
                InLevel::Stopped | InLevel::Unknown => {}
            }
        }
        answer
    }

    #[inline]
    fn look_into(&self, guess: BlockPlace, lookup: &Lookup<'_>) -> Result<InLevel> {
        let BlockPlace { ordinal, within, .. } = guess;
        let block = ordinal as usize;
        let find = |buf: &Buf| find_in_block(self, buf, lookup);
        let answer = if self.model.is_active()
            && let Some(model) = &*self.slots.model.load()
            && block < model.block_count()
        {
            model.touch();
            let found = self.with_model_block(model, block, within, lookup, find);
            found.map(|found| match found {
                // A newer version may stand at the end of the block before.
                InBlock::FoundFirst(_) if model.is_continued(block) => InLevel::Unknown,
                found => in_level(found),
            })
        } else {
            self.look_into_by_index(ordinal, lookup)
        };
        match answer {
            Ok(answer) => {
                if !matches!(answer, InLevel::Unknown) {
                    self.counters.count(Event::LookupByLevelModel);
                }
                Ok(answer)
            }
            // The lookup by the index meets the damage too, if the key is there.
            Err(error) if is_damage(&error) => Ok(InLevel::Unknown),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::look_into`], where the file has no learned index in memory.
    fn look_into_by_index(&self, ordinal: u32, lookup: &Lookup<'_>) -> Result<InLevel> {
        let place = self.top.partition_of_block(u64::from(ordinal));
        let Some((index_at, block_at)) = place else { return Ok(InLevel::Unknown) };
        let find = |buf: &Buf| find_in_block(self, buf, lookup);
        self.with_index(index_at, lookup, |index| {
            if block_at >= index.count() {
                return Ok(InLevel::Unknown);
            }
            let found = self.with_block(index, block_at, lookup, find)?;
            let first = matches!(found, InBlock::FoundFirst(_));
            let continued = match block_at.checked_sub(1) {
                Some(before) => first && index.separator_is(before, lookup.user_key),
                None => {
                    first
                        && index_at > 0
                        && self.top.index_separator(index_at - 1) == lookup.user_key
                }
            };
            Ok(if continued { InLevel::Unknown } else { in_level(found) })
        })?
    }
}

fn in_level(found: InBlock) -> InLevel {
    match found {
        InBlock::Found(entry) | InBlock::FoundFirst(entry) => InLevel::Found(entry),
        InBlock::Absent => InLevel::Absent,
        InBlock::Before | InBlock::PastEnd => InLevel::Unknown,
    }
}
