//! A file system in which background threads can be held at their next file.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use terrace::vfs::{SimVfs, Vfs};
use terrace_base::Result;
use terrace_vfs::{AppendFile, CreateOptions, OpenMode, RandomFile};

/// How the names of the threads begin that compact.
pub const COMPACTION: &str = "terrace-compact";
/// How the names of the threads begin that flush.
pub const FLUSH: &str = "terrace-flush";

/// A file system in which the threads of one kind wait before they create an SST, as long as it is
/// held, or panic there.
pub struct Held {
    pub sim: SimVfs,
    /// How the names of these threads begin.
    threads: &'static str,
    panics: bool,
    is_held: Mutex<bool>,
    changed: Condvar,
}

impl Held {
    pub fn new(threads: &'static str) -> Arc<Self> {
        Arc::new(Self {
            sim: SimVfs::new(1),
            threads,
            panics: false,
            is_held: Mutex::new(true),
            changed: Condvar::new(),
        })
    }

    /// As [`Self::new`], over the files of `sim`, but the threads panic.
    pub fn panicking(threads: &'static str, sim: &SimVfs) -> Arc<Self> {
        let held = Self {
            sim: sim.clone(),
            threads,
            panics: true,
            is_held: Mutex::new(true),
            changed: Condvar::new(),
        };
        Arc::new(held)
    }

    pub fn let_go(&self) {
        *self.is_held.lock().unwrap() = false;
        self.changed.notify_all();
    }
}

impl Vfs for Held {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn RandomFile>> {
        self.sim.open(path, mode)
    }
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        // It bears a temporary name while it is written.
        let is_sst = path.extension().is_some_and(|ending| ending == "sst" || ending == "tmp");
        let thread = std::thread::current();
        if is_sst && thread.name().is_some_and(|name| name.starts_with(self.threads)) {
            assert!(!self.panics, "a planted panic");
            let held = self.is_held.lock().unwrap();
            drop(self.changed.wait_while(held, |is_held| *is_held).unwrap());
        }
        self.sim.create(path, options)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.sim.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.sim.remove(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.sim.hard_link(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.sim.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.sim.sync_dir(path)
    }
    fn sync_file(&self, path: &Path) -> Result<()> {
        self.sim.sync_file(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.sim.list(dir)
    }
    fn len(&self, path: &Path) -> Result<u64> {
        self.sim.len(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.sim.exists(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.sim.lock(path)
    }
    fn free_space_bytes(&self, dir: &Path) -> Result<u64> {
        self.sim.free_space_bytes(dir)
    }
}
