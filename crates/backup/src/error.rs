//! What can go wrong with backups.

use std::path::PathBuf;

/// The result of every call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a backup was not made, read or restored.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written, or the store gave an error.
    Store(terrace::Error),
    /// The directory does not hold backups, and is not empty.
    NotBackups(PathBuf),
    /// Another process works with these backups.
    Busy(PathBuf),
    /// There is no backup with this number.
    NoSuchBackup(u64),
    /// A record or a file is not what was written.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The target of a restore exists and is not an empty directory.
    TargetNotEmpty(PathBuf),
    /// A restore cannot be made there, for the reason given: the target has no name, or a store has it for its own use, or where
    /// it is filled first there are other files, or another restore.
    Target(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => write!(f, "{error}"),
            Self::NotBackups(dir) => write!(
                f,
                "{} is not empty and holds no backups; name a new directory",
                dir.display()
            ),
            Self::Busy(dir) => {
                write!(f, "another process works with the backups in {}", dir.display())
            }
            Self::NoSuchBackup(id) => write!(f, "there is no backup {id}"),
            Self::Damaged { path, what } => write!(f, "{} is damaged: {what}", path.display()),
            Self::TargetNotEmpty(dir) => write!(
                f,
                "{} is not empty; a backup is restored into a new or an empty directory",
                dir.display()
            ),
            Self::Target(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<terrace::Error> for Error {
    fn from(error: terrace::Error) -> Self {
        Self::Store(error)
    }
}

impl From<terrace_vfs::Error> for Error {
    fn from(error: terrace_vfs::Error) -> Self {
        Self::Store(error.into())
    }
}
