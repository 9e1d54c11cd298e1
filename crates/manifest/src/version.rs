//! The live files of one column family at one moment. Immutable; an edit makes a new one.
//!
//! Holds in every version: file numbers are unique; in L1 and below each file ends before the
//! next one starts (two may share a bound if the first excludes it); a file's bounds and sequence
//! numbers are in order.

use crate::edit::FamilyEdit;
use crate::file_meta::FileMeta;
use crate::level::Level;
use std::collections::HashMap;
use std::sync::Arc;
use terrace_base::key::MAX_KEY_BYTES;
use terrace_base::{FileNumber, MAX_SEQNO};

/// Levels L0..L6.
pub const LEVEL_COUNT: usize = 7;

/// Where edits place checkpoints of the hot table. It is no level: nothing is looked up there, and no
/// compaction takes part in it.
pub const HOT_LEVEL: u8 = LEVEL_COUNT as u8;

/// The live files of one column family.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    levels: [Level; LEVEL_COUNT],
    /// Checkpoints of the hot table, unsorted: one, or none.
    hot: Level,
}

impl Default for Version {
    fn default() -> Self {
        Self::empty()
    }
}

impl Version {
    /// No files.
    pub fn empty() -> Self {
        Self { levels: std::array::from_fn(|n| Level::empty(n > 0)), hot: Level::empty(false) }
    }

    /// All levels, L0 first; always [`LEVEL_COUNT`].
    #[inline]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Level `n`, which must be below [`LEVEL_COUNT`].
    #[inline]
    pub fn level(&self, n: usize) -> &Level {
        &self.levels[n]
    }

    /// The checkpoints of the hot table: recovery reads them before it replays the log, nobody else.
    #[inline]
    pub fn hot(&self) -> &Level {
        &self.hot
    }

    /// The version after `edit`; says why if the edit does not fit this version: a removed file
    /// that is not there, a number already in use, files of a sorted level that overlap, bounds
    /// or sequence numbers that are not in order. Costs a pass over the levels it touches.
    pub fn apply(&self, edit: &FamilyEdit) -> Result<Self, String> {
        let added = edit.added.iter().map(|(level, file)| (*level, Arc::new(file.clone())));
        self.edited(added.collect(), &edit.removed)
    }

    /// As [`Version::apply`], without copying the files.
    pub(crate) fn edited(
        &self,
        added: Vec<(u8, Arc<FileMeta>)>,
        removed: &[(u8, FileNumber)],
    ) -> Result<Self, String> {
        self.check_unused(&added, removed)?;
        let moved = self.moved(&added, removed);
        let mut added_per_level: [Vec<Arc<FileMeta>>; PLACE_COUNT] = Default::default();
        let mut removed_per_level: [Vec<FileNumber>; PLACE_COUNT] = Default::default();
        for (level, file) in added {
            check_file(&file)?;
            let file = match moved.get(&file.number) {
                Some(old) if ***old == *file => (*old).clone(),
                _ => file,
            };
            at_level(&mut added_per_level, level)?.push(file);
        }
        for (level, number) in removed {
            at_level(&mut removed_per_level, *level)?.push(*number);
        }
        let mut after = self.clone();
        let changes = added_per_level.into_iter().zip(removed_per_level);
        let places = after.levels.iter_mut().chain([&mut after.hot]);
        for (n, (level, (added, removed))) in (0..).zip(places.zip(changes)) {
            if !added.is_empty() || !removed.is_empty() {
                let in_place = |why: String| format!("{}: {why}", place_name(n));
                *level = level.edited(removed, added).map_err(in_place)?;
            }
        }
        Ok(after)
    }

    /// The levels, and after them the checkpoints of the hot table, each with its number in edits.
    fn places(&self) -> impl Iterator<Item = (u8, &Level)> {
        (0u8..).zip(self.levels.iter().chain([&self.hot]))
    }

