//! What a read sees: the memtables and the version of a family, swapped as one (get).

use crate::learned::level_model::LevelModel;
use crate::memory::table_cache::{ReaderSlot, TableCache};
use crate::memtable::MemTable;
use crate::version::reader_pins::ReaderPin;
use std::sync::Arc;
use terrace_manifest::{FileMeta, LEVEL_COUNT, Version};

/// The memtables, the version, and the slots of the version's readers.
pub(crate) struct ReadState {
    /// Takes the writes.
    pub memtable: Arc<MemTable>,
    /// Wait for their flush, newest first.
    pub immutables: Vec<Arc<MemTable>>,
    /// The live SSTs.
    pub version: Arc<Version>,
    /// The slots of the version's files, level by level in the version's order.
    pub slots: Arc<Slots>,
    /// Models of levels of the version, where there are any.
    pub level_models: [Option<Arc<LevelModel>>; LEVEL_COUNT],
    /// Whether any SST holds a range tombstone.
    pub has_range_tombstones: bool,
    /// In a read-only store: keeps the files from being removed by the writer.
    pub pin: Option<Arc<ReaderPin>>,
}

/// Reader slots in the order of a version's levels and files.
pub(crate) struct Slots {
    levels: Vec<Vec<Arc<ReaderSlot>>>,
}

impl Slots {
    fn of(version: &Version, table_cache: &TableCache) -> Self {
        let level = |files: &[Arc<FileMeta>]| {
            files.iter().map(|file| table_cache.slot(file.number)).collect()
        };
        Self { levels: version.levels().iter().map(|l| level(l.files())).collect() }
    }

    /// The slot of file `index` of `level`.
    #[inline]
    pub fn at(&self, level: usize, index: usize) -> &ReaderSlot {
        &self.levels[level][index]
    }
}

impl ReadState {
    /// The state of a family after a change of its version.
    pub fn of_version(
        memtable: Arc<MemTable>,
        immutables: Vec<Arc<MemTable>>,
        version: Arc<Version>,
        table_cache: &TableCache,
    ) -> Self {
        let slots = Arc::new(Slots::of(&version, table_cache));
        let ranged = |f: &Arc<FileMeta>| f.range_tombstone_count > 0;
        let has_range_tombstones = version.levels().iter().any(|l| l.files().iter().any(ranged));
        let level_models = Default::default();
        let pin = None;
        Self { memtable, immutables, version, slots, level_models, has_range_tombstones, pin }
    }

    /// Holds the files of the version by `pin` as long as the state lives.
    pub fn pinned_by(self, pin: Option<Arc<ReaderPin>>) -> Self {
        Self { pin, ..self }
    }

    /// Takes over `models`, as far as they are of these very levels.
    pub fn with_level_models(mut self, models: &[Option<Arc<LevelModel>>; LEVEL_COUNT]) -> Self {
        let levels = self.version.levels().iter().zip(models);
        for (own, (level, model)) in self.level_models.iter_mut().zip(levels) {
            *own = model.as_ref().filter(|model| model.is_of(level)).cloned();
        }
        self
    }

    /// The state after `fresh` has taken the place of the mutable memtable.
    pub fn rotated(&self, fresh: Arc<MemTable>) -> Self {
        let mut immutables = Vec::with_capacity(self.immutables.len() + 1);
        immutables.push(self.memtable.clone());
        immutables.extend(self.immutables.iter().cloned());
        Self { memtable: fresh, ..self.with_immutables(immutables) }
    }

    /// The same state with other immutable memtables (newest first).
    pub fn with_immutables(&self, immutables: Vec<Arc<MemTable>>) -> Self {
        Self {
            memtable: self.memtable.clone(),
            immutables,
            version: self.version.clone(),
            slots: self.slots.clone(),
            level_models: self.level_models.clone(),
            has_range_tombstones: self.has_range_tombstones,
            pin: self.pin.clone(),
        }
    }
}
