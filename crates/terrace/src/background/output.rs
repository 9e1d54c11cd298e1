//! Entries in internal order become SSTs: where one file ends and the next begins (flush,
//! compact).
//!
//! A file is never cut between versions of one user key. The cut is the first key of the next
//! file; range tombstones are clipped to it on both sides, so that the files of one output are
//! disjoint, exclusive ends included:
//!
//! ```text
//!   entries      a c e | g h | m n          cuts at g and m
//!   tombstones     c---|-----|---p          file 2 holds g-m)
//! ```
//!
//! A file ends when it has its target size, or when its index, filters and models take too much memory
//! until it ends; from half of that on it ends at the end of a
//! grandparent (a file of the level below the output's), so that the two levels' files line up and
//! later merges rewrite less; and it ends before it overlaps too many grandparents, or its range tombstones are more than
//! a block takes, also where there are no entries.
//!
//! Whatever goes wrong, dropping the [`Output`] removes every file it started. Called by `flush`
//! and `compaction/job`.

use crate::env::rate_limit::RateLimiter;
use crate::jobs::job_list::JobProgress;
use crate::metrics::training::TrainingTally;
use crate::version::unpublished::remove_unpublished;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_base::range_tombstone::Fragment;
use terrace_base::{FileNumber, RangeTombstones, Result, SeqNo};
use terrace_manifest::{FileMeta, names};
use terrace_sst::{MAX_BLOCK_BYTES, SstOptions, SstSummary, SstWriter};
use terrace_vfs::Vfs;

/// Raw bytes between two looks at the file's size.
const LOOK_BYTES: usize = 16 << 10;
/// Bytes of file between two requests to the rate limiter.
const CHARGE_BYTES: u64 = 1 << 20;
/// Bytes of grandparents that one file may overlap, in target files.
const MAX_GRANDPARENT_FILES: u64 = 10;
/// Bytes of range tombstones between two places where files end: those of a file are in one block.
const MAX_TOMBSTONE_BYTES: usize = MAX_BLOCK_BYTES / 2;

/// Where and how files are written.
pub(crate) struct OutputContext<'a> {
    pub vfs: &'a Arc<dyn Vfs>,
    pub dir: &'a Path,
    pub next_file_number: &'a (dyn Fn() -> FileNumber + Sync),
    pub sst_options: SstOptions,
    /// `u64::MAX`: one file.
    pub target_file_bytes: u64,
    /// A file ends as well when its writer holds this much memory, unless there is to be one file.
    pub max_writer_bytes: usize,
    pub limiter: &'a RateLimiter,
    /// Where trainings are counted.
    pub trainings: &'a TrainingTally,
    /// Where the job counts what it does.
    pub progress: &'a JobProgress,
}

/// A request that nobody cancels.
static GO_ON: AtomicBool = AtomicBool::new(false);

/// SSTs being written.
pub(crate) struct Output<'a> {
    context: OutputContext<'a>,
    /// Of the whole output.
    tombstones: Arc<RangeTombstones>,
    /// Where files must end for their range tombstones, last first.
    tombstone_cuts: Vec<Vec<u8>>,
    cancel: &'a AtomicBool,
    grandparents: &'a [Arc<FileMeta>],
    /// The first grandparent that does not end before the last key.
    grandparent_at: usize,
    /// Bytes of grandparents that the open file has passed.
    grandparent_bytes: u64,
    open: Option<Open>,
    /// Where the open file begins, if another one came before it.
    cut: Option<Vec<u8>>,
    /// The last key of a file that is large enough: it ends with the last version of this key.
    full_at: Option<Vec<u8>>,
    finished: Vec<FileMeta>,
    /// Every file that was started; emptied when they are handed over.
    started: Vec<FileNumber>,
}

struct Open {
    number: FileNumber,
    writer: SstWriter,
    size_bytes: u64,
    charged_bytes: u64,
    unlooked_bytes: usize,
}

impl<'a> Output<'a> {
    /// An output that will carry `tombstones`, all of them. No file is created before the first
    /// entry.
    pub fn new(context: OutputContext<'a>, tombstones: RangeTombstones) -> Self {
        let tombstone_cuts = match context.target_file_bytes {
            // One file.
            u64::MAX => Vec::new(),
            _ => tombstone_cuts(&tombstones, MAX_TOMBSTONE_BYTES),
        };
        Self {
            context,
            tombstones: Arc::new(tombstones),
            tombstone_cuts,
            cancel: &GO_ON,
            grandparents: &[],
            grandparent_at: 0,
            grandparent_bytes: 0,
            open: None,
            cut: None,
            full_at: None,
            finished: Vec::new(),
            started: Vec::new(),
        }
    }

    /// Ends files where `grandparents` (sorted, disjoint) end; see the module's head.
    pub fn aligned_to(mut self, grandparents: &'a [Arc<FileMeta>]) -> Self {
        self.grandparents = grandparents;
        self
    }

    /// Lets `cancel` end a wait for the rate limiter.
    pub fn cancelable(mut self, cancel: &'a AtomicBool) -> Self {
        self.cancel = cancel;
        self
    }