    /// The files that the edit takes from one level to another, as they are in this version, by number. They stay the same
    /// `Arc`: a count of their holders includes older versions. There may be a hundred thousand: if there are any, this
    /// costs a pass over the numbers of all files.
    fn moved(
        &self,
        added: &[(u8, Arc<FileMeta>)],
        removed: &[(u8, FileNumber)],
    ) -> HashMap<FileNumber, &Arc<FileMeta>> {
        let mut numbers: Vec<FileNumber> = added.iter().map(|(_, file)| file.number).collect();
        numbers.sort_unstable();
        let moves = |number: &FileNumber| numbers.binary_search(number).is_ok();
        let mut from: Vec<(u8, FileNumber)> =
            removed.iter().filter(|(_, number)| moves(number)).copied().collect();
        from.sort_unstable();
        let mut moved = HashMap::new();
        if from.is_empty() {
            return moved;
        }
        for (n, level) in self.places() {
            for (number, file) in level.numbers().iter().zip(level.files()) {
                if from.binary_search(&(n, *number)).is_ok() {
                    moved.insert(*number, file);
                }
            }
        }
        moved
    }

    /// Takes the files of `before` in the place of equal ones, whatever level they were in.
    pub(crate) fn share_files(&mut self, before: &Self) {
        let known: HashMap<FileNumber, &Arc<FileMeta>> =
            before.all_files().map(|(_, file)| (file.number, file)).collect();
        let places = self.levels.iter_mut().chain([&mut self.hot]);
        places.for_each(|level| level.share_files(&known));
    }

    /// Number of files.
    pub fn file_count(&self) -> usize {
        self.places().map(|(_, level)| level.len()).sum()
    }

    /// Sum of the file lengths.
    pub fn size_bytes(&self) -> u64 {
        self.places().fold(0, |sum, (_, level)| sum.saturating_add(level.size_bytes()))
    }

    /// Every file of the levels with its level, L0 first, in each level's order.
    pub fn files(&self) -> impl Iterator<Item = (u8, &Arc<FileMeta>)> {
        self.all_files().filter(|(level, _)| *level < HOT_LEVEL)
    }

    /// As [`Version::files`], and the checkpoints of the hot table, last, with [`HOT_LEVEL`].
    pub fn all_files(&self) -> impl Iterator<Item = (u8, &Arc<FileMeta>)> {
        self.places().flat_map(|(n, level)| level.files().iter().map(move |file| (n, file)))
    }

    /// Refuses numbers that are in use, unless the same edit removes that file (a move).
    fn check_unused(
        &self,
        added: &[(u8, Arc<FileMeta>)],
        removed: &[(u8, FileNumber)],
    ) -> Result<(), String> {
        let mut numbers: Vec<FileNumber> = added.iter().map(|(_, file)| file.number).collect();
        numbers.sort_unstable();
        if let Some(pair) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("file {} is to be added twice", pair[0]));
        }
        let (Some(lowest), Some(highest)) = (numbers.first(), numbers.last()) else {
            return Ok(());
        };
        let mut gone: Vec<(u8, FileNumber)> = removed.to_vec();
        gone.sort_unstable();
        for (n, level) in self.places() {
            for number in level.numbers() {
                if (lowest..=highest).contains(&number)
                    && numbers.binary_search(number).is_ok()
                    && gone.binary_search(&(n, *number)).is_err()
                {
                    let place = place_name(n);
                    return Err(format!("file {number} is to be added and is in {place} already"));
                }
            }
        }
        Ok(())
    }
}

/// Levels, and the place of checkpoints of the hot table.
const PLACE_COUNT: usize = LEVEL_COUNT + 1;

/// How people call a level, or the place of checkpoints of the hot table.
pub(crate) fn place_name(level: u8) -> String {
    match level {
        HOT_LEVEL => "hot".into(),
        level => format!("L{level}"),
    }
}

fn at_level<T>(per_level: &mut [T; PLACE_COUNT], level: u8) -> Result<&mut T, String> {
    per_level.get_mut(usize::from(level)).ok_or_else(|| format!("there is no level L{level}"))
}

