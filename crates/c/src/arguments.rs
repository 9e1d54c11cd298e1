//! What C passes, looked at before it is used: NULL becomes an error with the argument's name.

use std::ffi::{CStr, OsStr, c_char};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terrace::MAX_KEY_BYTES;
use terrace_binding::{Failure, Outcome};

#[cold]
fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is NULL"))
}

/// The handle behind `pointer`.
///
/// # Safety
/// NULL, or a handle of this type that lives until the function returns.
#[inline]
pub unsafe fn shared<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: said above.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// The handle behind `pointer`, to change it.
///
/// # Safety
/// As [`shared`], and no other thread uses it meanwhile.
#[inline]
pub unsafe fn exclusive<'a, T>(pointer: *mut T, what: &str) -> Outcome<&'a mut T> {
    // SAFETY: said above.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(what))
}

/// `len` bytes at `data`; none if `len` is 0, wherever `data` points.
///
/// # Safety
/// `data` is NULL, or `len` bytes there can be read until the function returns.
#[inline]
pub unsafe fn bytes<'a>(data: *const u8, len: usize, what: &str) -> Outcome<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(null(what));
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::argument(format!("{what} has {len} bytes, more than there can be")));
    }
    // SAFETY: said above; the length fits an object.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// A range of keys.
pub type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// From a bound on and below another.
///
/// # Safety
/// As [`bound`], for both.
pub unsafe fn range<'a>(
    (start, start_len): (*const u8, usize),
    (end, end_len): (*const u8, usize),
) -> Outcome<Range<'a>> {
    // SAFETY: said above.
    let (start, end) = unsafe { (bound(start, start_len, "start")?, bound(end, end_len, "end")?) };
    let start = start.map_or(Bound::Unbounded, Bound::Included);
    Ok((start, end.map_or(Bound::Unbounded, Bound::Excluded)))
}

/// A bound: none if `data` is NULL. It is [`cut`].
///
/// # Safety
/// As [`bytes`].
pub unsafe fn bound<'a>(data: *const u8, len: usize, what: &str) -> Outcome<Option<&'a [u8]>> {
    if data.is_null() && len == 0 {
        return Ok(None);
    }
    // SAFETY: said above.
    unsafe { bytes(data, len, what) }.map(|bytes| Some(cut(bytes)))
}

/// What counts of a bound, a prefix or the target of a seek, which the library copies: no key is longer than
/// [`MAX_KEY_BYTES`], so one byte more compares with every key as the whole does.
pub fn cut(target: &[u8]) -> &[u8] {
    target.get(..=MAX_KEY_BYTES).unwrap_or(target)
}

/// A string that ends with a zero byte, in UTF-8.
///
/// # Safety
/// NULL, or such a string, which lives until the function returns.
pub unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: said above.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// A path, whatever its bytes.
///
/// # Safety
/// As [`text`].
pub unsafe fn path<'a>(pointer: *const c_char) -> Outcome<&'a Path> {
    if pointer.is_null() {
        return Err(null("path"));
    }
    // SAFETY: said above.
    let text = unsafe { CStr::from_ptr(pointer) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Where a result goes.
///
/// # Safety
/// NULL, or a place for a `T`, which need not hold one yet.
#[inline]
pub unsafe fn place<T>(pointer: *mut T, what: &str) -> Outcome<Place<T>> {
    if pointer.is_null() { Err(null(what)) } else { Ok(Place(pointer)) }
}

/// A place of the caller's for a `T`.
pub struct Place<T>(*mut T);

impl<T> Place<T> {
    /// Puts `value` there; what was there is not dropped.
    #[inline]
    pub fn set(&self, value: T) {
        // SAFETY: `place` was given it for that.
        unsafe { self.0.write(value) };
    }
}

impl<T> Place<*mut T> {
    /// Puts a handle of `value` there.
    pub fn give(&self, value: T) {
        self.set(Box::into_raw(Box::new(value)));
    }
}
