//! `Reader`: what stores, column families and snapshots have in common, the side of a dict that reads.

use crate::arguments::{bound, bytes};
use crate::callbacks::reads_call_python;
use crate::entries::{Entries, Part};
use crate::results::bytes_object;
use crate::view::View;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::ops::Bound as Limit;
use std::sync::Arc;
use terrace::{Error, ReadOptions, Slice};

/// Keys and values, to be read.
#[pyclass(module = "terracedb", frozen, subclass)]
pub struct Reader {
    pub(crate) view: Arc<View>,
}

impl Reader {
    /// The value of `key`. One that is in memory is read without giving the interpreter away.
    #[inline]
    pub fn look_up(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Slice>> {
        if reads_call_python() {
            // Not under a lock, nor with an interpreter that others wait for.
            return self.view.work(py, |seen| seen.family.get_with(key, &seen.reading));
        }
        let cached = self.view.look(|seen| match seen.family.get_with(key, &seen.in_memory) {
            Err(Error::NotInMemory) => Ok(None),
            found => found.map(Some).map_err(crate::errors::raise),
        })?;
        match cached {
            Some(found) => Ok(found),
            None => self.view.work(py, |seen| seen.family.get_with(key, &seen.reading)),
        }
    }

    fn entries(
        &self,
        part: Part,
        [lower_bound, upper_bound, prefix]: [Option<Vec<u8>>; 3],
        reverse: bool,
    ) -> PyResult<Entries> {
        let (db, iter) = self.view.look(|seen| {
            let keys_only = part == Part::Keys;
            let bounds = ReadOptions { lower_bound, upper_bound, prefix, ..seen.reading.clone() };
            let options = ReadOptions { keys_only, ..bounds };
            let iter = seen.family.iter_with(&options).map_err(crate::errors::raise)?;
            Ok((seen.db.clone(), iter))
        })?;
        Ok(Entries::new(db, iter, part, reverse))
    }
}

#[pymethods]
impl Reader {
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        match self.look_up(py, &bytes(key)?)? {
            Some(value) => Ok(Some(bytes_object(py, &value)?.into_any())),
            None => Ok(default),
        }
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let py = key.py();
        match self.look_up(py, &bytes(key)?)? {
            Some(value) => bytes_object(py, &value),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.look_up(key.py(), &bytes(key)?)?.is_some())
    }

    /// The values of several keys as of one moment, `None` for those that are absent.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let objects = keys.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let keys = objects.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        let found = self.view.work(py, |seen| seen.family.multi_get_with(&keys, &seen.reading))?;
        let object =
            |value: &Option<Slice>| value.as_ref().map(|value| bytes_object(py, value)).transpose();
        let values = found.iter().map(object).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, values)
    }

    /// When the value of a key expires, in seconds since 1970; `None` if it does not.
    fn expires_at(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let bytes = bytes(key)?;
        let found =
            self.view.work(key.py(), |seen| seen.family.get_entry(&bytes, &seen.reading))?;
        let found = found.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))?;
        Ok(found.expires_at_ms.map(|ms| ms as f64 / 1000.0))
    }

    #[pyo3(signature = (start=None, end=None, *, prefix=None, reverse=false))]
    fn keys(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(Part::Keys, [bound(start)?, bound(end)?, bound(prefix)?], reverse)
    }

    #[pyo3(signature = (start=None, end=None, *, prefix=None, reverse=false))]
    fn values(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(Part::Values, [bound(start)?, bound(end)?, bound(prefix)?], reverse)
    }

    #[pyo3(signature = (start=None, end=None, *, prefix=None, reverse=false))]
    fn items(
        &self,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Entries> {
        self.entries(Part::Items, [bound(start)?, bound(end)?, bound(prefix)?], reverse)
    }

    fn __iter__(&self) -> PyResult<Entries> {
        self.entries(Part::Keys, [None, None, None], false)
    }

    fn __reversed__(&self) -> PyResult<Entries> {
        self.entries(Part::Keys, [None, None, None], true)
    }

    /// About how many keys and bytes a range holds.
    #[pyo3(signature = (start=None, end=None))]
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        start: Option<&Bound<'py, PyAny>>,
        end: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (start, end) = (bound(start)?, bound(end)?);
        let range = (
            start.as_ref().map_or(Limit::Unbounded, Limit::Included),
            end.as_ref().map_or(Limit::Unbounded, Limit::Excluded),
        );
        let estimate = self.view.work(py, |seen| seen.family.estimate::<Vec<u8>>(range))?;
        let dict = PyDict::new(py);
        dict.set_item("keys", estimate.keys)?;
        dict.set_item("bytes", estimate.bytes)?;
        Ok(dict)
    }

    /// The name of the column family.
    #[getter]
    fn name(&self) -> PyResult<String> {
        self.view.look(|seen| Ok(seen.family.name().to_string()))
    }
}
