//! What crosses the boundary: bytes of the caller's, results in memory of the C library's, errors as text.

use libc::{c_char, c_void};
use std::alloc::{Layout, handle_alloc_error};
use std::ptr;
use terrace_binding::{Code, Failure, Outcome, address, guard};

/// `len` bytes at `data`.
///
/// # Safety
/// They can be read until the function returns, or `len` is 0.
pub unsafe fn bytes<'a>(data: *const c_char, len: usize) -> &'a [u8] {
    if len == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: said above.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// The bytes of a string that ends with zero.
///
/// # Safety
/// It is one, or NULL.
pub unsafe fn string<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: said above.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes()
}

/// Where bytes are that C is shown, also no bytes.
pub fn shown(bytes: &[u8]) -> *const c_char {
    address(bytes).cast()
}

/// A copy that the caller frees by `leveldb_free`, with a zero byte behind it. Without memory for it the process ends, as
/// everywhere: NULL would say that there is no value, or no error.
pub fn copied(bytes: &[u8]) -> *mut c_char {
    let len = bytes.len() + 1;
    // SAFETY: `malloc` gives room for all bytes and one more, or NULL.
    unsafe {
        let copy = libc::malloc(len).cast::<u8>();
        if copy.is_null() {
            handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>()));
        }
        ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
        copy.add(bytes.len()).write(0);
        copy.cast()
    }
}

/// A box as a handle.
pub fn handle<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Gives back a handle, unless it is NULL.
///
/// # Safety
/// It came from [`handle`], and is not used again.
pub unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        let _ = guard(|| {
            // SAFETY: said above.
            drop(unsafe { Box::from_raw(handle) });
            Ok(())
        });
    }
}

/// Runs a function of the interface; its failure is put into `errptr` as LevelDB writes it.
///
/// # Safety
/// `errptr` is NULL, or points to NULL or a string of `malloc`, as LevelDB says.
pub unsafe fn call<T>(
    errptr: *mut *mut c_char,
    otherwise: T,
    work: impl FnOnce() -> Outcome<T>,
) -> T {
    match guard(work) {
        Ok(value) => value,
        Err(failure) => {
            // SAFETY: said above.
            unsafe { save(errptr, &failure) };
            otherwise
        }
    }
}

/// # Safety
/// As [`call`].
unsafe fn save(errptr: *mut *mut c_char, failure: &Failure) {
    if errptr.is_null() {
        return;
    }
    let kind = match failure.code {
        Code::Corruption | Code::Outdated => "Corruption",
        Code::InvalidArgument | Code::NotAStore => "Invalid argument",
        Code::Unsupported => "Not implemented",
        _ => "IO error",
    };
    let text = copied(format!("{kind}: {}", failure.message).as_bytes());
    // SAFETY: said above; an earlier error is replaced.
    unsafe {
        libc::free((*errptr).cast::<c_void>());
        *errptr = text;
    }
}
