//! What can go wrong with a dump.

use std::io;

/// The result of every call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a dump was not written, or not restored.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The dump could not be read or written.
    Io(io::Error),
    /// The store could not be read or written.
    Store(terrace::Error),
    /// The bytes do not begin as a dump does.
    NoDump,
    /// A dump of a version that this build does not read, or what a dump cannot hold.
    Unsupported(String),
    /// The dump ends early.
    Cut,
    /// The bytes are not those that were written, or do not make sense.
    Damaged {
        /// Where in the dump the damaged chunk or header begins.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Store(error) => write!(f, "{error}"),
            Self::NoDump => f.write_str("this is no dump of a Terrace store"),
            Self::Unsupported(what) => f.write_str(what),
            Self::Cut => f.write_str("the dump is cut off"),
            Self::Damaged { offset, what } => {
                write!(f, "the dump is damaged at offset {offset}: {what}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Cut,
            _ => Self::Io(error),
        }
    }
}

impl From<terrace::Error> for Error {
    fn from(error: terrace::Error) -> Self {
        Self::Store(error)
    }
}
