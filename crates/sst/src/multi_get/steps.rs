//! The steps of one lookup of a batch (multi_get): each goes as far as memory goes, as [`SstReader::get`] does, and says
//! what is missing.

use super::lookup::{BatchLookup, IndexedBlock, ModelBlock, Stage};
use super::missing::{Loaded, Want, Wants};
use crate::block::{BlockRef, DataBlock, Located};
use crate::counters::Event;
use crate::filter_read_policy::Plan;
use crate::lookup::Lookup;
use crate::reader::SstReader;
use crate::residency::{FilterSlot, ResidentIndex, ResidentModel, SlotEntry};
use terrace_base::Result;
use terrace_buf::{Buf, Slice};

/// Takes one lookup as far as memory goes; adds what it misses to `wants`.
pub(super) fn advance<'a>(
    batch: &mut BatchLookup<'a>,
    loaded: &Loaded,
    wants: &mut Wants<'a>,
) -> Result<()> {
    let (reader, lookup) = (batch.reader, batch.lookup);
    while !batch.is_waiting {
        let next = match batch.stage {
            Stage::Done => return Ok(()),
            Stage::Filter => ask_filter(batch, loaded, wants),
            Stage::Passed => Some(first_stage(reader, &lookup)),
            Stage::Model(at) => ask_model(batch, at, loaded, wants),
            Stage::Index(at) => ask_index(reader, &lookup, at, loaded, wants),
            Stage::Data(at) => ask_block(batch, at, loaded, wants)?,
        };
        match next {
            Some(next) => enter(batch, next),
            None => batch.is_waiting = true,
        }
    }
    Ok(())
}

/// The lookup goes on to `stage`; if that is its end, its outcome is counted.
#[inline]
pub(super) fn enter(batch: &mut BatchLookup<'_>, stage: Stage) {
    let before = std::mem::replace(&mut batch.stage, stage);
    if !matches!(stage, Stage::Done) {
        return;
    }
    let (reader, found) = (batch.reader, batch.found.is_some());
    if batch.missed_filter {
        reader.filter_read_policy.note(found);
    }
    if !matches!(before, Stage::Filter)
        && let Some(slot) = reader.slots.filters.get(batch.filter_at.0)
    {
        reader.note_outcome(slot, found, batch.filtered);
    }
}

/// The first step. `None`: the filter is wanted.
#[inline]
pub(super) fn ask_filter<'a>(
    batch: &mut BatchLookup<'a>,
    loaded: &Loaded,
    wants: &mut Wants<'a>,
) -> Option<Stage> {
    ask_resident_filter(batch).or_else(|| ask_missing_filter(batch, loaded, wants))
}

/// `None`: the filter partition is not in memory.
#[inline]
fn ask_resident_filter(batch: &mut BatchLookup<'_>) -> Option<Stage> {
    let reader = batch.reader;
    let Some(slot) = reader.slots.filters.get(batch.filter_at.0) else {
        if reader.top.filters().is_empty() {
            return Some(Stage::Passed);
        }
        reader.count_filter(false);
        return Some(Stage::Done);
    };
    let may_contain = {
        let filter = slot.resident.load();
        let filter = filter.as_ref()?;
        filter.touch();
        reader.counters.count(Event::FilterHit);
        filter.may_contain(batch.lookup.hash)
    };
    Some(after_filter(batch, slot, may_contain))
}

#[inline]
fn after_filter(batch: &mut BatchLookup<'_>, slot: &FilterSlot, may_contain: bool) -> Stage {
    batch.reader.count_filter(may_contain);
    batch.filtered = may_contain;
    if !may_contain {
        batch.reader.note_stopped(slot);
        return Stage::Done;
    }
    Stage::Passed
}

