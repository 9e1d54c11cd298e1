//! A file system in memory with a gate before what takes long: syncs of the log, new SSTs, or reads
//! of SSTs.

use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace_base::Result;
use terrace_vfs::{AppendFile, CreateOptions, OpenMode, RandomFile};

/// What waits before the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gated {
    LogSync,
    SstCreate,
    SstRead,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    waiting: usize,
    passed: u64,
}

pub struct Gate {
    what: Gated,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        while state.is_closed {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
        state.passed += 1;
    }
}

/// The file system.
#[derive(Clone)]
pub struct GatedVfs {
    sim: SimVfs,
    gate: Arc<Gate>,
}

impl GatedVfs {
    /// The gate is open.
    pub fn new(what: Gated) -> Self {
        Self::over(SimVfs::new(1), what)
    }

    /// As [`Self::new`], over what is there.
    pub fn over(sim: SimVfs, what: Gated) -> Self {
        let gate = Gate { what, state: Mutex::default(), changed: Condvar::new() };
        Self { sim, gate: Arc::new(gate) }
    }

    pub fn sim(&self) -> &SimVfs {
        &self.sim
    }

    /// Closes the gate until what this gives is dropped.
    pub fn close(&self) -> Closed<'_> {
        self.gate.state.lock().is_closed = true;
        Closed(&self.gate)
    }

    /// Returns when somebody stands before the gate.
    pub fn wait_for_somebody(&self) {
        let mut state = self.gate.state.lock();
        while state.waiting == 0 {
            self.gate.changed.wait(&mut state);
        }
    }

    /// How often somebody has passed.
    pub fn passed(&self) -> u64 {
        self.gate.state.lock().passed
    }
}

/// The gate is closed.
pub struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = false;
        self.0.changed.notify_all();
    }
}

struct GatedFile {
    file: Box<dyn AppendFile>,
    gate: Option<Arc<Gate>>,
}

impl AppendFile for GatedFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.file.append(data)
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        self.file.sync()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn finish(&mut self) -> Result<()> {
        self.file.finish()
    }
}

struct GatedReads {
    file: Arc<dyn RandomFile>,
    gate: Arc<Gate>,
}

impl RandomFile for GatedReads {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.gate.pass();
        self.file.read_at(offset, buf)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Vfs for GatedVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn RandomFile>> {
        let file = self.sim.open(path, mode)?;
        let is_sst = path.extension().is_some_and(|extension| extension == "sst");
        if is_sst && self.gate.what == Gated::SstRead {
            return Ok(Arc::new(GatedReads { file, gate: self.gate.clone() }));
        }
        Ok(file)
    }

    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let is = |ending| path.extension().is_some_and(|extension| extension == ending);
        if (is("sst") || is("tmp")) && self.gate.what == Gated::SstCreate {
            self.gate.pass();
        }
        let gate = (is("log") && self.gate.what == Gated::LogSync).then(|| self.gate.clone());
        Ok(Box::new(GatedFile { file: self.sim.create(path, options)?, gate }))
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
