//! Ingestion, and backups, through RocksDB's C API.
#![allow(unsafe_code, reason = "calls into a C library")]

use super::{PREFIX, RocksdbStore};
use crate::engine::c_database::{ErrorOut, Handle};
use crate::engine::c_library::{self, c_api};
use crate::store::{INGESTED_FILE_BYTES, Loader};
use anyhow::Result;
use libloading::Library;
use std::ffi::{CString, c_char, c_uchar};
use std::path::{Path, PathBuf};
use std::ptr;

c_api! {
    /// What of `rocksdb/c.h` ingests and backs up.
    LoadApi {
        envoptions_create() -> Handle;
        envoptions_destroy(Handle);
        sstfilewriter_create(Handle, Handle) -> Handle;
        sstfilewriter_open(Handle, *const c_char, ErrorOut);
        sstfilewriter_put(Handle, *const u8, usize, *const u8, usize, ErrorOut);
        sstfilewriter_finish(Handle, ErrorOut);
        sstfilewriter_file_size(Handle, *mut u64);
        sstfilewriter_destroy(Handle);
        ingestexternalfileoptions_create() -> Handle;
        ingestexternalfileoptions_set_move_files(Handle, c_uchar);
        ingestexternalfileoptions_destroy(Handle);
        ingest_external_file(Handle, *const *const c_char, usize, Handle, ErrorOut);
        backup_engine_open(Handle, *const c_char, ErrorOut) -> Handle;
        backup_engine_create_new_backup(Handle, Handle, ErrorOut);
        backup_engine_restore_db_from_latest_backup(Handle, *const c_char, *const c_char, Handle, ErrorOut);
        backup_engine_close(Handle);
        restore_options_create() -> Handle;
        restore_options_destroy(Handle);
    }
}

impl LoadApi {
    fn of(library: &'static Library) -> Result<Self> {
        Self::load(library, PREFIX)
    }
}

/// Files that are written, then ingested.
pub struct Ingester<'a> {
    api: LoadApi,
    store: &'a RocksdbStore,
    dir: PathBuf,
    files: Vec<CString>,
    env_options: Handle,
    /// One writer for all files, one after the other.
    writer: Handle,
    is_open: bool,
}

impl<'a> Ingester<'a> {
    pub fn new(store: &'a RocksdbStore, dir: &Path) -> Result<Self> {
        let api = LoadApi::of(store.library)?;
        // SAFETY: constructors; the writer uses both options until it is destroyed, in `drop`, before them.
        let (env_options, writer) = unsafe {
            let env_options = (api.envoptions_create)();
            (env_options, (api.sstfilewriter_create)(env_options, store.db_options))
        };
        let (dir, files) = (dir.to_owned(), Vec::new());
        Ok(Self { api, store, dir, files, env_options, writer, is_open: false })
    }

    fn begin_file(&mut self) -> Result<()> {
        let path = c_library::c_path(&self.dir.join(format!("{}.sst", self.files.len())))?;
        let mut error = ptr::null_mut();
        // SAFETY: the writer is live, the path NUL-terminated.
        unsafe { (self.api.sstfilewriter_open)(self.writer, path.as_ptr(), &raw mut error) };
        self.store.base.check(error)?;
        self.files.push(path);
        self.is_open = true;
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the writer is live and has an open file.
        unsafe { (self.api.sstfilewriter_finish)(self.writer, &raw mut error) };
        self.is_open = false;
        self.store.base.check(error)
    }
}

impl Loader for Ingester<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut written = 0;
        if self.is_open {
            // SAFETY: the writer is live and has an open file.
            unsafe { (self.api.sstfilewriter_file_size)(self.writer, &raw mut written) };
        }
        if written >= INGESTED_FILE_BYTES {
            self.end_file()?;
        }
        if !self.is_open {
            self.begin_file()?;
        }
        let mut error = ptr::null_mut();
        // SAFETY: the writer is live and the slices are read only during the call.
        unsafe {
            (self.api.sstfilewriter_put)(
                self.writer,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                &raw mut error,
            );
        }
        self.store.base.check(error)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.is_open {
            self.end_file()?;
        }
        let paths: Vec<*const c_char> = self.files.iter().map(|path| path.as_ptr()).collect();
        let mut error = ptr::null_mut();
        // SAFETY: the options object is made, used and destroyed here; the paths are NUL-terminated.
        unsafe {
            let options = (self.api.ingestexternalfileoptions_create)();
            (self.api.ingestexternalfileoptions_set_move_files)(options, 1);
            let db = self.store.base.db;
            (self.api.ingest_external_file)(
                db,
                paths.as_ptr(),
                paths.len(),
                options,
                &raw mut error,
            );
            (self.api.ingestexternalfileoptions_destroy)(options);
        }
        self.store.base.check(error)
    }
}

impl Drop for Ingester<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the matching create functions and destroyed once, the user of the other first.
        unsafe {
            (self.api.sstfilewriter_destroy)(self.writer);
            (self.api.envoptions_destroy)(self.env_options);
        }
    }
}

/// Calls `act` with the backups in `dir`.
fn with_backups(
    store: &RocksdbStore,
    dir: &Path,
    act: impl FnOnce(&LoadApi, Handle, ErrorOut),
) -> Result<()> {
    let api = LoadApi::of(store.library)?;
    let path = c_library::c_path(dir)?;
    let mut error = ptr::null_mut();
    // SAFETY: the options are live, the path is NUL-terminated.
    let backups =
        unsafe { (api.backup_engine_open)(store.db_options, path.as_ptr(), &raw mut error) };
    store.base.check(error)?;
    let mut error = ptr::null_mut();
    act(&api, backups, &raw mut error);
    // SAFETY: opened above and closed once.
    unsafe { (api.backup_engine_close)(backups) };
    store.base.check(error)
}

pub fn back_up(store: &RocksdbStore, dir: &Path) -> Result<()> {
    with_backups(store, dir, |api, backups, error| {
        // SAFETY: both handles are live.
        unsafe { (api.backup_engine_create_new_backup)(backups, store.base.db, error) };
    })
}

pub fn restore(store: &RocksdbStore, dir: &Path, target: &Path) -> Result<()> {
    let target = c_library::c_path(target)?;
    with_backups(store, dir, |api, backups, error| {
        // SAFETY: the options object is made, used and destroyed here; the path is NUL-terminated.
        unsafe {
            let options = (api.restore_options_create)();
            let path = target.as_ptr();
            (api.backup_engine_restore_db_from_latest_backup)(backups, path, path, options, error);
            (api.restore_options_destroy)(options);
        }
    })
}
