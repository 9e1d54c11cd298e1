//! Iterators.

use crate::cursor::Cursor;
use crate::db::Db;
use crate::memory::{bytes, call, free, handle, shown};
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
        bytes.map_or(ptr::null(), shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{
        leveldb_writebatch_create, leveldb_writebatch_delete, leveldb_writebatch_destroy,
        leveldb_writebatch_iterate, leveldb_writebatch_put,
    };
    use crate::db::{leveldb_close, leveldb_open, leveldb_write};
    use crate::options::{
        leveldb_options_create, leveldb_options_destroy, leveldb_options_set_comparator,
        leveldb_options_set_create_if_missing,
    };
    use crate::policies::{leveldb_comparator_create, leveldb_comparator_destroy};
    use libc::{c_int, c_void};
    use std::ffi::CString;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Small numbers are none, and some languages refuse pointers that say so.
    fn is_address(data: *const c_char) -> bool {
        data as usize >= 4096
    }

    /// What callbacks were shown, and how much of it was at no address.
    static SHOWN: AtomicUsize = AtomicUsize::new(0);
    static AT_NO_ADDRESS: AtomicUsize = AtomicUsize::new(0);

    fn look(data: *const c_char) {
        SHOWN.fetch_add(1, Ordering::Relaxed);
        AT_NO_ADDRESS.fetch_add(usize::from(!is_address(data)), Ordering::Relaxed);
    }

    unsafe extern "C" fn compare(
        _: *mut c_void,
        a: *const c_char,
        a_len: size_t,
        b: *const c_char,
        b_len: size_t,
    ) -> c_int {
        look(a);
        look(b);
        // SAFETY: the bytes that the library shows.
        let (a, b) = unsafe { (bytes(a, a_len), bytes(b, b_len)) };
        a.cmp(b) as c_int
    }

    unsafe extern "C" fn name(_: *mut c_void) -> *const c_char {
        c"mine".as_ptr()
    }

    unsafe extern "C" fn put(
        _: *mut c_void,
        key: *const c_char,
        _: size_t,
        value: *const c_char,
        _: size_t,
    ) {
        look(key);
        look(value);
    }

    unsafe extern "C" fn deleted(_: *mut c_void, key: *const c_char, _: size_t) {
        look(key);
    }

    #[test]
    fn no_bytes_are_shown_at_an_address() {
        let temp = tempfile::tempdir().unwrap();
        // SAFETY: handles of this function, and callbacks that take what they are given.
        unsafe {
            let comparator =
                leveldb_comparator_create(ptr::null_mut(), None, Some(compare), Some(name));
            for (at, comparator) in [ptr::null_mut(), comparator].into_iter().enumerate() {
                let dir = temp.path().join(at.to_string()).into_os_string().into_encoded_bytes();
                let (dir, mut error) = (CString::new(dir).unwrap(), ptr::null_mut());
                let options = leveldb_options_create();
                leveldb_options_set_create_if_missing(options, 1);
                leveldb_options_set_comparator(options, comparator);
                let db = leveldb_open(options, dir.as_ptr(), &mut error);
                let batch = leveldb_writebatch_create();
                leveldb_writebatch_delete(batch, ptr::null(), 0);
                leveldb_writebatch_put(batch, ptr::null(), 0, ptr::null(), 0);
                leveldb_writebatch_put(batch, c"k".as_ptr(), 1, ptr::null(), 0);
                leveldb_writebatch_iterate(batch, ptr::null_mut(), Some(put), Some(deleted));
                leveldb_write(db, ptr::null(), batch, &mut error);
                leveldb_writebatch_destroy(batch);
                // Of a memtable, and of a file.
                for _ in 0..2 {
                    let iter = leveldb_create_iterator(db, ptr::null());
                    leveldb_iter_seek(iter, ptr::null(), 0);
                    for key_len in [0, 1] {
                        let (mut klen, mut vlen) = (7, 7);
                        assert!(is_address(leveldb_iter_key(iter, &mut klen)));
                        assert!(is_address(leveldb_iter_value(iter, &mut vlen)));
                        assert_eq!((klen, vlen), (key_len, 0));
                        leveldb_iter_next(iter);
                    }
                    assert_eq!(leveldb_iter_valid(iter), 0);
                    leveldb_iter_destroy(iter);
                    Db::of(db).unwrap().db.flush().unwrap();
                }
                assert!(error.is_null());
                leveldb_close(db);
                leveldb_options_destroy(options);
            }
            leveldb_comparator_destroy(comparator);
        }
        assert!(SHOWN.load(Ordering::Relaxed) > 10);
        assert_eq!(AT_NO_ADDRESS.load(Ordering::Relaxed), 0);
    }
}
