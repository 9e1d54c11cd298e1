//! What a store looks like now, for people and dashboards: families, levels, files, their filters
//! and models, and the jobs that run. Reads counters and slots that exist for other reasons; no
//! read or write of the store pays for it.
//!
//! The top of `db` calls this. Costs a walk over the files, and for [`of`] over the filter
//! partitions of those that are open.

use crate::background::{compaction, rebalance};
use crate::error::Result;
use crate::inner::Inner;
use crate::jobs::job_list::JobShape;
use crate::version::family::Family;
use crate::version::read_state::ReadState;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use terrace_base::FileNumber;
use terrace_learned::DrawnSegment;
use terrace_manifest::FileMeta;
use terrace_sst::SstReader;

/// What a store looks like at one moment. Families are each looked at as one, the store as a whole
/// is not: jobs may end in between.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shape {
    /// The column families, `default` among them.
    pub families: Vec<FamilyShape>,
    /// Jobs that run, or ended within about 3 s; oldest first.
    pub jobs: Vec<JobShape>,
    /// Segments of the commit log that recovery would need; 0 in a read-only store, and the last
    /// known count while a writer is at work.
    pub log_segments: u64,
    /// Sealed segments of the value log.
    pub value_segments: u64,
    /// Their bytes.
    pub value_bytes: u64,
    /// Bytes in them that no live SST refers to.
    pub garbage_bytes: u64,
}

/// A column family.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FamilyShape {
    /// Its name.
    pub name: String,
    /// Bytes of the memtable and of the immutable ones.
    pub memtable_bytes: u64,
    /// At this many bytes a memtable is full, and waits for its flush.
    pub memtable_limit_bytes: u64,
    /// Memtables that wait for their flush.
    pub immutable_memtables: u64,
    /// The files of L0 to L6: L0 newest first, the others in the order of their keys.
    pub levels: Vec<Vec<FileShape>>,
    /// The bytes above which each of `levels` is merged down. `None`: something else decides that, as
    /// for L0 and all levels of tiered families the number of runs, or it never is, as the last level.
    pub level_targets: Vec<Option<u64>>,
}

/// An SST.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FileShape {
    /// Its number; its name is this in six digits, and `.sst`.
    pub number: u64,
    /// Its length.
    pub size_bytes: u64,
    /// Entries, tombstones included.
    pub entry_count: u64,
    /// Point tombstones among them.
    pub tombstone_count: u64,
    /// Range tombstones.
    pub range_tombstone_count: u64,
    /// Bytes in the value log that it refers to.
    pub value_bytes: u64,
    /// Smallest key.
    pub smallest: Vec<u8>,
    /// Largest key, or where its last range tombstone ends.
    pub largest: Vec<u8>,
    /// Lookups per second that reached it lately: those that found their key there, estimated from
    /// one in 64, and those that did not, as the filter budget estimates them.
    pub heat: f64,
    /// Bytes of its filter units in memory.
    pub filter_bytes: u64,
    /// Units of its filters; 0 while the file is not open.
    pub filter_units: u32,
    /// Of these, in memory.
    pub filter_units_in_memory: u32,
    /// Whether lookups go through a learned index; `None` while the file is not open.
    pub has_model: Option<bool>,
    /// Whether a compaction reads it now.
    pub is_compacting: bool,
    /// Wall-clock time at which it was made, in ms.
    pub created_ms: u64,
}

/// The filter partitions of a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FilterHeat {
    /// The column family.
    pub family: String,
    /// Number of the file.
    pub file: u64,
    /// Its level.
    pub level: u8,
    /// Its filter partitions in the order of their keys; empty while the file is not open.
    pub partitions: Vec<FilterPartitionHeat>,
}

/// A filter partition.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FilterPartitionHeat {
    /// Keys that it covers.
    pub key_count: u64,
    /// Its units.
    pub units: u32,
    /// Of these, in memory.
    pub units_in_memory: u32,
    /// Wasted lookups that reach it, per lookup of the store; 0 if none is known yet, and always
    /// with [`FilterAllocator::Cached`](crate::FilterAllocator::Cached).
    pub heat: f64,
}

