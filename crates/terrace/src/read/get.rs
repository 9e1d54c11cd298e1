//! Point reads (get): memtables newest first, then the sorted runs newest first.
//!
//! The key is hashed once. The filter lines of all candidate SSTs are prefetched together before
//! the first one is tested, so that a miss costs one memory latency, not one per run; a thread that finds most
//! of its keys asks for the entry in the last candidate with them, and searches it before that filter. A cached
//! read takes no lock and allocates nothing; the value is a slice pinned to its block.
//!
//! A value in the log is read by one read of the device ([`crate::values::value_log`]). If its segment has
//! been collected since the entry was found, the key is looked up again.

use crate::error::{Error, Result};
use crate::memory::reader_slot::ReaderGuard;
use crate::memtable::MemTable;
use crate::metrics::{Sampled, sample};
use crate::read::merged;
use crate::read::scan::ReadOptions;
use crate::version::family::Family;
use crate::version::read_env::ReadEnv;
use crate::version::read_state::ReadState;
use crate::version::snapshots::Snapshot;
pub(crate) use batch::multi_get;
use candidates::{Candidates, Run};
pub use info::EntryInfo;
pub(crate) use info::get_info;
use live::{from_memtable, pinned};
use sampled::SampledLookup;
use std::num::NonZeroU64;
use terrace_base::sync::Instant;
use terrace_base::{SeqNo, ValueHandle};
use terrace_buf::Slice;
use terrace_manifest::FileMeta;
use terrace_sst::{BlockPlace, Entry, EntryAt, FilterAt, InLevel, Lookup, LookupTrace, SstReader};

/// Candidates whose filters are prefetched together. A thread has eight cheap reader guards;
/// the read state holds one of them.
const TOGETHER: usize = 6;

/// How a point read reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// `None`: what is there now.
    pub snapshot: Option<&'a Snapshot>,
    /// Whether data blocks that have to be read go into the cache.
    pub fill_cache: bool,
    /// Whether the read is given up where it needs the device.
    pub in_memory: bool,
    /// Whether a separated value is left where it is.
    pub only_info: bool,
    /// The time for what has expired; `None` is the wall clock's.
    pub now_ms: Option<u64>,
}

impl Default for Reading<'_> {
    fn default() -> Self {
        Self { snapshot: None, fill_cache: true, in_memory: false, only_info: false, now_ms: None }
    }
}

impl Reading<'_> {
    /// The sequence number to read at; to be asked for after `state` was taken.
    #[inline]
    fn seqno(&self, env: &ReadEnv, state: &ReadState) -> SeqNo {
        let now = || state.readable_seqno(env.visible_seqno());
        self.snapshot.map_or_else(now, Snapshot::seqno)
    }

    /// As options of a scan.
    fn options(&self) -> ReadOptions {
        let Self { fill_cache, in_memory, now_ms, .. } = *self;
        let snapshot = self.snapshot.cloned();
        ReadOptions { snapshot, fill_cache, in_memory, now_ms, ..ReadOptions::default() }
    }
}

/// How often a key is looked up again because its value was moved meanwhile.
const MAX_TRIES: u32 = 64;

/// A value and what is stored with it.
#[derive(Debug, Clone)]
pub struct Found {
    /// The value.
    pub value: Slice,
    /// When the wall clock shows this, in Unix milliseconds, the key is absent; `None` if it does
    /// not expire.
    pub expires_at_ms: Option<u64>,
}

/// An expiry; what expires at 0 is never found.
type Expiry = Option<NonZeroU64>;

/// What a version says of its key.
enum Answer {
    Absent,
    Value(Slice, Expiry),
    /// The value lies in the log.
    Separated(ValueHandle, Expiry),
    /// The value is to be made of an operand and what lies below it.
    Operand,
}

impl Answer {
    fn value(self) -> Option<Slice> {
        match self {
            Self::Value(value, _) => Some(value),
            Self::Absent | Self::Separated(..) | Self::Operand => None,
        }
    }
}

/// The value of `key`.
#[inline]
pub(crate) fn get(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
) -> Result<Option<Slice>> {
    Ok(read(env, family, key, reading)?.value())
}

/// The value of `key` and its expiry.
pub(crate) fn get_entry(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
) -> Result<Option<Found>> {
    Ok(match read(env, family, key, reading)? {
        Answer::Value(value, expiry) => {
            Some(Found { value, expires_at_ms: expiry.map(NonZeroU64::get) })
        }
        Answer::Absent | Answer::Separated(..) | Answer::Operand => None,
    })
}

/// Refuses reads of a closed store and of a dropped family.
#[inline]
fn check(env: &ReadEnv, family: &Family) -> Result<()> {
    env.base.health.check_open()?;
    family.check_exists()
}