/// Of a filter partition that is not in memory. `None`: it is wanted, and with it the index partition if both are to be
/// read together ([`FilterReadPolicy`](crate::filter_read_policy::FilterReadPolicy)), as [`SstReader::get`] reads them.
#[cold]
fn ask_missing_filter<'a>(
    batch: &mut BatchLookup<'a>,
    loaded: &Loaded,
    wants: &mut Wants<'a>,
) -> Option<Stage> {
    let (reader, lookup, at) = (batch.reader, batch.lookup, batch.filter_at.0);
    let slot = &reader.slots.filters[at];
    if !reader.may_read_filter(slot, &lookup) {
        reader.counters.count(Event::FilterAbsent);
        return Some(Stage::Passed);
    }
    batch.missed_filter = true;
    if let Some(filter) = loaded.filters.get(&(reader.cache_file, at)) {
        return Some(after_filter(batch, slot, filter.may_contain(lookup.hash)));
    }
    let skipped = wants.skipped(reader, at);
    let plan = reader.filter_read_policy.plan_after(*skipped);
    if plan == Plan::SkipFilter {
        *skipped += 1;
        reader.counters.count(Event::FilterAbsent);
        return Some(Stage::Passed);
    }
    wants.push(reader, Want::Filter(at));
    if plan == Plan::Together && !reader.model.is_active() {
        let index_at = reader.top.index_at(lookup.user_key);
        if reader.index_is_missing(index_at) {
            wants.push(reader, Want::EarlyIndex(index_at));
        }
    }
    None
}

/// Where the search of the data begins.
fn first_stage(reader: &SstReader, lookup: &Lookup<'_>) -> Stage {
    let model = match lookup.in_memory {
        true => reader.resident_model(),
        false => reader.model_or_load(),
    };
    match model.and_then(|model| model.locate(lookup.user_key)) {
        Some(guess) => Stage::Model(ModelBlock { block: guess.block as usize, is_second: false }),
        None => by_index(reader, lookup),
    }
}

pub(super) fn by_index(reader: &SstReader, lookup: &Lookup<'_>) -> Stage {
    let at = reader.top.index_at(lookup.user_key);
    if at == reader.top.index().len() { Stage::Done } else { Stage::Index(at) }
}

fn ask_model<'a>(
    batch: &mut BatchLookup<'a>,
    at: ModelBlock,
    loaded: &Loaded,
    wants: &mut Wants<'a>,
) -> Option<Stage> {
    let reader = batch.reader;
    let Some(model) = reader.resident_model() else {
        return Some(by_index(reader, &batch.lookup));
    };
    model.touch();
    if loaded.has_data() {
        let place = (reader.cache_file, model.handle(at.block).offset);
        if loaded.damaged.contains(&place) {
            // The block, or what the model says of its place: the index partition will tell.
            return Some(by_index(reader, &batch.lookup));
        }
        if let Some(kept) = loaded.data.get(&place) {
            return Some(after_model_block(batch, &model, kept.buf(), at));
        }
    }
    match reader.resident_model_block(&model, at.block) {
        Some(block) => Some(after_model_block(batch, &model, &block, at)),
        None => {
            wants.push(reader, Want::ModelData(model.handle(at.block)));
            None
        }
    }
}

/// Where a lookup goes on after a data block that the learned index named; as [`SstReader::get`] does.
fn after_model_block(
    batch: &mut BatchLookup<'_>,
    model: &SlotEntry<ResidentModel>,
    buf: &Buf,
    at: ModelBlock,
) -> Stage {
    let (user_key, trailer) = (batch.lookup.user_key, batch.lookup.trailer);
    let located = BlockRef::checked(buf).find_at(user_key, trailer);
    after_located(batch, model, (buf.clone(), located), at)
}

