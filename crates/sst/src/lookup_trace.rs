//! The steps of a point lookup as an observer sees them: for explanations and for samples of what
//! lookups take.
//!
//! Lookups, those of the engine too, are generic over a [`LookupTrace`]. That of nearly all of them is `()`, which
//! does nothing and leaves no code; so an observer sees what happens, not what other code believes to
//! happen. Each method is called right after its answer is known: the time since the call before is
//! what the answer took.

use crate::lookup::{BlockPlace, InLevel};
use crate::reader::SstReader;
use terrace_base::{FileNumber, SeqNo, ValueHandle};

/// What a filter said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterSaid {
    /// The file has no filters.
    NoFilter,
    /// The key is above all that the filters cover, so it is not in the file.
    Above,
    /// Nothing of the partition is in memory: the lookup goes on without.
    NotInMemory,
    /// The key is not in the file.
    No,
    /// It may be.
    Maybe,
}

/// What a data block said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockSaid {
    /// It has a visible version: the newest, unless versions of the key began in the block before.
    Found,
    /// Neither it nor a block after it has one.
    Absent,
    /// The key sorts before its first.
    Before,
    /// The key sorts after its last.
    After,
}

/// A file that a lookup asks, and its place in the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPlace {
    /// Its level.
    pub level: usize,
    /// Which file of the level.
    pub index: usize,
    /// Its number.
    pub file_number: FileNumber,
    /// Whether a model of the level chose it.
    pub by_level_model: bool,
}

/// Observes the steps of a lookup.
pub trait LookupTrace {
    /// Whether runs are asked one by one, so that each can be timed, instead of in groups whose filters are
    /// prefetched together.
    const ONE_BY_ONE: bool = false;

    /// Whether nobody looks. Only then may a lookup that most likely finds its key search the data before it asks the
    /// filter, whose answer is known if it does.
    const IS_BLIND: bool = false;

    /// Memtable `at`, newest first (0: the hot table, 1: the mutable one), was asked: the trailer of its newest version, and the newest
    /// range tombstone met so far that covers the key.
    #[inline(always)]
    fn memtable(&mut self, _at: usize, _found: Option<u64>, _covered: SeqNo) {}

    /// The next run that may have the key is searched for.
    #[inline(always)]
    fn next_run(&mut self) {}

    /// The reader of a run is open.
    #[inline(always)]
    fn opened(&mut self, _run: RunPlace) {}

    /// The file of a run is asked now.
    #[inline(always)]
    fn asks(&mut self, _run: RunPlace, _reader: &SstReader) {}

    /// The file's range tombstones were asked; `covered` is the newest that covers the key so far.
    #[inline(always)]
    fn range_tombstones(&mut self, _count: u64, _covered: SeqNo) {}

    /// Filter partition `at` has answered with this many units.
    #[inline(always)]
    fn filter(&mut self, _at: usize, _units: u8, _said: FilterSaid) {}

    /// The learned index says that the key is in this data block, if anywhere; `None` if it cannot
    /// say.
    #[inline(always)]
    fn model(&mut self, _block: Option<u32>) {}

    /// Index partition `partition` says that the key is in its data block `block`, if anywhere.
    #[inline(always)]
    fn index(&mut self, _partition: usize, _block: usize) {}

    /// Data block `block` of index partition `partition` has answered; with `None`, the file's data
    /// block `block`.
    #[inline(always)]
    fn block(&mut self, _partition: Option<usize>, _block: usize, _said: BlockSaid) {}

    /// The block that a model of the level chose has answered; `in_bounds`: the file's bounds
    /// enclose the key.
    #[inline(always)]
    fn by_level_model(&mut self, _block: BlockPlace, _in_bounds: bool, _answer: &InLevel) {}

    /// The run that was asked last has the key, or not.
    #[inline(always)]
    fn answered(&mut self, _found: bool) {}

    /// The version that was found, and the newest range tombstone that covers it.
    #[inline(always)]
    fn found(&mut self, _trailer: u64, _covered: SeqNo) {}

    /// The value of a key is read from the log now.
    #[inline(always)]
    fn wants_value(&mut self, _key: &[u8], _handle: &ValueHandle) {}

    /// It was, or its segment has gone meanwhile.
    #[inline(always)]
    fn value(&mut self, _handle: &ValueHandle, _found: bool) {}
}

/// Observes nothing.
impl LookupTrace for () {
    const IS_BLIND: bool = true;
}
