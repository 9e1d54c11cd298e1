//! The files of one level, arranged for lookups.
//!
//! A sorted level keeps, in one contiguous array per side, the first eight bytes of every bound
//! behind the prefix that all bounds share. A lookup is a binary search over numbers; full keys
//! are compared only where eight bytes do not decide.

use crate::file_meta::FileMeta;
use std::collections::HashMap;
use std::ops::{Bound, Range};
use std::sync::Arc;
use terrace_base::FileNumber;
use terrace_base::key::{common_prefix, head};

/// The files of one level. L0 is ordered newest first (largest sequence number, then file number)
/// and its files overlap; every other level is ordered by key and its files are disjoint. Cloning
/// is cheap.
#[derive(Debug, Clone)]
pub struct Level {
    files: Arc<[Arc<FileMeta>]>,
    /// The numbers of `files`, so that a search by number touches no file.
    numbers: Arc<[FileNumber]>,
    /// Of sorted levels; empty at L0.
    heads: Heads,
    sorted: bool,
    size_bytes: u64,
}

/// What a lookup compares first.
#[derive(Debug, Clone, Default)]
struct Heads {
    /// Shared by every bound of the level, and so by every key inside it.
    prefix: Arc<[u8]>,
    /// `head` of each `smallest` behind the prefix.
    smallest: Arc<[u64]>,
    /// `head` of each `largest` behind the prefix.
    largest: Arc<[u64]>,
}

/// Where a key stands against the prefix of a level.
enum Place {
    /// Below every bound.
    Below,
    /// Above every bound.
    Above,
    /// Among the bounds, with this head.
    Among(u64),
}

impl PartialEq for Level {
    fn eq(&self, other: &Self) -> bool {
        self.sorted == other.sorted && self.files == other.files
    }
}

impl Level {
    pub(crate) fn empty(sorted: bool) -> Self {
        let (files, numbers) = (Arc::default(), Arc::default());
        Self { files, numbers, heads: Heads::default(), sorted, size_bytes: 0 }
    }

    /// Takes the files of `known`, by number, in the place of equal ones.
    pub(crate) fn share_files(&mut self, known: &HashMap<FileNumber, &Arc<FileMeta>>) {
        let shared = |file: &Arc<FileMeta>| match known.get(&file.number) {
            Some(known) if ***known == **file => (*known).clone(),
            _ => file.clone(),
        };
        self.files = self.files.iter().map(shared).collect();
    }

    /// The files in the level's order.
    #[inline]
    pub fn files(&self) -> &[Arc<FileMeta>] {
        &self.files
    }

    /// The numbers of the files, in the same order.
    pub fn numbers(&self) -> &[FileNumber] {
        &self.numbers
    }

