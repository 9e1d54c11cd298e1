//! A cursor over the files of a level, or over any list of SSTs sorted by key and disjoint; a
//! single file of L0 is such a list of one.
//!
//! One file is open at a time, and a seek opens only the file that holds the target: files are
//! found by their bounds. Files outside the bounds of the scan are never opened. A file is left
//! whole, unopened, if a range tombstone newer than all of it covers it.
//!
//! Bounds keep files apart. A file that has a key outside of its own is damaged, which shows when the cursor comes to it
//! from its neighbour: who seeks past what it has seen would else go from one to the other and back for ever.

use crate::iter::ScanCursor;
use crate::iter::cover::CoverSource;
use crate::memory::table_cache::TableCache;
use crate::version::read_state::ReadState;
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;
use terrace_base::range_tombstone::CoverSpan;
use terrace_base::{Error, InternalIter, Result, SeqNo};
use terrace_manifest::{FileMeta, names};
use terrace_sst::{ScanOptions, SstIter, SstReader};

/// What is wrong with a file that has a key which lies outside of its bounds.
const OUTSIDE_BOUNDS: &str = "it has a key outside of the bounds that the manifest has for it";

/// Sorted, disjoint files and the means to open them; tests put vectors here.
pub(crate) trait FileSet {
    /// A cursor over one file.
    type Iter: InternalIter;
    /// The files in key order.
    fn files(&self) -> &[Arc<FileMeta>];
    /// The first file that does not end before `key`; the number of files if there is none.
    fn seek(&self, key: &[u8]) -> usize;
    /// A cursor over file `index`.
    fn open(&self, index: usize) -> Result<Self::Iter>;
    /// As [`Self::open`], with the buffers of a cursor over another file.
    fn open_with(&self, index: usize, _old: Self::Iter) -> Result<Self::Iter> {
        self.open(index)
    }
    /// Makes `iter` a cursor over file `index`, if that takes no reading; whether it did.
    fn turn_to(&self, _index: usize, _iter: &mut Option<Self::Iter>) -> bool {
        false
    }
    /// Whether file `index` may hold a key that the scan shows.
    fn may_show(&self, _index: usize) -> Result<bool> {
        Ok(true)
    }
    /// The error that file `index` has a key outside of its bounds.
    fn outside_bounds(&self, _index: usize) -> Error {
        Error::corruption(Path::new("an SST of the store"), 0, OUTSIDE_BOUNDS)
    }
}

/// SSTs of the store.
#[derive(Clone)]
pub(crate) struct SstFiles {
    table_cache: Arc<TableCache>,
    source: Source,
    options: ScanOptions,
    /// What all keys shown start with.
    prefix: Option<Arc<[u8]>>,
}

#[derive(Clone)]
enum Source {
    /// Files of a read state, whose slots lead to open readers without a lock. At L0 a single
    /// one, so that the list is sorted.
    Live { state: Arc<ReadState>, level: usize, files: Range<usize> },
    /// Any list.
    Listed(Arc<[Arc<FileMeta>]>),
}

impl SstFiles {
    /// All files of a sorted level of `state` that may hold a key between the bounds.
    pub fn level(
        table_cache: &Arc<TableCache>,
        state: &Arc<ReadState>,
        level: usize,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        options: ScanOptions,
    ) -> Self {
        debug_assert!(level > 0, "the files of L0 overlap");
        let files = state.version.level(level).overlapping_range(bounds.0, bounds.1);
        let source = Source::Live { state: Arc::clone(state), level, files };
        Self { table_cache: Arc::clone(table_cache), source, options, prefix: None }
    }

    /// File `index` of L0 of `state`.
    pub fn level0_file(
        table_cache: &Arc<TableCache>,
        state: &Arc<ReadState>,
        index: usize,
        options: ScanOptions,
    ) -> Self {
        let files = index..index + 1;
        let source = Source::Live { state: Arc::clone(state), level: 0, files };
        Self { table_cache: Arc::clone(table_cache), source, options, prefix: None }
    }

