//! Merges sorted runs: a heap of runs by their current keys.

use super::run::RunReader;
use super::{Entry, Sorted};
use crate::error::Result;
use std::cmp::Ordering;

/// A merge of runs, oldest first; of entries with the same key that of the newest run counts.
pub(super) struct Merge {
    runs: Vec<RunReader>,
    /// Indices of the runs that have an entry. None comes before its parent.
    heap: Vec<usize>,
    /// The last key that was given.
    last: Vec<u8>,
    has_given: bool,
    peak_bytes: usize,
}

impl Merge {
    pub fn new(runs: Vec<RunReader>) -> Result<Self> {
        let heap = (0..runs.len()).filter(|index| runs[*index].entry().is_some()).collect();
        let mut merge = Self { runs, heap, last: Vec::new(), has_given: false, peak_bytes: 0 };
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(at);
        }
        merge.note_memory();
        Ok(merge)
    }

    /// The most memory that was in use.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }

    fn note_memory(&mut self) {
        let used = self.runs.iter().map(RunReader::used_bytes).sum();
        self.peak_bytes = self.peak_bytes.max(used);
    }

    /// How the entries of two runs follow each other: by key, that of the newer run first.
    fn order(&self, a: usize, b: usize) -> Ordering {
        let key = |run: usize| self.runs[run].entry().map(|entry| entry.key);
        key(a).cmp(&key(b)).then(b.cmp(&a))
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if child < self.heap.len()
                    && self.order(self.heap[child], self.heap[least]) == Ordering::Less
                {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    /// Moves past the first entry.
    fn advance(&mut self) -> Result<()> {
        let Some(run) = self.heap.first().copied() else { return Ok(()) };
        self.runs[run].next()?;
        if self.runs[run].entry().is_none() {
            self.heap.swap_remove(0);
            self.note_memory();
        }
        self.sift_down(0);
        Ok(())
    }

    fn first(&self) -> Option<Entry<'_>> {
        self.runs[*self.heap.first()?].entry()
    }
}

impl Sorted for Merge {
    fn next(&mut self) -> Result<Option<Entry<'_>>> {
        if self.has_given {
            while self.first().is_some_and(|entry| entry.key == self.last.as_slice()) {
                self.advance()?;
            }
        }
        self.last.clear();
        let Some(run) = self.heap.first() else { return Ok(None) };
        let Some(entry) = self.runs[*run].entry() else { return Ok(None) };
        self.last.extend_from_slice(entry.key);
        self.has_given = true;
        Ok(Some(entry))
    }
}
