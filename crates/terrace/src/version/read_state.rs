//! What a read sees: the memtables and the version of a family, swapped as one (get).

use crate::error::Result;
use crate::learned::level_model::LevelModel;
use crate::memory::reader_slot::ReaderSlot;
use crate::memory::table_cache::TableCache;
use crate::memtable::MemTable;
use crate::version::hot_table::HotTable;
use crate::version::reader_pins::ReaderPin;
use std::ops::Range;
use std::sync::Arc;
use terrace_base::{FileNumber, SeqNo};
use terrace_manifest::{FileMeta, LEVEL_COUNT, Version};

/// The memtables, the version, and the slots of the version's readers.
pub(crate) struct ReadState {
    /// Has the newest version of the keys that are hot, and takes their writes.
    pub hot: Option<Arc<HotTable>>,
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

/// What takes the place of a hot table.
pub(crate) struct HotChange {
    pub hot: Option<Arc<HotTable>>,
    /// What is hot no longer; waits for its flush.
    pub cooled: Option<Arc<MemTable>>,
}

/// Reader slots in the order of a version's levels and files.
pub(crate) struct Slots {
    levels: [LevelSlots; LEVEL_COUNT],
}

/// The slots of one level; a level that stays as it is shares them.
#[derive(Clone, Default)]
struct LevelSlots {
    slots: Arc<[Arc<ReaderSlot>]>,
    /// How many of the files hold range tombstones.
    ranged: usize,
}

/// Where the files of a level are others than they were `before`, but for those with which both begin and end: in `files`, and in
/// `before`. A flush or a merge changes one stretch of a level, which may have a hundred thousand files.
pub(crate) fn changed_part(
    files: &[Arc<FileMeta>],
    before: &[Arc<FileMeta>],
) -> (Range<usize>, Range<usize>) {
    let same = |pair: &(&Arc<FileMeta>, &Arc<FileMeta>)| Arc::ptr_eq(pair.0, pair.1);
    let front = files.iter().zip(before).take_while(same).count();
    let (rest, rest_before) = (&files[front..], &before[front..]);
    let back = rest.iter().rev().zip(rest_before.iter().rev()).take_while(same).count();
    (front..files.len() - back, front..before.len() - back)
}

impl LevelSlots {
    /// Those of `files`, if these are those of `before`.
    fn changed(
        &self,
        before: &[Arc<FileMeta>],
        files: &[Arc<FileMeta>],
        table_cache: &TableCache,
    ) -> Self {
        let (now, then) = changed_part(files, before);
        if now.is_empty() && then.is_empty() {
            return self.clone();
        }
        let ranged = |files: &[Arc<FileMeta>]| {
            files.iter().filter(|file| file.range_tombstone_count > 0).count()
        };
        let ranged = self.ranged + ranged(&files[now.clone()]) - ranged(&before[then.clone()]);
        let (front, back) = (&self.slots[..then.start], &self.slots[then.end..]);
        let fresh = files[now].iter().map(|file| table_cache.slot(file.number));
        let slots = front.iter().cloned().chain(fresh).chain(back.iter().cloned());
        Self { slots: slots.collect(), ranged }
    }
}

impl Slots {
    /// Those of `version`, if these are those of `before`.
    fn changed(&self, before: &Version, version: &Version, table_cache: &TableCache) -> Self {
        let level = |n: usize| {
            let (before, files) = (before.level(n).files(), version.level(n).files());
            self.levels[n].changed(before, files, table_cache)
        };
        Self { levels: std::array::from_fn(level) }
    }

    /// The slot of file `index` of `level`.
    #[inline]
    pub fn at(&self, level: usize, index: usize) -> &ReaderSlot {
        &self.levels[level].slots[index]
    }
}

impl ReadState {
    /// A state of `version`.
    pub fn of_version(
        memtable: Arc<MemTable>,
        immutables: Vec<Arc<MemTable>>,
        version: Arc<Version>,
        table_cache: &TableCache,
    ) -> Self {
        let none = Slots { levels: Default::default() };
        let slots = none.changed(&Version::empty(), &version, table_cache);
        Self::with_slots(memtable, immutables, version, slots)
    }

