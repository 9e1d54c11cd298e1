//! The files that may hold a key, newest run first (get).

use crate::version::read_state::ReadState;
use terrace_manifest::FileMeta;
use terrace_sst::{BlockPlace, RunPlace};

/// A file that may hold a key, and its place in the version.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub level: usize,
    pub index: usize,
    pub file: &'a FileMeta,
    /// The block, if a model of the level chose the file.
    pub block: Option<BlockPlace>,
}

impl Run<'_> {
    /// Where it is, for an observer.
    #[inline]
    pub fn place(&self) -> RunPlace {
        RunPlace {
            level: self.level,
            index: self.index,
            file_number: self.file.number,
            by_level_model: self.block.is_some(),
        }
    }
}

/// The files of a version that may hold a key, newest run first.
pub(super) struct Candidates<'a> {
    state: &'a ReadState,
    key: &'a [u8],
    level: usize,
    index: usize,
}

impl<'a> Candidates<'a> {
    pub fn new(state: &'a ReadState, key: &'a [u8]) -> Self {
        Self { state, key, level: 0, index: 0 }
    }
}

impl<'a> Iterator for Candidates<'a> {
    type Item = Run<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let levels = self.state.version.levels();
        if self.level == 0 {
            while let Some(file) = levels.first()?.files().get(self.index) {
                let index = self.index;
                self.index += 1;
                if file.contains(self.key) {
                    return Some(Run { level: 0, index, file, block: None });
                }
            }
            self.level = 1;
        }
        while let Some(level) = levels.get(self.level) {
            let number = self.level;
            self.level += 1;
            if let Some(model) = &self.state.level_models[number]
                && let Some(place) = model.locate(self.key)
                && let Some(file) = level.files().get(place.file)
            {
                let block = Some(place.guess);
                return Some(Run { level: number, index: place.file, file, block });
            }
            if let Some(index) = level.find(self.key) {
                let file = level.files().get(index)?;
                return Some(Run { level: number, index, file, block: None });
            }
        }
        None
    }
}