fn check_file(file: &FileMeta) -> Result<(), String> {
    let number = file.number;
    let empty = file.largest_exclusive && file.smallest == file.largest;
    if file.smallest > file.largest || empty {
        return Err(format!("the bounds of file {number} are not in order"));
    }
    // The record could not be read again.
    if file.smallest.len().max(file.largest.len()) > MAX_KEY_BYTES {
        return Err(format!("a bound of file {number} is longer than any key"));
    }
    if file.smallest_seqno > file.largest_seqno || file.largest_seqno > MAX_SEQNO {
        return Err(format!("the sequence numbers of file {number} are not in order"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_is_longer_than_any_key_is_refused() {
        for (bytes, fits) in [(MAX_KEY_BYTES, true), (MAX_KEY_BYTES + 1, false)] {
            let (smallest, largest) = (b"a".to_vec(), vec![b'b'; bytes]);
            let file =
                FileMeta { number: FileNumber::new(7), smallest, largest, ..Default::default() };
            let edit = FamilyEdit { added: vec![(0, file)], ..FamilyEdit::default() };
            assert_eq!(Version::empty().apply(&edit).is_ok(), fits, "{bytes}");
        }
    }

    #[test]
    fn files_that_move_stay_the_same() {
        let before = Version::parse_shape(
            "L0: 12:[a-b] 10B  9:[c-d] 10B\nL1: 5:[a-b] 10B  6:[c-d] 10B\nL3: 7:[p-q] 10B",
        );
        let before = before.unwrap();
        let file = |version: &Version, number: u64| -> Arc<FileMeta> {
            let number = FileNumber::new(number);
            version.all_files().find(|(_, file)| file.number == number).unwrap().1.clone()
        };
        let mut other = (*file(&before, 6)).clone();
        other.size_bytes += 1;
        let moved = |level: u8, number: u64| (level, (*file(&before, number)).clone());
        let fresh = FileMeta { number: FileNumber::new(20), ..(*file(&before, 7)).clone() };
        let edit = FamilyEdit {
            added: vec![moved(3, 9), moved(2, 5), (2, other), (3, fresh)],
            removed: [(1, 6), (3, 7), (0, 9), (1, 5)]
                .map(|(level, number)| (level, FileNumber::new(number)))
                .to_vec(),
            ..FamilyEdit::default()
        };
        let after = before.apply(&edit).unwrap();
        for (number, is_same) in [(12, true), (9, true), (5, true), (6, false)] {
            let is_shared = Arc::ptr_eq(&file(&before, number), &file(&after, number));
            assert_eq!(is_shared, is_same, "file {number}");
        }
        assert_eq!((after.level(1).len(), after.level(2).len(), after.level(3).len()), (0, 2, 2));
        // One that is not where it is to be taken from.
        let elsewhere = vec![(1, FileNumber::new(12))];
        let edit = FamilyEdit { added: vec![moved(4, 12)], removed: elsewhere, ..edit };
        assert!(before.apply(&edit).is_err());
    }

    #[test]
    fn files_that_were_there_before_are_shared() {
        let before =
            Version::parse_shape("L0: 12:[a-b] 10B  9:[c-d] 10B\nL1: 5:[a-b] 10B").unwrap();
        let shape = "L0: 12:[a-b] 10B  9:[c-d] 11B\nL2: 5:[a-b] 10B  7:[c-d] 10B";
        let mut after = Version::parse_shape(shape).unwrap();
        let unshared = after.clone();
        after.share_files(&before);
        assert_eq!(after, unshared);
        let find = |version: &Version, number: u64| -> Arc<FileMeta> {
            let number = FileNumber::new(number);
            version.all_files().find(|(_, file)| file.number == number).unwrap().1.clone()
        };
        for (number, is_shared) in [(12, true), (5, true), (9, false)] {
            let is_same = Arc::ptr_eq(&find(&before, number), &find(&after, number));
            assert_eq!(is_same, is_shared, "file {number}");
        }
    }

    #[test]
    fn a_checkpoint_of_the_hot_table_is_a_file_of_no_level() {
        let parsed = Version::parse_shape("L0: 12:[a-b] 10B  9:[c-d] 10B").unwrap();
        let file = FileMeta {
            number: FileNumber::new(11),
            ..(**parsed.level(0).files().first().unwrap()).clone()
        };
        let add = FamilyEdit { added: vec![(HOT_LEVEL, file.clone())], ..FamilyEdit::default() };
        let with = parsed.apply(&add).unwrap();
        assert_eq!((with.file_count(), with.level(0).len(), with.hot().len()), (3, 2, 1));
        assert!(with.files().all(|(level, file)| level == 0 && file.number != FileNumber::new(11)));
        let last = with.all_files().last().unwrap();
        assert_eq!((last.0, last.1.number), (HOT_LEVEL, FileNumber::new(11)));
        assert!(with.apply(&add).unwrap_err().contains("is in hot already"));
        let remove =
            FamilyEdit { removed: vec![(HOT_LEVEL, FileNumber::new(11))], ..FamilyEdit::default() };
        assert_eq!(with.apply(&remove).unwrap(), parsed);
    }
}
