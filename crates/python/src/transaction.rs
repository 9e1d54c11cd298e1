//! `Transaction`: optimistic transactions.

use crate::arguments::{bound, bytes, ttl, write_options};
use crate::callbacks::{free, wait};
use crate::errors::{ended, raise};
use crate::family::ColumnFamily;
use crate::results::bytes_object;
use parking_lot::Mutex;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::ops::Bound as Limit;
use terrace::Slice;
use terrace_binding::{Failure, Kept, Outcome};

/// A transaction: reads at one moment, sees its own writes, commits whole or not at all. As a `with` block it
/// is committed at its end, and dropped by an exception.
#[pyclass(module = "terracedb", frozen)]
pub struct Transaction {
    /// Nothing after the commit. Taken without the interpreter's lock, since reads wait under it, and not in a forked
    /// process, where it may be held for ever.
    running: Kept<Mutex<Option<terrace::Transaction>>>,
}

impl Transaction {
    /// One that begins now.
    pub fn new(db: &terrace::Db) -> Self {
        Self { running: Kept::new(Mutex::new(Some(db.transaction()))) }
    }

    /// Commits, unless the transaction has ended.
    pub fn end(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get().map_err(raise)?;
        if py.detach(|| running.lock().is_some()) { self.commit(py, None) } else { Ok(()) }
    }

    /// Works on it while other threads of Python go on.
    fn work<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut terrace::Transaction) -> terrace::Result<T> + Send,
    ) -> PyResult<T> {
        // No failure says that it has ended.
        let work = || -> Result<T, Option<Failure>> {
            let mut guard = self.running.get().map_err(Some)?.lock();
            let running = guard.as_mut().ok_or(None::<Failure>)?;
            work(running).map_err(|error| Some(Failure::from(error)))
        };
        let refused = |failure: Option<Failure>| match failure {
            Some(failure) => raise(failure),
            None => ended("transaction"),
        };
        wait(py, work, refused)
    }
}

/// From `start` on, below `end`, and with `prefix`, as far as they are there.
fn range(
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    prefix: Option<Vec<u8>>,
) -> (Limit<Vec<u8>>, Limit<Vec<u8>>) {
    let behind = prefix.as_deref().and_then(behind);
    let end = match (end, behind) {
        (Some(end), Some(behind)) => Some(end.min(behind)),
        (end, behind) => end.or(behind),
    };
    // None is less than any key.
    let start = start.max(prefix);
    (start.map_or(Limit::Unbounded, Limit::Included), end.map_or(Limit::Unbounded, Limit::Excluded))
}

/// The first key behind all with a prefix; none if nothing is.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// A transaction holds its store open.
impl Drop for Transaction {
    fn drop(&mut self) {
        if let Ok(running) = self.running.get_mut()
            && let Some(running) = running.get_mut().take()
        {
            free(running);
        }
    }
}

