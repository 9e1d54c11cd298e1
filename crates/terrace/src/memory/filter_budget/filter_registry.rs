//! The registry of filter memory: every live file, its filter partitions with their heat and resident
//! units, and the bytes that these take. Reads and writes no file.
//!
//! What is counted as used never exceeds the budget: bytes are reserved before units are loaded,
//! and given back after units are dropped. Units are dropped under the lock that guards the registry,
//! and loaded by one thread without it; a reader that is closed meanwhile is *detached*: its bytes
//! stay counted until that thread has emptied it.

use super::allocator::{Moves, Offer, PartitionId};
use super::curve::Curve;
use super::heat::Heat;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace_base::FileNumber;
use terrace_base::sync::Instant;
use terrace_manifest::{FileMeta, LEVEL_COUNT};
use terrace_sst::{
    FilterKind, FilterPartitionInfo, FilterUses, SstReader, drop_filter_units, filter_charge_bytes,
};

/// What all filter partitions together are expected to waste per lookup before anything is known:
/// spread by keys, so that memory is shared out evenly at first.
const USUAL_WASTE: f64 = 0.1;
/// Curves kept for partitions to share before those that none uses are thrown away.
const MANY_CURVES: usize = 4096;
/// How long a partition whose units could not be read is left alone.
const AFTER_ERROR: Duration = Duration::from_secs(10);

/// What one level did since the open, and holds now.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct LevelTally {
    pub stopped: u64,
    pub vain: u64,
    pub found: u64,
    pub units_loaded: u64,
    pub units_dropped: u64,
    pub resident_bytes: u64,
}

struct Partition {
    /// `None` before its first lookups, wherever they came.
    heat: Option<Heat>,
    curve: Arc<Curve>,
    key_count: u64,
    units: u8,
}

struct File {
    level: usize,
    meta: Weak<FileMeta>,
    entries: u64,
    /// No longer live: what reads it still gets no filter memory.
    leaving: bool,
    /// While it is open.
    reader: Option<Weak<SstReader>>,
    /// Empty until it is opened first.
    partitions: Vec<Partition>,
    /// Lookups of the store when its uses were taken last.
    seen_at: u64,
}

impl File {
    fn charge_bytes(&self) -> usize {
        self.partitions.iter().map(|p| p.curve.charge_bytes(p.units)).sum()
    }

    fn is(&self, reader: &Arc<SstReader>) -> bool {
        self.reader.as_ref().is_some_and(|own| own.as_ptr() == Arc::as_ptr(reader))
    }

    fn reader(&self) -> Option<Arc<SstReader>> {
        self.reader.as_ref().and_then(Weak::upgrade)
    }
}

/// A load that has its bytes reserved.
pub(super) struct Load {
    pub id: PartitionId,
    pub reader: Arc<SstReader>,
    pub units: u8,
    bytes: usize,
}

/// The registry.
#[derive(Default)]
pub(super) struct FilterRegistry {
    files: HashMap<FileNumber, File>,
    /// The files in the order of the sweep, and where it is. Some of them may be gone.
    order: Vec<FileNumber>,
    hand: usize,
    /// How many have gone since the order was cleared of such.
    gone: usize,
    /// Bytes of units that partitions have.
    resident_bytes: usize,
    /// Bytes of loads under way.
    reserved_bytes: usize,
    /// Readers that were closed during a load, with the bytes of their units.
    detached: Vec<(Arc<SstReader>, usize)>,
    detached_bytes: usize,
    /// Files of which units are being loaded.
    loading: HashSet<FileNumber>,
    /// Partitions that could not be read, and since when.
    failed: HashMap<PartitionId, Instant>,
    curves: HashMap<CurveKey, Arc<Curve>>,
    pub lookups: u64,
    entries: u64,
    pub partitions: usize,
    pub tallies: [LevelTally; LEVEL_COUNT],
    /// Whether something changed that the allocator has not seen.
    pub changed: bool,
}

/// What a curve depends on: kind, usable units, lengths, seed and keys.
type CurveKey = (FilterKind, u8, u32, u32, u8, u64);

