//! What went wrong and where: operation and file for I/O, file and offset for damaged bytes.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of anything that reads or writes files.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the lower floors. The engine regroups them by what its caller can do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation.
    Io {
        /// The operation: `open`, `read`, `sync`...
        op: &'static str,
        /// The file it was for.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Bytes are not what was written, or not what this format allows.
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where the damaged block, record or field starts.
        offset: u64,
        /// What was expected and what was found.
        detail: String,
    },
    /// The file is sound but of a format version that this build does not read.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Which version it has and which this build reads.
        detail: String,
    },
    /// A file that another process has removed, which was free to do so.
    Removed {
        /// The file.
        path: PathBuf,
    },
    /// The caller asked for something outside the limits.
    InvalidArgument(String),
    /// A merge operator refused the operands of a key, or there is none.
    MergeFailed(String),
    /// A read that was to make do with memory needs the device.
    NotInMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { op, path, source } => write!(f, "{op} {}: {source}", path.display()),
            Self::Corruption { path, offset, detail } => {
                write!(f, "{} is damaged at offset {offset}: {detail}", path.display())
            }
            Self::Unsupported { path, detail } => write!(f, "{}: {detail}", path.display()),
            Self::Removed { path } => {
                write!(f, "{} was removed by the process that writes the store", path.display())
            }
            Self::InvalidArgument(text) | Self::MergeFailed(text) => f.write_str(text),
            Self::NotInMemory => f.write_str("what is read is not in memory"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error {
    /// An I/O error of `op` on `path`.
    pub fn io(op: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { op, path: path.to_path_buf(), source }
    }

    /// Damaged bytes at `offset` of `path`.
    pub fn corruption(path: &Path, offset: u64, detail: impl Into<String>) -> Self {
        Self::Corruption { path: path.to_path_buf(), offset, detail: detail.into() }
    }

    /// Whether the file system is full (or a quota is reached).
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// Whether the system was short of something other than disk space (descriptors, memory) or
    /// was interrupted: nothing was done, nothing is lost, and the same call may succeed later.
    /// Never true of a failed sync.
    pub fn is_transient(&self) -> bool {
        /// `ENFILE` and `EMFILE`, for which `io::ErrorKind` has no name: the same on every Unix.
        const NO_DESCRIPTORS: [i32; 2] = [23, 24];
        let Self::Io { source, .. } = self else { return false };
        let passes =
            matches!(
                source.kind(),
                io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
            ) || source.raw_os_error().is_some_and(|errno| NO_DESCRIPTORS.contains(&errno));
        passes && !self.is_failed_sync()
    }

    /// Whether a sync of a file or directory was asked for and failed, so that it is unknown what
    /// the device holds. A file or directory that could not even be opened was not synced, which is
    /// something else.
    pub fn is_failed_sync(&self) -> bool {
        matches!(self, Self::Io { op, .. } if op.starts_with("sync"))
    }

    /// The file it is about, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::Corruption { path, .. }
            | Self::Unsupported { path, .. }
            | Self::Removed { path } => Some(path),
            Self::InvalidArgument(_) | Self::MergeFailed(_) | Self::NotInMemory => None,
        }
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether a file was to be made that is there.
    pub fn is_already_there(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Whether bytes on disk are damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corruption { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_descriptors_passes_and_a_failed_sync_does_not() {
        let error =
            |op, errno| Error::io(op, Path::new("/db"), io::Error::from_raw_os_error(errno));
        const ENOMEM: i32 = 12;
        const EIO: i32 = 5;
        for errno in [23, 24, ENOMEM] {
            assert!(error("open", errno).is_transient());
            assert!(!error("sync directory", errno).is_transient());
            assert!(error("sync directory", errno).is_failed_sync());
        }
        assert!(!error("open", EIO).is_transient() && !error("open", EIO).is_failed_sync());
        assert_eq!(error("open", EIO).path(), Some(Path::new("/db")));
    }

    #[test]
    fn an_error_of_the_system_is_the_source_and_its_file_is_named() {
        use std::error::Error as _;
        let error = Error::io("open", Path::new("/db/a"), io::Error::other("no such luck"));
        assert_eq!(error.to_string(), "open /db/a: no such luck");
        assert_eq!(error.source().map(ToString::to_string), Some("no such luck".to_string()));
        let damage = Error::corruption(Path::new("/db/a"), 7, "a checksum differs");
        assert_eq!(damage.to_string(), "/db/a is damaged at offset 7: a checksum differs");
        assert!(damage.source().is_none());
    }
}