    /// As [`Self::of_version`], of the family of this state. What the version has in common with the one before costs next to nothing.
    pub fn with_version(
        &self,
        memtable: Arc<MemTable>,
        immutables: Vec<Arc<MemTable>>,
        version: Arc<Version>,
        table_cache: &TableCache,
    ) -> Self {
        let slots = self.slots.changed(&self.version, &version, table_cache);
        Self::with_slots(memtable, immutables, version, slots)
    }

    fn with_slots(
        memtable: Arc<MemTable>,
        immutables: Vec<Arc<MemTable>>,
        version: Arc<Version>,
        slots: Slots,
    ) -> Self {
        let has_range_tombstones = slots.levels.iter().any(|level| level.ranged > 0);
        let (slots, level_models, pin) = (Arc::new(slots), Default::default(), None);
        Self {
            hot: None,
            memtable,
            immutables,
            version,
            slots,
            level_models,
            has_range_tombstones,
            pin,
        }
    }

    /// Whether both have the same files and memtables, as far as that shows without a look into them.
    pub fn has_same_data(&self, other: &Self) -> bool {
        let memtables = |state: &Self| -> Vec<(SeqNo, u64)> {
            let of =
                |memtable: &Arc<MemTable>| (memtable.max_seqno(), memtable.entry_count() as u64);
            state.immutables.iter().map(of).collect()
        };
        let files = |state: &Self| -> Vec<FileNumber> {
            state.version.files().map(|(_, file)| file.number).collect()
        };
        memtables(self) == memtables(other) && files(self) == files(other)
    }

    /// With this hot table.
    pub fn with_hot(self, hot: Option<Arc<HotTable>>) -> Self {
        Self { hot, ..self }
    }

    /// Whether the hot table or a memtable has something newer than `since`, which `has_newer` says of one of them;
    /// `None` if none has and SSTs have to be asked, too.
    pub fn newer_in_memory(
        &self,
        since: SeqNo,
        mut has_newer: impl FnMut(&MemTable) -> Result<bool>,
    ) -> Result<Option<bool>> {
        if let Some(hot) = &self.hot
            && has_newer(&hot.table)?
        {
            return Ok(Some(true));
        }
        for memtable in std::iter::once(&self.memtable).chain(&self.immutables) {
            if memtable.is_empty() {
                continue;
            }
            if memtable.max_seqno() <= since {
                match memtable.is_cooled() {
                    // It says nothing of those behind it.
                    true => continue,
                    false => return Ok(Some(false)),
                }
            }
            if has_newer(memtable)? {
                return Ok(Some(true));
            }
        }
        Ok(None)
    }

    /// The memtables in the order in which a read asks them: what the first of them says of a key
    /// is newer than what the others say.
    #[inline]
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        let hot = self.hot.as_ref().map(|hot| &hot.table);
        hot.into_iter().chain(std::iter::once(&self.memtable)).chain(&self.immutables)
    }

    /// The sequence number to read at in this state, if writes up to `visible` can be read, loaded after
    /// the state was taken: of two memtables that take writes one may have been replaced since,
    /// and the other must then not show what came after that.
    #[inline]
    pub fn readable_seqno(&self, visible: SeqNo) -> SeqNo {
        match &self.hot {
            None => visible,
            Some(hot) => visible.min(self.memtable.sealed_at()).min(hot.table.sealed_at()),
        }
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
        let mut immutables = Vec::with_capacity(self.immutables.len() + 2);
        immutables.push(self.memtable.clone());
        immutables.extend(self.immutables.iter().cloned());
        Self { memtable: fresh, ..self.with_immutables(immutables) }
    }

    /// The state after a change of the hot table. What has cooled is newer than all that immutable
    /// memtables hold of the same keys.
    pub fn with_hot_change(self, change: HotChange) -> Self {
        let HotChange { hot, cooled } = change;
        let mut immutables = self.immutables.clone();
        immutables.splice(0..0, cooled);
        Self { hot, immutables, ..self }
    }

    /// The same state with other immutable memtables (newest first).
    pub fn with_immutables(&self, immutables: Vec<Arc<MemTable>>) -> Self {
        Self {
            hot: self.hot.clone(),
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

#[cfg(test)]
mod tests;
