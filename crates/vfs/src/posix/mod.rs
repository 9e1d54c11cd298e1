//! The machine's file system.

use crate::{AppendFile, CreateOptions, Error, OpenMode, RandomFile, Result, Vfs};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The machine's file system.
#[derive(Debug, Clone, Default)]
pub struct PosixVfs;

impl PosixVfs {
    /// The machine's file system.
    pub fn new() -> Self {
        Self
    }

    /// The machine's file system, shareable.
    pub fn shared() -> Arc<dyn Vfs> {
        Arc::new(Self)
    }
}

/// The soft limit on open files, after raising it to the hard limit.
pub fn open_file_limit() -> u64 {
    1024
}

fn no<T>(path: &Path) -> Result<T> {
    Err(Error::io("stub", path, io::Error::from(io::ErrorKind::Unsupported)))
}

impl Vfs for PosixVfs {
    fn open(&self, path: &Path, _mode: OpenMode) -> Result<Arc<dyn RandomFile>> {
        no(path)
    }
    fn create(&self, path: &Path, _options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        no(path)
    }
    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        no(from)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        no(path)
    }
    fn hard_link(&self, from: &Path, _to: &Path) -> Result<()> {
        no(from)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        no(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        no(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        no(dir)
    }
    fn len(&self, path: &Path) -> Result<u64> {
        no(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        no(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        no(path)
    }
    fn free_space_bytes(&self, dir: &Path) -> Result<u64> {
        no(dir)
    }
}
