//! The engine's errors, grouped by what the caller can do about them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The result of every engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller can meet. Absence of a key is not an error: it is `Ok(None)`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// Bytes on disk are not what was written. Reads elsewhere go on; restore from a checkpoint,
    /// look at the damage with `terrace verify` and `terrace inspect`, or save the rest with [`repair`](crate::repair()).
    Corruption(Arc<terrace_base::Error>),
    /// The operating system refused an operation on a file.
    Io(Arc<terrace_base::Error>),
    /// The file system is full. Reads go on; writes resume by themselves when there is room.
    DiskFull(Arc<terrace_base::Error>),
    /// An earlier failure made it unsafe to write on; reads go on. Reopen the store to recover.
    Poisoned(Arc<terrace_base::Error>),
    /// Writes wait for background work that fails again and again: L0 is full and cannot be
    /// merged, say because of a damaged file, or memtables cannot be flushed. Reads go on; writes
    /// resume by themselves once that work succeeds. A damaged file has to be restored.
    WriteStopped(Box<Error>),
    /// The store was opened read-only.
    ReadOnly(PathBuf),
    /// A key that was read has a newer version, so what depends on it was not written. Nothing is
    /// wrong: read again, decide again, write again.
    Conflict,
    /// A key, value, batch or option is outside the limits.
    InvalidArgument(String),
    /// The merge operator of a column family refused the operands of a key. Nothing is lost: they stay
    /// until a read or a compaction succeeds with them, or the key is overwritten or deleted.
    MergeFailed(String),
    /// Another process, or another `Db` of this one, has the store open.
    Locked(PathBuf),
    /// The directory does not hold a store.
    NotAStore {
        /// The directory.
        dir: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// There is no column family of this name (or it was dropped).
    NoSuchFamily(String),
    /// The file is of a format version this build does not read, or it is encrypted and its key is not given, or it is
    /// not and keys are.
    Unsupported(Arc<terrace_base::Error>),
    /// A read with [`ReadOptions::in_memory`](crate::ReadOptions::in_memory) needs the device, or, of an iterator, would pass
    /// more than [`MAX_STEPPED_OVER_IN_MEMORY`](crate::MAX_STEPPED_OVER_IN_MEMORY) keys. It has read nothing; repeat it
    /// without the option where waiting is allowed.
    NotInMemory,
    /// The store is open read-only, and the process that writes has removed a file that is needed
    /// here. [`Db::refresh`](crate::Db::refresh) it, or open it again.
    Outdated(Arc<terrace_base::Error>),
    /// The log does not hold these updates any more: it keeps what
    /// [`log_retention_bytes`](crate::AdvancedOptions::log_retention_bytes) allows, and an open feed keeps what it has
    /// not read unless the disk is full. Copy the store anew and go on from there.
    UpdatesGone {
        /// The sequence number that was to come next.
        since: u64,
        /// The oldest sequence number from which on every update is in the log.
        oldest: u64,
    },
    /// The store was closed.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corruption(error) => write!(
                f,
                "{error}; restore this file from a checkpoint or run `terrace verify` to see the extent"
            ),
            Self::Io(error) | Self::Unsupported(error) => write!(f, "{error}"),
            Self::DiskFull(error) => {
                write!(f, "the disk is full, writes wait for room and reads go on ({error})")
            }
            Self::Poisoned(error) => write!(
                f,
                "writes are refused after an earlier failure; reopen the store to recover ({error})"
            ),
            Self::WriteStopped(error) => {
                write!(f, "writes are stopped because background work fails: {error}")
            }
            Self::ReadOnly(dir) => write!(f, "the store at {} is open read-only", dir.display()),
            Self::Conflict => {
                f.write_str("a key that was read has been written since; run the transaction again")
            }
            Self::InvalidArgument(text) | Self::MergeFailed(text) => f.write_str(text),
            Self::Locked(dir) => write!(
                f,
                "the store at {} is open elsewhere; close it there, or open it read-only here",
                dir.display()
            ),
            Self::NotAStore { dir, why } => {
                write!(f, "{} holds no Terrace store ({why}); check the path", dir.display())
            }
            Self::NoSuchFamily(name) => {
                write!(f, "there is no column family `{name}`; create it first")
            }
            Self::NotInMemory => f.write_str(
                "the read needs the device or a long walk; repeat it without `in_memory`",
            ),
            Self::Outdated(error) => {
                write!(f, "{error}; refresh the read-only store or open it again")
            }
            Self::UpdatesGone { since, oldest } => write!(
                f,
                "updates from {since} on are not in the log any more; the oldest there is {oldest}"
            ),
            Self::Closed => f.write_str("the store is closed"),
        }
    }
}

impl std::error::Error for Error {}

/// How bad it is that background work failed; the names are RocksDB's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorSeverity {
    /// The job is tried again after a pause, and everything else goes on.
    Soft,
    /// Writes other than deletions are refused until the cause has passed; then they resume by
    /// themselves.
    Hard,
    /// Writes are refused until the store is opened again.
    Fatal,
}

impl ErrorSeverity {
    /// The name in events and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Hard => "hard",
            Self::Fatal => "fatal",
        }
    }
}

impl Error {
    /// How bad it is if background work ends with this error.
    pub fn severity(&self) -> ErrorSeverity {
        match self {
            Self::DiskFull(_) => ErrorSeverity::Hard,
            Self::Poisoned(_) => ErrorSeverity::Fatal,
            _ => ErrorSeverity::Soft,
        }
    }
}

impl From<terrace_base::Error> for Error {
    fn from(error: terrace_base::Error) -> Self {
        let no_space = error.is_no_space();
        match error {
            terrace_base::Error::InvalidArgument(text) => Self::InvalidArgument(text),
            terrace_base::Error::MergeFailed(text) => Self::MergeFailed(text),
            terrace_base::Error::NotInMemory => Self::NotInMemory,
            terrace_base::Error::Corruption { .. } => Self::Corruption(Arc::new(error)),
            terrace_base::Error::Removed { .. } => Self::Outdated(Arc::new(error)),
            terrace_base::Error::Unsupported { .. } => Self::Unsupported(Arc::new(error)),
            _ if no_space => Self::DiskFull(Arc::new(error)),
            _ => Self::Io(Arc::new(error)),
        }
    }
}