#[pymethods]
impl Transaction {
    /// The value of a key. Unless `track` is false, the commit is refused if it has been written since.
    #[pyo3(signature = (key, default=None, *, family=None, track=true))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        family: Option<&Bound<'py, ColumnFamily>>,
        track: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, key, family) = (key.py(), bytes(key)?, ColumnFamily::handle(family)?);
        let found = self.work(py, |running| match (family.as_ref(), track) {
            (None, true) => running.get(&key),
            (None, false) => running.get_untracked(&key),
            (Some(family), true) => running.get_cf(family, &key),
            (Some(family), false) => running.get_untracked_cf(family, &key),
        })?;
        match found {
            Some(value) => Ok(Some(bytes_object(py, &value)?.into_any())),
            None => Ok(default),
        }
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let found = self.get(key, None, None, true)?;
        found.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.get(key, None, None, true)?.is_some())
    }

    /// The first `limit` entries of a range. The commit is refused if others have written into it since, also a key that
    /// was absent.
    #[pyo3(signature = (start=None, end=None, *, prefix=None, limit=None, family=None))]
    fn items<'py>(
        &self,
        py: Python<'py>,
        start: Option<&Bound<'py, PyAny>>,
        end: Option<&Bound<'py, PyAny>>,
        prefix: Option<&Bound<'py, PyAny>>,
        limit: Option<usize>,
        family: Option<&Bound<'py, ColumnFamily>>,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let range = range(bound(start)?, bound(end)?, bound(prefix)?);
        let (limit, family) = (limit.unwrap_or(usize::MAX), ColumnFamily::handle(family)?);
        let found = self.work(py, |running| match family.as_ref() {
            None => running.scan::<Vec<u8>>(range, limit),
            Some(family) => running.scan_cf::<Vec<u8>>(family, range, limit),
        })?;
        let pair = |(key, value): &(Vec<u8>, Slice)| -> PyResult<_> {
            Ok((bytes_object(py, key)?, bytes_object(py, value)?))
        };
        found.iter().map(pair).collect()
    }

    #[pyo3(signature = (key, value, *, ttl=None, family=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        family: Option<&Bound<'_, ColumnFamily>>,
    ) -> PyResult<()> {
        let py = key.py();
        let (key, value, ttl) = (bytes(key)?, bytes(value)?, self::ttl(ttl)?);
        let family = ColumnFamily::handle(family)?;
        self.work(py, |running| {
            match (family.as_ref(), ttl) {
                (None, None) => running.put(&key, &value),
                (None, Some(ttl)) => running.put_with_ttl(&key, &value, ttl),
                (Some(family), None) => running.put_cf(family, &key, &value),
                (Some(family), Some(ttl)) => running.put_with_ttl_cf(family, &key, &value, ttl),
            }
            Ok(())
        })
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key, value, None, None)
    }

    #[pyo3(signature = (key, *, family=None))]
    fn delete(
        &self,
        key: &Bound<'_, PyAny>,
        family: Option<&Bound<'_, ColumnFamily>>,
    ) -> PyResult<()> {
        let (py, key, family) = (key.py(), bytes(key)?, ColumnFamily::handle(family)?);
        self.work(py, |running| {
            match family.as_ref() {
                None => running.delete(&key),
                Some(family) => running.delete_cf(family, &key),
            }
            Ok(())
        })
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.__getitem__(key)?;
        self.delete(key, None)
    }

    #[pyo3(signature = (start, end, *, family=None))]
    fn delete_range(
        &self,
        start: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
        family: Option<&Bound<'_, ColumnFamily>>,
    ) -> PyResult<()> {
        let (py, start, end) = (start.py(), bytes(start)?, bytes(end)?);
        let family = ColumnFamily::handle(family)?;
        self.work(py, |running| {
            match family.as_ref() {
                None => running.delete_range(&start, &end),
                Some(family) => running.delete_range_cf(family, &start, &end),
            }
            Ok(())
        })
    }

    #[pyo3(signature = (key, operand, *, family=None))]
    fn merge(
        &self,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
        family: Option<&Bound<'_, ColumnFamily>>,
    ) -> PyResult<()> {
        let (py, key, operand) = (key.py(), bytes(key)?, bytes(operand)?);
        let family = ColumnFamily::handle(family)?;
        self.work(py, |running| {
            match family.as_ref() {
                None => running.merge(&key, &operand),
                Some(family) => running.merge_cf(family, &key, &operand),
            }
            Ok(())
        })
    }

    /// Makes all writes visible together; `ConflictError` if a key that was read has been written since. The
    /// transaction has ended afterwards.
    #[pyo3(signature = (*, sync=None))]
    fn commit(&self, py: Python<'_>, sync: Option<&str>) -> PyResult<()> {
        let options = write_options(sync)?;
        let shared = self.running.get().map_err(raise)?;
        let work = || -> Outcome<Option<()>> {
            let Some(running) = shared.lock().take() else { return Ok(None) };
            Ok(Some(running.commit_with(&options)?))
        };
        wait(py, work, raise)?.ok_or_else(|| ended("transaction"))
    }

    /// Ends the transaction with nothing written. In a forked process it does nothing.
    pub fn rollback(&self, py: Python<'_>) {
        if let Ok(running) = self.running.get() {
            py.detach(|| drop(running.lock().take()));
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, *_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        if !kind.is_none() {
            self.rollback(py);
            return Ok(());
        }
        // Unless the block has done it.
        self.end(py)
    }
}
