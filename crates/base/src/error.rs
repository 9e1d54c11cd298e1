//! What went wrong and where: operation and file for I/O, file and offset for damaged bytes.

use std::io;
use std::path::{Path, PathBuf};

/// The result of anything that reads or writes files.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the lower floors. The engine regroups them by what its caller can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation.
    #[error("{op} {}: {source}", path.display())]
    Io {
        /// The operation: `open`, `read`, `sync`...
        op: &'static str,
        /// The file it was for.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Bytes are not what was written, or not what this format allows.
    #[error("{} is damaged at offset {offset}: {detail}", path.display())]
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where the damaged block, record or field starts.
        offset: u64,
        /// What was expected and what was found.
        detail: String,
    },
    /// The file is sound but of a format version that this build does not read.
    #[error("{}: {detail}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Which version it has and which this build reads.
        detail: String,
    },
    /// The caller asked for something outside the limits.
    #[error("{0}")]
    InvalidArgument(String),
    /// A read that was to make do with memory needs the device.
    #[error("what is read is not in memory")]
    NotInMemory,
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

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether bytes on disk are damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corruption { .. })
    }
}
