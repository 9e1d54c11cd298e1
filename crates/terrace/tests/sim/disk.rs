//! The simulated device: a `SimVfs` whose every operation is a switch point, takes virtual time
//! and stands in the trace. At a drawn operation the power is cut or the process killed: an image
//! of what is left is taken, and from then on nothing works any more.

use crate::plan::{Cut, Trouble};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace::vfs::{Fault, SimVfs};
use terrace_base::checksum::hash_key;
use terrace_base::sync::simulation;
use terrace_base::{Error, Result};
use terrace_vfs::{Call, Interposed};

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

impl Interposed for Disk {
    type Files = SimVfs;

    fn files(&self) -> &SimVfs {
        &self.sim
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        path: &Path,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (kind, path, data) = match call {
            Call::Open => ("open", path, 0),
            Call::Create => ("create", path, 0),
            Call::Rename(_) => ("rename", path, 0),
            Call::Remove => ("remove", path, 0),
            Call::HardLink(to) => ("link", to, 0),
            Call::CreateDirAll => ("create directory", path, 0),
            Call::SyncDir => ("sync directory", path, 0),
            Call::SyncFile => ("sync file", path, 0),
            Call::List => ("list", path, 0),
            Call::Len => ("length", path, 0),
            Call::Exists => ("exists", path, 0),
            Call::Lock | Call::LockShared => ("lock file", path, 0),
            Call::Read(offset, len) => ("read", path, offset.rotate_left(32) ^ len as u64),
            Call::Append(data) => ("append", path, hash_key(data)),
            Call::Sync(len) => ("sync", path, len),
            Call::Finish(len) => ("finish", path, len),
            Call::Cut(len) => ("cut", path, len),
            Call::Advise => return work(),
        };
        self.run(kind, path, data, work)
    }

    fn sees_reads(&self, _: &Path) -> bool {
        true
    }
}
