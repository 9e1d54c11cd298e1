//! The bulk loader: takes entries in any order, sorts them with bounded memory, and ingests the result.
//!
//! ```text
//!   put, delete ──> buffer ──(full: sorted)──> run, run, run ──(merged)──> SSTs ──(ingested)──> the store
//! ```
//! 1. `buffer`: entries gather in memory. A full buffer is sorted and written as a run (`run`).
//! 2. `merge`: runs are merged, all at once if their buffers fit the memory, else in several passes over neighbours. Of entries
//!    with the same key the last one given stays.
//! 3. `output`: SSTs of the target size, which do not overlap, [`crate::ingest::sst_writer`].
//! 4. [`crate::ingest::run`] ingests them as one.
//!
//! Runs and SSTs are temporary files of the store: what a killed process leaves is removed by the next open.

mod buffer;
mod merge;
mod output;
mod run;

use crate::background::env::JobEnv;
use crate::error::{Error, Result};
use crate::ingest::calls::{RunningCall, check_runs};
use crate::ingest::run::{
    self as ingestion, IngestOptions, IngestPosition, IngestSource, Ingested,
};
use crate::version::family::Family;
use crate::version::unpublished::remove_unpublished;
use buffer::SortBuffer;
use merge::Merge;
use run::{Run, RunReader, RunWriter};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use terrace_base::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use terrace_base::{FileNumber, ValueKind};
use terrace_manifest::names;

/// Default of [`BulkOptions::memory_bytes`]: 64 MiB.
pub const DEFAULT_BULK_MEMORY: usize = 64 << 20;
/// The least that a loader can do with: two runs are merged.
const MIN_MEMORY: usize = 1 << 20;

/// How entries are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkOptions {
    /// Memory for sorting and merging, 1 MiB or more ([`DEFAULT_BULK_MEMORY`]). It is no part of the store's budget. What
    /// writing one SST takes comes to it, and an entry that is larger; where two runs of large entries do not fit, what merging two takes.
    pub memory_bytes: usize,
    /// Whether loaded entries or existing ones count.
    pub position: IngestPosition,
}

impl Default for BulkOptions {
    fn default() -> Self {
        Self { memory_bytes: DEFAULT_BULK_MEMORY, position: IngestPosition::Above }
    }
}

/// An entry on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry<'a> {
    key: &'a [u8],
    kind: ValueKind,
    /// As an SST has it: with its expiry in front.
    value: &'a [u8],
}

/// Entries in the order of their keys, each key once.
trait Sorted {
    /// The next entry.
    fn next(&mut self) -> Result<Option<Entry<'_>>>;
}

/// A load of one family.
pub(crate) struct Loader {
    env: Arc<JobEnv>,
    family: Arc<Family>,
    options: BulkOptions,
    buffer: SortBuffer,
    /// Oldest first.
    runs: Vec<Run>,
    files: TempFiles,
    peak_bytes: usize,
    /// Set by the first failure: entries are missing.
    failed: bool,
}

/// The temporary files of a load; what is left of them when it ends, or when the store is closed, is removed.
struct TempFiles {
    env: Arc<JobEnv>,
    numbers: RefCell<HashSet<FileNumber>>,
}

impl TempFiles {
    /// A number for a new file.
    fn take(&self) -> Result<FileNumber> {
        let number = self.env.versions.next_file_number();
        let mut jobs = self.env.jobs.scheduler.lock();
        check_runs(&self.env)?;
        jobs.load_files.insert(number);
        self.numbers.borrow_mut().insert(number);
        Ok(number)
    }

    /// Removes files that are needed no more. The caller's [`RunningCall`] keeps `close` waiting.
    fn remove(&self, numbers: &[FileNumber]) {
        let mut own = self.numbers.borrow_mut();
        let mut jobs = self.env.jobs.scheduler.lock();
        for number in numbers {
            own.remove(number);
            jobs.load_files.remove(number);
        }
        drop((own, jobs));
        remove_unpublished(&self.env.base.vfs, &self.env.base.dir, numbers.iter().copied());
    }
}

impl Drop for TempFiles {
    fn drop(&mut self) {
        // A close sees to it itself: after it the directory, and these names, may be another process's.
        if let Ok(_running) = RunningCall::begin(&self.env) {
            let numbers: Vec<FileNumber> = self.numbers.take().into_iter().collect();
            self.remove(&numbers);
        }
    }
}

impl Loader {
    pub fn new(env: &Arc<JobEnv>, family: &Arc<Family>, options: BulkOptions) -> Result<Self> {
        env.commit.queue()?;
        env.base.health.check_writable()?;
        family.check_exists()?;
        ingestion::check_position(family, options.position)?;
        if options.memory_bytes < MIN_MEMORY {
            let text =
                format!("memory_bytes is {}; it must be at least 1 MiB", options.memory_bytes);
            return Err(Error::InvalidArgument(text));
        }
        Ok(Self {
            env: env.clone(),
            family: family.clone(),
            options,
            buffer: SortBuffer::new(options.memory_bytes)?,
            runs: Vec::new(),
            files: TempFiles { env: env.clone(), numbers: RefCell::default() },
            peak_bytes: 0,
            failed: false,
        })
    }

