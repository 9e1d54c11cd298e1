//! A file system that lets somebody else act in the middle of a read-only open.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::vfs::SimVfs;
use terrace_base::Error;
use terrace_vfs::{Call, Interposed};

/// A step of the reader, named by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The manifest is opened.
    OpenManifest,
    /// The directory is listed after the manifest was opened.
    ListAfterManifest,
    /// A log segment is opened.
    OpenLog,
    /// An SST is opened.
    OpenSst,
}

/// Runs `act` just before each step of kind `before`, at most `times`.
#[derive(Clone)]
pub struct ActBefore {
    sim: SimVfs,
    before: Step,
    left: Arc<AtomicU64>,
    manifests: Arc<AtomicU64>,
    /// Whether there are shared locks, as there are not everywhere.
    locks: bool,
    act: Arc<dyn Fn() + Send + Sync>,
}

impl ActBefore {
    pub fn new(
        sim: &SimVfs,
        locks: bool,
        before: Step,
        times: u64,
        act: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (left, manifests) = (Arc::new(AtomicU64::new(times)), Arc::default());
        Arc::new(Self { sim: sim.clone(), before, left, manifests, locks, act: Arc::new(act) })
    }

    /// How many times it has not acted yet.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::SeqCst)
    }

    fn at(&self, step: Step) {
        let take = |left: u64| left.checked_sub(1);
        let order = Ordering::SeqCst;
        if step == self.before && self.left.fetch_update(order, order, take).is_ok() {
            (self.act)();
        }
    }
}

impl Interposed for ActBefore {
    type Files = SimVfs;

    fn files(&self) -> &SimVfs {
        &self.sim
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        path: &Path,
        work: impl FnOnce() -> terrace_base::Result<T>,
    ) -> terrace_base::Result<T> {
        match call {
            Call::Open => {
                let name = path.file_name().unwrap().to_str().unwrap();
                if name.starts_with("MANIFEST-") {
                    self.at(Step::OpenManifest);
                    self.manifests.fetch_add(1, Ordering::SeqCst);
                } else if name.ends_with(".log") {
                    self.at(Step::OpenLog);
                } else if name.ends_with(".sst") {
                    self.at(Step::OpenSst);
                }
            }
            Call::List if self.manifests.swap(0, Ordering::SeqCst) > 0 => {
                self.at(Step::ListAfterManifest);
            }
            Call::LockShared if !self.locks => {
                return Err(Error::io("lock", path, ErrorKind::Unsupported.into()));
            }
            _ => {}
        }
        work()
    }
}