fn curve_key(info: &FilterPartitionInfo<'_>) -> CurveKey {
    let shape = &info.shape;
    // A ribbon's rate depends on its columns alone; those of Bloom filters on the keys, of which
    // five digits are plenty.
    let (seed, keys) = match shape.kind {
        FilterKind::Ribbon => (0, 0),
        _ => {
            let unimportant = (64 - info.key_count.leading_zeros()).saturating_sub(5);
            (shape.seed, info.key_count >> unimportant << unimportant)
        }
    };
    (shape.kind, info.usable_units, shape.first_unit_bytes, shape.unit_bytes, seed, keys)
}

impl FilterRegistry {
    /// Bytes that are or may be in memory.
    pub fn used_bytes(&self) -> usize {
        self.resident_bytes + self.reserved_bytes + self.detached_bytes
    }

    /// Bytes that the registry takes itself.
    pub fn own_bytes(&self) -> usize {
        let of_file = size_of::<(FileNumber, File)>() + size_of::<FileNumber>();
        self.files.len() * of_file + self.partitions * size_of::<Partition>()
    }

    /// A file is live at `level` from now on.
    pub fn add_file(&mut self, level: usize, meta: &Arc<FileMeta>) {
        let level = level.min(LEVEL_COUNT - 1);
        let (number, lookups) = (meta.number, self.lookups);
        let file = self.files.entry(number).or_insert_with(|| {
            self.order.push(number);
            fresh_file(lookups)
        });
        let bytes = file.charge_bytes() as u64;
        let before = std::mem::replace(&mut file.level, level);
        self.tallies[before].resident_bytes -= bytes;
        self.tallies[level].resident_bytes += bytes;
        file.meta = Arc::downgrade(meta);
        self.entries = self.entries - file.entries + meta.entry_count;
        (file.entries, file.leaving) = (meta.entry_count, false);
        self.changed = true;
    }

    /// A file is not live any more, though somebody may read it still.
    pub fn leave(&mut self, number: FileNumber) {
        if let Some(file) = self.files.get_mut(&number) {
            file.leaving = true;
            self.changed = true;
        }
    }

    /// A file is gone.
    pub fn forget(&mut self, number: FileNumber) -> Vec<PartitionId> {
        self.detach(number);
        let Some(file) = self.files.remove(&number) else { return Vec::new() };
        self.entries -= file.entries;
        self.partitions -= file.partitions.len();
        self.gone += 1;
        if self.gone > self.order.len() / 2 {
            self.clear_order();
        }
        let ids = partition_ids(number, file.partitions.len());
        ids.iter().for_each(|id| _ = self.failed.remove(id));
        ids
    }

    /// Takes files that are gone out of the order of the sweep, half of it at a time: a family that is dropped may have had a
    /// hundred thousand.
    fn clear_order(&mut self) {
        let is_there = |number: &FileNumber| self.files.contains_key(number);
        let swept = self.order.iter().take(self.hand).filter(|number| is_there(number)).count();
        self.order.retain(is_there);
        (self.hand, self.gone) = (swept, 0);
    }

    /// A reader of file `number` was opened: none of its units are resident.
    pub fn open(&mut self, number: FileNumber, reader: &Arc<SstReader>) {
        self.detach(number);
        let lookups = self.lookups;
        let known = self.files.get(&number).map_or(0, |file| file.partitions.len());
        let count = reader.filter_partition_count();
        let mut fresh = Vec::new();
        if known != count {
            fresh =
                (0..count).map(|at| self.fresh_partition(reader.filter_partition(at))).collect();
        }
        let file = self.files.entry(number).or_insert_with(|| {
            self.order.push(number);
            fresh_file(lookups)
        });
        if known != count {
            self.partitions = self.partitions - known + count;
            file.partitions = fresh;
        }
        file.reader = Some(Arc::downgrade(reader));
        self.changed = true;
    }

    fn fresh_partition(&mut self, info: FilterPartitionInfo<'_>) -> Partition {
        Partition { heat: None, curve: self.curve(&info), key_count: info.key_count, units: 0 }
    }

