//! How far keys were looked for by a call that may not read (multi_get): if it is given up, what it has counted as heat
//! is taken back, since it is going to be repeated.

use crate::version::read_state::ReadState;
use terrace_sst::Lookup;

/// A key was looked for in all runs before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    level: usize,
    /// Of the file in its level; of a sorted level it counts only if the key was found.
    index: usize,
    /// Whether the key was looked for in this run too, and found.
    is_found: bool,
}

impl Reached {
    /// No run was asked.
    pub const NONE: Self = Self::before(0, 0);
    /// All runs were asked.
    pub const ALL: Self = Self::before(usize::MAX, 0);

    pub const fn before(level: usize, index: usize) -> Self {
        Self { level, index, is_found: false }
    }

    pub const fn found_in(level: usize, index: usize) -> Self {
        Self { level, index, is_found: true }
    }

    /// Takes back what the runs have counted for the key.
    #[cold]
    pub fn take_back(self, state: &ReadState, lookup: &Lookup<'_>) {
        let take_back = |level: usize, index: usize, is_found: bool| {
            let reader = state.slots.at(level, index).open_reader();
            if let Some(reader) = reader.as_ref() {
                reader.take_back(lookup, is_found);
            }
        };
        let levels = state.version.levels();
        let l0_files = if self.level == 0 { self.index } else { usize::MAX };
        for (index, file) in levels[0].files().iter().enumerate().take(l0_files) {
            if file.contains(lookup.user_key) {
                take_back(0, index, false);
            }
        }
        for (number, level) in levels.iter().enumerate().take(self.level).skip(1) {
            if let Some(index) = level.find(lookup.user_key) {
                take_back(number, index, false);
            }
        }
        if self.is_found {
            take_back(self.level, self.index, true);
        }
    }
}
