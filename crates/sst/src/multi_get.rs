//! Many lookups at once: every round takes each lookup as far as memory goes and reads all that
//! is missing in one batch. A cold lookup takes two rounds: filter with index, then data.

use crate::block::BlockRef;
use crate::block::{DataBlock, Located};
use crate::block_handle::BlockHandle;
use crate::counters::Event;
use crate::damage::is_damage;
use crate::filter_partition::FilterPartition;
use crate::lookup::{Entry, Lookup};
use crate::reader::{FilterMemory, SstReader};
use crate::residency::{ResidentIndex, ResidentModel, SlotEntry};
use std::collections::HashMap;
use std::sync::Arc;
use terrace_base::{Error, Result};
use terrace_buf::BufMut;
use terrace_vfs::ReadRequest;

/// One lookup of a batch, in one file.
pub struct BatchLookup<'a> {
    /// The file to look in.
    pub reader: &'a SstReader,
    /// What to look for.
    pub lookup: Lookup<'a>,
    /// Filled by [`multi_get`]: the newest visible version, if the file has one.
    pub found: Option<Entry>,
    /// Whether a filter has let the lookup pass.
    filtered: bool,
}

impl<'a> BatchLookup<'a> {
    /// A lookup that has not been executed.
    pub fn new(reader: &'a SstReader, lookup: Lookup<'a>) -> Self {
        Self { reader, lookup, found: None, filtered: false }
    }
}

