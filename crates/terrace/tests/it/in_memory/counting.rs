//! A file system that counts, by thread, how often it is called, and how often to read.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace_vfs::{AppendFile, CreateOptions, OpenMode, RandomFile};

thread_local! {
    /// Calls of this thread to any file system.
    static TOUCHES: Cell<u64> = const { Cell::new(0) };
    /// Of these, files opened and bytes read: what nobody does who has everything in memory.
    static READS: Cell<u64> = const { Cell::new(0) };
}

fn touch() {
    TOUCHES.set(TOUCHES.get() + 1);
}

fn touch_to_read() {
    touch();
    READS.set(READS.get() + 1);
}

/// What `call` gives, and how often it touched the file system.
pub fn touches<R>(call: impl FnOnce() -> R) -> (R, u64) {
    let before = TOUCHES.get();
    let result = call();
    (result, TOUCHES.get() - before)
}

/// What `call` gives, and whether it had to read from the file system.
pub fn reads<R>(call: impl FnOnce() -> R) -> (R, bool) {
    let before = READS.get();
    let result = call();
    (result, READS.get() > before)
}

/// A file system that counts the calls of each thread.
pub struct Counting(pub SimVfs);

struct CountingFile(Arc<dyn RandomFile>);

impl RandomFile for CountingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> terrace_base::Result<()> {
        touch_to_read();
        self.0.read_at(offset, buf)
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn advise_willneed(&self, offset: u64, len: u64) {
        touch();
        self.0.advise_willneed(offset, len);
    }
}

impl Vfs for Counting {
    fn open(&self, path: &Path, mode: OpenMode) -> terrace_base::Result<Arc<dyn RandomFile>> {
        touch_to_read();
        Ok(Arc::new(CountingFile(self.0.open(path, mode)?)))
    }
    fn create(
        &self,
        path: &Path,
        options: &CreateOptions,
    ) -> terrace_base::Result<Box<dyn AppendFile>> {
        touch();
        self.0.create(path, options)
    }
    fn rename(&self, from: &Path, to: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.remove(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.hard_link(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.sync_dir(path)
    }
    fn sync_file(&self, path: &Path) -> terrace_base::Result<()> {
        touch();
        self.0.sync_file(path)
    }
    fn list(&self, dir: &Path) -> terrace_base::Result<Vec<String>> {
        touch();
        self.0.list(dir)
    }
    fn len(&self, path: &Path) -> terrace_base::Result<u64> {
        touch();
        self.0.len(path)
    }
    fn exists(&self, path: &Path) -> terrace_base::Result<bool> {
        touch();
        self.0.exists(path)
    }
    fn lock(&self, path: &Path) -> terrace_base::Result<Box<dyn Send + Sync>> {
        touch();
        self.0.lock(path)
    }
    fn lock_shared(&self, path: &Path) -> terrace_base::Result<Box<dyn Send + Sync>> {
        touch();
        self.0.lock_shared(path)
    }
    fn free_space_bytes(&self, dir: &Path) -> terrace_base::Result<u64> {
        self.0.free_space_bytes(dir)
    }
}