    /// Adds the next entry, in internal order, without repeats.
    #[inline]
    pub fn add(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        let passed_ends = self.may_cut_tombstones() && self.cut_tombstones(Some(user_key))?;
        if !self.tombstone_cuts.is_empty() {
            self.cut_long_tombstones(Some(user_key))?;
        }
        let passed = self.pass_grandparents(user_key) || passed_ends;
        match &self.open {
            Some(open) => {
                let full = self.full_at.as_ref().is_some_and(|last| last != user_key);
                if full || (passed && self.is_worth_ending(open)) {
                    self.end_file(Some(user_key))?;
                }
            }
            None if passed => self.end_tombstones(user_key)?,
            None => {}
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => self.start_file()?,
        };
        open.writer.add(user_key, trailer, value)?;
        open.unlooked_bytes += user_key.len() + value.len();
        if open.unlooked_bytes >= LOOK_BYTES {
            self.look(user_key);
        }
        Ok(())
    }

    /// Ends the last file and hands over all of them, synced; the directory is the caller's to
    /// sync. Without entries there is a file only if there are tombstones.
    pub fn finish(mut self) -> Result<Vec<FileMeta>> {
        if self.may_cut_tombstones() {
            self.cut_tombstones(None)?;
        }
        self.cut_long_tombstones(None)?;
        if self.open.is_none() && self.has_tombstones(None) {
            self.start_file()?;
        }
        self.end_file(None)?;
        self.started.clear();
        Ok(std::mem::take(&mut self.finished))
    }

    fn start_file(&mut self) -> Result<&mut Open> {
        let number = (self.context.next_file_number)();
        let path = names::temp_path(self.context.dir, number);
        self.started.push(number);
        let vfs = &**self.context.vfs;
        let writer = SstWriter::create(vfs, &path, number, self.context.sst_options.clone())?;
        let fresh = Open { number, writer, size_bytes: 0, charged_bytes: 0, unlooked_bytes: 0 };
        Ok(self.open.insert(fresh))
    }

