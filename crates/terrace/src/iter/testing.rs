//! A cursor over a sorted vector, the child from which tests build merges, and which can be told to
//! fail.

use crate::iter::ScanCursor;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use terrace_base::key::{compare_internal, trailer_seqno};
use terrace_base::{Error, InternalIter, Result, SeqNo};

/// An entry: user key, trailer, stored value.
pub(crate) type Entry = (Vec<u8>, u64, Vec<u8>);

/// Sorts entries in internal order; entries that are equal in it stay as they are.
pub(crate) fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| compare_internal(&a.0, a.1, &b.0, b.1));
}

/// A cursor over entries in internal order.
pub(crate) struct VecIter {
    entries: Vec<Entry>,
    at: Option<usize>,
    /// Moves left until the one that fails; counted down by every move of all cursors that share
    /// it.
    fuse: Option<Rc<Cell<u64>>>,
    moves: Rc<Cell<u64>>,
}

impl VecIter {
    pub fn new(mut entries: Vec<Entry>) -> Self {
        sort(&mut entries);
        Self { entries, at: None, fuse: None, moves: Rc::default() }
    }

    /// The cursor whose move fails when `fuse` is at 0; every move before takes one off.
    pub fn with_fuse(mut self, fuse: &Rc<Cell<u64>>) -> Self {
        self.fuse = Some(Rc::clone(fuse));
        self
    }

    /// The cursor that adds its moves to `moves`.
    pub fn counted_by(mut self, moves: &Rc<Cell<u64>>) -> Self {
        self.moves = Rc::clone(moves);
        self
    }

    fn go(&mut self, to: Option<usize>) -> Result<()> {
        self.at = None;
        self.moves.set(self.moves.get() + 1);
        if let Some(fuse) = &self.fuse {
            if fuse.get() == 0 {
                return Err(Error::corruption(Path::new("test"), 0, "fuse"));
            }
            fuse.set(fuse.get() - 1);
        }
        self.at = to.filter(|at| *at < self.entries.len());
        Ok(())
    }

    fn position(&self, user_key: &[u8], trailer: u64) -> usize {
        self.entries.partition_point(|e| compare_internal(&e.0, e.1, user_key, trailer).is_lt())
    }

    fn entry(&self) -> &Entry {
        &self.entries[self.at.expect("the cursor is valid")]
    }
}

impl InternalIter for VecIter {
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.entries.len().checked_sub(1))
    }
    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.go(Some(self.position(user_key, trailer)))
    }
    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.go(self.position(user_key, trailer).checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.go(Some(self.at.expect("the cursor is valid") + 1))
    }
    fn prev(&mut self) -> Result<()> {
        self.go(self.at.expect("the cursor is valid").checked_sub(1))
    }
    fn user_key(&self) -> &[u8] {
        &self.entry().0
    }
    fn trailer(&self) -> u64 {
        self.entry().1
    }
    fn value(&self) -> &[u8] {
        &self.entry().2
    }
}

impl ScanCursor for VecIter {
    /// As a level does, if it holds nothing newer.
    fn skip_covered(&mut self, end: &[u8], seqno: SeqNo) -> Result<()> {
        match self.entries.iter().all(|e| trailer_seqno(e.1) < seqno) {
            true => self.seek(end, u64::MAX),
            false => Ok(()),
        }
    }
}
