//! Stores: open, reads, writes; snapshots are taken and given back.

use crate::batch::{Batch, ops};
use crate::directory;
use crate::memory::{bytes, call, copied, free, handle, string};
use crate::open_files::OpenFiles;
use crate::options::{Options, ReadOptions, WriteOptions};
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::tree::Op;
use libc::{c_char, size_t};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use terrace_binding::{Failure, Kept, Outcome, guard};

/// An open store.
pub struct Db {
    kept: Kept<Store>,
    /// Given back when the store is closed.
    _files: OpenFiles,
}

impl Db {
    /// The store of a handle.
    ///
    /// # Safety
    /// NULL or live.
    pub(crate) unsafe fn of<'a>(db: *const Self) -> Outcome<&'a Store> {
        // SAFETY: said above.
        unsafe { db.as_ref() }.ok_or_else(|| Failure::argument("the store is NULL"))?.kept.get()
    }
}

/// The directory of a store. No name is not the working directory: what a program forgot to name would be opened or
/// destroyed there.
///
/// # Safety
/// NULL, or a string that ends with zero.
pub(crate) unsafe fn path<'a>(name: *const c_char) -> Outcome<&'a Path> {
    // SAFETY: said above.
    match unsafe { string(name) } {
        [] => Err(Failure::argument("the name of the store is empty; name a directory")),
        name => Ok(Path::new(OsStr::from_bytes(name))),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: *const Options,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut Db {
    let open = || {
        // SAFETY: the rules of LevelDB.
        let (options, dir) = unsafe { (options.as_ref(), path(name)?) };
        let options = options.ok_or_else(|| Failure::argument("the options are NULL"))?;
        directory::refuse_leveldb(dir)?;
        directory::check_wanted(dir, options.create_if_missing, options.error_if_exists)?;
        let files = options.open_files();
        let db = terrace::Db::open(dir, options.of_terrace(&files))?;
        if options.error_if_exists {
            directory::check_new(dir, &db)?;
        }
        directory::check_ssts(dir, &db)?;
        let kept = Kept::new(Store::open(db, options.order())?);
        Ok(handle(Db { kept, _files: files }))
    };
    // SAFETY: the rules of LevelDB.
    unsafe { call(errptr, ptr::null_mut(), open) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_close(db: *mut Db) {
    // SAFETY: the rules of LevelDB. There is nobody to give an error to.
    unsafe {
        let _ = guard(|| Ok(Db::of(db)?.db.close()?));
        free(db);
    }
}

/// Writes what `ops` gives.
///
/// # Safety
/// As the functions of the interface.
unsafe fn write<'a, O: Iterator<Item = Op<'a>> + Clone>(
    db: *const Db,
    options: *const WriteOptions,
    errptr: *mut *mut c_char,
    ops: impl FnOnce() -> Outcome<O>,
) {
    let write = || {
        // SAFETY: said above.
        let (db, options) = unsafe { (Db::of(db)?, options.as_ref()) };
        db.write(ops()?, &options.map(|options| options.writing).unwrap_or_default())
    };
    // SAFETY: said above.
    unsafe { call(errptr, (), write) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: *mut Db,
    options: *const WriteOptions,
    key: *const c_char,
    keylen: size_t,
    val: *const c_char,
    vallen: size_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the rules of LevelDB.
    unsafe {
        let op = (bytes(key, keylen), Some(bytes(val, vallen)));
        write(db, options, errptr, || Ok(std::iter::once(op)));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: *mut Db,
    options: *const WriteOptions,
    key: *const c_char,
    keylen: size_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the rules of LevelDB.
    unsafe {
        let op = (bytes(key, keylen), None);
        write(db, options, errptr, || Ok(std::iter::once(op)));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: *mut Db,
    options: *const WriteOptions,
    batch: *mut Batch,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the rules of LevelDB.
    unsafe {
        let batch = batch.as_ref();
        let batch = || ops(batch.ok_or_else(|| Failure::argument("the batch is NULL"))?.as_bytes());
        write(db, options, errptr, batch);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: *mut Db,
    options: *const ReadOptions,
    key: *const c_char,
    keylen: size_t,
    vallen: *mut size_t,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    let get = || {
        // SAFETY: the rules of LevelDB.
        let (db, options, key) = unsafe { (Db::of(db)?, options.as_ref(), bytes(key, keylen)) };
        match options {
            Some(options) => db.get(key, &options.reading()?),
            None => db.get(key, &terrace::ReadOptions::default()),
        }
    };
    // SAFETY: the rules of LevelDB.
    unsafe {
        let found = call(errptr, None, get);
        if let Some(len) = vallen.as_mut() {
            *len = found.as_deref().map_or(0, <[u8]>::len);
        }
        found.map_or(ptr::null_mut(), |value| copied(&value))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_snapshot(db: *mut Db) -> *const Snapshot {
    // SAFETY: the rules of LevelDB.
    let made = guard(|| Ok(unsafe { Db::of(db) }?.db.snapshot()));
    made.map_or(ptr::null(), |held| handle(Snapshot::new(held)).cast_const())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_release_snapshot(_db: *mut Db, snapshot: *const Snapshot) {
    // SAFETY: the rules of LevelDB.
    unsafe { free(snapshot.cast_mut()) };
}