/// As [`after_model_block`], for what the block has said.
#[inline]
pub(super) fn after_located(
    batch: &mut BatchLookup<'_>,
    model: &SlotEntry<ResidentModel>,
    (buf, located): (Buf, (usize, Located)),
    at: ModelBlock,
) -> Stage {
    let ModelBlock { block, is_second } = at;
    let (reader, lookup) = (batch.reader, batch.lookup);
    match located {
        (0, Located::Found { .. }) if model.is_continued(block) => by_index(reader, &lookup),
        (_, Located::Found { trailer, value }) => {
            reader.counters.count(Event::LookupByModel);
            let value = Slice::of(buf, value.start, value.end - value.start);
            batch.found = reader.seen(&lookup, trailer, value);
            Stage::Done
        }
        (0, Located::Absent) if block > 0 && !is_second => {
            Stage::Model(ModelBlock { block: block - 1, is_second: true })
        }
        (0, Located::Absent) if block > 0 => by_index(reader, &lookup),
        (_, Located::Absent | Located::PastEnd) => {
            reader.counters.count(Event::LookupByModel);
            Stage::Done
        }
    }
}

fn ask_index<'a>(
    reader: &'a SstReader,
    lookup: &Lookup<'_>,
    at: usize,
    loaded: &Loaded,
    wants: &mut Wants<'a>,
) -> Option<Stage> {
    if at >= reader.top.index().len() {
        return Some(Stage::Done);
    }
    let ask = |index: &SlotEntry<ResidentIndex>| {
        reader.counters.count(Event::LookupByIndex);
        let block = index.lower_bound(lookup.user_key);
        match block < index.count() {
            true => Stage::Data(IndexedBlock { partition: at, block, handle: index.handle(block) }),
            false => Stage::Done,
        }
    };
    if let Some(index) = &*reader.slots.index[at].load() {
        index.touch();
        reader.counters.count(Event::IndexHit);
        return Some(ask(index));
    }
    match loaded.index.get(&(reader.cache_file, at)) {
        Some(index) => Some(ask(index)),
        None => {
            wants.push(reader, Want::Index(at));
            None
        }
    }
}

fn ask_block<'a>(
    batch: &mut BatchLookup<'a>,
    at: IndexedBlock,
    loaded: &Loaded,
    wants: &mut Wants<'a>,
) -> Result<Option<Stage>> {
    let (reader, lookup) = (batch.reader, batch.lookup);
    let Some(found) = find_block(reader, at, loaded) else {
        wants.push(reader, Want::Data(at.handle));
        return Ok(None);
    };
    match found.block().find(lookup.user_key, lookup.trailer) {
        Located::Found { trailer, value } => {
            batch.found = reader.seen(&lookup, trailer, found.value(value));
            Ok(Some(Stage::Done))
        }
        Located::Absent => Ok(Some(Stage::Done)),
        Located::PastEnd => after_block(reader, &lookup, at, loaded).map(Some),
    }
}

/// A data block, if it is in memory.
fn find_block(reader: &SstReader, at: IndexedBlock, loaded: &Loaded) -> Option<DataBlock> {
    let IndexedBlock { partition, block, handle } = at;
    if let Some(kept) = loaded.data.get(&(reader.cache_file, handle.offset)) {
        return Some(kept.clone());
    }
    match &*reader.slots.index[partition].load() {
        Some(index) => reader.resident_block(index, block),
        None => {
            let index = loaded.index.get(&(reader.cache_file, partition))?;
            reader.resident_block(index, block)
        }
    }
}

/// Where a lookup goes on that ran past the end of a data block.
fn after_block(
    reader: &SstReader,
    lookup: &Lookup<'_>,
    at: IndexedBlock,
    loaded: &Loaded,
) -> Result<Stage> {
    let IndexedBlock { partition, block, .. } = at;
    let next = |index: &SlotEntry<ResidentIndex>| {
        if !index.separator_is(block, lookup.user_key) {
            return Stage::Done;
        }
        match block + 1 < index.count() {
            true => {
                let (block, handle) = (block + 1, index.handle(block + 1));
                Stage::Data(IndexedBlock { partition, block, handle })
            }
            false => Stage::Index(partition + 1),
        }
    };
    if let Some(index) = loaded.index.get(&(reader.cache_file, partition)) {
        return Ok(next(index));
    }
    // It was resident a moment ago; read again in the rare case that it went meanwhile.
    reader.with_index(partition, lookup, next)
}
