//! Who watches a lookup: nobody, or an explanation.

use super::candidates::Run;
use terrace_base::{SeqNo, ValueHandle};
use terrace_manifest::FileMeta;
use terrace_sst::{BlockPlace, InLevel, SstReader, Watch};

/// Sees a lookup's steps, right after each. That of nearly all lookups is `()`, which leaves no
/// trace in the machine code; the other one is `explain`'s.
pub(super) trait Witness: Watch + Copy {
    /// Memtable `at`, newest first, was asked: the trailer of its newest version, and the newest
    /// range tombstone met so far that covers the key.
    #[inline(always)]
    fn memtable(&mut self, _at: usize, _found: Option<u64>, _covered: SeqNo) {}
    /// The reader of a run is open.
    #[inline(always)]
    fn entered(&mut self, _run: &Run<'_>) {}
    /// The file of `run` is asked now.
    #[inline(always)]
    fn asks(&mut self, _run: &Run<'_>, _reader: &SstReader) {}
    /// The range tombstones of the file were asked, if it has any.
    #[inline(always)]
    fn range_tombstones(&mut self, _file: &FileMeta, _covered: SeqNo) {}
    /// A model of the level chose the file, and this came of it.
    #[inline(always)]
    fn by_level_model(&mut self, _run: &Run<'_>, _block: BlockPlace, _answer: &InLevel) {}
    /// The version that was found, and the newest range tombstone that covers it.
    #[inline(always)]
    fn found(&mut self, _trailer: u64, _covered: SeqNo) {}
    /// A value is read from the log now.
    #[inline(always)]
    fn wants_value(&mut self, _handle: &ValueHandle) {}
    /// It was, or its segment has gone meanwhile.
    #[inline(always)]
    fn value(&mut self, _handle: &ValueHandle, _found: bool) {}
}

impl Witness for () {}
