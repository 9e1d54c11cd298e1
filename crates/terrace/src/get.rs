//! Point reads (get, steps 2 to 6): memtables newest first, then the sorted runs newest first.
//!
//! The key is hashed once. The filter lines of all candidate SSTs are prefetched together before
//! the first one is tested, so that a miss costs one memory latency, not one per run. A cached
//! read takes no lock and allocates nothing; the value is a slice pinned to its block.
//!
//! A value in the log is read by one read of the device ([`crate::value_log`]). If its segment has
//! been collected since the entry was found, the key is looked up again.

use crate::error::{Error, Result};
use crate::family::Family;
use crate::inner::Inner;
use crate::memtable::MemTable;
use crate::metrics::{Sampled, sample};
use crate::models::samples::Sample;
use crate::read_state::ReadState;
use crate::table_cache::ReaderGuard;
use std::time::Instant;
use terrace_base::key::{EXPIRY_BYTES, trailer_kind, trailer_seqno};
use terrace_base::{SeqNo, ValueHandle, ValueKind};
use terrace_manifest::FileMeta;
use terrace_sst::{BlockPlace, Entry, FilterAt, InLevel, Lookup, SstReader, Way};
use terrace_vfs::Slice;

/// Candidates whose filters are prefetched together. A thread has eight cheap reader guards;
/// the read state holds one of them.
const TOGETHER: usize = 6;

/// How a point read reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// `None`: what is there now.
    pub snapshot: Option<SeqNo>,
    /// Whether data blocks that have to be read go into the cache.
    pub fill_cache: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self { snapshot: None, fill_cache: true }
    }
}

/// How often a key is looked up again because its value was moved meanwhile.
const MOST_TRIES: u32 = 64;

/// What a version says of its key.
enum Answer {
    Absent,
    Value(Slice),
    /// The value lies in the log.
    Separated(ValueHandle),
}

/// The value of `key`.
#[inline]
pub(crate) fn get(
    inner: &Inner,
    family: &Family,
    key: &[u8],
    reading: Reading,
) -> Result<Option<Slice>> {
    inner.health.check_open()?;
    let sampled = sample();
    let start = (sampled == Sampled::Timed).then(Instant::now);
    let followed = sampled == Sampled::Followed;
    let found = match look_up(inner, family, key, reading, followed)? {
        Answer::Absent => None,
        Answer::Value(value) => Some(value),
        Answer::Separated(handle) => fetch(inner, family, key, reading, handle)?,
    };
    inner.counters.gets.add(1);
    if found.is_some() {
        inner.counters.gets_found.add(1);
    }
    if let Some(start) = start {
        inner.counters.get_latency.record_ns(start.elapsed().as_nanos() as u64);
    }
    Ok(found)
}

#[inline]
fn look_up(
    inner: &Inner,
    family: &Family,
    key: &[u8],
    reading: Reading,
    followed: bool,
) -> Result<Answer> {
    let state = family.state();
    let seqno = reading.snapshot.unwrap_or_else(|| inner.visible_seqno());
    let lookup = Lookup { fill_cache: reading.fill_cache, ..Lookup::new(key, seqno) };
    let search = Search { inner, state: &state, lookup: &lookup, seqno, covered: 0 };
    search.run(followed.then_some(family))
}

/// The value at `handle`, or where it is now.
fn fetch(
    inner: &Inner,
    family: &Family,
    key: &[u8],
    reading: Reading,
    mut handle: ValueHandle,
) -> Result<Option<Slice>> {
    for _ in 0..MOST_TRIES {
        if let Some(value) = inner.value_log.get(key, handle, reading.fill_cache)? {
            return Ok(Some(value));
        }
        if family.is_dropped() {
            return Err(Error::NoSuchFamily(family.name.clone()));
        }
        handle = match look_up(inner, family, key, reading, false)? {
            Answer::Absent => return Ok(None),
            Answer::Value(value) => return Ok(Some(value)),
            Answer::Separated(handle) => handle,
        };
    }
    Err(inner.value_log.missing(&handle).into())
}

