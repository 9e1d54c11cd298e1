//! What is wrong with a store: which file, where, and what.

use std::fmt;
use std::path::{Path, PathBuf};
use terrace_base::Error;
use terrace_sst::is_damage;

/// Something in a store that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file concerned.
    pub path: PathBuf,
    /// Where in the file, if it is about bytes.
    pub offset: Option<u64>,
    /// What was expected and what was found.
    pub detail: String,
    /// It may be sound, but could not be looked at: its key is missing, it is of another version, there were no rights or
    /// descriptors.
    pub is_unread: bool,
}

impl Problem {
    /// A problem of a file as a whole.
    pub(crate) fn of(path: &Path, detail: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), offset: None, detail: detail.into(), is_unread: false }
    }

    /// How a line about it begins.
    pub(crate) fn heading(&self) -> &'static str {
        if self.is_unread { "NOT CHECKED" } else { "DAMAGE" }
    }

    /// What an error of the lower floors says; `path` is for those that name no file.
    pub(crate) fn from_error(error: &Error, path: &Path) -> Self {
        let is_unread = !is_damage(error) && !error.is_not_found();
        let problem = match error {
            Error::Corruption { path, offset, detail } => {
                Self { offset: Some(*offset), ..Self::of(path, detail.clone()) }
            }
            Error::Io { op, path, source } => Self::of(path, format!("cannot {op}: {source}")),
            Error::Unsupported { path, detail } => Self::of(path, detail.clone()),
            other => Self::of(path, other.to_string()),
        };
        Self { is_unread, ..problem }
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
