//! A file system in memory with a gate before what takes long: syncs of the log, new SSTs, or reads
//! of SSTs.

use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace_base::Result;
use terrace_vfs::{Call, Interposed};

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

impl Interposed for GatedVfs {
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
        let is = |ending| path.extension().is_some_and(|extension| extension == ending);
        let waits = match self.gate.what {
            Gated::SstRead => matches!(call, Call::Read(..)),
            Gated::SstCreate => matches!(call, Call::Create) && (is("sst") || is("tmp")),
            Gated::LogSync => matches!(call, Call::Sync(_)) && is("log"),
        };
        if waits {
            self.gate.pass();
        }
        work()
    }

    fn sees_reads(&self, path: &Path) -> bool {
        self.gate.what == Gated::SstRead && path.extension().is_some_and(|ending| ending == "sst")
    }
}
