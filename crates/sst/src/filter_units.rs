//! Filter units in and out of memory, for the policy that decides which partitions get them.
//!
//! Works on readers opened with [`FilterMemory::Elastic`](crate::FilterMemory::Elastic). A
//! partition's resident units are one immutable buffer in its slot; loading and dropping put
//! another one in its place, so that lookups need no lock and never see half of a change. Only one
//! thread at a time may change the units of one reader.

use crate::counters::{EXACT_COUNTS, Event, SAMPLE};
use crate::filter_partition::{FilterPartition, hash_prefix};
use crate::lookup::Lookup;
use crate::multi_get::not_executed;
use crate::reader::{FilterMemory, SstReader};
use crate::residency::{FilterSlot, SlotEntry};
use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_base::{Error, Result};
use terrace_buf::BufMut;
use terrace_filter::FilterShape;
use terrace_vfs::ReadRequest;

/// Filter partitions that a prefix scan asks before it gives up and searches the file.
const MAX_PREFIX_PARTITIONS: usize = 4;

/// A filter partition as an allocator of memory sees it.
#[derive(Debug, Clone, Copy)]
pub struct FilterPartitionInfo<'a> {
    /// Keys it covers (hashes, if prefixes are filtered too).
    pub key_count: u64,
    /// Kind, units and their lengths.
    pub shape: FilterShape,
    /// At or above its keys, below those of the next partition.
    pub separator: &'a [u8],
    /// Units in memory now.
    pub resident_units: u8,
    /// Units that can be loaded: fewer than the shape says once a damaged one was met.
    pub usable_units: u8,
}

/// How lookups fared in one filter partition since they were last asked for; estimates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterUses {
    /// Lookups that the filter ended.
    pub stopped: u32,
    /// Lookups that went on to the data and found nothing.
    pub vain: u32,
    /// Lookups that found their key.
    pub found: u32,
}

impl FilterUses {
    /// Lookups that the partition could only waste: those that did not find their key in the file.
    pub fn wasted(&self) -> u32 {
        self.stopped.saturating_add(self.vain)
    }

    /// The variance of [`FilterUses::wasted`], if lookups come independently of each other: what
    /// is sampled varies more than what is counted.
    pub fn wasted_variance(&self) -> u32 {
        let sampled = self.stopped.saturating_sub(EXACT_COUNTS);
        self.wasted().saturating_add(sampled.saturating_mul(SAMPLE - 1))
    }

    /// All lookups that reached the partition.
    pub fn lookups(&self) -> u32 {
        self.wasted().saturating_add(self.found)
    }
}

/// Units to bring into memory.
#[derive(Clone, Copy)]
pub struct UnitLoad<'a> {
    /// The file.
    pub reader: &'a SstReader,
    /// Number of the partition in it.
    pub partition: usize,
    /// Units to be in memory afterwards, those that are there included.
    pub units: u8,
}

/// What became of a [`UnitLoad`].
#[derive(Debug)]
pub struct UnitsLoaded {
    /// Units in memory now.
    pub units: u8,
    /// Why they are fewer than asked for. Damage is remembered: the unit is not asked for again.
    pub error: Option<Error>,
}

/// Bytes of memory that `units` units of a filter of `shape` take, headers included.
pub fn filter_charge_bytes(shape: &FilterShape, units: u8) -> usize {
    match units {
        0 => 0,
        _ => {
            BufMut::tight_charge_bytes(shape.prefix_bytes(units))
                + SlotEntry::<FilterPartition>::OVERHEAD_BYTES
        }
    }
}

