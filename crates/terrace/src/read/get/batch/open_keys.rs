//! The keys of a batch that have not been found yet, on their way down through memtables and runs (multi_get).

use super::reached::Reached;
use crate::error::{Error, Result};
use crate::memory::reader_slot::ReaderSlot;
use crate::metrics::{Sampled, sample};
use crate::read::get::live::{from_memtable, pinned};
use crate::read::get::{Answer, Reading, in_memtable, outcomes};
use crate::version::read_env::ReadEnv;
use crate::version::read_state::ReadState;
use arc_swap::Guard;
use std::sync::Arc;
use terrace_base::SeqNo;
use terrace_manifest::FileMeta;
use terrace_sst::{BatchLookup, Lookup, SstReader};

/// Keys that wait for the memory of memtables together.
const MEMTABLE_KEYS: usize = 32;

/// A key that has not been found in what was asked so far.
struct Open<'a> {
    /// Which of the keys it is.
    at: usize,
    lookup: Lookup<'a>,
    /// The newest range tombstone met so far that covers it.
    covered: SeqNo,
    is_found: bool,
}

/// Keys as of one moment.
pub(super) struct OpenKeys<'a> {
    env: &'a ReadEnv,
    state: &'a ReadState,
    seqno: SeqNo,
    now_ms: Option<u64>,
    /// Whether nothing may be read.
    in_memory: bool,
    open: Vec<Open<'a>>,
    answers: Vec<Answer>,
    /// Of each key, where it is kept; else empty.
    reached: &'a mut [Reached],
}

