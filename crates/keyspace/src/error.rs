//! What a command on the keyspace can meet.

/// The result of every call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command did not do what it was asked for. A command that fails has changed nothing.
///
/// The texts are Redis's where it has the same error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine's.
    #[error("{0}")]
    Engine(terrace::Error),
    /// The key holds a value of another type.
    #[error("Operation against a key holding the wrong kind of value")]
    WrongType,
    /// The command cannot be run in [`Mode::Memory`](crate::Mode::Memory) now: to be run again in
    /// [`Mode::Device`](crate::Mode::Device), where it may wait.
    #[error("the command has to wait ({0:?})")]
    Elsewhere(Wait),
    /// A value, or an argument, is no integer of 64 bits.
    #[error("value is not an integer or out of range")]
    NotAnInteger,
    /// A hash's value is no integer.
    #[error("hash value is not an integer")]
    HashValueNotAnInteger,
    /// A value, or an argument, is no finite number.
    #[error("value is not a valid float")]
    NotAFloat,
    /// A hash's value is no finite number.
    #[error("hash value is not a float")]
    HashValueNotAFloat,
    /// The sum does not fit into 64 bits.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// The sum is no finite number.
    #[error("increment would produce NaN or Infinity")]
    NotFinite,
    /// The sum of a score is no number.
    #[error("resulting score is not a number (NaN)")]
    ScoreNotANumber,
    /// A key, member, field or value is longer than the engine takes.
    #[error("{0}")]
    TooLong(String),
    /// A list has no element at this index.
    #[error("index out of range")]
    IndexOutOfRange,
    /// A cursor that was given out too long ago, or never.
    #[error("this cursor is not known any more, begin again with 0")]
    UnknownCursor,
    /// The store holds something else than a keyspace of this build.
    #[error("{0}")]
    OtherStore(String),
    /// The key does not exist.
    #[error("no such key")]
    NoSuchKey,
}

/// What a command would have to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Bytes that are not in memory.
    Device,
    /// Another batch that is writing the same key.
    Key,
    /// Elements or bytes, too many for others to wait until they have been looked at, or written.
    Walk,
}

impl Error {
    /// Whether there was no room on the disk for what was to be written.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Engine(terrace::Error::DiskFull(_)))
    }
}

impl From<terrace::Error> for Error {
    fn from(error: terrace::Error) -> Self {
        match error {
            terrace::Error::NotInMemory => Self::Elsewhere(Wait::Device),
            error => Self::Engine(error),
        }
    }
}
