//! What LevelDB's and RocksDB's C APIs share: a database with its options for reads and writes, point
//! writes, properties, and the iterator as a cursor. Both headers declare these functions alike, under
//! their own prefix.
#![allow(unsafe_code, reason = "calls into C libraries")]

use crate::engine::c_library::{self, c_api};
use crate::store::Cursor;
use anyhow::Result;
use std::ffi::{CString, c_char, c_uchar, c_void};
use std::ptr;

/// Levels there can be.
const LEVELS: u32 = 7;

/// An object of the library.
pub type Handle = *mut c_void;
/// Where a call leaves its error.
pub type ErrorOut = *mut *mut c_char;

c_api! {
    /// The functions of both headers in use.
    CommonApi {
        close(Handle);
        put(Handle, Handle, *const u8, usize, *const u8, usize, ErrorOut);
        delete(Handle, Handle, *const u8, usize, ErrorOut);
        free(*mut c_void);
        property_value(Handle, *const c_char) -> *mut c_char;
        create_iterator(Handle, Handle) -> Handle;
        iter_destroy(Handle);
        iter_valid(Handle) -> c_uchar;
        iter_seek(Handle, *const u8, usize);
        iter_next(Handle);
        iter_key(Handle, *mut usize) -> *const u8;
        iter_value(Handle, *mut usize) -> *const u8;
        iter_get_error(Handle, ErrorOut);
        options_create() -> Handle;
        options_destroy(Handle);
        cache_destroy(Handle);
        readoptions_create() -> Handle;
        readoptions_destroy(Handle);
        writeoptions_create() -> Handle;
        writeoptions_destroy(Handle);
        writeoptions_set_sync(Handle, c_uchar);
    }
}

/// An open database, closed when this is dropped.
pub struct CDatabase {
    pub api: CommonApi,
    /// Null if it could not be opened.
    pub db: Handle,
    pub read_options: Handle,
    write_options: Handle,
}

// SAFETY: a database and its option objects may be used from any thread without external
// synchronisation (leveldb/db.h, doc/index.md "Concurrency"; rocksdb/db.h).
unsafe impl Send for CDatabase {}
// SAFETY: as above.
unsafe impl Sync for CDatabase {}

impl CDatabase {
    /// Takes over `db`, a database or null, whose writes are synced if `sync`.
    ///
    /// # Safety
    /// `db` was made by the library of `api` and is closed by nobody else; what it uses outlives this.
    pub unsafe fn new(api: CommonApi, db: Handle, sync: bool) -> Self {
        // SAFETY: constructors, and a setter on the object just made.
        unsafe {
            let write_options = (api.writeoptions_create)();
            (api.writeoptions_set_sync)(write_options, c_uchar::from(sync));
            Self { api, db, read_options: (api.readoptions_create)(), write_options }
        }
    }

    /// The result of a call that left `error`.
    pub fn check(&self, error: *mut c_char) -> Result<()> {
        c_library::check(error, self.api.free)
    }

    pub fn property(&self, name: &str) -> Option<String> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name is NUL-terminated; the result is null or a string for the caller to free.
        c_library::take_text(
            unsafe { (self.api.property_value)(self.db, name.as_ptr()) },
            self.api.free,
        )
    }

    /// Files of level 0, and deeper levels that hold any, by the properties `PREFIX.num-files-at-level0` and so on;
    /// `None` if there are none of that name.
    pub fn sorted_runs(&self, prefix: &str) -> Option<u64> {
        let files = |level: u32| -> Option<u64> {
            let text = self.property(&format!("{prefix}.num-files-at-level{level}"))?;
            text.trim().parse().ok()
        };
        let files: Vec<u64> = (0..LEVELS).map_while(files).collect();
        let (first, deeper) = files.split_first()?;
        Some(first + deeper.iter().filter(|files| **files > 0).count() as u64)
    }

    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the handles are live and the slices are read only during the call.
        unsafe {
            (self.api.put)(
                self.db,
                self.write_options,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                &raw mut error,
            );
        }
        self.check(error)
    }

    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the handles are live and the key is read only during the call.
        unsafe {
            (self.api.delete)(self.db, self.write_options, key.as_ptr(), key.len(), &raw mut error);
        }
        self.check(error)
    }

    pub fn cursor(&self) -> Box<dyn Cursor + '_> {
        // SAFETY: the handles are live, and the cursor's lifetime keeps the database open.
        let iter = unsafe { (self.api.create_iterator)(self.db, self.read_options) };
        Box::new(CCursor { api: &self.api, iter })
    }
}

impl Drop for CDatabase {
    fn drop(&mut self) {
        // SAFETY: each handle was made by the matching create function and is destroyed once;
        // cursors borrow the database, so none is left.
        unsafe {
            if !self.db.is_null() {
                (self.api.close)(self.db);
            }
            (self.api.readoptions_destroy)(self.read_options);
            (self.api.writeoptions_destroy)(self.write_options);
        }
    }
}

/// A live iterator of a database that outlives it.
struct CCursor<'a> {
    api: &'a CommonApi,
    iter: Handle,
}

impl CCursor<'_> {
    fn status(&self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the iterator is live.
        unsafe { (self.api.iter_get_error)(self.iter, &raw mut error) };
        c_library::check(error, self.api.free)
    }

    fn valid(&self) -> bool {
        // SAFETY: the iterator is live.
        unsafe { (self.api.iter_valid)(self.iter) != 0 }
    }
}

impl Cursor for CCursor<'_> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: the iterator is live and the key is read only during the call.
        unsafe { (self.api.iter_seek)(self.iter, key.as_ptr(), key.len()) };
        if self.valid() { Ok(()) } else { self.status() }
    }

    fn next(&mut self) -> Result<()> {
        // SAFETY: the iterator is live and, by this trait's contract, on an entry.
        unsafe { (self.api.iter_next)(self.iter) };
        if self.valid() { Ok(()) } else { self.status() }
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        if !self.valid() {
            return None;
        }
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: the iterator is on an entry; its key and value live until it moves, and moving
        // it needs `&mut self`.
        unsafe {
            let key = (self.api.iter_key)(self.iter, &raw mut key_len);
            let value = (self.api.iter_value)(self.iter, &raw mut value_len);
            Some((
                std::slice::from_raw_parts(key, key_len),
                std::slice::from_raw_parts(value, value_len),
            ))
        }
    }
}

impl Drop for CCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: made by create_iterator and destroyed once.
        unsafe { (self.api.iter_destroy)(self.iter) };
    }
}
