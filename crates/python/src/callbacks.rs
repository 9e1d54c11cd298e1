//! Calls from the engine into Python: the interpreter is taken for the call alone, and not at all once it ends.
//!
//! Threads of the engine wait for the interpreter here. So nobody may wait for such a thread while holding the
//! interpreter: what may wait is done by [`Python::detach`], also where an object that holds a store open is freed
//! ([`free`]).

use parking_lot::RwLock;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use terrace_binding::generation;

/// Whether the interpreter ends. Held by every call into Python, without the interpreter while it waits for one.
static ENDED: RwLock<bool> = RwLock::new(false);

/// Whether there ever was something of Python's that reads may call.
static READS_CALL_PYTHON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// What the last failed call of this thread raised: the cause of the exception that its reader gets.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };

    /// How many calls into Python are under way on this thread, one within the other.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A call that is counted in [`DEPTH`] until it is dropped.
struct Counted;

impl Counted {
    fn new() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Calls into Python. An exception is an error in words, and is remembered as a cause.
pub fn call<T>(work: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, String> {
    // Until the interpreter is given back: that can free objects too.
    let _counted = Counted::new();
    // Not again behind one that waits to write: the call may come from within another one.
    let ended = ENDED.read_recursive();
    let outcome = match *ended {
        true => None,
        false => Python::try_attach(|py| {
            work(py).map_err(|error| {
                let said = error.to_string();
                // The one before may call back when it is freed.
                drop(RAISED.replace(Some(error)));
                said
            })
        }),
    };
    outcome.unwrap_or_else(|| Err("the interpreter of Python has ended".to_string()))
}

/// What the last failed call of this thread raised, once.
pub fn take_raised() -> Option<PyErr> {
    RAISED.with_borrow_mut(Option::take)
}

/// Frees what may hold a store open, without the interpreter, since the last owner of a store waits for its threads. Within
/// a call into Python this thread may be one of them, as the collector of garbage runs on any thread: then another thread
/// frees it.
pub fn free<T: Send + 'static>(value: T) {
    if DEPTH.get() > 0 {
        // If there can be no thread, it is leaked.
        let value = ManuallyDrop::new(value);
        let _ = thread::Builder::new().spawn(move || drop(ManuallyDrop::into_inner(value)));
        return;
    }
    let mut value = Some(value);
    Python::try_attach(|py| py.detach(|| drop(value.take())));
    // No interpreter could be had.
    drop(value);
}

/// Notes that reads may call into Python from now on.
pub fn note_reads_call_python() {
    READS_CALL_PYTHON.store(true, Ordering::Relaxed);
}

/// Whether a read may call into Python, so that it must not be done under a lock.
#[inline]
pub fn reads_call_python() -> bool {
    READS_CALL_PYTHON.load(Ordering::Relaxed)
}

/// The process that imported the module: calls are ended in this one only.
static IMPORTED_BY: OnceLock<u32> = OnceLock::new();

/// Has calls into Python end before the interpreter does: those under way are waited for, later ones are refused.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let _ = IMPORTED_BY.set(generation());
    let end = wrap_pyfunction!(end_calls, module)?;
    module.py().import("atexit")?.call_method1("register", (end,))?;
    Ok(())
}

/// Refuses calls into Python from now on. In a forked process the lock may be held by a thread that is not there.
#[pyfunction]
fn end_calls(py: Python<'_>) {
    if IMPORTED_BY.get() == Some(&generation()) {
        py.detach(|| *ENDED.write() = true);
    }
}
