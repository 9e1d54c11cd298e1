//! A deterministic file system in memory.

mod fault;

pub use fault::{Fault, FaultKind, OpClass};

use crate::{AppendFile, CreateOptions, Error, OpenMode, RandomFile, Result, Vfs};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A deterministic file system in memory.
#[derive(Clone)]
pub struct SimVfs;

impl SimVfs {
    /// An empty file system.
    pub fn new(_seed: u64) -> Self {
        Self
    }
    /// Operations so far.
    pub fn op_count(&self) -> u64 {
        0
    }
    /// What a power cut now would leave.
    pub fn crash_image(&self, _seed: u64) -> SimVfs {
        self.clone()
    }
    /// From operation `op` on everything fails.
    pub fn crash_after(&self, _op: u64) {}
    /// What a killed process would leave.
    pub fn kill_image(&self) -> SimVfs {
        self.clone()
    }
    /// Sets the fault to inject.
    pub fn set_fault(&self, _fault: Option<Fault>) {}
    /// Limits the room on the device.
    pub fn set_capacity_bytes(&self, _bytes: Option<u64>) {}
    /// Flips bits of a byte; says whether there was one.
    pub fn corrupt(&self, _path: impl AsRef<Path>, _offset: u64, _xor: u8) -> bool {
        false
    }
    /// Cuts a file; says whether it exists.
    pub fn truncate(&self, _path: impl AsRef<Path>, _len: u64) -> bool {
        false
    }
    /// The content of a file.
    pub fn read_file(&self, _path: impl AsRef<Path>) -> Option<Vec<u8>> {
        None
    }
    /// Creates or replaces a file, durably.
    pub fn write_file(&self, _path: impl AsRef<Path>, _bytes: impl Into<Vec<u8>>) {}
    /// All files and their lengths.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        Vec::new()
    }
    /// Faults that struck.
    pub fn executed_faults(&self) -> u64 {
        0
    }
}

fn no<T>(path: &Path) -> Result<T> {
    Err(Error::io("stub", path, io::Error::from(io::ErrorKind::Unsupported)))
}

impl Vfs for SimVfs {
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
