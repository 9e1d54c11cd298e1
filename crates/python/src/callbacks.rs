//! Calls from the engine into Python: the interpreter is taken for the call alone, and not at all once it ends.
//!
//! Threads of the engine wait for the interpreter here. So nobody may wait for such a thread while holding the
//! interpreter: what may wait is done by [`Python::detach`], also where an object that holds a store open is freed
//! ([`free`]).

use parking_lot::RwLock;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use terrace_binding::{Failure, generation, guard};

/// Whether the interpreter ends, for one process: a fork copies the lock as it happened to be held, perhaps by a thread that
/// the child does not have.
struct Ended {
    generation: u32,
    /// The thread that ends the interpreter, once it begins to: it still runs the exit handlers that were registered
    /// before this one, and may call Python for them. Held by every call into Python, without the interpreter while it
    /// waits for one.
    ended_by: RwLock<Option<ThreadId>>,
    /// Of the next generation, in a process that was forked from this one.
    child: OnceLock<Box<Self>>,
}

impl Ended {
    const fn of(generation: u32) -> Self {
        Self { generation, ended_by: RwLock::new(None), child: OnceLock::new() }
    }
}

/// That of the first process, whose generation is 0.
static ENDED: Ended = Ended::of(0);

/// Who ends the interpreter, in this process.
fn ended_by() -> &'static RwLock<Option<ThreadId>> {
    let generation = generation();
    let mut at: &'static Ended = &ENDED;
    while at.generation != generation {
        let next = at.generation + 1;
        at = at.child.get_or_init(|| Box::new(Ended::of(next)));
    }
    &at.ended_by
}

/// Whether there ever was something of Python's that reads may call.
static READS_CALL_PYTHON: AtomicBool = AtomicBool::new(false);

/// What the calls of a thread raised since it began to wait for the engine, if it does.
struct Raised {
    /// By the last one that failed: the cause of the exception that its reader gets.
    last: Option<PyErr>,
    /// The first that is no `Exception`, as `KeyboardInterrupt`: no failure of the function, but a wish to the thread.
    interrupt: Option<PyErr>,
    /// Whether this is a thread of Python that waits.
    waits: bool,
}

impl Raised {
    const fn nothing(waits: bool) -> Self {
        Self { last: None, interrupt: None, waits }
    }
}

thread_local! {
    static RAISED: RefCell<Raised> = const { RefCell::new(Raised::nothing(false)) };

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
    // Within another call of this thread it goes on: the end of the interpreter waits for that one. Any other call is
    // refused once the end waits, which calls that begin before others have ended would keep waiting for ever.
    let ended_by = match DEPTH.get() {
        1 => ended_by().try_read(),
        _ => Some(ended_by().read_recursive()),
    };
    let outcome = match ended_by.as_deref() {
        None => None,
        Some(Some(ending)) if *ending != thread::current().id() => None,
        Some(_) => Python::try_attach(|py| {
            work(py).map_err(|error| {
                let said = error.to_string();
                note(py, error);
                said
            })
        }),
    };
    outcome.unwrap_or_else(|| Err("the interpreter of Python has ended".to_string()))
}

/// Remembers what a call raised.
fn note(py: Python<'_>, error: PyErr) {
    let is_interrupt = !error.is_instance_of::<PyException>(py);
    let mut interrupt = is_interrupt.then(|| error.clone_ref(py));
    let before = RAISED.with_borrow_mut(|raised| {
        if raised.waits && raised.interrupt.is_none() {
            raised.interrupt = interrupt.take();
        }
        raised.last.replace(error)
    });
    // Not within the borrow: what is freed may call back.
    drop((before, interrupt));
}

/// What the last failed call of this thread raised, once.
pub fn take_raised() -> Option<PyErr> {
    RAISED.with_borrow_mut(|raised| raised.last.take())
}

/// What the calls of this thread had raised before it began to wait, which may be within a call into Python for which somebody
/// waits on this thread. It is that again when this is dropped.
struct Outer {
    raised: Raised,
}

impl Outer {
    fn begin_to_wait() -> Self {
        Self { raised: RAISED.replace(Raised::nothing(true)) }
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        let outer = std::mem::replace(&mut self.raised, Raised::nothing(false));
        // Not within the borrow: what is freed may call back.
        drop(RAISED.replace(outer));
    }
}

/// Works while other threads of Python go on. A panic is a failure. What calls into Python raise on this thread is the cause of
/// what `raise` makes of a failure, or comes in the place of the outcome if it is no `Exception`.
pub fn wait<T: Send, E: From<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
    raise: impl FnOnce(E) -> PyErr,
) -> PyResult<T> {
    let _outer = Outer::begin_to_wait();
    let outcome = py.detach(|| guard(|| Ok(work())));
    let outcome = outcome.unwrap_or_else(|failure| Err(E::from(failure)));
    match RAISED.with_borrow_mut(|raised| raised.interrupt.take()) {
        Some(interrupt) => {
            // It may hold a store open.
            py.detach(|| drop(outcome));
            Err(interrupt)
        }
        None => outcome.map_err(raise),
    }
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

/// Has calls into Python end before the interpreter does: those under way are waited for, later ones of other threads are
/// refused.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let end = wrap_pyfunction!(end_calls, module)?;
    py.import("atexit")?.call_method1("register", (end,))?;
    let hooks = PyDict::new(py);
    hooks.set_item("after_in_child", wrap_pyfunction!(begin_child, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// Refuses calls into Python from now on, but for those of this thread.
#[pyfunction]
fn end_calls(py: Python<'_>) {
    py.detach(|| *ended_by().write() = Some(thread::current().id()));
}

/// Makes what a forked process needs of its own, while it has one thread: no fork of a fork comes in between.
#[pyfunction]
fn begin_child() {
    ended_by();
}