    fn curve(&mut self, info: &FilterPartitionInfo<'_>) -> Arc<Curve> {
        if self.curves.len() > MANY_CURVES {
            self.curves.retain(|_, curve| Arc::strong_count(curve) > 1);
        }
        let (shape, keys) = (info.shape, info.key_count);
        let fresh = || {
            let charge = |units| filter_charge_bytes(&shape, units);
            Arc::new(Curve::new(info.usable_units, |units| shape.expected_fpr(units, keys), charge))
        };
        self.curves.entry(curve_key(info)).or_insert_with(fresh).clone()
    }

    /// `reader` was closed: it gives back the memory of its units.
    pub fn close(&mut self, number: FileNumber, reader: &Arc<SstReader>) {
        if self.files.get(&number).is_some_and(|file| file.is(reader)) {
            self.take_uses(number);
            self.detach(number);
        }
    }

    /// Parts a file from its reader and frees the units, now or after a load that is under way.
    fn detach(&mut self, number: FileNumber) {
        let Some(file) = self.files.get_mut(&number) else { return };
        let Some(reader) = file.reader.take() else { return };
        let bytes = file.charge_bytes();
        let mut dropped = 0;
        for partition in &mut file.partitions {
            dropped += u64::from(std::mem::take(&mut partition.units));
        }
        self.resident_bytes -= bytes;
        let tally = &mut self.tallies[file.level];
        tally.units_dropped += dropped;
        tally.resident_bytes -= bytes as u64;
        let Some(reader) = reader.upgrade() else { return };
        if self.loading.contains(&number) {
            self.detached_bytes += bytes;
            self.detached.push((reader, bytes));
        } else {
            empty(&reader);
        }
    }

    /// Notes how lookups fared in a file since the last time.
    fn take_uses(&mut self, number: FileNumber) -> Vec<FilterUses> {
        let (lookups, entries) = (self.lookups, self.entries.max(1) as f64);
        let Some(file) = self.files.get_mut(&number) else { return Vec::new() };
        let Some(reader) = file.reader() else { return Vec::new() };
        let passed = lookups.saturating_sub(std::mem::replace(&mut file.seen_at, lookups));
        let tally = &mut self.tallies[file.level];
        let mut all = Vec::with_capacity(file.partitions.len());
        for (at, partition) in file.partitions.iter_mut().enumerate() {
            let uses = reader.take_filter_uses(at);
            tally.stopped += u64::from(uses.stopped);
            tally.vain += u64::from(uses.vain);
            tally.found += u64::from(uses.found);
            if passed > 0 || uses.wasted() > 0 {
                let usual = USUAL_WASTE * partition.key_count as f64 / entries;
                let heat = partition.heat.get_or_insert_with(|| Heat::usual(usual));
                heat.note(uses.wasted(), uses.wasted_variance(), passed);
            }
            all.push(uses);
        }
        all
    }

    /// The next files of the sweep, with some `most` partitions: those that are open and live are
    /// offered, those that are not live lose their units. Says whether the pass begins and ends.
    pub fn sweep(&mut self, most: usize, offers: &mut Vec<Offer>) -> (bool, bool) {
        let begins = self.hand == 0;
        let mut seen = 0;
        while seen < most.max(1)
            && let Some(number) = self.order.get(self.hand).copied()
        {
            self.hand += 1;
            // A file costs something even without partitions.
            seen += 1 + self.offer(number, offers);
        }
        let ends = self.hand >= self.order.len();
        if ends {
            self.hand = 0;
        }
        (begins, ends)
    }

    fn offer(&mut self, number: FileNumber, offers: &mut Vec<Offer>) -> usize {
        let uses = self.take_uses(number);
        let entries = self.entries.max(1) as f64;
        let Some(file) = self.files.get(&number) else { return 0 };
        if file.leaving {
            let count = file.partitions.len();
            partition_ids(number, count).into_iter().for_each(|id| self.drop_to(id, 0));
            return count;
        }
        for ((at, partition), uses) in (0..).zip(&file.partitions).zip(uses) {
            let id = PartitionId { file: number, at };
            if let Some(since) = self.failed.get(&id) {
                if since.elapsed() < AFTER_ERROR {
                    continue;
                }
                self.failed.remove(&id);
            }
            let usual = || USUAL_WASTE * partition.key_count as f64 / entries;
            offers.push(Offer {
                id,
                curve: partition.curve.clone(),
                heat: partition.heat.map_or_else(usual, |heat| heat.rate()),
                accesses: uses.lookups(),
                units: partition.units,
            });
        }
        file.partitions.len()
    }

