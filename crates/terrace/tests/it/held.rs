//! A file system in which background threads can be held at their next file.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use terrace::vfs::SimVfs;
use terrace_base::Result;
use terrace_vfs::{Call, Interposed};

/// How the names of the threads begin that compact.
pub const COMPACTION: &str = "terrace-compact";
/// How the names of the threads begin that flush.
pub const FLUSH: &str = "terrace-flush";

/// A file system in which the threads of one kind wait before they create an SST, or write its end, as long as it is
/// held, or panic there.
#[derive(Clone)]
pub struct Held {
    pub sim: SimVfs,
    /// How the names of these threads begin.
    threads: &'static str,
    panics: bool,
    /// Whether they wait where an SST gets its end.
    at_end: bool,
    /// Whether it is held, and the signal that it no longer is.
    hold: Arc<(Mutex<bool>, Condvar)>,
    /// Times that a thread came to wait.
    waits: Arc<AtomicU64>,
}

impl Held {
    pub fn new(threads: &'static str) -> Arc<Self> {
        Self::over(threads, &SimVfs::new(1), false, false)
    }

    /// As [`Self::new`], but they wait before an SST gets its end.
    pub fn at_end(threads: &'static str) -> Arc<Self> {
        Self::over(threads, &SimVfs::new(1), false, true)
    }

    /// As [`Self::new`], over the files of `sim`, but the threads panic.
    pub fn panicking(threads: &'static str, sim: &SimVfs) -> Arc<Self> {
        Self::over(threads, sim, true, false)
    }

    fn over(threads: &'static str, sim: &SimVfs, panics: bool, at_end: bool) -> Arc<Self> {
        let hold = Arc::new((Mutex::new(true), Condvar::new()));
        Arc::new(Self { sim: sim.clone(), threads, panics, at_end, hold, waits: Arc::default() })
    }

    /// Times that a thread came to wait so far.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::SeqCst)
    }

    pub fn hold(&self) {
        *self.hold.0.lock().unwrap() = true;
    }

    pub fn let_go(&self) {
        *self.hold.0.lock().unwrap() = false;
        self.hold.1.notify_all();
    }

    /// Lets go when what this gives is dropped, so that a test that fails ends. To be declared after the store, which
    /// waits for its threads when it is dropped, and first of all in a scope of threads that wait for the store.
    #[must_use]
    pub fn let_go_on_drop(&self) -> LetGo<'_> {
        LetGo(self)
    }
}

/// See [`Held::let_go_on_drop`].
pub struct LetGo<'a>(&'a Held);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl Interposed for Held {
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
        // An SST bears a temporary name while it is written.
        let is_sst = path.extension().is_some_and(|ending| ending == "sst" || ending == "tmp");
        let thread = std::thread::current();
        let is_there = match self.at_end {
            true => matches!(call, Call::Finish(_)),
            false => matches!(call, Call::Create),
        };
        if is_there && is_sst && thread.name().is_some_and(|name| name.starts_with(self.threads)) {
            assert!(!self.panics, "a planted panic");
            self.waits.fetch_add(1, Ordering::SeqCst);
            let (is_held, changed) = &*self.hold;
            drop(changed.wait_while(is_held.lock().unwrap(), |is_held| *is_held).unwrap());
        }
        work()
    }
}
