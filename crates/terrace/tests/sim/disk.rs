//! The simulated device: a `SimVfs` whose every operation is a switch point, takes virtual time
//! and stands in the trace. At a drawn operation the power is cut or the process killed: an image
//! of what is left is taken, and from then on nothing works any more.

use crate::plan::{Cut, Trouble};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace::vfs::{Fault, SimVfs, Vfs};
use terrace_base::checksum::hash_key;
use terrace_base::sync::simulation;
use terrace_base::{Error, Result};
use terrace_vfs::{AppendFile, CreateOptions, OpenMode, RandomFile};

/// What an operation takes, in virtual time; syncs take twenty times as long.
const OPERATION: Duration = Duration::from_micros(20);

struct State {
    count: u64,
    cut: Option<Cut>,
    troubles: Vec<Trouble>,
    /// What the cut left.
    left: Option<SimVfs>,
    struck: bool,
}

/// A device for one life of a store. Clones are the same device.
#[derive(Clone)]
pub struct Disk {
    sim: SimVfs,
    state: Arc<Mutex<State>>,
    /// Called at the moment of the cut, with whether only the process is killed.
    on_cut: Arc<dyn Fn(bool) + Send + Sync>,
}

impl Disk {
    pub fn new(
        sim: SimVfs,
        cut: Option<Cut>,
        troubles: Vec<Trouble>,
        on_cut: impl Fn(bool) + Send + Sync + 'static,
    ) -> Self {
        let state = State { count: 0, cut, troubles, left: None, struck: false };
        Self { sim, state: Arc::new(Mutex::new(state)), on_cut: Arc::new(on_cut) }
    }

    /// Whether the power is cut or the process killed.
    pub fn is_dead(&self) -> bool {
        self.state.lock().unwrap().left.is_some()
    }

    /// Whether anything was made to fail, so that errors are to be expected.
    pub fn is_troubled(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.struck || state.left.is_some() || self.sim.executed_faults() > 0
    }

    /// Operations so far.
    pub fn count(&self) -> u64 {
        self.state.lock().unwrap().count
    }

    /// What is on the device, in a copy without faults.
    pub fn image(&self) -> SimVfs {
        self.sim.kill_image()
    }

    /// What the next life begins with: what the cut left, or what a process that ends leaves.
    pub fn into_next(self) -> SimVfs {
        let left = self.state.lock().unwrap().left.take();
        let next = left.unwrap_or_else(|| self.sim.kill_image());
        next.set_capacity_bytes(None);
        next
    }

    /// One operation: a switch point, what is due at it, and the operation itself.
    fn run<T>(
        &self,
        kind: &'static str,
        path: &Path,
        data: u64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let name = path.to_string_lossy();
        simulation::switch(kind);
        simulation::advance(if kind.starts_with("sync") { OPERATION * 20 } else { OPERATION });
        self.strike();
        if self.is_dead() {
            return Err(Error::io(kind, path, std::io::Error::other("the power is cut")));
        }
        let result = work();
        simulation::record(kind, &name, data ^ u64::from(result.is_err()));
        result
    }

    /// The power is cut now.
    pub fn cut_power(&self, seed: u64) {
        self.cut(false, seed);
    }

    fn cut(&self, killed: bool, seed: u64) {
        let left = if killed { self.sim.kill_image() } else { self.sim.crash_image(seed) };
        let mut state = self.state.lock().unwrap();
        state.left = Some(left);
        let count = state.count;
        drop(state);
        simulation::record("cut", if killed { "killed" } else { "power" }, count);
        (self.on_cut)(killed);
    }

    /// Counts an operation and does to the device what is due.
    fn strike(&self) {
        let mut state = self.state.lock().unwrap();
        state.count += 1;
        let count = state.count;
        if state.left.is_none()
            && let Some(cut) = state.cut.filter(|cut| cut.at_op <= count)
        {
            drop(state);
            self.cut(cut.killed, cut.seed);
            return;
        }
        let at = state.troubles.iter().position(|trouble| trouble.at_op() <= count);
        let Some(due) = at.map(|at| state.troubles.remove(at)) else { return };
        simulation::record("trouble", &format!("{due:?}"), count);
        match due {
            Trouble::Fault { kind, forever, filter, .. } => {
                let at_op = self.sim.op_count();
                self.sim.set_fault(Some(Fault { at_op, kind, forever, filter }));
            }
            Trouble::Full { room, .. } => {
                state.struck = true;
                let used: u64 = self.sim.files().iter().map(|(_, len)| len).sum();
                self.sim.set_capacity_bytes(Some(used + room));
            }
            Trouble::Room { .. } => self.sim.set_capacity_bytes(None),
        }
    }
}

impl Vfs for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn RandomFile>> {
        let file = self.run("open", path, 0, || self.sim.open(path, mode))?;
        Ok(Arc::new(DiskRandomFile { file, disk: self.clone() }))
    }

    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let file = self.run("create", path, 0, || self.sim.create(path, options))?;
        Ok(Box::new(DiskAppendFile { file, disk: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.run("rename", from, 0, || self.sim.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.run("remove", path, 0, || self.sim.remove(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.run("link", to, 0, || self.sim.hard_link(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.run("create directory", path, 0, || self.sim.create_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.run("sync directory", path, 0, || self.sim.sync_dir(path))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.run("sync file", path, 0, || self.sim.sync_file(path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.run("list", dir, 0, || self.sim.list(dir))
    }

    fn len(&self, path: &Path) -> Result<u64> {
        self.run("length", path, 0, || self.sim.len(path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.run("exists", path, 0, || self.sim.exists(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.run("lock file", path, 0, || self.sim.lock(path))
    }

    fn free_space_bytes(&self, dir: &Path) -> Result<u64> {
        self.sim.free_space_bytes(dir)
    }
}

struct DiskRandomFile {
    file: Arc<dyn RandomFile>,
    disk: Disk,
}

impl RandomFile for DiskRandomFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let place = offset.rotate_left(32) ^ buf.len() as u64;
        self.disk.run("read", self.file.path(), place, || self.file.read_at(offset, buf))
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

struct DiskAppendFile {
    file: Box<dyn AppendFile>,
    disk: Disk,
}

impl AppendFile for DiskAppendFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let (disk, path) = (self.disk.clone(), self.file.path().to_path_buf());
        disk.run("append", &path, hash_key(data), || self.file.append(data))
    }

    fn sync(&mut self) -> Result<()> {
        let (disk, path) = (self.disk.clone(), self.file.path().to_path_buf());
        disk.run("sync", &path, self.file.len(), || self.file.sync())
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn finish(&mut self) -> Result<()> {
        let (disk, path) = (self.disk.clone(), self.file.path().to_path_buf());
        disk.run("finish", &path, self.file.len(), || self.file.finish())
    }
}
