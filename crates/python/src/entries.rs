//! Iterators. Entries are gathered in chunks that grow, without the interpreter, and handed out one by one.

use crate::callbacks::{free, take_raised, wait};
use crate::errors::{ended, raise, raise_with};
use crate::results::bytes_object;
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

/// Keys, values or both of a range, as of one moment. Until its end it holds its store open.
#[pyclass(module = "terracedb", name = "Iterator", frozen, generic)]
pub struct Entries {
    part: Part,
    /// Nothing after `close`. A forked process must not wait for the lock, which may be held there for ever.
    cursor: Kept<Mutex<Option<Cursor>>>,
}

struct Cursor {
    /// Nothing after its end, so that it keeps nothing on disk and no store open.
    source: Option<Source>,
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

/// Where entries come from.
struct Source {
    iter: terrace::Iter,
    /// Goes after the iterator: its last owner closes the store.
    _db: terrace::Db,
}

impl Entries {
    /// From the first entry of `iter`, one of `db`, on, or back from the last.
    pub fn new(db: terrace::Db, iter: terrace::Iter, part: Part, reverse: bool) -> Self {
        let cursor = Cursor {
            source: Some(Source { iter, _db: db }),
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

    /// What the chunk has next, which stays there if it fails: one object, or the two of a pair. No pair is made here, under the lock: that
    /// may collect garbage, and with it call code of Python that comes back to this iterator.
    fn next_of_chunk<'py>(
        &self,
        py: Python<'py>,
        cursor: &mut Cursor,
    ) -> PyResult<Option<Next<'py>>> {
        let Some(&(key_len, value_len)) = cursor.lens.get(cursor.next) else { return Ok(None) };
        let (key, rest) = cursor.bytes[cursor.at..].split_at(key_len);
        let value = &rest[..value_len];
        let next = match self.part {
            Part::Keys => (bytes_object(py, key)?, None),
            Part::Values => (bytes_object(py, value)?, None),
            Part::Items => (bytes_object(py, key)?, Some(bytes_object(py, value)?)),
        };
        cursor.next += 1;
        cursor.at += key_len + value_len;
        Ok(Some(next))
    }
}

impl Cursor {
    /// Gathers a chunk. At its end it gives what it has no more use for, to be freed without a lock.
    fn fill(&mut self) -> Option<Source> {
        self.bytes.clear();
        self.lens.clear();
        (self.next, self.at) = (0, 0);
        let mut released = None;
        while self.lens.len() < self.chunk && self.bytes.len() < CHUNK_BYTES {
            let Some(Source { iter, .. }) = &mut self.source else { break };
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
                released = self.source.take();
                break;
            }
            let (key, value) = (iter.key(), iter.value());
            self.bytes.extend_from_slice(key);
            self.bytes.extend_from_slice(value);
            self.lens.push((key.len(), value.len()));
        }
        self.chunk = (2 * self.chunk).min(MAX_CHUNK);
        released
    }
}

/// An iterator holds its store open.
impl Drop for Entries {
    fn drop(&mut self) {
        if let Ok(cursor) = self.cursor.get_mut()
            && let Some(source) = cursor.get_mut().as_mut().and_then(|cursor| cursor.source.take())
        {
            free(source);
        }
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
                if let Some(next) = self.next_of_chunk(py, cursor)? {
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
                if cursor.source.is_none() {
                    return Ok(None);
                }
            }
            let fill = || -> Result<(), Failure> {
                let mut guard = shared.lock();
                let Some(cursor) = guard.as_mut() else { return Ok(()) };
                let is_empty = cursor.next == cursor.lens.len() && cursor.error.is_none();
                let released = if is_empty { cursor.fill() } else { None };
                drop(guard);
                if let Some(source) = released {
                    free(source);
                }
                Ok(())
            };
            wait(py, fill, raise)?;
        }
    }

    /// Lets go of the store and of what the iterator keeps on disk; also at the end of a `with` block. In a forked
    /// process it does nothing.
    fn close(&self, py: Python<'_>) {
        let Ok(cursor) = self.cursor.get() else { return };
        let cursor = py.detach(|| cursor.lock().take());
        if let Some(source) = cursor.and_then(|cursor| cursor.source) {
            free(source);
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