/// The values of `keys`, all as of one moment. Reads of one SST are batched.
pub(crate) fn multi_get(
    inner: &Inner,
    family: &Family,
    keys: &[&[u8]],
    reading: Reading,
) -> Result<Vec<Option<Slice>>> {
    inner.health.check_open()?;
    let mut tries = 0;
    let found = loop {
        let state = family.state();
        let seqno = reading.snapshot.unwrap_or_else(|| inner.visible_seqno());
        let answers = batch::search(inner, &state, keys, seqno, reading.fill_cache)?;
        // If a value was collected meanwhile, all keys are looked up again, at a moment of their
        // own: no snapshot keeps what the last moment showed.
        match batch::fetch(inner, keys, answers)? {
            Ok(found) => break found,
            Err(_) if family.is_dropped() => {
                return Err(Error::NoSuchFamily(family.name.clone()));
            }
            Err(handle) if tries == MOST_TRIES => {
                return Err(inner.value_log.missing(&handle).into());
            }
            Err(_) => tries += 1,
        }
    };
    inner.counters.gets.add(keys.len() as u64);
    inner.counters.gets_found.add(found.iter().flatten().count() as u64);
    Ok(found)
}

/// One lookup on its way down through memtables and runs.
struct Search<'a> {
    inner: &'a Inner,
    state: &'a ReadState,
    lookup: &'a Lookup<'a>,
    seqno: SeqNo,
    /// The newest range tombstone met so far that covers the key.
    covered: SeqNo,
}

