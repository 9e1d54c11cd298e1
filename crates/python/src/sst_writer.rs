//! `SstWriter`: a sorted file that is written outside a store, to be ingested.

use crate::arguments::{bytes, until_ms};
use crate::callbacks::wait;
use crate::errors::{ended, raise};
use crate::options::{file_system, set_family_options};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;
use terrace_binding::{Failure, Kept, Outcome};

/// A sorted file. As a `with` block it is finished at its end, and removed by an exception.
#[pyclass(module = "terracedb", frozen)]
pub struct SstWriter {
    /// Nothing once it is finished or dropped. In a box, since Python aligns objects to 16 bytes and a writer wants more.
    /// A forked process must not wait for the lock, which may be held there for ever.
    writer: Kept<Mutex<Option<Box<terrace::SstWriter>>>>,
    path: PathBuf,
}

impl SstWriter {
    /// Works on the file while other threads of Python go on.
    fn work(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut terrace::SstWriter) -> terrace::Result<()> + Send,
    ) -> PyResult<()> {
        let shared = self.writer.get().map_err(raise)?;
        let work = || -> Outcome<Option<()>> {
            let mut writer = shared.lock();
            let Some(writer) = writer.as_mut() else { return Ok(None) };
            Ok(Some(work(writer)?))
        };
        wait(py, work, raise)?.ok_or_else(|| ended("file"))
    }
}

#[pymethods]
impl SstWriter {
    #[new]
    #[pyo3(signature = (path, *, encryption_key_file=None, **options))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        encryption_key_file: Option<PathBuf>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut family = terrace::CfOptions::default();
        set_family_options(&mut family, options)?;
        let vfs = file_system(encryption_key_file)?;
        let path = vfs.absolute(&path);
        let create = || terrace::SstWriter::create_on(vfs, &path, &family).map_err(Failure::from);
        let created = wait(py, create, raise)?;
        Ok(Self { writer: Kept::new(Mutex::new(Some(Box::new(created)))), path })
    }

    /// Where the file lies, from the root of the file system on.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Adds a key, which must be above all before it; with `expires_at`, until then, in seconds since 1970.
    #[pyo3(signature = (key, value, *, expires_at=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expires_at: Option<f64>,
    ) -> PyResult<()> {
        let (key, value, until) = (bytes(key)?, bytes(value)?, until_ms(expires_at)?);
        self.work(py, |writer| match until {
            None => writer.put(&key, &value),
            Some(at_ms) => writer.put_until(&key, &value, at_ms),
        })
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key.py(), key, value, None)
    }

    /// Adds a key that the ingestion deletes.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = bytes(key)?;
        self.work(key.py(), |writer| writer.delete(&bytes))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.delete(key)
    }

    /// Deletes every key of a range that the store has when the file is ingested.
    fn delete_range(
        &self,
        py: Python<'_>,
        start: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (start, end) = (bytes(start)?, bytes(end)?);
        self.work(py, |writer| writer.delete_range(&start, &end))
    }

    /// Adds an operand that the ingestion merges into the value of its key.
    fn merge(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, operand) = (bytes(key)?, bytes(operand)?);
        self.work(py, |writer| writer.merge(&key, &operand))
    }

    /// About how long the file would be if it were finished now.
    fn estimated_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        let mut estimate = 0;
        self.work(py, |writer| {
            estimate = writer.estimated_bytes();
            Ok(())
        })?;
        Ok(estimate)
    }

    /// Finishes the file and makes it durable; gives the number of its keys, those that it deletes among them.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        let shared = self.writer.get().map_err(raise)?;
        let work = || -> Outcome<Option<u64>> {
            let Some(writer) = shared.lock().take() else { return Ok(None) };
            Ok(Some(writer.finish()?.entry_count))
        };
        wait(py, work, raise)?.ok_or_else(|| ended("file"))
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
            if let Ok(shared) = self.writer.get() {
                py.detach(|| drop(shared.lock().take()));
            }
            return Ok(());
        }
        let shared = self.writer.get().map_err(raise)?;
        if py.detach(|| shared.lock().is_some()) {
            // Unless the block has done it.
            self.finish(py)?;
        }
        Ok(())
    }
}
