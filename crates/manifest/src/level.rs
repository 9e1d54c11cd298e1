//! The files of one level, arranged for lookups.

use crate::file_meta::FileMeta;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// The files of one level. L0 is ordered newest first and its files overlap; every other level is
/// ordered by key and its files are disjoint. Cloning is cheap.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {}

#[allow(unused_variables, clippy::todo)]
impl Level {
    /// The files in the level's order.
    pub fn files(&self) -> &[Arc<FileMeta>] {
        todo!()
    }

    /// Sum of the file lengths.
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// The first file whose range may hold `key`: in a sorted level the only one, at L0 the newest.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        todo!()
    }

    /// The first file of a sorted level that does not end before `key` (`len()` if none): where
    /// a seek to `key` starts.
    pub fn seek(&self, key: &[u8]) -> usize {
        todo!()
    }

    /// Indexes of the files with a key between the bounds; at L0 the smallest run of indexes with
    /// all of them, which may include others.
    pub fn overlapping_range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Range<usize> {
        todo!()
    }

    /// The files at [`Level::overlapping_range`].
    pub fn overlapping(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> &[Arc<FileMeta>] {
        todo!()
    }

    /// The index of file `number`.
    pub fn position(&self, number: u64) -> Option<usize> {
        todo!()
    }
}
