//! Errors by handle, and the boundary that every function of the interface runs in.

use std::ffi::{CString, c_char};
use std::ptr;
use terrace_binding::{Code, Failure, Outcome, guard};

/// Bytes on disk are not what was written. Restore from a checkpoint, or repair.
pub const TERRACE_CORRUPTION: i32 = 1;
/// The operating system refused an operation on a file.
pub const TERRACE_IO: i32 = 2;
/// The file system is full. Reads go on; writes resume by themselves when there is room.
pub const TERRACE_DISK_FULL: i32 = 3;
/// An earlier failure made it unsafe to write on. Open the store again.
pub const TERRACE_POISONED: i32 = 4;
/// Writes wait for background work that fails again and again.
pub const TERRACE_WRITE_STOPPED: i32 = 5;
/// The store was opened read-only.
pub const TERRACE_READ_ONLY: i32 = 6;
/// A key that the transaction read has been written since. Run it again.
pub const TERRACE_CONFLICT: i32 = 7;
/// A key, value, batch, option or argument is outside the limits, or NULL where it must not be.
pub const TERRACE_INVALID_ARGUMENT: i32 = 8;
/// The store is open elsewhere.
pub const TERRACE_LOCKED: i32 = 9;
/// The directory holds no store.
pub const TERRACE_NOT_A_STORE: i32 = 10;
/// There is no column family of this name, or it was dropped.
pub const TERRACE_NO_SUCH_FAMILY: i32 = 11;
/// A file of a format version that this build does not read, or one that is encrypted with a key that was not given, or
/// that is not encrypted while keys were given.
pub const TERRACE_UNSUPPORTED: i32 = 12;
/// The read needs the device, or passes thousands of keys that it does not show, and its options forbid that.
pub const TERRACE_NOT_IN_MEMORY: i32 = 13;
/// A read-only store lacks a file that its writer has removed. Refresh it.
pub const TERRACE_OUTDATED: i32 = 14;
/// The store was closed.
pub const TERRACE_CLOSED: i32 = 15;
/// A defect of the library; the message says what panicked.
pub const TERRACE_PANIC: i32 = 16;
/// The handle was made before a fork, by the other process.
pub const TERRACE_FORKED: i32 = 17;
/// An error of another kind.
pub const TERRACE_OTHER: i32 = 18;
/// The log does not hold these updates any more. Copy the store anew and go on from there.
pub const TERRACE_UPDATES_GONE: i32 = 19;
/// The merge operator refused the operands of a key. Nothing is lost: they stay.
pub const TERRACE_MERGE_FAILED: i32 = 20;

const _: () = {
    assert!(TERRACE_CORRUPTION == Code::Corruption as i32 && TERRACE_IO == Code::Io as i32);
    assert!(TERRACE_DISK_FULL == Code::DiskFull as i32);
    assert!(TERRACE_POISONED == Code::Poisoned as i32);
    assert!(TERRACE_WRITE_STOPPED == Code::WriteStopped as i32);
    assert!(TERRACE_READ_ONLY == Code::ReadOnly as i32);
    assert!(TERRACE_CONFLICT == Code::Conflict as i32);
    assert!(TERRACE_INVALID_ARGUMENT == Code::InvalidArgument as i32);
    assert!(TERRACE_LOCKED == Code::Locked as i32);
    assert!(TERRACE_NOT_A_STORE == Code::NotAStore as i32);
    assert!(TERRACE_NO_SUCH_FAMILY == Code::NoSuchFamily as i32);
    assert!(TERRACE_UNSUPPORTED == Code::Unsupported as i32);
    assert!(TERRACE_NOT_IN_MEMORY == Code::NotInMemory as i32);
    assert!(TERRACE_OUTDATED == Code::Outdated as i32);
    assert!(TERRACE_CLOSED == Code::Closed as i32 && TERRACE_PANIC == Code::Panic as i32);
    assert!(TERRACE_FORKED == Code::Forked as i32 && TERRACE_OTHER == Code::Other as i32);
    assert!(TERRACE_UPDATES_GONE == Code::UpdatesGone as i32);
    assert!(TERRACE_MERGE_FAILED == Code::MergeFailed as i32);
};

/// Why a function failed: a code and a message. The caller frees it.
pub struct Error {
    code: i32,
    message: CString,
}

/// What kind of error it is, one of the TERRACE_ codes above; 0 for NULL, which is success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_error_code(error: *const Error) -> i32 {
    // SAFETY: NULL, or a handle that lives.
    unsafe { error.as_ref() }.map_or(0, |error| error.code)
}

/// What went wrong and what to do about it, in English. It lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_error_message(error: *const Error) -> *const c_char {
    // SAFETY: NULL, or a handle that lives.
    unsafe { error.as_ref() }.map_or(c"success".as_ptr(), |error| error.message.as_ptr())
}

/// Frees an error. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_error_free(error: *mut Error) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(error) };
}

/// Runs one function of the interface: what it refuses, what fails and what panics is returned as an error.
#[inline]
pub(crate) fn call(work: impl FnOnce() -> Outcome<()>) -> *mut Error {
    match guard(work) {
        Ok(()) => ptr::null_mut(),
        Err(failure) => failed(failure),
    }
}

#[cold]
fn failed(failure: Failure) -> *mut Error {
    let Failure { code, message } = failure;
    // A message may quote a name with a zero byte.
    let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
    Box::into_raw(Box::new(Error { code: code as i32, message }))
}

/// Gives back the box behind `handle`, unless it is NULL.
///
/// # Safety
/// `handle` is NULL or came from [`Box::into_raw`], and is not used again.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        let _ = guard(|| {
            // SAFETY: said above. What its drop reports by a panic nobody can be told.
            drop(unsafe { Box::from_raw(handle) });
            Ok(())
        });
    }
}