impl<'a> OpenKeys<'a> {
    /// What is known of `keys` in `state` as of `seqno`. If nothing may be read, `reached` has an element for each key,
    /// and says of all of them, also after an error, how far they were looked for.
    pub fn search(
        env: &'a ReadEnv,
        state: &'a ReadState,
        keys: &[&'a [u8]],
        seqno: SeqNo,
        reading: Reading<'_>,
        reached: &'a mut [Reached],
    ) -> Result<Vec<Answer>> {
        let Reading { fill_cache, in_memory, now_ms, .. } = reading;
        let answers = keys.iter().map(|_| Answer::Absent).collect();
        let open = Vec::with_capacity(keys.len());
        let mut keys_left = Self { env, state, seqno, now_ms, in_memory, open, answers, reached };
        keys_left.ask_memtables(keys, fill_cache);
        let levels = state.version.levels();
        for (index, file) in levels[0].files().iter().enumerate() {
            keys_left.ask_run((0, index), false, |key| file.contains(key).then_some(index))?;
        }
        let last = levels.iter().rposition(|level| !level.is_empty());
        for (number, level) in levels.iter().enumerate().skip(1) {
            // Most keys are in the last run.
            let is_likely = last == Some(number) && outcomes::are_mostly_found();
            keys_left.ask_run((number, 0), is_likely, |key| level.find(key))?;
        }
        keys_left.note_reached(Reached::ALL);
        keys_left.open.iter().for_each(|_| outcomes::note(false));
        Ok(keys_left.answers)
    }

    fn ask_memtables(&mut self, keys: &[&'a [u8]], fill_cache: bool) {
        let Self { env, state, seqno, now_ms, in_memory, .. } = *self;
        let open = |(at, key): (usize, &&'a [u8])| {
            let lookup = Lookup { fill_cache, in_memory, ..Lookup::new(key, seqno) };
            Open { at, lookup, covered: SeqNo::ZERO, is_found: false }
        };
        self.open.extend(keys.iter().enumerate().map(open));
        for some in self.open.chunks_mut(MEMTABLE_KEYS) {
            let filled = || state.memtables().filter(|memtable| !memtable.has_no_entries());
            for memtable in filled() {
                some.iter().for_each(|open| memtable.prefetch_index(open.lookup.hash));
            }
            for memtable in filled() {
                some.iter().for_each(|open| memtable.prefetch_entry(open.lookup.hash));
            }
            for Open { at, lookup, covered, is_found } in some {
                for memtable in state.memtables() {
                    let Some((trailer, value)) = in_memtable(memtable, lookup, seqno, covered)
                    else {
                        continue;
                    };
                    env.base.counters.gets_in_memtable.add(1);
                    self.answers[*at] = from_memtable((env, now_ms), trailer, value, *covered);
                    *is_found = true;
                    break;
                }
            }
        }
        self.open.retain(|open| !open.is_found);
    }

    /// The keys that are left have been looked for as far as this.
    fn note_reached(&mut self, reached: Reached) {
        if self.reached.is_empty() {
            return;
        }
        for open in &self.open {
            self.reached[open.at] = reached;
        }
    }

    /// Looks all keys up in one sorted run, each in the file of the level that `file_of` names: a file of L0, by its
    /// index, or the whole level. `is_likely`: most are there.
    fn ask_run(
        &mut self,
        (level, index): (usize, usize),
        is_likely: bool,
        file_of: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<()> {
        if self.open.is_empty() || self.state.version.level(level).is_empty() {
            return Ok(());
        }
        self.note_reached(Reached::before(level, index));
        let followed = sample() == Sampled::Followed;
        let asked = self.by_file(file_of);
        let readers = self.readers(level, &asked)?;
        let mut lookups: Vec<BatchLookup<'_>> = Vec::with_capacity(asked.len());
        let mut rest = readers.iter().peekable();
        for Asked { file, key } in &asked {
            while rest.next_if(|(reader, _)| reader < file).is_some() {}
            if let Some((_, reader)) = rest.peek() {
                let lookup = self.open[*key as usize].lookup;
                let mut lookup = BatchLookup::new(reader, lookup);
                lookup.is_likely = is_likely;
                lookups.push(lookup);
            }
        }
        terrace_sst::multi_get(&mut lookups)?;
        for (lookup, Asked { file, key }) in lookups.iter_mut().zip(&asked) {
            let Some(entry) = lookup.found.take() else { continue };
            if followed {
                self.state.slots.at(level, *file as usize).note(true);
            }
            let open = &mut self.open[*key as usize];
            self.answers[open.at] = pinned((self.env, self.now_ms), entry, open.covered);
            if let Some(reached) = self.reached.get_mut(open.at) {
                *reached = Reached::found_in(level, *file as usize);
            }
            open.is_found = true;
            outcomes::note(true);
        }
        self.open.retain(|open| !open.is_found);
        Ok(())
    }

    /// Which key is to be looked up in which file, file by file, so that each is entered once.
    fn by_file(&self, file_of: impl Fn(&[u8]) -> Option<usize>) -> Vec<Asked> {
        let in_file = |(key, open): (usize, &Open<'_>)| {
            let file = file_of(open.lookup.user_key)?;
            Some(Asked { file: file as u32, key: key as u32 })
        };
        let mut asked = Vec::with_capacity(self.open.len());
        asked.extend(self.open.iter().enumerate().filter_map(in_file));
        asked.sort_unstable_by_key(|Asked { file, key }| u64::from(*file) << 32 | u64::from(*key));
        asked
    }

    /// The readers of the files that are asked, in their order; what their range tombstones say of the keys is noted.
    fn readers(&mut self, level: usize, asked: &[Asked]) -> Result<Vec<(u32, Arc<SstReader>)>> {
        let state = self.state;
        let files = state.version.level(level).files();
        let mut readers: Vec<(u32, Arc<SstReader>)> =
            Vec::with_capacity(asked.len().min(files.len()));
        for Asked { file: index, key } in asked {
            let file = &files[*index as usize];
            if readers.last().is_none_or(|(last, _)| last != index) {
                let slot = state.slots.at(level, *index as usize);
                readers.push((*index, reader(self.env, slot, file, self.in_memory)?));
            }
            if file.range_tombstone_count > 0
                && let Some((_, reader)) = readers.last()
            {
                let open = &mut self.open[*key as usize];
                let tombstones = reader.range_tombstones();
                let newest = tombstones.covering_seqno(open.lookup.user_key, self.seqno);
                open.covered = open.covered.max(newest.unwrap_or_default());
            }
        }
        Ok(readers)
    }
}

/// A key that is looked up in a file of a level.
#[derive(Clone, Copy)]
struct Asked {
    file: u32,
    /// Its place among the keys that are open.
    key: u32,
}

/// The reader of `file`, to keep until the lookups are done.
fn reader(
    env: &ReadEnv,
    slot: &ReaderSlot,
    file: &FileMeta,
    in_memory: bool,
) -> Result<Arc<SstReader>> {
    let guard = env.table_cache.enter(slot, file, in_memory)?;
    Guard::into_inner(guard).ok_or(Error::NotInMemory)
}
