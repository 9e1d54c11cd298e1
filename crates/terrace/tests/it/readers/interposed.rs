//! A file system that lets somebody else act in the middle of a read-only open.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::vfs::{SimVfs, Vfs};
use terrace_base::Error;
use terrace_vfs::{AppendFile, CreateOptions, OpenMode, RandomFile};

/// A call of the reader, named by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// The manifest is opened.
    OpenManifest,
    /// The directory is listed after the manifest was opened.
    ListAfterManifest,
    /// A log segment is opened.
    OpenLog,
    /// An SST is opened.
    OpenSst,
}

/// Runs `act` just before each call of kind `before`, at most `times`.
pub struct Interposed<F> {
    sim: SimVfs,
    before: Call,
    left: AtomicU64,
    manifests: AtomicU64,
    /// Whether there are shared locks, as there are not everywhere.
    locks: bool,
    act: F,
}

impl<F: Fn() + Send + Sync + 'static> Interposed<F> {
    pub fn new(sim: &SimVfs, locks: bool, before: Call, times: u64, act: F) -> Arc<Self> {
        let (left, manifests) = (AtomicU64::new(times), AtomicU64::new(0));
        Arc::new(Self { sim: sim.clone(), before, left, manifests, locks, act })
    }

    /// How many times it has not acted yet.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::SeqCst)
    }

    fn at(&self, call: Call) {
        let take = |left: u64| left.checked_sub(1);
        let order = Ordering::SeqCst;
        if call == self.before && self.left.fetch_update(order, order, take).is_ok() {
            (self.act)();
        }
    }
}

impl<F: Fn() + Send + Sync + 'static> Vfs for Interposed<F> {
    fn open(&self, path: &Path, mode: OpenMode) -> terrace_base::Result<Arc<dyn RandomFile>> {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("MANIFEST-") {
            self.at(Call::OpenManifest);
            self.manifests.fetch_add(1, Ordering::SeqCst);
        } else if name.ends_with(".log") {
            self.at(Call::OpenLog);
        } else if name.ends_with(".sst") {
            self.at(Call::OpenSst);
        }
        self.sim.open(path, mode)
    }
    fn create(
        &self,
        path: &Path,
        options: &CreateOptions,
    ) -> terrace_base::Result<Box<dyn AppendFile>> {
        self.sim.create(path, options)
    }
    fn rename(&self, from: &Path, to: &Path) -> terrace_base::Result<()> {
        self.sim.rename(from, to)
    }
    fn remove(&self, path: &Path) -> terrace_base::Result<()> {
        self.sim.remove(path)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> terrace_base::Result<()> {
        self.sim.hard_link(from, to)
    }
    fn create_dir_all(&self, path: &Path) -> terrace_base::Result<()> {
        self.sim.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> terrace_base::Result<()> {
        self.sim.sync_dir(path)
    }
    fn sync_file(&self, path: &Path) -> terrace_base::Result<()> {
        self.sim.sync_file(path)
    }
    fn list(&self, dir: &Path) -> terrace_base::Result<Vec<String>> {
        if self.manifests.swap(0, Ordering::SeqCst) > 0 {
            self.at(Call::ListAfterManifest);
        }
        self.sim.list(dir)
    }
    fn len(&self, path: &Path) -> terrace_base::Result<u64> {
        self.sim.len(path)
    }
    fn exists(&self, path: &Path) -> terrace_base::Result<bool> {
        self.sim.exists(path)
    }
    fn lock(&self, path: &Path) -> terrace_base::Result<Box<dyn Send + Sync>> {
        self.sim.lock(path)
    }
    fn lock_shared(&self, path: &Path) -> terrace_base::Result<Box<dyn Send + Sync>> {
        match self.locks {
            true => self.sim.lock_shared(path),
            false => Err(Error::io("lock", path, ErrorKind::Unsupported.into())),
        }
    }
    fn free_space_bytes(&self, dir: &Path) -> terrace_base::Result<u64> {
        self.sim.free_space_bytes(dir)
    }
}