/// The answer for `key`, with the value read if it lies in the log.
#[inline]
fn read(env: &ReadEnv, family: &Family, key: &[u8], reading: Reading<'_>) -> Result<Answer> {
    check(env, family)?;
    let sampled = sample();
    let start = (sampled == Sampled::Timed).then(Instant::now);
    let answer = match sampled {
        Sampled::Followed => look_up_sampled(env, family, key, reading)?,
        _ => look_up(env, family, key, reading, &mut ())?,
    };
    let answer = with_value(env, family, key, reading, answer, &mut ())?;
    env.base.counters.gets.add(1);
    match answer {
        Answer::Value(..) => env.base.counters.gets_found.add(1),
        // A family that was dropped meanwhile is empty.
        _ => family.check_exists()?,
    }
    if let Some(start) = start {
        env.base.counters.get_latency.record_ns(start.elapsed().as_nanos() as u64);
    }
    Ok(answer)
}

/// The answer without what is counted of it; `trace` observes how it comes about.
fn traced(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
    trace: &mut impl LookupTrace,
) -> Result<Answer> {
    let answer = look_up(env, family, key, reading, trace)?;
    with_value(env, family, key, reading, answer, trace)
}

/// The read state that a lookup uses: that of the snapshot, or the present one.
macro_rules! state_of {
    ($family:expr, $reading:expr, $now:ident) => {
        match $reading.snapshot.and_then(|snapshot| snapshot.view_of($family.id)) {
            Some((held, _)) => held,
            None => {
                $now = $family.state();
                &*$now
            }
        }
    };
}

#[inline]
fn look_up(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
    trace: &mut impl LookupTrace,
) -> Result<Answer> {
    let now;
    let state = state_of!(family, reading, now);
    search(env, state, key, reading, trace)
}

/// A lookup that is also a sample: what each of its runs takes is noted.
#[cold]
fn look_up_sampled(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
) -> Result<Answer> {
    let now;
    let state = state_of!(family, reading, now);
    let mut sample = SampledLookup::new();
    let answer = search(env, state, key, reading, &mut sample)?;
    // Of a lookup that is given up nothing is noted: it is repeated.
    sample.note(state, family);
    Ok(answer)
}

#[inline]
fn search(
    env: &ReadEnv,
    state: &ReadState,
    key: &[u8],
    reading: Reading<'_>,
    trace: &mut impl LookupTrace,
) -> Result<Answer> {
    let seqno = reading.seqno(env, state);
    let Reading { fill_cache, in_memory, .. } = reading;
    let lookup = Lookup { fill_cache, in_memory, ..Lookup::new(key, seqno) };
    let mut search = Search::new(env, state, &lookup, (seqno, reading.now_ms), trace);
    let answer = search.run();
    if in_memory && !matches!(answer, Ok(Answer::Absent | Answer::Value(..))) {
        if reading.only_info && matches!(answer, Ok(Answer::Separated(..))) {
            return answer;
        }
        return search.settle_in_memory(answer);
    }
    answer
}

/// `answer` with its value, which is read from the log if it lies there.
#[inline]
fn with_value(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
    answer: Answer,
    trace: &mut impl LookupTrace,
) -> Result<Answer> {
    let answer = match answer {
        Answer::Separated(handle, expiry) => {
            fetch(env, family, key, reading, (handle, expiry), trace)?
        }
        answer => answer,
    };
    match answer {
        Answer::Operand => fold(env, family, key, reading),
        answer => Ok(answer),
    }
}

/// The answer for a key whose newest version is an operand.
#[cold]
fn fold(env: &ReadEnv, family: &Family, key: &[u8], reading: Reading<'_>) -> Result<Answer> {
    let found = merged::get(env, family, key, reading.options())?;
    Ok(found.map_or(Answer::Absent, |(value, expires_at_ms)| {
        Answer::Value(value, expires_at_ms.and_then(NonZeroU64::new))
    }))
}

/// The value at `handle`, or where it is now.
fn fetch(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
    (mut handle, mut expiry): (ValueHandle, Expiry),
    trace: &mut impl LookupTrace,
) -> Result<Answer> {
    for _ in 0..MAX_TRIES {
        trace.wants_value(key, &handle);
        let value = match reading.snapshot.and_then(|snapshot| snapshot.view_of(family.id)) {
            Some((_, held)) => env.value_log.get_held(held, key, handle, reading.fill_cache)?,
            None => env.value_log.get(key, handle, reading.fill_cache)?,
        };
        trace.value(&handle, value.is_some());
        if let Some(value) = value {
            return Ok(Answer::Value(value, expiry));
        }
        family.check_exists()?;
        (handle, expiry) = match look_up(env, family, key, reading, trace)? {
            Answer::Separated(handle, expiry) => (handle, expiry),
            answer => return Ok(answer),
        };
    }
    Err(env.value_log.missing(&handle).into())
}