/// The learned index of a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelShape {
    /// Number of the file.
    pub file: u64,
    /// Keys in the file, all versions.
    pub keys: u64,
    /// Its data blocks.
    pub blocks: u64,
    /// The most blocks that a line may be off.
    pub error_bound: u32,
    /// The lines.
    pub segments: Vec<ModelSegment>,
    /// Keys by how far off the model is when it says their block: exact, then by eighths of the
    /// error bound.
    pub error_counts: Vec<u64>,
    /// Bytes of the learned index in memory.
    pub model_bytes: u64,
    /// Bytes of the index partitions that it stands in for, as stored.
    pub index_bytes: u64,
}

/// One line of a learned index: from a number, which stands for a key, to a data block.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ModelSegment {
    /// The data block where it starts.
    pub first_block: u64,
    /// The data block where it ends.
    pub last_block: u64,
    /// Least key of the segment, as a number.
    pub first_key: u64,
    /// Least key of the next segment, as a number, or the greatest of all.
    pub last_key: u64,
    /// Blocks per number.
    pub slope: f64,
}

/// What the store looks like.
pub(crate) fn of(inner: &Inner) -> Shape {
    let busy = inner.jobs.scheduler.lock().busy_files.clone();
    let families = inner.read.families.load_full();
    let states: Vec<_> = families.iter().map(|family| (family, family.hold_state())).collect();
    let heat = heat(inner, states.iter().map(|(_, state)| &**state));
    let mut shape = Shape {
        families: Vec::with_capacity(states.len()),
        jobs: inner.jobs.list.shapes(&*inner.base.clock),
        log_segments: log_segments(inner),
        ..Shape::default()
    };
    for (family, state) in &states {
        shape.families.push(family_shape(family, state, &busy, &heat));
    }
    for segment in inner.read.value_log.segment_stats() {
        shape.value_segments += 1;
        shape.value_bytes += segment.size_bytes;
        shape.garbage_bytes += segment.garbage_bytes();
    }
    shape
}

fn log_segments(inner: &Inner) -> u64 {
    inner.trends.log_segments(inner.commit.queue.as_ref().and_then(|q| q.try_log_segments()))
}

/// Lookups per second by file.
fn heat<'a>(
    inner: &Inner,
    states: impl Iterator<Item = &'a ReadState>,
) -> HashMap<FileNumber, f64> {
    let now_us = inner.base.clock.monotonic_us();
    let growth = inner.trends.look(now_us, rebalance::counts(&inner.read));
    let per_second = growth.per_second(growth.counts.lookups);
    let mut found = Vec::new();
    let mut wasted = Vec::new();
    for state in states {
        for (level, files) in state.version.levels().iter().enumerate() {
            for (index, file) in files.files().iter().enumerate() {
                let lookups = state.slots.at(level, index).lookups();
                match inner.read.filters.file_rate(file.number) {
                    Some(rate) => {
                        found.push((file.number, lookups.positive));
                        wasted.push((file.number, rate));
                    }
                    None => found.push((file.number, lookups.positive + lookups.negative)),
                }
            }
        }
    }
    let mut heat = inner.trends.of_files(now_us, &found);
    for (number, rate) in wasted {
        *heat.entry(number).or_default() += rate * per_second;
    }
    heat
}

fn family_shape(
    family: &Family,
    state: &ReadState,
    busy: &HashSet<FileNumber>,
    heat: &HashMap<FileNumber, f64>,
) -> FamilyShape {
    let memtables = state.memtables();
    let mut shape = FamilyShape {
        name: family.name.clone(),
        memtable_bytes: memtables.map(|memtable| memtable.size_bytes() as u64).sum(),
        memtable_limit_bytes: family.options().memtable_bytes as u64,
        immutable_memtables: state.immutables.len() as u64,
        levels: Vec::new(),
        level_targets: compaction::level_targets(&state.version, &family.options()).to_vec(),
    };
    for (level, files) in state.version.levels().iter().enumerate() {
        let file = |(index, file): (usize, &Arc<FileMeta>)| {
            let mut shape = file_shape(file, state.slots.at(level, index).open_reader().as_deref());
            shape.is_compacting = busy.contains(&file.number);
            shape.heat = heat.get(&file.number).copied().unwrap_or(0.0);
            shape
        };
        shape.levels.push(files.files().iter().enumerate().map(file).collect());
    }
    shape
}