    /// `files`, which must be sorted by key and disjoint.
    pub fn listed(
        table_cache: Arc<TableCache>,
        files: Vec<Arc<FileMeta>>,
        options: ScanOptions,
    ) -> Self {
        debug_assert!(files.windows(2).all(|pair| pair[0].precedes(&pair[1])));
        Self { table_cache, source: Source::Listed(files.into()), options, prefix: None }
    }

    /// The same files for a scan that shows only keys starting with `prefix`: those whose filters
    /// know that they hold none are left out.
    pub fn with_prefix(self, prefix: Option<Arc<[u8]>>) -> Self {
        Self { prefix, ..self }
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files().is_empty()
    }

    /// Whether any of the files holds a range tombstone.
    pub fn have_range_tombstones(&self) -> bool {
        self.files().iter().any(|file| file.range_tombstone_count > 0)
    }

    fn reader(&self, index: usize) -> Result<Arc<SstReader>> {
        match &self.source {
            Source::Live { state, level, files } => {
                let at = files.start + index;
                let file = &state.version.level(*level).files()[at];
                let slot = state.slots.at(*level, at);
                let guard = self.table_cache.enter(slot, file, self.options.in_memory)?;
                guard.as_ref().map(Arc::clone).ok_or(Error::NotInMemory)
            }
            Source::Listed(files) => self.table_cache.reader_for_work(&files[index]),
        }
    }
}

impl FileSet for SstFiles {
    type Iter = SstIter;

    #[inline]
    fn files(&self) -> &[Arc<FileMeta>] {
        match &self.source {
            Source::Live { state, level, files } => {
                &state.version.level(*level).files()[files.clone()]
            }
            Source::Listed(files) => files,
        }
    }

    #[inline]
    fn seek(&self, key: &[u8]) -> usize {
        match &self.source {
            Source::Live { state, level, files } if files.len() > 1 => {
                let at = state.version.level(*level).seek(key);
                at.clamp(files.start, files.end) - files.start
            }
            _ => self.files().partition_point(|file| file.ends_before(key)),
        }
    }

    fn open(&self, index: usize) -> Result<SstIter> {
        Ok(self.reader(index)?.iter(self.options))
    }

    fn open_with(&self, index: usize, old: SstIter) -> Result<SstIter> {
        Ok(old.moved_to(self.reader(index)?))
    }

    /// Which files a prefix leaves out is for the seek to find out, which may have to read their filters.
    fn turn_to(&self, index: usize, iter: &mut Option<SstIter>) -> bool {
        let Source::Live { state, level, files } = &self.source else { return false };
        if self.prefix.is_some() || index >= files.len() {
            return false;
        }
        let at = files.start + index;
        let slot = state.slots.at(*level, at);
        let file = &state.version.level(*level).files()[at];
        let Ok(guard) = self.table_cache.enter(slot, file, true) else { return false };
        let Some(reader) = guard.as_ref().map(Arc::clone) else { return false };
        *iter = Some(match iter.take() {
            Some(old) => old.moved_to(reader),
            None => reader.iter(self.options),
        });
        true
    }

    #[inline]
    fn may_show(&self, index: usize) -> Result<bool> {
        match &self.prefix {
            Some(prefix) => Ok(self.reader(index)?.may_contain_prefix(prefix)),
            None => Ok(true),
        }
    }

    #[cold]
    fn outside_bounds(&self, index: usize) -> Error {
        let number = self.files().get(index).map(|file| file.number).unwrap_or_default();
        let path = names::sst_path(self.table_cache.dir(), number);
        Error::corruption(&path, 0, OUTSIDE_BOUNDS)
    }
}

/// A cursor over files in key order.
pub(crate) struct LevelIter<F: FileSet = SstFiles> {
    files: F,
    /// The file over which `iter` is a cursor.
    at: usize,
    iter: Option<F::Iter>,
    valid: bool,
}

impl LevelIter {
    /// A cursor over `files`, which must be sorted by key and disjoint.
    pub fn new(
        table_cache: Arc<TableCache>,
        files: Vec<Arc<FileMeta>>,
        options: ScanOptions,
    ) -> Self {
        Self::over(SstFiles::listed(table_cache, files, options))
    }
}