    /// The most memory that was in use, by the loader's own account.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.max(self.buffer.used_bytes())
    }

    /// Takes an entry. `prefix` comes before its value.
    pub fn add(&mut self, key: &[u8], kind: ValueKind, prefix: &[u8], value: &[u8]) -> Result<()> {
        self.check_usable()?;
        if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
            let text = "a key is longer than 64 KiB, or a value than 1 GiB";
            return Err(Error::InvalidArgument(text.into()));
        }
        let bytes = key.len() + prefix.len() + value.len();
        if !self.buffer.has_room(bytes) && !self.buffer.is_empty() {
            let env = self.env.clone();
            let spilled = RunningCall::begin(&env).and_then(|_running| self.spill());
            self.failed |= spilled.is_err();
            spilled?;
        }
        self.buffer.push(key, kind, prefix, value);
        Ok(())
    }

    fn check_usable(&self) -> Result<()> {
        check_runs(&self.env)?;
        match self.failed {
            true => {
                Err(Error::InvalidArgument("the load has failed before; begin another one".into()))
            }
            false => Ok(()),
        }
    }

    /// Writes what is in the buffer as a run.
    fn spill(&mut self) -> Result<()> {
        self.peak_bytes = self.peak_bytes();
        let mut buffer = std::mem::take(&mut self.buffer);
        let run = self.write_run(&mut buffer.sorted())?;
        buffer.clear();
        self.buffer = buffer;
        self.runs.push(run);
        Ok(())
    }

    fn write_run(&self, entries: &mut dyn Sorted) -> Result<Run> {
        let base = &self.env.base;
        let number = self.files.take()?;
        let mut writer =
            RunWriter::create(&*base.vfs, &names::temp_path(&base.dir, number), number)?;
        while let Some(entry) = entries.next()? {
            check_runs(&self.env)?;
            writer.add(&entry)?;
        }
        writer.finish()
    }

    /// Sorts what was given and ingests it.
    pub fn finish(mut self) -> Result<Ingested> {
        let env = self.env.clone();
        let _running = RunningCall::begin(&env)?;
        let files = self.sort()?;
        if files.is_empty() {
            return Ok(Ingested { seqno: 0, files: Vec::new(), entry_count: 0 });
        }
        let dir = &self.env.base.dir;
        let paths: Vec<_> = files.iter().map(|number| names::temp_path(dir, *number)).collect();
        let options = IngestOptions { source: IngestSource::Move, position: self.options.position };
        ingestion::ingest(&self.env, &self.family, &paths, &options)
    }

    /// Sorts what was given into files that can be ingested.
    fn sort(&mut self) -> Result<Vec<FileNumber>> {
        self.check_usable()?;
        if !self.runs.is_empty() {
            return self.merge_runs();
        }
        self.peak_bytes = self.peak_bytes();
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write_files(&mut buffer.sorted())
    }

    /// Merges the runs until one merge can take all that are left, and writes that one's result.
    fn merge_runs(&mut self) -> Result<Vec<FileNumber>> {
        if !self.buffer.is_empty() {
            self.spill()?;
        }
        self.buffer = SortBuffer::default();
        let mut at = 0;
        while self.merge_some(&mut at)? {}
        let mut merge = self.open(0..self.runs.len())?;
        let files = self.write_files(&mut merge)?;
        self.peak_bytes = self.peak_bytes.max(merge.peak_bytes());
        drop(merge);
        self.remove_runs(&self.runs);
        self.runs.clear();
        Ok(files)
    }

    /// Merges neighbours from the run at `at` on, unless one merge can take all runs; whether it did. Neighbours, since their
    /// order says which entry is the last one given; in passes, since a run that takes in one after the other is written each time.
    fn merge_some(&mut self, at: &mut usize) -> Result<bool> {
        let too_many = self.runs.len() - self.fitting(0);
        if too_many == 0 {
            return Ok(false);
        }
        if *at + 1 >= self.runs.len() {
            *at = 0;
        }
        let merge = *at..*at + self.fitting(*at).min(too_many + 1);
        let merged = self.merge_of(merge.clone())?;
        let done: Vec<Run> = self.runs.splice(merge, [merged]).collect();
        self.remove_runs(&done);
        *at += 1;
        Ok(true)
    }

    /// How many runs from the one at `at` on can be merged together within the memory; two in any case, if they are there.
    fn fitting(&self, at: usize) -> usize {
        let mut bytes = 0;
        let fit = self.runs[at..].iter().take_while(|run| {
            bytes += run.reader_bytes();
            bytes <= self.options.memory_bytes
        });
        fit.count().max(2).min(self.runs.len() - at)
    }

    fn remove_runs(&self, runs: &[Run]) {
        self.files.remove(&runs.iter().map(|run| run.number).collect::<Vec<_>>());
    }

    fn merge_of(&mut self, runs: std::ops::Range<usize>) -> Result<Run> {
        let mut merge = self.open(runs)?;
        let merged = self.write_run(&mut merge)?;
        self.peak_bytes = self.peak_bytes.max(merge.peak_bytes());
        Ok(merged)
    }

    fn open(&self, runs: std::ops::Range<usize>) -> Result<Merge> {
        let base = &self.env.base;
        let open =
            |run: &Run| RunReader::open(&base.vfs, &names::temp_path(&base.dir, run.number), run);
        Merge::new(self.runs[runs].iter().map(open).collect::<Result<_>>()?)
    }

    /// Writes sorted entries as SSTs.
    fn write_files(&self, entries: &mut dyn Sorted) -> Result<Vec<FileNumber>> {
        output::write(&self.env, &self.family, &|| self.files.take(), entries)
    }
}

#[cfg(test)]
mod tests;