    /// Does what is to be dropped and reserves the bytes of what is to be loaded, as far as they
    /// are within the budget, whatever the allocator believes.
    pub fn carry_out(&mut self, moves: &Moves, budget_bytes: usize) -> Vec<Load> {
        moves.drops.iter().for_each(|(id, units)| self.drop_to(*id, *units));
        let mut loads = Vec::with_capacity(moves.loads.len());
        for (id, units) in &moves.loads {
            let Some(file) = self.files.get(&id.file) else { continue };
            let Some(partition) = file.partitions.get(id.at as usize) else { continue };
            let Some(reader) = file.reader() else { continue };
            let charge = |units| partition.curve.charge_bytes(units);
            let bytes = charge(*units).saturating_sub(charge(partition.units));
            if self.used_bytes() + bytes > budget_bytes {
                continue;
            }
            self.reserved_bytes += bytes;
            self.loading.insert(id.file);
            loads.push(Load { id: *id, reader, units: *units, bytes });
        }
        loads
    }

    fn drop_to(&mut self, id: PartitionId, units: u8) {
        let Some(file) = self.files.get_mut(&id.file) else { return };
        let Some(partition) = file.partitions.get_mut(id.at as usize) else { return };
        if partition.units <= units {
            return;
        }
        let before = std::mem::replace(&mut partition.units, units);
        let charge = |units| partition.curve.charge_bytes(units);
        let bytes = charge(before) - charge(units);
        let tally = &mut self.tallies[file.level];
        tally.units_dropped += u64::from(before - units);
        tally.resident_bytes -= bytes as u64;
        if let Some(reader) = file.reader() {
            drop_filter_units(&reader, id.at as usize, units);
        }
        self.resident_bytes -= bytes;
    }

    /// A load has ended with `units` resident; `failed` if they are fewer than there should be.
    pub fn loaded(&mut self, load: &Load, units: u8, failed: bool) {
        self.reserved_bytes -= load.bytes;
        let at = load.id.at as usize;
        let info = load.reader.filter_partition(at);
        let curve = failed.then(|| self.curve(&info));
        let Some(file) = self.files.get_mut(&load.id.file) else { return };
        // One that was closed meanwhile is detached.
        if !file.is(&load.reader) {
            return;
        }
        let Some(partition) = file.partitions.get_mut(at) else { return };
        let before = std::mem::replace(&mut partition.units, units);
        let charge = |units| partition.curve.charge_bytes(units);
        let bytes = charge(units).saturating_sub(charge(before));
        self.resident_bytes += bytes;
        let tally = &mut self.tallies[file.level];
        tally.resident_bytes += bytes as u64;
        tally.units_loaded += u64::from(units.saturating_sub(before));
        if let Some(curve) = curve {
            // Units behind a damaged one are not offered any more; one that could not be read is
            // tried again later.
            partition.curve = curve;
            self.failed.insert(load.id, Instant::now());
        }
    }

    /// All loads have ended: readers that were closed meanwhile are emptied.
    pub fn end_loads(&mut self) {
        self.loading.clear();
        for (reader, bytes) in std::mem::take(&mut self.detached) {
            empty(&reader);
            self.detached_bytes -= bytes;
        }
    }

    /// A live file that is not open.
    pub fn closed_file(&self, number: FileNumber) -> Option<Arc<FileMeta>> {
        let file =
            self.files.get(&number).filter(|file| file.reader().is_none() && !file.leaving)?;
        file.meta.upgrade()
    }

    /// Whether a file is known and live.
    pub fn is_live(&self, number: FileNumber) -> bool {
        self.files.get(&number).is_some_and(|file| !file.leaving)
    }