impl<F: FileSet> LevelIter<F> {
    /// A cursor over `files`; nothing is opened before the first seek.
    pub fn over(files: F) -> Self {
        Self { files, at: 0, iter: None, valid: false }
    }

    /// The cursor over file `index`, which is opened unless it is the open one; `None` if there is no such
    /// file, or nothing to show in it.
    #[inline]
    fn cursor(&mut self, index: usize) -> Result<Option<&mut F::Iter>> {
        if index >= self.files.files().len() {
            return Ok(None);
        }
        let mut old = None;
        if self.at != index {
            old = self.iter.take();
            self.at = index;
        }
        if !self.files.may_show(index)? {
            return Ok(None);
        }
        if self.iter.is_none() {
            self.iter = Some(match old {
                Some(old) => self.files.open_with(index, old)?,
                None => self.files.open(index)?,
            });
        }
        Ok(self.iter.as_mut())
    }

    /// Applies `seek` to file `index`. Not valid if there is no such file.
    fn enter(&mut self, index: usize, seek: impl FnOnce(&mut F::Iter) -> Result<()>) -> Result<()> {
        self.valid = false;
        let Some(iter) = self.cursor(index)? else { return Ok(()) };
        seek(iter)?;
        self.valid = iter.valid();
        Ok(())
    }

    /// Applies `seek` to file `index`; if that finds nothing, stands on the first entry of the
    /// files after it.
    fn enter_forward(
        &mut self,
        index: usize,
        seek: impl FnOnce(&mut F::Iter) -> Result<()>,
    ) -> Result<()> {
        self.enter(index, seek)?;
        match self.valid {
            true => Ok(()),
            false => self.enter_first(index + 1),
        }
    }

    /// Stands on the first entry of file `index` and those after it.
    fn enter_first(&mut self, mut index: usize) -> Result<()> {
        self.valid = false;
        while !self.valid && index < self.files.files().len() {
            self.enter(index, F::Iter::seek_to_first)?;
            index += 1;
        }
        self.refuse_if(FileMeta::starts_after)
    }

    /// Applies `seek` to the file before file `end`; if that finds nothing, stands on the last
    /// entry of the files before it.
    fn enter_backward(
        &mut self,
        end: usize,
        seek: impl FnOnce(&mut F::Iter) -> Result<()>,
    ) -> Result<()> {
        self.valid = false;
        let Some(index) = end.checked_sub(1) else {
            return Ok(());
        };
        self.enter(index, seek)?;
        match self.valid {
            true => Ok(()),
            false => self.enter_last(index),
        }
    }

    /// Stands on the last entry of the files before file `end`.
    fn enter_last(&mut self, mut end: usize) -> Result<()> {
        self.valid = false;
        while !self.valid && end > 0 {
            end -= 1;
            self.enter(end, F::Iter::seek_to_last)?;
        }
        self.refuse_if(FileMeta::ends_before)
    }

    /// Refuses the current entry if its key is outside of the bounds of the current file.
    fn refuse_if(&mut self, is_outside: fn(&FileMeta, &[u8]) -> bool) -> Result<()> {
        let file = self.files.files().get(self.at);
        let (true, Some(iter), Some(file)) = (self.valid, &self.iter, file) else { return Ok(()) };
        if is_outside(file, iter.user_key()) {
            self.valid = false;
            return Err(self.files.outside_bounds(self.at));
        }
        Ok(())
    }
}

impl<F: FileSet> InternalIter for LevelIter<F> {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.enter_first(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.enter_last(self.files.files().len())
    }