    /// Sum of the file lengths.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Number of files.
    #[inline]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are no files.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The first file whose range may hold `key`: in a sorted level the only one, at L0 the
    /// newest.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        if !self.sorted {
            return self.files.iter().position(|file| file.contains(key));
        }
        let Place::Among(key_head) = self.heads.place(key) else { return None };
        let at = self.seek_among(key, key_head);
        let smallest = *self.heads.smallest.get(at)?;
        // Equal heads decide nothing: only then is the key itself needed.
        let inside =
            smallest < key_head || (smallest == key_head && !self.files.get(at)?.starts_after(key));
        inside.then_some(at)
    }

    /// The first file of a sorted level that does not end before `key` (`len()` if none): where
    /// a seek to `key` starts.
    pub fn seek(&self, key: &[u8]) -> usize {
        debug_assert!(self.sorted, "L0 has no order of keys");
        match self.heads.place(key) {
            Place::Below => 0,
            Place::Above => self.len(),
            Place::Among(key_head) => self.seek_among(key, key_head),
        }
    }

    #[inline]
    fn seek_among(&self, key: &[u8], key_head: u64) -> usize {
        let largest = &self.heads.largest;
        let first = largest.partition_point(|head| *head < key_head);
        if largest.get(first).is_none_or(|head| *head != key_head) {
            return first;
        }
        let equal = largest[first..].partition_point(|head| *head == key_head);
        first + self.files[first..first + equal].partition_point(|file| file.ends_before(key))
    }

    /// Indexes of the files with a key between the bounds; at L0 the smallest run of indexes with
    /// all of them, which may include others.
    pub fn overlapping_range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Range<usize> {
        if !self.sorted {
            let overlaps = |file: &Arc<FileMeta>| file.overlaps(start, end);
            let Some(first) = self.files.iter().position(overlaps) else { return 0..0 };
            let last = self.files.iter().rposition(overlaps).unwrap_or(first);
            return first..last + 1;
        }
        let mut first = match start {
            Bound::Included(key) | Bound::Excluded(key) => self.seek(key),
            Bound::Unbounded => 0,
        };
        if self.files.get(first).is_some_and(|file| file.ends_before_bound(start)) {
            first += 1;
        }
        let count = self.files[first..].partition_point(|file| !file.starts_after_bound(end));
        first..first + count
    }

    /// The files at [`Level::overlapping_range`].
    pub fn overlapping(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> &[Arc<FileMeta>] {
        &self.files[self.overlapping_range(start, end)]
    }

    /// The index of file `number`.
    pub fn position(&self, number: FileNumber) -> Option<usize> {
        self.numbers.iter().position(|n| *n == number)
    }

    /// This level without the files numbered `removed` and with `added`, both in any order.
    pub(crate) fn edited(
        &self,
        mut removed: Vec<FileNumber>,
        mut added: Vec<Arc<FileMeta>>,
    ) -> Result<Self, String> {
        removed.sort_unstable();
        if self.sorted {
            added.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        } else {
            added.sort_by_key(|file| std::cmp::Reverse((file.largest_seqno, file.number)));
        }
        let mut merge = Merge { level: self, files: Vec::new(), origins: Vec::new() };
        merge.files.reserve(self.len() + added.len());
        merge.origins.reserve(self.len() + added.len());
        let mut added = added.into_iter().peekable();
        let mut dropped = 0;
        for (at, (file, number)) in self.files.iter().zip(self.numbers.iter()).enumerate() {
            if removed.binary_search(number).is_ok() {
                dropped += 1;
                continue;
            }
            while let Some(file) = added.next_if(|new| self.is_before(new, file)) {
                merge.push(file, None)?;
            }
            merge.push(Arc::clone(file), Some(at))?;
        }
        for file in added {
            merge.push(file, None)?;
        }
        if dropped != removed.len() {
            let absent = removed.iter().find(|number| self.position(**number).is_none());
            return Err(match absent {
                Some(number) => format!("file {number} is to be removed and is not there"),
                None => "a file is to be removed twice".into(),
            });
        }
        merge.finish()
    }

    fn is_before(&self, a: &FileMeta, b: &FileMeta) -> bool {
        if self.sorted {
            a.smallest < b.smallest
        } else {
            (a.largest_seqno, a.number) > (b.largest_seqno, b.number)
        }
    }
}

/// The files of a new level in order, and where each stood in the old one.
struct Merge<'a> {
    level: &'a Level,
    files: Vec<Arc<FileMeta>>,
    origins: Vec<Option<usize>>,
}

impl Merge<'_> {
    fn push(&mut self, file: Arc<FileMeta>, origin: Option<usize>) -> Result<(), String> {
        // Two old neighbours are in order already.
        let both_old = origin.is_some() && self.origins.last().is_some_and(Option::is_some);
        if let Some(before) = self.files.last().filter(|_| self.level.sorted && !both_old)
            && !before.precedes(&file)
        {
            return Err(format!(
                "files {} and {} of one level overlap at {:?}",
                before.number,
                file.number,
                String::from_utf8_lossy(&file.smallest)
            ));
        }
        self.files.push(file);
        self.origins.push(origin);
        Ok(())
    }

    fn finish(self) -> Result<Level, String> {
        let mut size_bytes = 0u64;
        for file in &self.files {
            size_bytes = size_bytes
                .checked_add(file.size_bytes)
                .ok_or("the sizes of a level's files are impossible")?;
        }
        let heads = if self.level.sorted { self.heads() } else { Heads::default() };
        let numbers = self.files.iter().map(|file| file.number).collect();
        let sorted = self.level.sorted;
        Ok(Level { files: self.files.into(), numbers, heads, sorted, size_bytes })
    }

    fn heads(&self) -> Heads {
        let (Some(first), Some(last)) = (self.files.first(), self.files.last()) else {
            return Heads::default();
        };
        let shared = common_prefix(&first.smallest, &last.largest);
        let prefix = &first.smallest[..shared];
        let old = Some(&self.level.heads).filter(|old| *old.prefix == *prefix);
        let side = |heads: fn(&Heads) -> &[u64], key: fn(&FileMeta) -> &[u8]| {
            self.files
                .iter()
                .zip(&self.origins)
                .map(|(file, origin)| {
                    let kept = old.zip(*origin).and_then(|(old, at)| heads(old).get(at).copied());
                    kept.unwrap_or_else(|| head(&key(file)[shared..]))
                })
                .collect()
        };
        Heads {
            prefix: prefix.into(),
            smallest: side(|heads| &heads.smallest, |file| &file.smallest),
            largest: side(|heads| &heads.largest, |file| &file.largest),
        }
    }
}

impl Heads {
    #[inline]
    fn place(&self, key: &[u8]) -> Place {
        match key.strip_prefix(&*self.prefix) {
            Some(rest) => Place::Among(head(rest)),
            None if *key < *self.prefix => Place::Below,
            None => Place::Above,
        }
    }
}

#[cfg(test)]
mod tests;
