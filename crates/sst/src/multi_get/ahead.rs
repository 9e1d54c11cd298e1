//! Lookups of a batch that wait for memory together (multi_get): what a lookup in memory reads are lines of which each is
//! known when the one before it has come. So each pass asks for the next line of all of them.
//!
//! ```text
//! filter: its slot, its first bits, the others
//! data:   cells of the model and the slot of the block, its front, the entry
//! ```
//! Filters come first, except of lookups that most likely find their key. What is not in memory, or not reached through a
//! model, is left to the steps that follow.

use super::lookup::{BatchLookup, ModelBlock, Stage};
use super::missing::{Loaded, Wants};
use super::steps;
use crate::block::{Aim, BlockRef, Located, prefetch_entry, prefetch_front};
use crate::counters::Event;
use crate::filter_partition::FilterPartition;
use crate::reader::SstReader;
use crate::residency::{ResidentModel, SlotEntry};
use std::ptr;
use std::sync::Arc;
use terrace_buf::{Buf, Slice, prefetch_value};
use terrace_filter::prefetch_read;
use terrace_learned::BlockAim;

/// Lookups of one pass. What they ask for, some 15 lines each, fits the innermost cache.
pub(super) const TOGETHER: usize = 32;

/// Takes up to [`TOGETHER`] lookups as far as filters, models and blocks in slots go.
pub(super) fn advance<'a>(lookups: &mut [BatchLookup<'a>], loaded: &Loaded, wants: &mut Wants<'a>) {
    if lookups.iter().any(|batch| batch.is_likely) {
        search(lookups, |batch| batch.is_likely);
    }
    ask_for_filters(lookups);
    let mut passed = 0;
    for batch in &mut *lookups {
        if !matches!(batch.stage, Stage::Filter) {
            continue;
        }
        match steps::ask_filter(batch, loaded, wants) {
            Some(next) => {
                steps::enter(batch, next);
                passed += usize::from(matches!(next, Stage::Passed));
            }
            None => batch.is_waiting = true,
        }
    }
    if passed > 0 {
        search(lookups, |batch| matches!(batch.stage, Stage::Passed));
    }
}

fn ask_for_filters(lookups: &[BatchLookup<'_>]) {
    let slots = || {
        lookups.iter().filter_map(|batch| {
            let slot = batch.reader.slots.filters.get(batch.filter_at.0)?;
            matches!(batch.stage, Stage::Filter).then_some((slot, batch.lookup.hash))
        })
    };
    slots().for_each(|(slot, _)| prefetch_value(slot));
    let resident = |ask: fn(&FilterPartition, u64)| {
        for (slot, hash) in slots() {
            if let Some(filter) = &*slot.resident.load() {
                ask(filter, hash);
            }
        }
    };
    resident(FilterPartition::prefetch);
    resident(FilterPartition::prefetch_rest);
}

/// A search of the data of a file whose model is in memory.
struct Search<'b, 'a> {
    batch: &'b mut BatchLookup<'a>,
    /// The place of its model.
    model: usize,
    aim: BlockAim,
    block: usize,
    /// The block, if it is in memory, and what its heads say.
    found: Option<(Buf, Aim)>,
}

/// Searches the data for those lookups that are `wanted`.
fn search(lookups: &mut [BatchLookup<'_>], wanted: impl Fn(&BatchLookup<'_>) -> bool) {
    let mut models: Vec<Arc<SlotEntry<ResidentModel>>> = Vec::with_capacity(lookups.len());
    let mut searches: Vec<Search<'_, '_>> = Vec::with_capacity(lookups.len());
    let mut last: Option<&SstReader> = None;
    for batch in lookups.iter_mut().filter(|batch| wanted(batch)) {
        let reader = batch.reader;
        // Lookups in one file follow each other.
        if !last.is_some_and(|last| ptr::eq(last, reader)) {
            let Some(model) = reader.resident_model() else { continue };
            model.touch();
            models.push(model);
            last = Some(reader);
        }
        // Its outcome will be counted there.
        if let Some(slot) = reader.slots.filters.get(batch.filter_at.0) {
            prefetch_value(slot);
        }
        if let Some(model) = models.last()
            && let Some(aim) = model.blocks().aim(batch.lookup.user_key)
        {
            prefetch_read(model.blocks().cells_at(&aim), 0);
            // Most likely on the line of that of the block that is meant.
            if let Some(slot) = model.block_slot(aim.last_block() as usize) {
                prefetch_value(slot);
            }
            searches.push(Search { batch, model: models.len() - 1, aim, block: 0, found: None });
        }
    }
    for Search { model, aim, block, .. } in &mut searches {
        let model = &models[*model];
        *block = model.blocks().locate_at(aim).block as usize;
        if let Some(slot) = model.block_slot(*block)
            && let Some(resident) = &*slot.load()
        {
            prefetch_front(resident, model.place_within(0));
        }
    }
    for Search { batch, model, block, found, .. } in &mut searches {
        if let Some(slot) = models[*model].block_slot(*block)
            && let Some(resident) = &*slot.load()
        {
            let aim = BlockRef::checked(resident).aim(batch.lookup.user_key);
            prefetch_entry(resident, aim);
            *found = Some((resident.clone(), aim));
        }
    }
    for search in searches {
        settle(search.batch, &models[search.model], search.block, search.found);
    }
}

/// The end of a search: what its block says.
fn settle(
    batch: &mut BatchLookup<'_>,
    model: &SlotEntry<ResidentModel>,
    block: usize,
    found: Option<(Buf, Aim)>,
) {
    let reader = batch.reader;
    let at = ModelBlock { block, is_second: false };
    let is_filtered = matches!(batch.stage, Stage::Passed);
    let Some((buf, aim)) = found else {
        if is_filtered {
            batch.stage = Stage::Model(at);
        }
        return;
    };
    let located = {
        let block_ref = BlockRef::checked(&buf);
        block_ref.find_aimed(aim, batch.lookup.user_key, batch.lookup.trailer)
    };
    if is_filtered {
        reader.note_model_block_hit(&buf, model, block);
        let next = steps::after_located(batch, model, (buf, located), at);
        steps::enter(batch, next);
        return;
    }
    // Without a filter only what is found counts.
    match located {
        (0, _) if model.is_continued(block) => {}
        (_, Located::Found { trailer, value }) => {
            reader.note_model_block_hit(&buf, model, block);
            let value = Slice::of(buf, value.start, value.end - value.start);
            batch.found = reader.seen(&batch.lookup, trailer, value);
            if batch.found.is_some() {
                reader.counters.count(Event::LookupByModel);
                reader.count_passed(batch.filter_at, &batch.lookup);
                batch.stage = Stage::Done;
            }
        }
        _ => {}
    }
}
