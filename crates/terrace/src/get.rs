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
use crate::metrics::sample;
use crate::read_state::ReadState;
use crate::table_cache::ReaderGuard;
use std::time::Instant;
use terrace_base::key::{EXPIRY_BYTES, trailer_kind, trailer_seqno};
use terrace_base::{SeqNo, ValueHandle, ValueKind};
use terrace_manifest::FileMeta;
use terrace_sst::{Entry, FilterAt, Lookup, SstReader};
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
    let start = sample().then(Instant::now);
    let found = match look_up(inner, family, key, reading)? {
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
fn look_up(inner: &Inner, family: &Family, key: &[u8], reading: Reading) -> Result<Answer> {
    let state = family.state();
    let seqno = reading.snapshot.unwrap_or_else(|| inner.visible_seqno());
    let lookup = Lookup { fill_cache: reading.fill_cache, ..Lookup::new(key, seqno) };
    search(inner, &state, &lookup, seqno)
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
        handle = match look_up(inner, family, key, reading)? {
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
    let state = family.state();
    let seqno = reading.snapshot.unwrap_or_else(|| inner.visible_seqno());
    let answers = batch::search(inner, &state, keys, seqno, reading.fill_cache)?;
    let reading = Reading { snapshot: Some(seqno), ..reading };
    let found = batch::fetch(inner, family, keys, reading, answers)?;
    inner.counters.gets.add(keys.len() as u64);
    inner.counters.gets_found.add(found.iter().flatten().count() as u64);
    Ok(found)
}

fn search(inner: &Inner, state: &ReadState, lookup: &Lookup<'_>, seqno: SeqNo) -> Result<Answer> {
    // The newest range tombstone met so far that covers the key.
    let mut covered: SeqNo = 0;
    for memtable in std::iter::once(&state.memtable).chain(&state.immutables) {
        if let Some((trailer, value)) = in_memtable(memtable, lookup, seqno, &mut covered) {
            inner.counters.gets_in_memtable.add(1);
            return Ok(from_memtable(inner, trailer, value, covered));
        }
    }
    let mut runs = Candidates::new(state, lookup.user_key);
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
            Some(run) if len == 1 => search_run(inner, state, run, lookup, seqno, &mut covered)?,
            Some(_) => search_group(inner, state, &group, lookup, seqno, &mut covered)?,
        };
        if let Some(entry) = found {
            return Ok(pinned(inner, entry, covered));
        }
    }
}

/// The newest version of the key in one run.
#[inline]
fn search_run(
    inner: &Inner,
    state: &ReadState,
    run: Run<'_>,
    lookup: &Lookup<'_>,
    seqno: SeqNo,
    covered: &mut SeqNo,
) -> Result<Option<Entry>> {
    let guard = inner.table_cache.enter(state.slots.at(run.level, run.index), run.file)?;
    let Some(reader) = guard.as_ref() else { return Ok(None) };
    note_range_tombstones(reader, run.file, lookup, seqno, covered);
    Ok(reader.get_with_filter(lookup)?)
}

/// The newest version of the key in several runs, newest first; asks for all their filters at once.
#[inline]
fn search_group(
    inner: &Inner,
    state: &ReadState,
    runs: &[Option<Run<'_>>; TOGETHER],
    lookup: &Lookup<'_>,
    seqno: SeqNo,
    covered: &mut SeqNo,
) -> Result<Option<Entry>> {
    let mut group: [Option<(&FileMeta, ReaderGuard, FilterAt)>; TOGETHER] = Default::default();
    for (place, run) in group.iter_mut().zip(runs.iter().flatten()) {
        let guard = inner.table_cache.enter(state.slots.at(run.level, run.index), run.file)?;
        let at = guard.as_ref().map(|reader| reader.prefetch_filter(lookup));
        *place = at.map(|at| (run.file, guard, at));
    }
    for (file, guard, at) in group.iter().flatten() {
        let Some(reader) = guard.as_ref() else { continue };
        note_range_tombstones(reader, file, lookup, seqno, covered);
        if let Some(entry) = reader.get_at(*at, lookup)? {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

#[inline]
fn note_range_tombstones(
    reader: &SstReader,
    file: &FileMeta,
    lookup: &Lookup<'_>,
    seqno: SeqNo,
    covered: &mut SeqNo,
) {
    if file.range_tombstone_count > 0 {
        let newest = reader.range_tombstones().covering_seqno(lookup.user_key, seqno);
        *covered = (*covered).max(newest.unwrap_or(0));
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
                    return Some(Run { level: 0, index, file });
                }
            }
            self.level = 1;
        }
        while let Some(level) = levels.get(self.level) {
            let number = self.level;
            self.level += 1;
            if let Some(index) = level.find(self.key) {
                return Some(Run { level: number, index, file: level.files().get(index)? });
            }
        }
        None
    }
}

mod batch;
