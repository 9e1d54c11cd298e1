//! One model over all files of a level: from a key to the file and the data block, without a
//! search among the files and without the files' own models.
//!
//! ```text
//!   key ──> block of the level ──> file (first blocks, a few comparisons of numbers) ──> block of the file
//! ```
//! A level model is made for exactly the files of one level of one version. It lies in the read
//! states of versions with these files in that level, and with no other; so none is ever out of
//! date. What it says is proven all the same: by the block that holds the key, or by the bounds of
//! the file. Where neither proves it, the level is searched as if there were no model.

use crate::memory::table_cache::{Pinned, TableCache};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_base::{FileNumber, Result};
use terrace_learned::{BlockModel, BlockModelBuilder, ModelStats};
use terrace_manifest::{FileMeta, Level};
use terrace_sst::{BlockPlace, NoModel, SstReader};

/// A model over the data blocks of all files of a level.
pub(crate) struct LevelModel {
    blocks: BlockModel,
    /// How many blocks of the level come before each file.
    starts: Box<[u32]>,
    /// The files, in the level's order.
    numbers: Box<[FileNumber]>,
    /// The moving share of sampled lookups that found their key here, of [`ALL`].
    found_share: AtomicU32,
    _pinned: Pinned,
}

/// The share 1 of found lookups.
const ALL: u32 = 1 << 16;
/// A new sample weighs one part in this many.
const MEMORY: u32 = 16;

/// Where in a level a key is, if it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the file in the level.
    pub file: usize,
    /// The block, counted from the file's first.
    pub guess: BlockPlace,
}

impl LevelModel {
    /// Where `key` is, if it is in the level; `None` if the model cannot tell. Takes some 50 ns.
    #[inline]
    pub fn locate(&self, key: &[u8]) -> Option<Place> {
        let guess = self.blocks.locate(key)?;
        let likely = self.found_share.load(Ordering::Relaxed) > ALL / 2;
        place(&self.starts, BlockPlace { ordinal: guess.block, within: guess.within, likely })
    }

    /// Notes whether a sampled lookup found its key here. Racing updates may lose one of two.
    pub fn note(&self, found: bool) {
        let share = self.found_share.load(Ordering::Relaxed);
        let target = if found { ALL } else { 0 };
        self.found_share.store(share - share / MEMORY + target / MEMORY, Ordering::Relaxed);
    }

    /// Whether it was made for these files.
    pub fn is_of(&self, level: &Level) -> bool {
        *self.numbers == *level.numbers()
    }

    /// Memory taken; it is charged to the memory of the block cache.
    pub fn memory_bytes(&self) -> usize {
        memory_bytes(&self.blocks, &self.starts, &self.numbers)
    }
}

/// Files without blocks have the same start as the next one: the last file that starts at or before
/// a block has it.
#[inline]
fn place(starts: &[u32], guess: BlockPlace) -> Option<Place> {
    let file = starts.partition_point(|start| *start <= guess.ordinal).checked_sub(1)?;
    let ordinal = guess.ordinal - starts[file];
    Some(Place { file, guess: BlockPlace { ordinal, ..guess } })
}

fn memory_bytes(blocks: &BlockModel, starts: &[u32], numbers: &[FileNumber]) -> usize {
    size_of::<LevelModel>() - size_of::<BlockModel>()
        + blocks.memory_bytes()
        + size_of_val(starts)
        + size_of_val(numbers)
}

/// What came of training over a level.
pub(crate) struct LevelTraining {
    pub model: std::result::Result<Arc<LevelModel>, NoModel>,
    pub stats: ModelStats,
}

/// Learns the files of a level one after the other.
#[derive(Default)]
pub(crate) struct LevelModelBuilder {
    blocks: BlockModelBuilder,
    starts: Vec<u32>,
    numbers: Vec<FileNumber>,
    last_before: Vec<u8>,
}

impl LevelModelBuilder {
    /// Adds the next file of the level. Reads it past the cache.
    pub fn add(&mut self, file: &FileMeta, reader: &Arc<SstReader>) -> Result<()> {
        self.starts.push(self.blocks.block_count());
        self.numbers.push(file.number);
        let Self { blocks, last_before, .. } = self;
        reader.for_each_first_key(|ordinal, last, first| {
            // No key of a file is above its largest, though a range tombstone may reach farther.
            blocks.push(if ordinal == 0 { last_before } else { last }, first);
        })?;
        self.last_before.clone_from(&file.largest);
        Ok(())
    }

    /// Data blocks of the files so far.
    pub fn block_count(&self) -> u32 {
        self.blocks.block_count()
    }

    /// Trains. The memory of the model is taken from the block cache's for as long as it lives.
    pub fn finish(self, table_cache: &Arc<TableCache>) -> LevelTraining {
        let training = self.blocks.finish();
        let (starts, numbers) = (self.starts.into_boxed_slice(), self.numbers.into_boxed_slice());
        let model = training.model.and_then(|bytes| {
            let blocks = BlockModel::decode(&bytes).map_err(|_| NoModel::Unproven)?;
            let pinned = TableCache::pin(table_cache, memory_bytes(&blocks, &starts, &numbers));
            let found_share = AtomicU32::new(ALL / 2);
            Ok(Arc::new(LevelModel { blocks, starts, numbers, found_share, _pinned: pinned }))
        });
        LevelTraining { model, stats: training.stats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_the_level_become_blocks_of_files() {
        let starts = [0, 3, 3, 10];
        let at = |block| {
            let guess = BlockPlace { ordinal: block, within: 7, likely: false };
            let place = place(&starts, guess).unwrap();
            assert_eq!(place.guess.within, 7);
            (place.file, place.guess.ordinal)
        };
        assert_eq!([at(0), at(2)], [(0, 0), (0, 2)]);
        assert_eq!([at(3), at(9)], [(2, 0), (2, 6)], "file 1 has no blocks");
        assert_eq!([at(10), at(400)], [(3, 0), (3, 390)]);
        let guess = BlockPlace { ordinal: 0, within: 0, likely: true };
        assert_eq!(place(&[], guess), None);
    }
}