    /// The reader of a file, while it is open, with the rates of its partitions; `None` also
    /// where no rate is known.
    pub fn known_rates(&self, number: FileNumber) -> Option<(Arc<SstReader>, Vec<f64>)> {
        let file = self.files.get(&number)?;
        let reader = file.reader()?;
        let known = |p: &Partition| p.heat.is_some_and(|heat| heat.is_known());
        file.partitions.iter().any(known).then_some(())?;
        let rate = |p: &Partition| p.heat.map_or(0.0, |heat| heat.rate());
        Some((reader, file.partitions.iter().map(rate).collect()))
    }

    /// The rates of a file's partitions; 0 where none is known.
    pub fn rates(&self, number: FileNumber) -> Vec<f64> {
        let known = |p: &Partition| p.heat.filter(Heat::is_known).map_or(0.0, |heat| heat.rate());
        let file = self.files.get(&number);
        file.map_or_else(Vec::new, |file| file.partitions.iter().map(known).collect())
    }

    /// Believes `rates` of a file's partitions where there is no better knowledge.
    pub fn believe(&mut self, number: FileNumber, rates: &[Option<f64>]) {
        let Some(file) = self.files.get_mut(&number) else { return };
        for (partition, rate) in file.partitions.iter_mut().zip(rates) {
            if let Some(rate) = rate.filter(|rate| *rate > 0.0)
                && !partition.heat.is_some_and(|heat| heat.is_known())
            {
                partition.heat = Some(Heat::hearsay(rate));
            }
        }
        self.changed = true;
    }

    /// Number of partitions of a file.
    pub fn partition_count(&self, number: FileNumber) -> usize {
        self.files.get(&number).map_or(0, |file| file.partitions.len())
    }

    /// The rates of all live files of which something is known.
    pub fn all_rates(&self) -> super::packed::Rates {
        let live = self.files.iter().filter(|(_, file)| !file.leaving);
        live.map(|(number, _)| (*number, self.rates(*number)))
            .filter(|(_, rates)| rates.iter().any(|rate| *rate > 0.0))
            .collect()
    }
}

fn fresh_file(lookups: u64) -> File {
    File {
        level: 0,
        meta: Weak::new(),
        entries: 0,
        leaving: false,
        reader: None,
        partitions: Vec::new(),
        seen_at: lookups,
    }
}

fn partition_ids(number: FileNumber, count: usize) -> Vec<PartitionId> {
    (0..count as u32).map(|at| PartitionId { file: number, at }).collect()
}

/// Frees all units of a reader.
fn empty(reader: &SstReader) {
    (0..reader.filter_partition_count()).for_each(|at| drop_filter_units(reader, at, 0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_gone_leave_the_sweep_many_at_a_time() {
        let file = |number| {
            let number = FileNumber::new(number);
            Arc::new(FileMeta { number, entry_count: 1, ..FileMeta::default() })
        };
        let metas: Vec<Arc<FileMeta>> = (0..1000).map(file).collect();
        let mut registry = FilterRegistry::default();
        metas.iter().for_each(|meta| registry.add_file(0, meta));
        let mut offers = Vec::new();
        assert_eq!(registry.sweep(300, &mut offers), (true, false));
        let mut cleared = 0;
        for meta in &metas[100..900] {
            let before = registry.order.len();
            assert!(registry.forget(meta.number).is_empty());
            cleared += usize::from(registry.order.len() < before);
            assert!(registry.order.len() <= 2 * registry.files.len() + 1);
        }
        assert_eq!(cleared, 2);
        let numbers = |order: &[FileNumber]| -> Vec<u64> {
            let live = order.iter().filter(|number| registry.is_live(**number));
            live.map(|number| number.get()).collect()
        };
        // The sweep goes on with those that it has not come to.
        let (swept, rest) = registry.order.split_at(registry.hand);
        assert_eq!(numbers(swept), (0..100).collect::<Vec<_>>());
        assert_eq!(numbers(rest), (900..1000).collect::<Vec<_>>());
        assert_eq!(registry.sweep(1000, &mut offers), (false, true));
        assert!(offers.is_empty());
        for meta in metas[..100].iter().chain(&metas[900..]) {
            registry.forget(meta.number);
        }
        assert!(registry.order.is_empty() && registry.entries == 0);
        assert_eq!(registry.sweep(1, &mut offers), (true, true));
    }
}
