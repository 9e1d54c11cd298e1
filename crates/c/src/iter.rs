//! Iterators.

use crate::arguments::{bytes, cut, exclusive, place, shared};
use crate::error::{Error, call, free};
use crate::family::Family;
use crate::read_options::ReadOptions;
use crate::store::Db;
use std::ptr;
use terrace_binding::{Kept, Outcome, address};

/// A cursor over the keys and values of a column family at one moment, in both directions. One thread at a
/// time may use it. It may outlive the handle of its store.
pub struct Iter {
    kept: Kept<terrace::Iter>,
    /// The target of the last seek. The bytes that C gives may be a part of the entry, of which a seek lets go.
    target: Vec<u8>,
}

/// An iterator that stands nowhere: seek first. It sees what was there when it was made, or the snapshot of
/// `options`, of which NULL are the defaults. Free it with terrace_iter_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_new(
    db: *const Db,
    family: *const Family,
    options: *const ReadOptions,
    iter: *mut *mut Iter,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(iter, "iter") }?;
        out.set(ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let (family, options) =
            unsafe { (Family::of(family, Db::of(db)?)?, ReadOptions::of(options)?) };
        let iter = match options {
            None => family.iter()?,
            Some(options) => family.iter_with(options)?,
        };
        out.give(Iter { kept: Kept::new(iter), target: Vec::new() });
        Ok(())
    })
}

/// Moves to the first entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_seek_to_first(iter: *mut Iter) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    unsafe { moved(iter, terrace::Iter::seek_to_first) }
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_seek_to_last(iter: *mut Iter) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    unsafe { moved(iter, terrace::Iter::seek_to_last) }
}

/// Moves to the first entry whose key is at or after `key`, which may be bytes of the entry that the iterator stands on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_seek(
    iter: *mut Iter,
    key: *const u8,
    key_len: usize,
) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    unsafe { sought(iter, (key, key_len), terrace::Iter::seek) }
}

/// Moves to the last entry whose key is at or before `key`; as terrace_iter_seek.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_seek_for_prev(
    iter: *mut Iter,
    key: *const u8,
    key_len: usize,
) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    unsafe { sought(iter, (key, key_len), terrace::Iter::seek_for_prev) }
}

/// Moves to the next entry; nothing if the iterator is not valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_next(iter: *mut Iter) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    unsafe { moved(iter, terrace::Iter::next) }
}

/// Moves to the previous entry; nothing if the iterator is not valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_prev(iter: *mut Iter) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    unsafe { moved(iter, terrace::Iter::prev) }
}

/// Whether the iterator stands on an entry. It does not past either end, and after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_valid(iter: *const Iter) -> bool {
    // SAFETY: the rules of terrace.h.
    unsafe { looked_at(iter) }.is_ok_and(terrace::Iter::valid)
}

/// The key of the entry, of *len bytes, which stays until the iterator moves or is freed. NULL with length 0
/// if it is not valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_key(iter: *const Iter, len: *mut usize) -> *const u8 {
    // SAFETY: the rules of terrace.h.
    unsafe { part(iter, len, terrace::Iter::key) }
}

/// The value of the entry, as terrace_iter_key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_value(iter: *const Iter, len: *mut usize) -> *const u8 {
    // SAFETY: the rules of terrace.h.
    unsafe { part(iter, len, terrace::Iter::value) }
}

/// When the entry expires, in milliseconds since 1970; 0 if it does not, or if the iterator is not valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_expires_at_ms(iter: *const Iter) -> u64 {
    // SAFETY: the rules of terrace.h.
    let iter = unsafe { looked_at(iter) };
    iter.ok().and_then(terrace::Iter::expires_at_ms).unwrap_or(0)
}

/// Frees an iterator. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_iter_free(iter: *mut Iter) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(iter) };
}

/// # Safety
/// As the functions of the interface.
#[inline]
unsafe fn moved(
    iter: *mut Iter,
    how: impl FnOnce(&mut terrace::Iter) -> terrace::Result<()>,
) -> *mut Error {
    call(|| {
        // SAFETY: said above.
        let iter = unsafe { exclusive(iter, "iter") }?;
        Ok(how(iter.kept.get_mut()?)?)
    })
}

/// # Safety
/// As the functions of the interface.
#[inline]
unsafe fn sought(
    iter: *mut Iter,
    (key, key_len): (*const u8, usize),
    how: impl FnOnce(&mut terrace::Iter, &[u8]) -> terrace::Result<()>,
) -> *mut Error {
    call(|| {
        // SAFETY: said above.
        let (iter, key) = unsafe { (exclusive(iter, "iter")?, bytes(key, key_len, "key")?) };
        let moving = iter.kept.get_mut()?;
        iter.target.clear();
        iter.target.extend_from_slice(cut(key));
        Ok(how(moving, &iter.target)?)
    })
}

/// # Safety
/// As the functions of the interface.
#[inline]
unsafe fn looked_at<'a>(iter: *const Iter) -> Outcome<&'a terrace::Iter> {
    // SAFETY: said above.
    unsafe { shared(iter, "iter") }?.kept.get()
}

/// # Safety
/// As the functions of the interface.
#[inline]
unsafe fn part(
    iter: *const Iter,
    len: *mut usize,
    which: impl FnOnce(&terrace::Iter) -> &[u8],
) -> *const u8 {
    // SAFETY: said above.
    let (iter, len) = unsafe { (looked_at(iter), place(len, "len")) };
    let Ok(len) = len else { return ptr::null() };
    match iter {
        Ok(iter) if iter.valid() => {
            let bytes = which(iter);
            len.set(bytes.len());
            address(bytes)
        }
        _ => {
            len.set(0);
            ptr::null()
        }
    }
}
