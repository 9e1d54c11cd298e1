//! One lookup of a batch, and how far it has come (multi_get).

use crate::block_handle::BlockHandle;
use crate::lookup::{Entry, FilterAt, Lookup};
use crate::reader::SstReader;

/// One lookup of a batch, in one file.
pub struct BatchLookup<'a> {
    /// The file to look in.
    pub reader: &'a SstReader,
    /// What to look for.
    pub lookup: Lookup<'a>,
    /// Filled by [`multi_get`](crate::multi_get): the newest visible version, if the file has one.
    pub found: Option<Entry>,
    /// Whether the key is most likely in the file: then the data is searched before the filter is asked, if it is in
    /// memory.
    pub is_likely: bool,
    /// Which filter partition covers the key.
    pub(super) filter_at: FilterAt,
    /// Whether a filter has let the lookup pass.
    pub(super) filtered: bool,
    /// Whether the filter partition was not in memory and could have been read.
    pub(super) missed_filter: bool,
    /// Whether what it misses is wanted, and has not been read yet.
    pub(super) is_waiting: bool,
    pub(super) stage: Stage,
}

impl<'a> BatchLookup<'a> {
    /// A lookup that has not been executed.
    pub fn new(reader: &'a SstReader, lookup: Lookup<'a>) -> Self {
        let filter_at = reader.filter_at(&lookup);
        Self {
            reader,
            lookup,
            found: None,
            is_likely: false,
            filter_at,
            filtered: false,
            missed_filter: false,
            is_waiting: false,
            stage: Stage::Filter,
        }
    }

    /// Takes back what the lookup has counted as heat, if it has come to its end.
    pub(super) fn take_back(&self) {
        if matches!(self.stage, Stage::Done) {
            self.reader.take_back(&self.lookup, self.found.is_some());
        }
    }
}

/// How far a lookup has come.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    Filter,
    /// The filter has let it pass, or there is none.
    Passed,
    /// In a data block that the learned index names.
    Model(ModelBlock),
    /// In an index partition, by its place.
    Index(usize),
    /// In a data block that an index partition names.
    Data(IndexedBlock),
    Done,
}

/// A data block, by its number in the file.
#[derive(Clone, Copy)]
pub(super) struct ModelBlock {
    pub block: usize,
    /// Whether the block behind it was looked into before.
    pub is_second: bool,
}

/// A data block, by its place in an index partition.
#[derive(Clone, Copy)]
pub(super) struct IndexedBlock {
    pub partition: usize,
    pub block: usize,
    pub handle: BlockHandle,
}
