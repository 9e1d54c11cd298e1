//! Locks, signals, threads and monotonic time for code that a deterministic simulation may run.
//!
//! Plain re-exports of `parking_lot` and `std`, at no cost. Under the feature `simulation` they are
//! wrappers that are cooperative on threads of a simulation (`sync::simulation`) and plain on
//! every other thread.
//!
//! What waits, or is held while something may wait (a lock over I/O, a thread, a sleep), must come
//! from here, and so must every time that decides something. Locks that are held over neither
//! need not.

#[cfg(feature = "simulation")]
pub mod simulation;
mod spin;

#[cfg(feature = "simulation")]
pub use simulation::{
    lock::{Condvar, Mutex, MutexGuard},
    thread,
    time::Instant,
    {Origin, interleave, note, process_id},
};

pub use spin::{lock_soon, spin_until};

#[cfg(not(feature = "simulation"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "simulation"))]
pub use std::time::Instant;

/// Threads, sleeping and yielding.
#[cfg(not(feature = "simulation"))]
pub mod thread {
    pub use std::thread::{Builder, JoinHandle, available_parallelism, scope, sleep, yield_now};
    use std::thread::{Scope, ScopedJoinHandle};

    /// Starts a thread called `name` in `scope`; the error says that the system has none to give, where
    /// `scope.spawn` would panic.
    pub fn spawn_scoped<'scope, T: Send + 'scope>(
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
        Builder::new().name(name.into()).spawn_scoped(scope, work)
    }
}

/// What a store tells a simulation of the batches of a group, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// They are about to be appended to the log.
    Logged,
    /// They have become visible to readers.
    Visible,
}

/// The thread that began something, for simulations; nothing otherwise.
#[cfg(not(feature = "simulation"))]
#[derive(Debug, Clone, Copy)]
pub struct Origin;

#[cfg(not(feature = "simulation"))]
impl Origin {
    /// This thread.
    #[inline(always)]
    pub fn here() -> Self {
        Self
    }
}

/// Tells the simulation what happens to what `origins` began. Nothing outside simulations.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub fn note(_what: Note, _origins: impl Iterator<Item = Origin>) {}

/// A place between two steps where the order of threads matters though neither step locks: an
/// atomic store that publishes, a load of what was published. Nothing outside simulations.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub fn interleave() {}

/// The number of this process, by which things that several processes make can differ.
#[cfg(not(feature = "simulation"))]
pub fn process_id() -> u32 {
    std::process::id()
}
