//! Strings that the library hands out, and its version.

use std::ffi::{CString, c_char};

/// The version of the library, such as "0.1.0". It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Frees a string that a function of this library handed out by a `char **`. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: it came from `handed_out`.
        drop(unsafe { CString::from_raw(string) });
    }
}

/// `text` as the caller's.
pub(crate) fn handed_out(text: &str) -> *mut c_char {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default().into_raw()
}
