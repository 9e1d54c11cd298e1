//! The file system of an open store: another one, in which the store's directory is synced by one thread at a time, and not at
//! all after a sync of it that failed. The kernel tells of an error once: who synced beside that one, or a moment later, would take
//! names for durable that are lost, before the one that was told has stopped the writes.
//!
//! Each open has one of its own, and [`crate::Db::options`] gives the file system below it: who opens the store again with these
//! begins anew.
//!
//! All else is carried out as it is, and each call must be here: the trait's own ways are slower or know less.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::sync::Mutex;
use terrace_base::{Error, Result};
use terrace_vfs::{AppendFile, CreateOptions, OpenMode, RandomFile, ReadRequest, Vfs};

/// See the module.
pub(crate) struct DirSyncs {
    files: Arc<dyn Vfs>,
    dir: PathBuf,
    /// Held during a sync of the directory: whether one has failed. So has one that panics, in a file system of the program:
    /// it is set before, and taken back after a sync that has not.
    has_failed: Mutex<bool>,
}

impl DirSyncs {
    /// Over `files`, for the store in `dir`.
    pub fn over(files: Arc<dyn Vfs>, dir: &Path) -> Self {
        Self { files, dir: dir.to_path_buf(), has_failed: Mutex::new(false) }
    }

    /// Whether `error` says that the directory was synced, and that failed.
    fn is_failure(&self, error: &Error) -> bool {
        error.is_failed_sync() && error.path() == Some(&*self.dir)
    }
}

impl Vfs for DirSyncs {
    fn absolute(&self, path: &Path) -> PathBuf {
        self.files.absolute(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn RandomFile>> {
        self.files.open(path, mode)
    }

    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        self.files.create(path, options)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.files.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.hard_link(from, to)
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.copy(from, to)
    }

    fn open_around_loss(&self, path: &Path) -> Result<Arc<dyn RandomFile>> {
        self.files.open_around_loss(path)
    }

    fn copy_around_loss(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.copy_around_loss(from, to)
    }

    /// Of a directory in that of the store, the latter is synced.
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        if !path.starts_with(&self.dir) {
            return self.files.create_dir_all(path);
        }
        let mut has_failed = self.has_failed.lock();
        let before = std::mem::replace(&mut *has_failed, true);
        let made = self.files.create_dir_all(path);
        *has_failed = before || made.as_ref().is_err_and(|error| self.is_failure(error));
        made
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        if path != self.dir {
            return self.files.sync_dir(path);
        }
        let mut has_failed = self.has_failed.lock();
        if *has_failed {
            let why = io::Error::other("an earlier sync of it has failed");
            return Err(Error::io("sync directory", path, why));
        }
        *has_failed = true;
        let synced = self.files.sync_dir(path);
        *has_failed = synced.as_ref().is_err_and(|error| self.is_failure(error));
        synced
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.files.sync_file(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.files.list(dir)
    }

    fn list_others(&self, dir: &Path) -> Result<Vec<String>> {
        self.files.list_others(dir)
    }

    fn is_own_dir(&self, path: &Path) -> Result<bool> {
        self.files.is_own_dir(path)
    }

    fn is_link(&self, path: &Path) -> Result<bool> {
        self.files.is_link(path)
    }

    fn copy_permissions(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.copy_permissions(from, to)
    }

    fn len(&self, path: &Path) -> Result<u64> {
        self.files.len(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.files.exists(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.files.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.files.lock_shared(path)
    }

    fn is_encrypted(&self) -> bool {
        self.files.is_encrypted()
    }

    fn is_under_active_key(&self, path: &Path) -> Result<bool> {
        self.files.is_under_active_key(path)
    }

    fn is_misnamed(&self, path: &Path) -> Result<bool> {
        self.files.is_misnamed(path)
    }

    fn free_space_bytes(&self, dir: &Path) -> Result<u64> {
        self.files.free_space_bytes(dir)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        self.files.read_batch(requests);
    }
}
