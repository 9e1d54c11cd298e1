//! Exceptions: one class per kind of error, all below `terracedb.Error`.

use crate::callbacks::take_raised;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use terrace_binding::{Code, Failure};

create_exception!(terracedb, Error, PyException, "What a store could not do.");

macro_rules! kinds {
    ($($class:ident $code:ident $text:literal;)*) => {
        $(create_exception!(terracedb, $class, Error, $text);)*

        /// The exception of a failure.
        fn exception(failure: Failure) -> PyErr {
            match failure.code {
                $(Code::$code => $class::new_err(failure.message),)*
                Code::Panic | Code::Other => Error::new_err(failure.message),
            }
        }

        /// Adds every class to the module.
        pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
            let py = module.py();
            module.add("Error", py.get_type::<Error>())?;
            $(module.add(stringify!($class), py.get_type::<$class>())?;)*
            Ok(())
        }
    };
}

kinds! {
    CorruptionError Corruption "Bytes on disk are not what was written.";
    IoError Io "The operating system refused an operation on a file.";
    DiskFullError DiskFull "The file system is full; reads go on.";
    PoisonedError Poisoned "Writes are refused until the store is opened again.";
    WriteStoppedError WriteStopped "Writes wait for background work that fails.";
    ReadOnlyError ReadOnly "The store was opened read-only.";
    ConflictError Conflict "A key that the transaction read has been written since.";
    InvalidArgumentError InvalidArgument "A key, value, batch or option is outside the limits.";
    LockedError Locked "The store is open elsewhere.";
    NotAStoreError NotAStore "The directory holds no store.";
    NoSuchFamilyError NoSuchFamily "There is no column family of this name.";
    UnsupportedError Unsupported "A file of a format version that this build does not read, or encrypted otherwise than the keys given say.";
    NotInMemoryError NotInMemory "The read needs the device.";
    OutdatedError Outdated "A read-only store lacks a file that its writer has removed.";
    ClosedError Closed "The store, batch, transaction or snapshot was closed.";
    ForkedError Forked "The object is of the process that this one was forked from.";
    UpdatesGoneError UpdatesGone "The log does not hold these updates any more; `oldest` is the first that there is.";
    MergeFailedError MergeFailed "The merge operator refused the operands of a key, which stay.";
}

/// The exception of what failed.
#[cold]
pub fn raise(failure: impl Into<Failure>) -> PyErr {
    let failure = failure.into();
    // A merge that failed on this thread, if it was one of Python's.
    let cause = if failure.code == Code::MergeFailed { take_raised() } else { None };
    raise_with(failure, cause)
}

/// As [`raise`], with what a merge operator of Python raised, if it was a merge that failed.
#[cold]
pub fn raise_with(failure: impl Into<Failure>, cause: Option<PyErr>) -> PyErr {
    let failure = failure.into();
    let cause = cause.filter(|_| failure.code == Code::MergeFailed);
    let raised = exception(failure);
    if cause.is_some() {
        Python::attach(|py| raised.set_cause(py, cause));
    }
    raised
}

/// As [`raise`]; the exception of updates that are gone knows the `oldest` that there is.
#[cold]
pub fn raise_error(error: terrace::Error) -> PyErr {
    let oldest = match &error {
        terrace::Error::UpdatesGone { oldest, .. } => Some(*oldest),
        _ => None,
    };
    let raised = raise(error);
    let Some(oldest) = oldest else { return raised };
    match Python::attach(|py| raised.value(py).setattr("oldest", oldest)) {
        Ok(()) => raised,
        Err(error) => error,
    }
}

/// The exception of using what has ended.
#[cold]
pub fn ended(what: &str) -> PyErr {
    ClosedError::new_err(format!("the {what} has ended"))
}
