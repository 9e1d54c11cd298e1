//! Looking on while a lookup goes its way through a file: what was asked, and what it said.
//!
//! The lookups themselves are generic over a [`Watch`]; that of nearly all of them is `()`, which
//! does nothing and leaves no trace in the machine code. So what a watcher sees is what happens,
//! not what other code believes to happen. Called right after each answer is known: the time since
//! the last call is what the answer took.

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

/// Sees the steps of a lookup in a file.
pub trait Watch {
    /// Filter partition `at` has answered with this many units.
    #[inline(always)]
    fn filter(&mut self, _at: usize, _units: u8, _said: FilterSaid) {}

    /// The learned index says that the key is in this data block, if anywhere; `None` if it cannot
    /// tell.
    #[inline(always)]
    fn model(&mut self, _block: Option<u32>) {}

    /// Index partition `partition` says that the key is in its data block `block`, if anywhere.
    #[inline(always)]
    fn index(&mut self, _partition: usize, _block: usize) {}

    /// Data block `block` of index partition `partition` has answered; with `None`, the file's data
    /// block `block`.
    #[inline(always)]
    fn block(&mut self, _partition: Option<usize>, _block: usize, _said: BlockSaid) {}
}

/// Sees nothing.
impl Watch for () {}