fn file_shape(file: &FileMeta, reader: Option<&SstReader>) -> FileShape {
    let mut shape = FileShape {
        number: file.number.get(),
        size_bytes: file.size_bytes,
        entry_count: file.entry_count,
        tombstone_count: file.tombstone_count,
        range_tombstone_count: file.range_tombstone_count,
        value_bytes: file.value_refs.iter().map(|reference| reference.bytes).sum(),
        smallest: file.smallest.clone(),
        largest: file.largest.clone(),
        created_ms: file.created_ms,
        ..FileShape::default()
    };
    if let Some(reader) = reader {
        shape.has_model = Some(reader.has_model());
        shape.filter_bytes = reader.resident_filter_bytes() as u64;
        for at in 0..reader.filter_partition_count() {
            let info = reader.filter_partition(at);
            shape.filter_units += u32::from(info.shape.unit_count);
            shape.filter_units_in_memory += u32::from(info.resident_units);
        }
    }
    shape
}

/// The filter partitions of at most `most_files` files, the hottest first: those with the most
/// wasted lookups per lookup of the store. Opens no file.
pub(crate) fn filter_heat(inner: &Inner, most_files: usize) -> Vec<FilterHeat> {
    let families = inner.read.families.load_full();
    let mut files: Vec<(f64, Located)> = Vec::new();
    for family in families.iter() {
        let state = family.hold_state();
        for (level, list) in state.version.levels().iter().enumerate() {
            for (index, file) in list.numbers().iter().enumerate() {
                let total = inner.read.filters.partition_rates(*file).iter().sum();
                let (family, state) = (family.clone(), state.clone());
                files.push((total, Located { family, state, level, index, file: *file }));
            }
        }
    }
    files.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    files.iter().take(most_files).map(|(_, file)| file.filter_heat(inner)).collect()
}

/// A file and where its reader is.
struct Located {
    family: Arc<Family>,
    state: Arc<ReadState>,
    level: usize,
    index: usize,
    file: FileNumber,
}

impl Located {
    fn filter_heat(&self, inner: &Inner) -> FilterHeat {
        let rates = inner.read.filters.partition_rates(self.file);
        let reader = self.state.slots.at(self.level, self.index).open_reader();
        let partition = |reader: &SstReader, at: usize| {
            let info = reader.filter_partition(at);
            FilterPartitionHeat {
                key_count: info.key_count,
                units: u32::from(info.shape.unit_count),
                units_in_memory: u32::from(info.resident_units),
                heat: rates.get(at).copied().unwrap_or(0.0),
            }
        };
        let partitions = reader.as_deref().map_or_else(Vec::new, |reader| {
            (0..reader.filter_partition_count()).map(|at| partition(reader, at)).collect()
        });
        let (family, level) = (self.family.name.clone(), self.level as u8);
        FilterHeat { family, file: self.file.get(), level, partitions }
    }
}

/// The learned index of live file `number`; `None` if it has none, or there is no such file. Opens
/// the file if it is not open; reads the learned index, past the cache, if that is not in memory.
pub(crate) fn model(inner: &Inner, number: FileNumber) -> Result<Option<ModelShape>> {
    inner.base.health.check_open()?;
    let families = inner.read.families.load_full();
    let live = |family: &Arc<Family>| {
        let version = family.state().version.clone();
        version.files().find(|(_, file)| file.number == number).map(|(_, file)| file.clone())
    };
    let Some(file) = families.iter().find_map(live) else { return Ok(None) };
    let reader = inner.read.table_cache.reader(&file)?;
    let Some(view) = reader.model_view()? else { return Ok(None) };
    let segment = |drawn: &DrawnSegment| {
        let ((first_key, from), (last_key, to)) = (drawn.from, drawn.to);
        let keys = last_key.saturating_sub(first_key).max(1) as f64;
        ModelSegment {
            first_block: from.max(0.0).round() as u64,
            last_block: to.max(0.0).round() as u64,
            first_key,
            last_key,
            slope: (to - from) / keys,
        }
    };
    Ok(Some(ModelShape {
        file: number.get(),
        keys: file.entry_count,
        blocks: reader.block_count(),
        error_bound: view.error_bound,
        segments: view.segments.iter().map(segment).collect(),
        error_counts: view.stats.errors.slots.to_vec(),
        model_bytes: view.memory_bytes as u64,
        index_bytes: reader.properties().index_bytes,
    }))
}
