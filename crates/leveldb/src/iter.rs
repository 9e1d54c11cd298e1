//! Iterators.

use crate::cursor::Cursor;
use crate::db::Db;
use crate::memory::{bytes, call, free, handle};
use crate::options::ReadOptions;
use libc::{c_char, c_uchar, size_t};
use std::ptr;
use terrace_binding::{Failure, Kept, Outcome, guard};

/// A cursor, and the error that it met.
pub struct Iter {
    cursor: Option<Kept<Cursor>>,
    failure: Option<Failure>,
    /// The target of the last seek. The bytes that C gives may be a part of the entry, of which a seek lets go.
    target: Vec<u8>,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_iterator(
    db: *mut Db,
    options: *const ReadOptions,
) -> *mut Iter {
    let made = guard(|| {
        // SAFETY: the rules of LevelDB.
        let (db, options) = unsafe { (Db::of(db)?, options.as_ref()) };
        match options {
            Some(options) => db.cursor(&options.reading()?),
            None => db.cursor(&terrace::ReadOptions::default()),
        }
    });
    let (cursor, failure) = match made {
        Ok(cursor) => (Some(Kept::new(cursor)), None),
        Err(failure) => (None, Some(failure)),
    };
    handle(Iter { cursor, failure, target: Vec::new() })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_destroy(iter: *mut Iter) {
    // SAFETY: the rules of LevelDB.
    unsafe { free(iter) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_valid(iter: *const Iter) -> c_uchar {
    // SAFETY: the rules of LevelDB.
    c_uchar::from(unsafe { standing(iter) }.is_some())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_first(iter: *mut Iter) {
    // SAFETY: the rules of LevelDB.
    unsafe { moved(iter, Cursor::seek_to_first) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_last(iter: *mut Iter) {
    // SAFETY: the rules of LevelDB.
    unsafe { moved(iter, Cursor::seek_to_last) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(iter: *mut Iter, key: *const c_char, klen: size_t) {
    // SAFETY: the rules of LevelDB.
    unsafe {
        let Some(iter) = iter.as_mut() else { return };
        let mut target = std::mem::take(&mut iter.target);
        target.clear();
        target.extend_from_slice(bytes(key, klen));
        moved(iter, |cursor| cursor.seek(&target));
        iter.target = target;
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_next(iter: *mut Iter) {
    // SAFETY: the rules of LevelDB.
    unsafe { moved(iter, Cursor::next) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_prev(iter: *mut Iter) {
    // SAFETY: the rules of LevelDB.
    unsafe { moved(iter, Cursor::prev) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_key(iter: *const Iter, klen: *mut size_t) -> *const c_char {
    // SAFETY: the rules of LevelDB.
    unsafe { part(iter, klen, Cursor::key) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_value(iter: *const Iter, vlen: *mut size_t) -> *const c_char {
    // SAFETY: the rules of LevelDB.
    unsafe { part(iter, vlen, Cursor::value) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(iter: *const Iter, errptr: *mut *mut c_char) {
    // SAFETY: the rules of LevelDB.
    let failure = unsafe { iter.as_ref() }.and_then(|iter| iter.failure.clone());
    if let Some(failure) = failure {
        // SAFETY: the rules of LevelDB.
        unsafe { call(errptr, (), || Err(failure)) };
    }
}

/// The cursor, if it stands on an entry.
///
/// # Safety
/// NULL or live.
unsafe fn standing<'a>(iter: *const Iter) -> Option<&'a Cursor> {
    // SAFETY: said above.
    let cursor = unsafe { iter.as_ref() }?.cursor.as_ref()?.get().ok()?;
    cursor.valid().then_some(cursor)
}

/// Moves; the first error is kept.
///
/// # Safety
/// NULL or live, and no other thread uses it.
unsafe fn moved(iter: *mut Iter, how: impl FnOnce(&mut Cursor) -> Outcome<()>) {
    // SAFETY: said above.
    let Some(Iter { cursor: Some(cursor), failure, .. }) = (unsafe { iter.as_mut() }) else {
        return;
    };
    if let Err(error) = guard(|| how(cursor.get_mut()?)) {
        failure.get_or_insert(error);
    }
}

/// # Safety
/// `iter` is NULL or live, `len` NULL or a place.
unsafe fn part(
    iter: *const Iter,
    len: *mut size_t,
    which: impl FnOnce(&Cursor) -> &[u8],
) -> *const c_char {
    // SAFETY: said above.
    unsafe {
        let bytes = standing(iter).map(which);
        if let Some(len) = len.as_mut() {
            *len = bytes.map_or(0, <[u8]>::len);
        }
        bytes.map_or(ptr::null(), |bytes| bytes.as_ptr().cast())
    }
}
