//! Iterators. Entries are gathered in chunks that grow, without the interpreter, and handed out one by one.

use crate::callbacks::{take_raised, wait};
use crate::errors::{ended, raise, raise_with};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use terrace_binding::{Failure, Kept};

/// Entries of the first chunk, and at most.
const FIRST_CHUNK: usize = 8;
const MAX_CHUNK: usize = 512;

/// Bytes at which a chunk ends.
const CHUNK_BYTES: usize = 256 << 10;

/// What of an entry is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Keys,
    Values,
    Items,
}

/// One object, or two.
type Next<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// Keys, values or both of a range, as of one moment.
#[pyclass(module = "terracedb", name = "Iterator", frozen, generic)]
pub struct Entries {
    part: Part,
    /// Nothing after `close`. A forked process must not wait for the lock, which may be held there for ever.
    cursor: Kept<Mutex<Option<Cursor>>>,
}

struct Cursor {
    /// Nothing after its end, so that it keeps nothing on disk.
    iter: Option<terrace::Iter>,
    reverse: bool,
    is_placed: bool,
    chunk: usize,
    /// Keys and values of the chunk, one after the other, and their lengths.
    bytes: Vec<u8>,
    lens: Vec<(usize, usize)>,
    /// The next entry of the chunk, and where its bytes begin.
    next: usize,
    at: usize,
    /// What ended the chunk, and what a merge operator of Python raised; given after its entries.
    error: Option<(terrace::Error, Option<PyErr>)>,
}

impl Entries {
    /// From the first entry of `iter` on, or back from the last.
    pub fn new(iter: terrace::Iter, part: Part, reverse: bool) -> Self {
        let cursor = Cursor {
            iter: Some(iter),
            reverse,
            is_placed: false,
            chunk: FIRST_CHUNK,
            bytes: Vec::new(),
            lens: Vec::new(),
            next: 0,
            at: 0,
            error: None,
        };
        Self { part, cursor: Kept::new(Mutex::new(Some(cursor))) }
    }

    /// What the chunk has next: one object, or the two of a pair. No pair is made here, under the lock: that
    /// may collect garbage, and with it call code of Python that comes back to this iterator.
    fn next_of_chunk<'py>(&self, py: Python<'py>, cursor: &mut Cursor) -> Option<Next<'py>> {
        let &(key_len, value_len) = cursor.lens.get(cursor.next)?;
        let (key, rest) = cursor.bytes[cursor.at..].split_at(key_len);
        let value = &rest[..value_len];
        let next = match self.part {
            Part::Keys => (PyBytes::new(py, key), None),
            Part::Values => (PyBytes::new(py, value), None),
            Part::Items => (PyBytes::new(py, key), Some(PyBytes::new(py, value))),
        };
        cursor.next += 1;
        cursor.at += key_len + value_len;
        Some(next)
    }
}

impl Cursor {
    /// Gathers a chunk.
    fn fill(&mut self) {
        self.bytes.clear();
        self.lens.clear();
        (self.next, self.at) = (0, 0);
        while self.lens.len() < self.chunk && self.bytes.len() < CHUNK_BYTES {
            let Some(iter) = &mut self.iter else { break };
            let moved = match (self.is_placed, self.reverse) {
                (false, false) => iter.seek_to_first(),
                (false, true) => iter.seek_to_last(),
                (true, false) => iter.next(),
                (true, true) => iter.prev(),
            };
            self.is_placed = true;
            let is_done = moved.is_err() || !iter.valid();
            self.error = moved.err().map(|error| (error, take_raised()));
            if is_done {
                self.iter = None;
                break;
            }
            let (key, value) = (iter.key(), iter.value());
            self.bytes.extend_from_slice(key);
            self.bytes.extend_from_slice(value);
            self.lens.push((key.len(), value.len()));
        }
        self.chunk = (2 * self.chunk).min(MAX_CHUNK);
    }
}

#[pymethods]
impl Entries {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let shared = self.cursor.get().map_err(raise)?;
        loop {
            // Another thread may hold the lock while it fills: it is waited for below.
            if let Some(mut guard) = shared.try_lock() {
                let cursor = guard.as_mut().ok_or_else(|| ended("iterator"))?;
                if let Some(next) = self.next_of_chunk(py, cursor) {
                    drop(guard);
                    return Ok(Some(match next {
                        (one, None) => one.into_any(),
                        (key, Some(value)) => PyTuple::new(py, [key, value])?.into_any(),
                    }));
                }
                if let Some((error, cause)) = cursor.error.take() {
                    drop(guard);
                    return Err(raise_with(error, cause));
                }
                if cursor.iter.is_none() {
                    return Ok(None);
                }
            }
            let fill = || -> Result<(), Failure> {
                let mut guard = shared.lock();
                let Some(cursor) = guard.as_mut() else { return Ok(()) };
                if cursor.next == cursor.lens.len() && cursor.error.is_none() {
                    cursor.fill();
                }
                Ok(())
            };
            wait(py, fill, raise)?;
        }
    }

    /// Lets go of what the iterator keeps on disk; also at the end of a `with` block. In a forked process it does
    /// nothing.
    fn close(&self, py: Python<'_>) {
        if let Ok(cursor) = self.cursor.get() {
            py.detach(|| drop(cursor.lock().take()));
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