    /// A file that is not open yet is left to the seek.
    fn prepare_seek(&mut self, user_key: &[u8]) {
        self.valid = false;
        let index = self.files.seek(user_key);
        if self.at != index || self.iter.is_none() {
            if !self.files.turn_to(index, &mut self.iter) {
                return;
            }
            self.at = index;
        }
        if let Some(iter) = &mut self.iter {
            iter.prepare_seek(user_key);
        }
    }

    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.enter_forward(self.files.seek(user_key), |iter| iter.seek(user_key, trailer))
    }

    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        let index = self.files.seek(user_key);
        let holds = self.files.files().get(index).is_some_and(|file| file.contains(user_key));
        let end = index + usize::from(holds);
        self.enter_backward(end, |iter| iter.seek_before(user_key, trailer))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid, "next on a cursor that is not valid");
        if !std::mem::take(&mut self.valid) {
            return Ok(());
        }
        if let Some(iter) = &mut self.iter {
            iter.next()?;
            self.valid = iter.valid();
        }
        match self.valid {
            true => Ok(()),
            false => self.enter_first(self.at + 1),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid, "prev on a cursor that is not valid");
        if !std::mem::take(&mut self.valid) {
            return Ok(());
        }
        if let Some(iter) = &mut self.iter {
            iter.prev()?;
            self.valid = iter.valid();
        }
        match self.valid {
            true => Ok(()),
            false => self.enter_last(self.at),
        }
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], F::Iter::user_key)
    }

    #[inline]
    fn trailer(&self) -> u64 {
        self.iter.as_ref().map_or(0, F::Iter::trailer)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], F::Iter::value)
    }
}

impl<F: FileSet> ScanCursor for LevelIter<F> {
    /// Leaves files that are older than the tombstone and end before `end` unopened.
    fn skip_covered(&mut self, end: &[u8], seqno: SeqNo) -> Result<()> {
        let files = self.files.files();
        let mut index = self.at;
        while let Some(file) = files.get(index) {
            if file.largest_seqno >= seqno || !file.ends_before(end) {
                break;
            }
            index += 1;
        }
        match files.get(index) {
            Some(file) if file.largest_seqno < seqno && file.contains(end) => {
                self.enter_forward(index, |iter| iter.seek(end, u64::MAX))
            }
            _ if index != self.at => self.enter_first(index),
            _ => Ok(()),
        }
    }

    fn skip_covered_back(&mut self, start: &[u8], seqno: SeqNo) -> Result<()> {
        let files = self.files.files();
        let mut end = (self.at + 1).min(files.len());
        while let Some(file) = end.checked_sub(1).map(|index| &files[index]) {
            if file.largest_seqno >= seqno || file.smallest.as_slice() < start {
                break;
            }
            end -= 1;
        }
        match end.checked_sub(1).map(|index| &files[index]) {
            Some(file) if file.largest_seqno < seqno && file.contains(start) => {
                self.enter_backward(end, |iter| iter.seek_before(start, u64::MAX))
            }
            _ if end != self.at + 1 => self.enter_last(end),
            _ => Ok(()),
        }
    }
}

/// The range tombstones of files in key order. A file is opened when a key within its bounds comes
/// up, if it has any.
pub(crate) struct FileCover {
    files: SstFiles,
    open: Option<(usize, Arc<SstReader>)>,
}

impl FileCover {
    /// The range tombstones of `files`.
    pub fn new(files: SstFiles) -> Self {
        Self { files, open: None }
    }
}

impl CoverSource for FileCover {
    fn span(&mut self, key: &[u8], read_seqno: SeqNo) -> Result<CoverSpan<'_>> {
        let index = self.files.seek(key);
        let holds = self.files.files().get(index).filter(|file| file.contains(key));
        if holds.is_some_and(|file| file.range_tombstone_count > 0)
            && self.open.as_ref().is_none_or(|(at, _)| *at != index)
        {
            self.open = Some((index, self.files.reader(index)?));
        }
        let files = self.files.files();
        let Some(file) = files.get(index).filter(|file| file.contains(key)) else {
            // Nothing of a file covers its largest key or what lies past it.
            let start = index.checked_sub(1).map(|before| files[before].largest.as_slice());
            let end = files.get(index).map(|file| file.smallest.as_slice());
            return Ok(CoverSpan { start, end, seqno: SeqNo::ZERO });
        };
        let next = files.get(index + 1).map(|file| file.smallest.as_slice());
        let span = match &self.open {
            Some((at, reader)) if *at == index => {
                reader.range_tombstones().span_at(key, read_seqno)
            }
            _ => CoverSpan::default(),
        };
        Ok(CoverSpan { start: span.start.or(Some(&file.smallest)), end: span.end.or(next), ..span })
    }
}

#[cfg(test)]
mod tests;
