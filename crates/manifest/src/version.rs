//! The live files of one column family at one moment. Immutable; an edit makes a new one.

use crate::edit::FamilyEdit;
use crate::level::Level;

/// Levels L0..L6.
pub const LEVEL_COUNT: usize = 7;

/// The live files of one column family.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {}

impl Default for Version {
    fn default() -> Self {
        Self::empty()
    }
}

#[allow(unused_variables, clippy::todo)]
impl Version {
    /// No files.
    pub fn empty() -> Self {
        todo!()
    }

    /// All levels, L0 first; always [`LEVEL_COUNT`].
    pub fn levels(&self) -> &[Level] {
        todo!()
    }

    /// Level `n`, which must be below [`LEVEL_COUNT`].
    pub fn level(&self, n: usize) -> &Level {
        todo!()
    }

    /// The version after `edit`; says why if the edit does not fit this version: a removed file
    /// that is not there, a number already in use, files of a sorted level that overlap, bounds
    /// or sequence numbers that are not in order.
    pub fn apply(&self, edit: &FamilyEdit) -> Result<Self, String> {
        todo!()
    }

    /// Number of files.
    pub fn file_count(&self) -> usize {
        todo!()
    }

    /// Sum of the file lengths.
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }
}