/// The runs that a lookup has asked so far.
#[derive(Debug, Clone, Copy, Default)]
struct AskedRuns {
    /// Runs that do not have the key.
    passed: usize,
    /// Whether the run after those has it.
    found: bool,
}

impl AskedRuns {
    /// Takes back what the search has counted as heat so far.
    #[cold]
    fn take_back(&self, state: &ReadState, lookup: &Lookup<'_>) {
        let runs = Candidates::new(state, lookup.user_key);
        for (at, run) in runs.take(self.passed + usize::from(self.found)).enumerate() {
            let files = state.version.level(run.level);
            let index = match run.block {
                Some(_) => files.find(lookup.user_key),
                None => Some(run.index),
            };
            let reader = index.map(|index| state.slots.at(run.level, index).open_reader());
            if let Some(reader) = reader.as_ref().and_then(|guard| guard.as_ref()) {
                reader.take_back(lookup, at == self.passed);
            }
        }
    }
}

/// One lookup on its way down through memtables and runs.
struct Search<'a, T> {
    env: &'a ReadEnv,
    state: &'a ReadState,
    lookup: &'a Lookup<'a>,
    seqno: SeqNo,
    /// As [`Reading::now_ms`].
    now_ms: Option<u64>,
    /// The newest range tombstone met so far that covers the key.
    covered: SeqNo,
    asked: AskedRuns,
    trace: &'a mut T,
}

impl<'a, T: LookupTrace> Search<'a, T> {
    fn new(
        env: &'a ReadEnv,
        state: &'a ReadState,
        lookup: &'a Lookup<'a>,
        (seqno, now_ms): (SeqNo, Option<u64>),
        trace: &'a mut T,
    ) -> Self {
        let (covered, asked) = (SeqNo::ZERO, AskedRuns::default());
        Self { env, state, lookup, seqno, now_ms, covered, asked, trace }
    }