impl SstReader {
    /// Many lookups, each as by [`SstReader::get`]; in every round all partitions and
    /// blocks that are missing are read together. [`multi_get`] does this across files.
    pub fn multi_get(&self, lookups: &[Lookup<'_>]) -> Result<Vec<Option<Entry>>> {
        let mut batch: Vec<_> =
            lookups.iter().map(|lookup| BatchLookup::new(self, *lookup)).collect();
        multi_get(&mut batch)?;
        Ok(batch.into_iter().map(|lookup| lookup.found).collect())
    }
}

/// How far a lookup has come.
#[derive(Clone, Copy)]
enum Stage {
    Filter,
    /// In a data block that the learned index names.
    Model(ModelBlock),
    /// In an index partition, by its place.
    Index(usize),
    /// In a data block that an index partition names.
    Data(IndexedBlock),
    Done,
}

/// A data block, by its number in the file.
#[derive(Clone, Copy)]
struct ModelBlock {
    block: usize,
    handle: BlockHandle,
    /// How many blocks were looked at before.
    tries: usize,
}

impl ModelBlock {
    fn of(model: &SlotEntry<ResidentModel>, block: usize, tries: usize) -> Self {
        Self { block, handle: model.handle(block), tries }
    }
}

/// A data block, by its place in an index partition.
#[derive(Clone, Copy)]
struct IndexedBlock {
    partition: usize,
    block: usize,
    handle: BlockHandle,
}

/// What a lookup cannot go on without, or could use soon.
#[derive(Clone, Copy)]
enum Want {
    Filter(usize),
    /// That of a lookup whose filter is read at the same time, and may end it.
    EarlyIndex(usize),
    Index(usize),
    Data(BlockHandle),
}

/// What was read in this batch, kept until its end: the cache may be too small to.
#[derive(Default)]
struct Loaded {
    filters: HashMap<(u64, usize), Arc<SlotEntry<FilterPartition>>>,
    index: HashMap<(u64, usize), Arc<SlotEntry<ResidentIndex>>>,
    data: HashMap<(u64, u64), DataBlock>,
}

/// Executes lookups in any number of files of one file system: filters first, then index and
/// data, with one batch of reads per round. After an error the `found` of all are unspecified. A
/// lookup with [`Lookup::in_memory`] that needs a read is such an error, before anything is read.
pub fn multi_get(lookups: &mut [BatchLookup<'_>]) -> Result<()> {
    let mut stages = vec![Stage::Filter; lookups.len()];
    let mut loaded = Loaded::default();
    let fill_cache = lookups.iter().all(|batch| batch.lookup.fill_cache);
    let mut wants: Vec<(&SstReader, Want)> = Vec::new();
    loop {
        for (lookup, stage) in lookups.iter_mut().zip(&mut stages) {
            advance(lookup, stage, &loaded, &mut wants)?;
            if lookup.lookup.in_memory && !wants.is_empty() {
                return Err(Error::NotInMemory);
            }
        }
        if wants.is_empty() {
            return Ok(());
        }
        read_wanted(&mut wants, &mut loaded, fill_cache)?;
    }
}

/// Takes one lookup as far as memory goes; adds what it misses to `wants`.
fn advance<'a>(
    batch: &mut BatchLookup<'a>,
    stage: &mut Stage,
    loaded: &Loaded,
    wants: &mut Vec<(&'a SstReader, Want)>,
) -> Result<()> {
    let (reader, lookup) = (batch.reader, batch.lookup);
    loop {
        let next = match *stage {
            Stage::Done => return Ok(()),
            Stage::Filter => ask_filter(batch, loaded, wants),
            Stage::Model(at) => {
                let Some(model) = reader.resident_model() else {
                    *stage = by_index(reader, &lookup);
                    continue;
                };
                let kept = loaded.data.get(&(reader.cache_file, at.handle.offset)).cloned();
                let resident = || reader.resident_model_block(&model, at.block);
                let Some(found) = kept.or_else(|| resident().map(DataBlock::checked)) else {
                    wants.push((reader, Want::Data(at.handle)));
                    return Ok(());
                };
                Some(after_model_block(batch, &model, &found, at))
            }
            Stage::Index(at) => ask_index(reader, &lookup, at, loaded, wants),
            Stage::Data(at) => {
                let Some(found) = find_block(reader, at, loaded) else {
                    wants.push((reader, Want::Data(at.handle)));
                    return Ok(());
                };
                match found.block().find(lookup.user_key, lookup.trailer) {
                    Located::Found { trailer, value } => {
                        batch.found = reader.seen(&lookup, trailer, found.value(value));
                        Some(Stage::Done)
                    }
                    Located::Absent => Some(Stage::Done),
                    Located::PastEnd => after_block(reader, &lookup, at, loaded)?,
                }
            }
        };
        match next {
            Some(Stage::Done) if !matches!(*stage, Stage::Filter) => {
                if let Some(slot) = reader.slots.filters.get(reader.top.filter_at(lookup.user_key))
                {
                    reader.note_outcome(slot, batch.found.is_some(), batch.filtered);
                }
                *stage = Stage::Done;
            }
            Some(next) => *stage = next,
            None => return Ok(()),
        }
    }
}

/// `None`: the filter partition is wanted, and with it the index partition if that is missing
/// too.
fn ask_filter<'a>(
    batch: &mut BatchLookup<'a>,
    loaded: &Loaded,
    wants: &mut Vec<(&'a SstReader, Want)>,
) -> Option<Stage> {
    let (reader, lookup) = (batch.reader, batch.lookup);
    let index_at = reader.top.index_at(lookup.user_key);
    let passed = first_stage(reader, &lookup);
    let at = reader.top.filter_at(lookup.user_key);
    let Some(slot) = reader.slots.filters.get(at) else {
        if reader.top.filters().is_empty() {
            return Some(passed);
        }
        reader.count_filter(false);
        return Some(Stage::Done);
    };
    let may_contain = match &*slot.resident.load() {
        Some(filter) => {
            filter.touch();
            reader.counters.count(Event::FilterHit);
            Some(filter.may_contain(lookup.hash))
        }
        None if reader.filter_memory == FilterMemory::Elastic
            || lookup.in_memory
            || slot.damaged_from().is_some() =>
        {
            reader.counters.count(Event::FilterAbsent);
            return Some(passed);
        }
        None => {
            let filter = loaded.filters.get(&(reader.cache_file, at));
            filter.map(|filter| filter.may_contain(lookup.hash))
        }
    };
    let Some(may_contain) = may_contain else {
        wants.push((reader, Want::Filter(at)));
        if matches!(passed, Stage::Index(_)) && reader.index_is_missing(index_at) {
            wants.push((reader, Want::EarlyIndex(index_at)));
        }
        return None;
    };
    reader.count_filter(may_contain);
    batch.filtered = may_contain;
    if !may_contain {
        reader.note_stopped(slot);
        return Some(Stage::Done);
    }
    Some(passed)
}

/// Where the search of the data begins.
fn first_stage(reader: &SstReader, lookup: &Lookup<'_>) -> Stage {
    let model = match lookup.in_memory {
        true => reader.resident_model(),
        false => reader.model_or_load(),
    };
    let Some(model) = model else { return by_index(reader, lookup) };
    match model.locate(lookup.user_key) {
        Some(guess) => Stage::Model(ModelBlock::of(&model, guess.block as usize, 0)),
        None => by_index(reader, lookup),
    }
}

fn by_index(reader: &SstReader, lookup: &Lookup<'_>) -> Stage {
    let at = reader.top.index_at(lookup.user_key);
    if at == reader.top.index().len() { Stage::Done } else { Stage::Index(at) }
}

/// Where a lookup goes on after a data block that the learned index named; as [`SstReader::get`] does.
fn after_model_block(
    batch: &mut BatchLookup<'_>,
    model: &SlotEntry<ResidentModel>,
    found: &DataBlock,
    at: ModelBlock,
) -> Stage {
    let ModelBlock { block, tries, .. } = at;
    let (reader, lookup) = (batch.reader, batch.lookup);
    match BlockRef::checked(found.buf()).find_at(lookup.user_key, lookup.trailer) {
        (0, Located::Found { .. }) if model.is_continued(block) => by_index(reader, &lookup),
        (_, Located::Found { trailer, value }) => {
            reader.counters.count(Event::LookupByModel);
            batch.found = reader.seen(&lookup, trailer, found.value(value));
            Stage::Done
        }
        (0, Located::Absent) if block > 0 && tries == 0 => {
            Stage::Model(ModelBlock::of(model, block - 1, tries + 1))
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
    wants: &mut Vec<(&'a SstReader, Want)>,
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
            wants.push((reader, Want::Index(at)));
            None
        }
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
) -> Result<Option<Stage>> {
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
        return Ok(Some(next(index)));
    }
    // It was resident a moment ago; read again in the rare case that it went meanwhile.
    reader.with_index(partition, lookup, next).map(Some)
}

/// Reads everything wanted in one batch and empties `wants`; `fill_cache` is about data blocks.
fn read_wanted(
    wants: &mut Vec<(&SstReader, Want)>,
    loaded: &mut Loaded,
    fill_cache: bool,
) -> Result<()> {
    let handle = |(reader, want): &(&SstReader, Want)| match *want {
        Want::Filter(at) => reader.top.filters()[at].whole(),
        Want::EarlyIndex(at) | Want::Index(at) => reader.top.index()[at].handle,
        Want::Data(handle) => handle,
    };
    wants.sort_by_key(|want| (want.0.cache_file, handle(want).offset));
    wants.dedup_by_key(|want| (want.0.cache_file, handle(want).offset));
    let buf = |want| BufMut::for_overwrite(handle(want).stored_len as usize);
    let mut bufs: Vec<BufMut> = wants.iter().map(buf).collect();
    let requests = wants.iter().zip(&mut bufs);
    let mut requests: Vec<ReadRequest<'_>> = requests
        .map(|(want, buf)| ReadRequest::new(&*want.0.file, handle(want).offset, buf))
        .collect();
    let Some((first, _)) = wants.first() else { return Ok(()) };
    first.vfs.read_batch(&mut requests);
    let results: Vec<Result<()>> =
        requests.into_iter().map(|request| request.result.unwrap_or_else(not_executed)).collect();
    for (((reader, want), buf), result) in wants.drain(..).zip(bufs).zip(results) {
        if result.is_ok() {
            reader.count_read(buf.len());
        }
        match want {
            Want::Filter(at) => {
                let filter = result.and_then(|()| reader.adopt_filter(at, buf, true));
                if let Some(filter) = reader.unless_damaged(at, filter)? {
                    loaded.filters.insert((reader.cache_file, at), filter);
                }
            }
            Want::EarlyIndex(at) | Want::Index(at) => {
                match result.and_then(|()| reader.adopt_index(at, buf, true)) {
                    // Wanted again if the filter lets the lookup pass.
                    Err(error) if is_damage(&error) && matches!(want, Want::EarlyIndex(_)) => {}
                    index => drop(loaded.index.insert((reader.cache_file, at), index?)),
                }
            }
            Want::Data(handle) => {
                result?;
                let block = reader.adopt_data_block(handle, buf, fill_cache)?;
                loaded.data.insert((reader.cache_file, handle.offset), block);
            }
        }
    }
    Ok(())
}

pub(crate) fn not_executed() -> Result<()> {
    Err(Error::InvalidArgument("the file system left a read of a batch unexecuted".into()))
}
