//! `BulkLoader`: loads entries in any order, as one write.

use crate::arguments::{bytes, until_ms};
use crate::callbacks::{free, wait};
use crate::errors::{ended, raise};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use terrace_binding::{Kept, Outcome};

/// A load. As a `with` block it is finished at its end, and dropped by an exception.
#[pyclass(module = "terracedb", frozen)]
pub struct BulkLoader {
    /// Nothing once it is finished or dropped. In a box, since Python aligns objects to 16 bytes and a loader may want more.
    /// A forked process must not wait for the lock, which may be held there for ever.
    loader: Kept<Mutex<Option<Box<terrace::BulkLoader>>>>,
}

impl BulkLoader {
    /// For a load that has begun.
    pub fn new(loader: terrace::BulkLoader) -> Self {
        Self { loader: Kept::new(Mutex::new(Some(Box::new(loader)))) }
    }

    /// Works on the load while other threads of Python go on.
    fn work(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut terrace::BulkLoader) -> terrace::Result<()> + Send,
    ) -> PyResult<()> {
        let shared = self.loader.get().map_err(raise)?;
        let work = || -> Outcome<Option<()>> {
            let mut loader = shared.lock();
            let Some(loader) = loader.as_mut() else { return Ok(None) };
            Ok(Some(work(loader)?))
        };
        wait(py, work, raise)?.ok_or_else(|| ended("load"))
    }
}

/// A load holds its store open.
impl Drop for BulkLoader {
    fn drop(&mut self) {
        if let Ok(loader) = self.loader.get_mut()
            && let Some(loader) = loader.get_mut().take()
        {
            free(loader);
        }
    }
}

#[pymethods]
impl BulkLoader {
    /// Sets a key; with `expires_at`, until then, in seconds since 1970.
    #[pyo3(signature = (key, value, *, expires_at=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expires_at: Option<f64>,
    ) -> PyResult<()> {
        let (key, value, until) = (bytes(key)?, bytes(value)?, until_ms(expires_at)?);
        self.work(py, |loader| match until {
            None => loader.put(&key, &value),
            Some(at_ms) => loader.put_until(&key, &value, at_ms),
        })
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key.py(), key, value, None)
    }

    /// Deletes a key, also if the store has it.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = bytes(key)?;
        self.work(key.py(), |loader| loader.delete(&bytes))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.delete(key)
    }

    /// Sorts what was given and makes it part of the store; gives the number of entries and deletions.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let shared = self.loader.get().map_err(raise)?;
        let work = || -> Outcome<Option<u64>> {
            let Some(loader) = shared.lock().take() else { return Ok(None) };
            Ok(Some(loader.finish()?.entry_count))
        };
        wait(py, work, raise)?.ok_or_else(|| ended("load"))
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
            // The exception is what the caller is to see, in a forked process, too.
            if let Ok(shared) = self.loader.get() {
                py.detach(|| drop(shared.lock().take()));
            }
            return Ok(());
        }
        let shared = self.loader.get().map_err(raise)?;
        if py.detach(|| shared.lock().is_some()) {
            // Unless the block has done it.
            self.finish(py)?;
        }
        Ok(())
    }
}