    /// The answer.
    #[inline]
    fn run(&mut self) -> Result<Answer> {
        let Self { env, state, lookup, seqno, .. } = *self;
        let places = usize::from(state.hot.is_none())..;
        for (at, memtable) in places.zip(state.memtables()) {
            let found = in_memtable(memtable, lookup, seqno, &mut self.covered);
            self.trace.memtable(at, found.map(|(trailer, _)| trailer), self.covered);
            if let Some((trailer, value)) = found {
                env.base.counters.gets_in_memtable.add(1);
                return Ok(from_memtable((env, self.now_ms), trailer, value, self.covered));
            }
        }
        let mut runs = Candidates::new(state, lookup.user_key);
        loop {
            self.trace.next_run();
            let mut group: [Option<Run<'_>>; TOGETHER] = [None; TOGETHER];
            let mut len = 0;
            while len < if T::ONE_BY_ONE { 1 } else { TOGETHER }
                && let Some(run) = runs.next()
            {
                group[len] = Some(run);
                len += 1;
            }
            let found = match group.first().copied().flatten() {
                None => {
                    outcomes::note(false);
                    return Ok(Answer::Absent);
                }
                // No other filter to overlap the wait for its filter with.
                Some(run) if len == 1 => {
                    let found = self.ask_run(&run)?;
                    self.trace.answered(found.is_some());
                    self.asked.passed += usize::from(found.is_none());
                    found
                }
                Some(_) => self.ask_group(&group)?,
            };
            if let Some(entry) = found {
                self.asked.found = true;
                outcomes::note(true);
                self.trace.found(entry.trailer, self.covered);
                return Ok(pinned((env, self.now_ms), entry, self.covered));
            }
        }
    }

    /// The newest version of the key in one run.
    #[inline]
    fn ask_run(&mut self, run: &Run<'_>) -> Result<Option<Entry>> {
        let slot = self.state.slots.at(run.level, run.index);
        let guard = self.env.table_cache.enter(slot, run.file, self.lookup.in_memory)?;
        let Some(reader) = guard.as_ref() else { return Err(Error::NotInMemory) };
        self.trace.opened(run.place());
        let at = (reader.filter_at(self.lookup), self.expect(run, reader));
        self.ask(run, reader, at)
    }

    /// The newest version of the key in several runs, newest first; asks for all their filters at
    /// once.
    #[inline]
    fn ask_group(&mut self, runs: &[Option<Run<'_>>; TOGETHER]) -> Result<Option<Entry>> {
        let mut group: [Option<(&Run<'_>, ReaderGuard, FilterAt)>; TOGETHER] = Default::default();
        let (mut count, mut expected) = (0, EntryAt::default());
        let mut stopped = None;
        for (place, run) in group.iter_mut().zip(runs.iter().flatten()) {
            let slot = self.state.slots.at(run.level, run.index);
            // What cannot be opened is an error only if no newer run has the key.
            let guard = match self.env.table_cache.enter(slot, run.file, self.lookup.in_memory) {
                Ok(guard) => guard,
                Err(error) => {
                    stopped = Some(error.into());
                    break;
                }
            };
            let Some(reader) = guard.as_ref() else {
                stopped = Some(Error::NotInMemory);
                break;
            };
            self.trace.opened(run.place());
            // Most keys are in the last run: its filter will hardly be asked.
            let is_last = runs.get(count + 1).is_none_or(Option::is_none);
            if is_last {
                expected = self.expect(run, reader);
            }
            let at = match expected.is_in_memory() {
                true => reader.filter_at(self.lookup),
                false => reader.prefetch_filter(self.lookup),
            };
            *place = Some((run, guard, at));
            count += 1;
        }
        for (number, (run, guard, at)) in group.iter().flatten().enumerate() {
            let Some(reader) = guard.as_ref() else { continue };
            let is_last = number + 1 == count;
            let expected = if is_last { expected } else { EntryAt::default() };
            if let Some(entry) = self.ask(run, reader, (*at, expected))? {
                return Ok(Some(entry));
            }
            self.asked.passed += 1;
        }
        stopped.map_or(Ok(None), Err)
    }

    /// The answer of a lookup that may not read, where it is not simply there: a separated value may
    /// be in the cache. If not, or if the search was given up, what was counted is taken back, since
    /// the lookup is going to be repeated.
    #[cold]
    fn settle_in_memory(&self, answer: Result<Answer>) -> Result<Answer> {
        let refusal = match answer {
            Ok(Answer::Separated(handle, expiry)) => {
                match self.env.value_log.get_in_memory(self.lookup.user_key, &handle) {
                    Some(value) => return Ok(Answer::Value(value, expiry)),
                    None => Error::NotInMemory,
                }
            }
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if matches!(refusal, Error::NotInMemory) {
            self.asked.take_back(self.state, self.lookup);
        }
        Err(refusal)
    }

    /// The newest version of the key in the file of `run`, or in its level if a model of the level
    /// chose the file.
    #[inline]
    fn ask(
        &mut self,
        run: &Run<'_>,
        reader: &SstReader,
        at: (FilterAt, EntryAt),
    ) -> Result<Option<Entry>> {
        self.trace.asks(run.place(), reader);
        match run.block {
            Some(block) => self.ask_block(run, block, reader, at.0),
            None => {
                self.note_range_tombstones(reader, run.file);
                Ok(reader.get_at(at, self.lookup, self.trace)?)
            }
        }
    }

    /// Asks for the entry of the key in the file of `run`, if this thread finds most of its keys: one wait for
    /// memory for filter and entry. What a model of a level chose is asked for later.
    #[inline]
    fn expect(&self, run: &Run<'_>, reader: &SstReader) -> EntryAt {
        match run.block {
            None if outcomes::are_mostly_found() => reader.prefetch_entry(self.lookup.user_key),
            _ => EntryAt::default(),
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
            let answer = reader.get_at_block(at, block, self.lookup)?;
            let in_bounds = run.file.contains(self.lookup.user_key);
            self.trace.by_level_model(block, in_bounds, &answer);
            match answer {
                InLevel::Found(entry) => return Ok(Some(entry)),
                InLevel::Absent => return Ok(None),
                InLevel::Stopped if in_bounds => return Ok(None),
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

    #[inline]
    fn note_range_tombstones(&mut self, reader: &SstReader, file: &FileMeta) {
        if file.range_tombstone_count > 0 {
            let tombstones = reader.range_tombstones();
            let newest = tombstones.covering_seqno(self.lookup.user_key, self.seqno);
            self.covered = self.covered.max(newest.unwrap_or_default());
            self.trace.range_tombstones(file.range_tombstone_count, self.covered);
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
        let newest = memtable.covering_seqno(lookup.user_key, seqno);
        *covered = (*covered).max(newest.unwrap_or_default());
    }
    if memtable.has_no_entries() {
        return None;
    }
    memtable.get(lookup.user_key, lookup.hash, lookup.trailer)
}

mod batch;
mod candidates;
pub(crate) mod explain;
mod info;
mod live;
mod outcomes;
mod sampled;
