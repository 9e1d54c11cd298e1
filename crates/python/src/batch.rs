//! `Batch`: writes that become visible together.

use crate::arguments::{bytes, ttl, write_options};
use crate::errors::{ended, raise};
use crate::family::ColumnFamily;
use crate::view::View;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use terrace::WriteBatch;
use terrace_binding::Kept;

/// Writes of one store. As a `with` block it is committed at its end, and dropped by an exception.
#[pyclass(module = "terracedb", frozen)]
pub struct Batch {
    view: Arc<View>,
    /// Nothing after the commit. Held for no longer than it takes to add to it; a forked process must not wait for it all the
    /// same, since it may be held there for ever.
    batch: Kept<Mutex<Option<WriteBatch>>>,
}

impl Batch {
    /// An empty one of the store of `view`.
    pub fn new(view: Arc<View>) -> Self {
        Self::filled(view, WriteBatch::new())
    }

    /// One for the store of `view` that has the operations of `batch`.
    pub fn filled(view: Arc<View>, batch: WriteBatch) -> Self {
        Self { view, batch: Kept::new(Mutex::new(Some(batch))) }
    }

    fn add(
        &self,
        family: Option<&Bound<'_, ColumnFamily>>,
        add: impl FnOnce(&mut WriteBatch, Option<&terrace::ColumnFamily>),
    ) -> PyResult<()> {
        let family = ColumnFamily::handle(family)?;
        let mut guard = self.shared()?.lock();
        add(guard.as_mut().ok_or_else(|| ended("batch"))?, family.as_ref());
        Ok(())
    }

    fn shared(&self) -> PyResult<&Mutex<Option<WriteBatch>>> {
        self.batch.get().map_err(raise)
    }
}

#[pymethods]
impl Batch {
    #[pyo3(signature = (key, value, *, ttl=None, family=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
        family: Option<&Bound<'_, ColumnFamily>>,
    ) -> PyResult<()> {
        let (key, value, ttl) = (bytes(key)?, bytes(value)?, self::ttl(ttl)?);
        self.add(family, |batch, family| match (family, ttl) {
            (None, None) => batch.put(&key, &value),
            (None, Some(ttl)) => batch.put_with_ttl(&key, &value, ttl),
            (Some(family), None) => batch.put_cf(family, &key, &value),
            (Some(family), Some(ttl)) => batch.put_with_ttl_cf(family, &key, &value, ttl),
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
        let key = bytes(key)?;
        self.add(family, |batch, family| match family {
            None => batch.delete(&key),
            Some(family) => batch.delete_cf(family, &key),
        })
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.delete(key, None)
    }

    #[pyo3(signature = (start, end, *, family=None))]
    fn delete_range(
        &self,
        start: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
        family: Option<&Bound<'_, ColumnFamily>>,
    ) -> PyResult<()> {
        let (start, end) = (bytes(start)?, bytes(end)?);
        self.add(family, |batch, family| match family {
            None => batch.delete_range(&start, &end),
            Some(family) => batch.delete_range_cf(family, &start, &end),
        })
    }

    #[pyo3(signature = (key, operand, *, family=None))]
    fn merge(
        &self,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
        family: Option<&Bound<'_, ColumnFamily>>,
    ) -> PyResult<()> {
        let (key, operand) = (bytes(key)?, bytes(operand)?);
        self.add(family, |batch, family| match family {
            None => batch.merge(&key, &operand),
            Some(family) => batch.merge_cf(family, &key, &operand),
        })
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.shared()?.lock().as_ref().map_or(0, WriteBatch::len))
    }

    /// Removes all operations.
    fn clear(&self) -> PyResult<()> {
        self.add(None, |batch, _| batch.clear())
    }

    /// Writes all of it, or nothing; the batch has ended afterwards.
    #[pyo3(signature = (*, sync=None))]
    fn commit(&self, py: Python<'_>, sync: Option<&str>) -> PyResult<()> {
        let options = write_options(sync)?;
        let batch = self.shared()?.lock().take().ok_or_else(|| ended("batch"))?;
        self.view.work(py, |seen| seen.db.write_with(batch, &options))
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
            if let Ok(shared) = self.batch.get() {
                *shared.lock() = None;
            }
            return Ok(());
        }
        // Unless the block has done it.
        let is_open = self.shared()?.lock().is_some();
        if is_open { self.commit(py, None) } else { Ok(()) }
    }
}
