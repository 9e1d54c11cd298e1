//! One piece of damage: which file, where, and what.

use std::fmt;
use std::path::{Path, PathBuf};
use terrace_base::Error;

/// Something in a store that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file concerned.
    pub path: PathBuf,
    /// Where in the file, if it is about bytes.
    pub offset: Option<u64>,
    /// What was expected and what was found.
    pub detail: String,
}

impl Problem {
    /// A problem of a file as a whole.
    pub(crate) fn of(path: &Path, detail: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), offset: None, detail: detail.into() }
    }

    /// What an error of the lower floors says; `path` is for those that name no file.
    pub(crate) fn from_error(error: &Error, path: &Path) -> Self {
        match error {
            Error::Corruption { path, offset, detail } => {
                Self { path: path.clone(), offset: Some(*offset), detail: detail.clone() }
            }
            Error::Io { op, path, source } => Self::of(path, format!("cannot {op}: {source}")),
            Error::Unsupported { path, detail } => Self::of(path, detail.clone()),
            other => Self::of(path, other.to_string()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        write!(f, ": {}", self.detail)
    }
}