/// Brings filter units into memory with one batch of reads. Damaged or unreadable units cost
/// nothing but time: what is before them is used. All readers are of one file system.
pub fn load_filter_units(loads: &[UnitLoad<'_>]) -> Vec<UnitsLoaded> {
    let mut bufs: Vec<BufMut> = Vec::with_capacity(loads.len());
    let mut wanted = Vec::with_capacity(loads.len());
    for load in loads {
        let info = load.reader.filter_partition(load.partition);
        let units = info.resident_units..load.units.min(info.usable_units);
        let handle = load.reader.top.filters()[load.partition].units(units.start, units.end);
        let stored_len = if units.is_empty() { 0 } else { handle.stored_len };
        bufs.push(BufMut::for_overwrite(stored_len as usize));
        wanted.push((units, handle.offset));
    }
    let requests = loads.iter().zip(&wanted).zip(&mut bufs);
    let mut requests: Vec<ReadRequest<'_>> = requests
        .filter(|((_, (units, _)), _)| !units.is_empty())
        .map(|((load, (_, offset)), buf)| ReadRequest::new(&*load.reader.file, *offset, buf))
        .collect();
    if let Some(first) = loads.first() {
        first.reader.vfs.read_batch(&mut requests);
    }
    let results: Vec<Result<()>> =
        requests.into_iter().map(|request| request.result.unwrap_or_else(not_executed)).collect();
    let mut results = results.into_iter();
    let mut loaded = Vec::with_capacity(loads.len());
    for ((load, (units, _)), buf) in loads.iter().zip(wanted).zip(bufs) {
        if units.is_empty() {
            loaded.push(UnitsLoaded { units: units.start, error: None });
            continue;
        }
        load.reader.count_read(buf.len());
        loaded.push(match results.next().unwrap_or_else(not_executed) {
            Ok(()) => load.reader.adopt_units(load.partition, units.start, units.end, &buf),
            Err(error) => UnitsLoaded { units: units.start, error: Some(error) },
        });
    }
    loaded
}

/// Frees all but the first `units` units of a partition, at once.
pub fn drop_filter_units(reader: &SstReader, partition: usize, units: u8) {
    let slot = &reader.slots.filters[partition];
    let Some(resident) = slot.resident.load_full() else { return };
    if units >= resident.units() {
        return;
    }
    reader.counters.add(Event::FilterUnitDrop, u64::from(resident.units() - units));
    if units == 0 {
        slot.resident.store(None);
        return;
    }
    let shape = reader.top.filters()[partition].shape;
    let mut buf = BufMut::tight(shape.prefix_bytes(units));
    let len = buf.len();
    buf.copy_from_slice(&resident.payload()[..len]);
    reader.put_units(partition, buf, units);
}

impl SstReader {
    /// Filter partitions of the file; 0 without filters.
    pub fn filter_partition_count(&self) -> usize {
        self.top.filters().len()
    }

    /// Filter partition `at`, which must exist.
    pub fn filter_partition(&self, at: usize) -> FilterPartitionInfo<'_> {
        let place = &self.top.filters()[at];
        let slot = &self.slots.filters[at];
        let usable_units = slot.damaged_from().unwrap_or(place.shape.unit_count);
        FilterPartitionInfo {
            key_count: place.key_count,
            shape: place.shape,
            separator: self.top.filter_separator(at),
            resident_units: slot.resident.load().as_ref().map_or(0, |filter| filter.units()),
            usable_units,
        }
    }

    /// How lookups fared in partition `at` since the last call, which starts the counts anew.
    pub fn take_filter_uses(&self, at: usize) -> FilterUses {
        let FilterSlot { stopped, vain, found, .. } = &self.slots.filters[at];
        let take = |count: &AtomicU32| match count.load(Ordering::Relaxed) {
            0 => 0,
            _ => count.swap(0, Ordering::Relaxed),
        };
        FilterUses { stopped: take(stopped), vain: take(vain), found: take(found) }
    }

    /// Takes back what a lookup has counted towards the heat of its filter partition: it was given
    /// up in another place and will be repeated as a whole. `found` says whether it found its key
    /// in this file; otherwise the filter stopped it or the data was searched in vain.
    #[cold]
    pub fn take_back(&self, lookup: &Lookup<'_>, found: bool) {
        let Some(slot) = self.slots.filters.get(self.top.filter_at(lookup.user_key)) else {
            return;
        };
        let denies = || {
            let resident = slot.resident.load();
            resident.as_ref().is_some_and(|filter| !filter.may_contain(lookup.hash))
        };
        match self.filter_memory {
            FilterMemory::Elastic if found => FilterSlot::take_back_often(&slot.found),
            FilterMemory::Elastic if denies() => FilterSlot::take_back_often(&slot.stopped),
            FilterMemory::Cached if found || denies() => {}
            _ => FilterSlot::take_back(&slot.vain),
        }
    }

    /// Bytes that the file's resident filter units take; reads every slot.
    pub fn resident_filter_bytes(&self) -> usize {
        let partitions = 0..self.filter_partition_count();
        let charge =
            |info: FilterPartitionInfo<'_>| filter_charge_bytes(&info.shape, info.resident_units);
        partitions.map(|at| charge(self.filter_partition(at))).sum()
    }

    /// Whether the file may hold keys that start with `prefix`, as far as filter units in memory
    /// tell. Always so if the file filters no prefixes of that length, or if this many partitions
    /// could hold such keys that asking them is not worth it.
    pub fn may_contain_prefix(&self, prefix: &[u8]) -> bool {
        let filters = self.top.filters();
        let len = self.top.prefix_len();
        if filters.is_empty() || len == 0 || prefix.len() < len {
            return true;
        }
        // A longer prefix is contained only where its front is.
        let hash = hash_prefix(&prefix[..len]);
        let first = self.top.filter_at(prefix);
        for at in first..filters.len() {
            let resident = self.slots.filters[at].resident.load();
            let denied = resident.as_ref().is_some_and(|filter| !filter.may_contain(hash));
            if !denied || at >= first + MAX_PREFIX_PARTITIONS {
                return true;
            }
            let separator = self.top.filter_separator(at);
            if separator > prefix && !separator.starts_with(prefix) {
                return false;
            }
        }
        false
    }

    /// Checks units `from` to `to` of a partition, which `stored` holds, and puts the sound ones,
    /// up to the first that is not, behind those that are in memory.
    fn adopt_units(&self, partition: usize, from: u8, to: u8, stored: &[u8]) -> UnitsLoaded {
        let listed = self.top.filters()[partition];
        let slot = &self.slots.filters[partition];
        let mut payloads = Vec::with_capacity(usize::from(to - from));
        let mut error = None;
        for unit in from..to {
            match self.check_unit(&listed, from, unit, stored) {
                Ok(payload) => payloads.push(payload),
                Err(damage) => {
                    slot.note_damage(unit);
                    self.counters.count(Event::FilterUnitDamage);
                    error = Some(damage);
                    break;
                }
            }
        }
        let units = from + payloads.len() as u8;
        if units > from {
            let mut buf = BufMut::tight(listed.shape.prefix_bytes(units));
            let mut end = 0;
            let mut append = |bytes: &[u8]| {
                buf[end..end + bytes.len()].copy_from_slice(bytes);
                end += bytes.len();
            };
            if let Some(resident) = &*slot.resident.load() {
                append(resident.payload());
            }
            for payload in payloads {
                append(&stored[payload]);
            }
            self.counters.add(Event::FilterUnitLoad, u64::from(units - from));
            self.put_units(partition, buf, units);
        }
        UnitsLoaded { units, error }
    }

    fn put_units(&self, partition: usize, buf: BufMut, units: u8) {
        let shape = self.top.filters()[partition].shape;
        if let Ok(filter) = FilterPartition::load(buf.freeze(), shape, units) {
            SlotEntry::new(filter, partition, Weak::new()).put_uncharged(&self.slots);
        }
    }
}