impl<'a> Search<'a> {
    /// The answer; if the lookup is to be followed, of what family it is.
    #[inline]
    fn run(mut self, followed: Option<&Family>) -> Result<Answer> {
        let Self { inner, state, lookup, seqno, .. } = self;
        for memtable in std::iter::once(&state.memtable).chain(&state.immutables) {
            if let Some((trailer, value)) = in_memtable(memtable, lookup, seqno, &mut self.covered)
            {
                inner.counters.gets_in_memtable.add(1);
                return Ok(from_memtable(inner, trailer, value, self.covered));
            }
        }
        let mut runs = Candidates::new(state, lookup.user_key);
        if let Some(family) = followed {
            return self.follow(runs, family);
        }
        loop {
            let mut group: [Option<Run<'_>>; TOGETHER] = [None; TOGETHER];
            let mut len = 0;
            while len < TOGETHER
                && let Some(run) = runs.next()
            {
                group[len] = Some(run);
                len += 1;
            }
            let found = match group.first().copied().flatten() {
                None => return Ok(Answer::Absent),
                // Nothing to overlap the wait for its filter with.
                Some(run) if len == 1 => self.ask_run(&run)?,
                Some(_) => self.ask_group(&group)?,
            };
            if let Some(entry) = found {
                return Ok(pinned(inner, entry, self.covered));
            }
        }
    }

    /// The newest version of the key in one run.
    #[inline]
    fn ask_run(&mut self, run: &Run<'_>) -> Result<Option<Entry>> {
        let slot = self.state.slots.at(run.level, run.index);
        let guard = self.inner.table_cache.enter(slot, run.file)?;
        let Some(reader) = guard.as_ref() else { return Ok(None) };
        self.ask(run, reader, reader.filter_at(self.lookup))
    }

    /// The newest version of the key in several runs, newest first; asks for all their filters at
    /// once.
    #[inline]
    fn ask_group(&mut self, runs: &[Option<Run<'_>>; TOGETHER]) -> Result<Option<Entry>> {
        let mut group: [Option<(&Run<'_>, ReaderGuard, FilterAt)>; TOGETHER] = Default::default();
        for (place, run) in group.iter_mut().zip(runs.iter().flatten()) {
            let slot = self.state.slots.at(run.level, run.index);
            let guard = self.inner.table_cache.enter(slot, run.file)?;
            let at = guard.as_ref().map(|reader| reader.prefetch_filter(self.lookup));
            *place = at.map(|at| (run, guard, at));
        }
        for (run, guard, at) in group.iter().flatten() {
            let Some(reader) = guard.as_ref() else { continue };
            if let Some(entry) = self.ask(run, reader, *at)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The newest version of the key in the file of `run`, or in its level if a model of the level
    /// chose the file.
    #[inline]
    fn ask(&mut self, run: &Run<'_>, reader: &SstReader, at: FilterAt) -> Result<Option<Entry>> {
        match run.block {
            Some(block) => self.ask_block(run, block, reader, at),
            None => {
                self.note_range_tombstones(reader, run.file);
                Ok(reader.get_at(at, self.lookup)?)
            }
        }
    }

    /// What a model of a level chose is believed only where the block or the file's bounds prove
    /// it.
    #[inline]
    fn ask_block(
        &mut self,
        run: &Run<'_>,
        block: BlockPlace,
        reader: &SstReader,
        at: FilterAt,
    ) -> Result<Option<Entry>> {
        // Range tombstones of the right file count even where it does not have the key.
        if run.file.range_tombstone_count == 0 {
            match reader.get_at_block(at, block, self.lookup)? {
                InLevel::Found(entry) => return Ok(Some(entry)),
                InLevel::Absent => return Ok(None),
                InLevel::Stopped if run.file.contains(self.lookup.user_key) => return Ok(None),
                InLevel::Stopped | InLevel::Unknown => {}
            }
        }
        self.ask_level(run.level)
    }

    /// The newest version of the key in one level below L0, without a model of the level.
    #[cold]
    fn ask_level(&mut self, level: usize) -> Result<Option<Entry>> {
        let files = self.state.version.level(level);
        let Some(index) = files.find(self.lookup.user_key) else { return Ok(None) };
        self.ask_run(&Run { level, index, file: &files.files()[index], block: None })
    }

    /// The rest of a lookup, one run after the other, each with its way and its time.
    #[cold]
    fn follow(mut self, mut runs: Candidates<'_>, family: &Family) -> Result<Answer> {
        loop {
            let start = Instant::now();
            let Some(run) = runs.next() else { return Ok(Answer::Absent) };
            let find_ns = start.elapsed().as_nanos() as u64;
            let slot = self.state.slots.at(run.level, run.index);
            let found = if run.block.is_some() {
                let found = self.ask_run(&run)?;
                if let Some(model) = &self.state.level_models[run.level] {
                    model.note(found.is_some());
                }
                if found.is_some() {
                    family.samples.note_by_level(run.level, start.elapsed().as_nanos() as u64);
                    slot.note(true);
                }
                found
            } else {
                let guard = self.inner.table_cache.enter(slot, run.file)?;
                let Some(reader) = guard.as_ref() else { continue };
                self.note_range_tombstones(reader, run.file);
                let traced = reader.get_traced(reader.filter_at(self.lookup), self.lookup)?;
                let total_ns = start.elapsed().as_nanos() as u64;
                let found = traced.found.is_some();
                if traced.way != Way::Filter {
                    slot.note(found);
                }
                let sample = Sample { way: traced.way, found, find_ns, ns: traced.ns, total_ns };
                family.samples.note(run.level, &sample);
                traced.found
            };
            if let Some(entry) = found {
                return Ok(pinned(self.inner, entry, self.covered));
            }
        }
    }

    #[inline]
    fn note_range_tombstones(&mut self, reader: &SstReader, file: &FileMeta) {
        if file.range_tombstone_count > 0 {
            let tombstones = reader.range_tombstones();
            let newest = tombstones.covering_seqno(self.lookup.user_key, self.seqno);
            self.covered = self.covered.max(newest.unwrap_or(0));
        }
    }
}

/// The newest version of the key in one memtable; notes range tombstones that cover it.
#[inline]
fn in_memtable<'a>(
    memtable: &'a MemTable,
    lookup: &Lookup<'_>,
    seqno: SeqNo,
    covered: &mut SeqNo,
) -> Option<(u64, &'a [u8])> {
    if memtable.has_range_tombstones() {
        let newest = memtable.range_tombstones().covering_seqno(lookup.user_key, seqno);
        *covered = (*covered).max(newest.unwrap_or(0));
    }
    if memtable.has_no_entries() {
        return None;
    }
    memtable.get(lookup.user_key, lookup.trailer)
}

/// The user's value of a version, unless it is a tombstone, deleted by a range, or expired.
#[inline]
fn live<'a>(inner: &Inner, trailer: u64, value: &'a [u8], covered: SeqNo) -> Option<&'a [u8]> {
    if trailer_seqno(trailer) < covered {
        return None;
    }
    match trailer_kind(trailer)? {
        ValueKind::Put | ValueKind::PutHandle => Some(value),
        ValueKind::PutTtl | ValueKind::PutTtlHandle => {
            let (expiry, value) = value.split_first_chunk::<EXPIRY_BYTES>()?;
            (u64::from_le_bytes(*expiry) > inner.clock.wall_ms()).then_some(value)
        }
        ValueKind::Delete | ValueKind::RangeDelete => None,
    }
}

/// What a version in a memtable says.
#[inline]
fn from_memtable(inner: &Inner, trailer: u64, value: &[u8], covered: SeqNo) -> Answer {
    match live(inner, trailer, value, covered) {
        None => Answer::Absent,
        Some(value) => separated(trailer, value).unwrap_or_else(|| Answer::Value(value.into())),
    }
}

/// The answer of a version whose live value is a handle.
#[inline]
fn separated(trailer: u64, live: &[u8]) -> Option<Answer> {
    if !trailer_kind(trailer)?.is_handle() {
        return None;
    }
    // Handles in SSTs were checked when their block was loaded, those in memtables made here.
    live.try_into().ok().map(|bytes| Answer::Separated(ValueHandle::decode(bytes)))
}

/// What a version in an SST says, a value pinned to its block.
#[inline]
fn pinned(inner: &Inner, entry: Entry, covered: SeqNo) -> Answer {
    if trailer_kind(entry.trailer) == Some(ValueKind::Put)
        && trailer_seqno(entry.trailer) >= covered
    {
        return Answer::Value(entry.value);
    }
    let Some(live) = live(inner, entry.trailer, &entry.value, covered) else {
        return Answer::Absent;
    };
    separated(entry.trailer, live).unwrap_or_else(|| {
        Answer::Value(entry.value.part(entry.value.len() - live.len(), live.len()))
    })
}

/// A file that may hold a key, and its place in the version.
#[derive(Clone, Copy)]
struct Run<'a> {
    level: usize,
    index: usize,
    file: &'a FileMeta,
    /// The block, if a model of the level chose the file.
    block: Option<BlockPlace>,
}

/// The files of a version that may hold a key, newest run first.
struct Candidates<'a> {
    state: &'a ReadState,
    key: &'a [u8],
    level: usize,
    index: usize,
}

impl<'a> Candidates<'a> {
    fn new(state: &'a ReadState, key: &'a [u8]) -> Self {
        Self { state, key, level: 0, index: 0 }
    }
}

impl<'a> Iterator for Candidates<'a> {
    type Item = Run<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let levels = self.state.version.levels();
        if self.level == 0 {
            while let Some(file) = levels.first()?.files().get(self.index) {
                let index = self.index;
                self.index += 1;
                if file.contains(self.key) {
                    return Some(Run { level: 0, index, file, block: None });
                }
            }
            self.level = 1;
        }
        while let Some(level) = levels.get(self.level) {
            let number = self.level;
            self.level += 1;
            if let Some(model) = &self.state.level_models[number]
                && let Some(place) = model.locate(self.key)
                && let Some(file) = level.files().get(place.file)
            {
                let block = Some(place.guess);
                return Some(Run { level: number, index: place.file, file, block });
            }
            if let Some(index) = level.find(self.key) {
                let file = level.files().get(index)?;
                return Some(Run { level: number, index, file, block: None });
            }
        }
        None
    }
}

mod batch;
pub(crate) mod explain;
