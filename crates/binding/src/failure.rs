//! An error as it crosses the boundary to another language: a code and a message. A panic becomes one,
//! too.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace::Error;
use terrace_base::caught::message_of;

/// The result of what a binding does.
pub type Outcome<T> = Result<T, Failure>;

/// What kind of error it is. The numbers are part of the C interface and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Code {
    /// Bytes on disk are not what was written.
    Corruption = 1,
    /// The operating system refused an operation on a file.
    Io = 2,
    /// The file system is full.
    DiskFull = 3,
    /// Writes are refused until the store is opened again.
    Poisoned = 4,
    /// Writes wait for background work that fails.
    WriteStopped = 5,
    /// The store was opened read-only.
    ReadOnly = 6,
    /// A key that a transaction read has been written since.
    Conflict = 7,
    /// A key, value, batch, option or argument is outside the limits.
    InvalidArgument = 8,
    /// The store is open elsewhere.
    Locked = 9,
    /// The directory holds no store.
    NotAStore = 10,
    /// There is no column family of this name.
    NoSuchFamily = 11,
    /// A file of a format version that this build does not read, or one that is encrypted with a key that was not given, or
    /// that is not encrypted while keys were given.
    Unsupported = 12,
    /// The read needs the device and was told not to.
    NotInMemory = 13,
    /// A read-only store lacks a file that its writer has removed.
    Outdated = 14,
    /// The store was closed.
    Closed = 15,
    /// A defect of the library: it panicked.
    Panic = 16,
    /// The handle is of the process that this one was forked from.
    Forked = 17,
    /// An error that this version of the bindings does not know.
    Other = 18,
    /// The log does not hold these updates any more.
    UpdatesGone = 19,
    /// The merge operator refused the operands of a key.
    MergeFailed = 20,
}

/// An error for a caller in another language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of error it is.
    pub code: Code,
    /// What went wrong and what to do about it.
    pub message: String,
}

impl Failure {
    /// A refusal of what the caller passed.
    pub fn argument(message: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, message: message.into() }
    }

    /// The failure of every call in a process that was forked from the one that made the handle.
    #[cold]
    pub fn forked() -> Self {
        let message = "the handle was made before a fork; open the store in a process that was started by \
                       exec (in Python the spawn method), read-only if the other process has it open";
        Self { code: Code::Forked, message: message.into() }
    }

    #[cold]
    fn panic(payload: Box<dyn Any + Send>) -> Self {
        let text = message_of(payload);
        let message = format!("the library panicked, which is a defect of it: {text}");
        Self { code: Code::Panic, message }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Corruption(_) => Code::Corruption,
            Error::Io(_) => Code::Io,
            Error::DiskFull(_) => Code::DiskFull,
            Error::Poisoned(_) => Code::Poisoned,
            Error::WriteStopped(_) => Code::WriteStopped,
            Error::ReadOnly(_) => Code::ReadOnly,
            Error::Conflict => Code::Conflict,
            Error::InvalidArgument(_) => Code::InvalidArgument,
            Error::Locked(_) => Code::Locked,
            Error::NotAStore { .. } => Code::NotAStore,
            Error::NoSuchFamily(_) => Code::NoSuchFamily,
            Error::Unsupported(_) => Code::Unsupported,
            Error::NotInMemory => Code::NotInMemory,
            Error::Outdated(_) => Code::Outdated,
            Error::Closed => Code::Closed,
            Error::UpdatesGone { .. } => Code::UpdatesGone,
            Error::MergeFailed(_) => Code::MergeFailed,
            _ => Code::Other,
        };
        Self { code, message: error.to_string() }
    }
}

/// Runs `work`; a panic in it is a [`Failure`] and goes no further. What `work` had begun to change may
/// be half done: the engine poisons a store whose state is not known, a handle is the caller's to drop.
pub fn guard<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome,
        Err(payload) => Err(Failure::panic(payload)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Bomb);
        }
    }

    #[test]
    fn a_panic_is_a_failure_with_its_message() {
        let failure = guard::<()>(|| panic!("of {}", 7)).unwrap_err();
        assert_eq!(failure.code, Code::Panic);
        assert!(failure.message.ends_with("of 7"), "{failure}");
        let failure = guard::<()>(|| std::panic::panic_any(7)).unwrap_err();
        assert!(failure.message.ends_with("no message"), "{failure}");
        let failure = guard::<()>(|| std::panic::panic_any(Bomb)).unwrap_err();
        assert!(failure.message.ends_with("no message"), "{failure}");
        assert_eq!(guard(|| Ok(3)), Ok(3));
    }

    #[test]
    fn errors_of_the_engine_keep_kind_and_text() {
        let failure = Failure::from(Error::NoSuchFamily("x".into()));
        assert_eq!(failure.code, Code::NoSuchFamily);
        assert_eq!(failure.message, Error::NoSuchFamily("x".into()).to_string());
        assert_eq!(Failure::from(Error::Conflict).code as i32, 7);
        let gone = Failure::from(Error::UpdatesGone { since: 3, oldest: 17 });
        assert_eq!((gone.code, gone.code as i32), (Code::UpdatesGone, 19));
        assert!(gone.message.contains("17"), "{gone}");
        assert_eq!(Failure::from(Error::MergeFailed("no".into())).code as i32, 20);
    }
}