    /// Ends the open file; `next` is the first key of the one after it.
    fn end_file(&mut self, next: Option<&[u8]>) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        self.full_at = None;
        // A cut for the sake of range tombstones alone may lie before the end of some that have been passed.
        self.grandparent_bytes = next.map_or(0, |next| self.passed_bytes_after(next));
        if !self.tombstones.is_empty() {
            let whole = self.cut.is_none() && next.is_none();
            open.writer.set_range_tombstones(match whole {
                true => Arc::clone(&self.tombstones),
                false => Arc::new(self.tombstones.clip(self.cut.as_deref(), next)),
            });
        }
        let end = open.writer.finish()?;
        if let Some(training) = &end.training {
            self.context.trainings.note(training);
        }
        self.context
            .limiter
            .request(end.size_bytes.saturating_sub(open.charged_bytes), self.cancel);
        let grown = end.size_bytes.saturating_sub(open.size_bytes);
        self.context.progress.written_bytes.fetch_add(grown, Ordering::Relaxed);
        self.cut = next.map(<[u8]>::to_vec);
        self.finished.push(file_meta(open.number, self.context.sst_options.created_ms, end));
        Ok(())
    }

    /// Measures the open file after `last_key` was added, and charges what it has grown by.
    fn look(&mut self, last_key: &[u8]) {
        let Some(open) = &mut self.open else { return };
        open.unlooked_bytes = 0;
        let before = std::mem::replace(&mut open.size_bytes, open.writer.estimated_bytes());
        let grown = open.size_bytes.saturating_sub(before);
        self.context.progress.written_bytes.fetch_add(grown, Ordering::Relaxed);
        let grown = open.size_bytes.saturating_sub(open.charged_bytes);
        if grown >= CHARGE_BYTES {
            open.charged_bytes = open.size_bytes;
            self.context.limiter.request(grown, self.cancel);
        }
        let context = &self.context;
        let is_heavy = || {
            context.target_file_bytes < u64::MAX
                && open.writer.memory_bytes() >= context.max_writer_bytes
        };
        if open.size_bytes >= context.target_file_bytes || is_heavy() {
            self.full_at = Some(last_key.to_vec());
        }
    }

    /// Moves on over the grandparents that end before `user_key`; says whether there were any.
    #[inline]
    fn pass_grandparents(&mut self, user_key: &[u8]) -> bool {
        let from = self.grandparent_at;
        while let Some(file) = self.grandparents.get(self.grandparent_at)
            && file.ends_before(user_key)
        {
            self.grandparent_bytes += file.size_bytes;
            self.grandparent_at += 1;
        }
        self.grandparent_at > from
    }

    /// Bytes of the grandparents passed so far that do not end before `key`.
    fn passed_bytes_after(&self, key: &[u8]) -> u64 {
        let passed = self.grandparents.get(..self.grandparent_at).unwrap_or_default();
        let met = passed.iter().rev().take_while(|file| !file.ends_before(key));
        met.map(|file| file.size_bytes).sum()
    }

    /// Whether range tombstones may overlap more than one of the grandparents that are left.
    #[inline]
    fn may_cut_tombstones(&self) -> bool {
        self.grandparent_at + 1 < self.grandparents.len() && !self.tombstones.is_empty()
    }

    /// As [`Output::pass_grandparents`], for those that are followed by another one which begins before `next`, or the end
    /// of all: a file of entries or range tombstones that would overlap too many of them ends where the next one begins.
    fn cut_tombstones(&mut self, next: Option<&[u8]>) -> Result<bool> {
        let grandparents = self.grandparents;
        let from = self.grandparent_at;
        while let (Some(file), Some(after)) =
            (grandparents.get(self.grandparent_at), grandparents.get(self.grandparent_at + 1))
            && next.is_none_or(|key| after.smallest.as_slice() < key)
        {
            self.grandparent_at += 1;
            self.grandparent_bytes += file.size_bytes;
            if self.grandparent_bytes + after.size_bytes <= self.most_grandparent_bytes() {
                continue;
            }
            self.cut_long_tombstones(Some(&after.smallest))?;
            self.cut_at(&after.smallest)?;
            self.grandparent_bytes = 0;
        }
        Ok(self.grandparent_at > from)
    }

    /// While no file is open, and the next entry is at `next`, past the end of a grandparent: the range tombstones before it, if there
    /// are any, get a file of their own if it would overlap too many grandparents with the next one.
    fn end_tombstones(&mut self, next: &[u8]) -> Result<()> {
        if !self.has_tombstones(Some(next)) {
            self.grandparent_bytes = 0;
        } else if self.overlaps_too_many() {
            self.cut_at(next)?;
        }
        Ok(())
    }

    /// Ends files where [`tombstone_cuts`] says so, up to `next`, or the end of all.
    fn cut_long_tombstones(&mut self, next: Option<&[u8]>) -> Result<()> {
        let is_due = |cut: &mut Vec<u8>| next.is_none_or(|next| cut.as_slice() <= next);
        while let Some(cut) = self.tombstone_cuts.pop_if(is_due) {
            self.cut_at(&cut)?;
        }
        Ok(())
    }

    /// Ends the file at `cut`, past all entries so far: also one that has range tombstones alone.
    fn cut_at(&mut self, cut: &[u8]) -> Result<()> {
        if self.open.is_none() && self.has_tombstones(Some(cut)) {
            self.start_file()?;
        }
        self.end_file(Some(cut))
    }

    /// Whether there are range tombstones from where the open or next file begins up to `end`.
    fn has_tombstones(&self, end: Option<&[u8]>) -> bool {
        self.tombstones.fragments_in(self.cut.as_deref(), end).next().is_some()
    }

    fn most_grandparent_bytes(&self) -> u64 {
        self.context.target_file_bytes.saturating_mul(MAX_GRANDPARENT_FILES)
    }

    /// Whether the open file may end at the end of a grandparent.
    fn is_worth_ending(&self, open: &Open) -> bool {
        open.size_bytes >= self.context.target_file_bytes / 2 || self.overlaps_too_many()
    }

    /// Whether the open or next file would overlap too many grandparents if it came to the next one. One alone is never too many,
    /// however large it is: to cut there would only let two files be merged with it.
    fn overlaps_too_many(&self) -> bool {
        let next = self.grandparents.get(self.grandparent_at).map_or(0, |f| f.size_bytes);
        self.grandparent_bytes > 0 && self.grandparent_bytes + next > self.most_grandparent_bytes()
    }
}

/// Where files are to end so that each stores at most some `most_bytes` of the range tombstones, last first.
fn tombstone_cuts(tombstones: &RangeTombstones, most_bytes: usize) -> Vec<Vec<u8>> {
    let mut cuts = Vec::new();
    let mut bytes = 0;
    for Fragment { start, end, seqnos } in tombstones.fragments() {
        // With the lengths of the three.
        let len = start.len() + end.len() + (seqnos.len() + 2) * size_of::<SeqNo>();
        if bytes > 0 && bytes + len > most_bytes {
            cuts.push(start.to_vec());
            bytes = 0;
        }
        bytes += len;
    }
    cuts.reverse();
    cuts
}

/// What the manifest records of a file that was written.
pub(crate) fn file_meta(number: FileNumber, created_ms: u64, end: SstSummary) -> FileMeta {
    FileMeta {
        number,
        size_bytes: end.size_bytes,
        smallest: end.smallest,
        largest: end.largest,
        largest_exclusive: end.largest_exclusive,
        smallest_seqno: end.smallest_seqno,
        largest_seqno: end.largest_seqno,
        entry_count: end.entry_count,
        tombstone_count: end.tombstone_count,
        range_tombstone_count: end.range_tombstone_count,
        raw_bytes: end.raw_bytes,
        created_ms,
        ttl_due_ms: end.ttl_due_ms,
        value_refs: end.value_refs,
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        self.open = None;
        remove_unpublished(self.context.vfs, self.context.dir, self.started.iter().copied());
    }
}

#[cfg(test)]
mod tests;
