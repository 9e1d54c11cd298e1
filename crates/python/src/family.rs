//! `ColumnFamily`: a reader that writes.

use crate::arguments::{bound, bytes, option_text, ttl};
use crate::bulk_loader::BulkLoader;
use crate::errors::raise;
use crate::reader::Reader;
use crate::results::bytes_object;
use crate::view::View;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::ops::Bound as Limit;
use std::path::PathBuf;
use std::sync::Arc;
use terrace::{BulkOptions, IngestOptions, IngestPosition, IngestSource, WriteBatch, parse_size};
use terrace_binding::Failure;

/// A column family: a key space of its own within a store.
#[pyclass(module = "terracedb", extends = Reader, frozen, subclass)]
pub struct ColumnFamily {
    pub(crate) view: Arc<View>,
}

impl ColumnFamily {
    /// An object of Python for `view`.
    pub fn initializer(view: Arc<View>) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Reader { view: view.clone() }).add_subclass(Self { view })
    }

    /// The engine's handle of an argument.
    pub fn handle(object: Option<&Bound<'_, Self>>) -> PyResult<Option<terrace::ColumnFamily>> {
        let handle =
            |object: &Bound<'_, Self>| object.get().view.look(|seen| Ok(seen.family.clone()));
        object.map(handle).transpose()
    }
}

#[pymethods]
impl ColumnFamily {
    #[pyo3(signature = (key, value, *, ttl=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
    ) -> PyResult<()> {
        let (key, value, ttl) = (bytes(key)?, bytes(value)?, self::ttl(ttl)?);
        self.view.work(py, |seen| match ttl {
            None => seen.family.put(&key, &value),
            Some(ttl) => seen.family.put_with_ttl(&key, &value, ttl),
        })
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key.py(), key, value, None)
    }

    /// Changes an option of the family, and stores it.
    fn set_option(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = option_text(value)?;
        self.view.work(py, |seen| seen.family.set_option(name, &value))
    }

    /// What an option of the family is now; `None` for other names.
    fn option(&self, name: &str) -> PyResult<Option<String>> {
        self.view.look(|seen| Ok(seen.family.option(name)))
    }

    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = bytes(key)?;
        self.view.work(key.py(), |seen| seen.family.delete(&bytes))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, bytes) = (key.py(), bytes(key)?);
        let existed = self.view.work(py, |seen| {
            let exists = seen.family.get(&bytes)?.is_some();
            if exists { seen.family.delete(&bytes).map(|()| true) } else { Ok(false) }
        })?;
        if existed { Ok(()) } else { Err(PyKeyError::new_err(key.clone().unbind())) }
    }

    fn delete_range(
        &self,
        py: Python<'_>,
        start: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (start, end) = (bytes(start)?, bytes(end)?);
        self.view.work(py, |seen| seen.family.delete_range(&start, &end))
    }

    /// Merges an operand into the value of a key, as the family's merge operator says.
    fn merge(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, operand) = (bytes(key)?, bytes(operand)?);
        self.view.work(py, |seen| seen.family.merge(&key, &operand))
    }

    /// Removes a key and gives the value that it had.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, pyo3::types::PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(PyTypeError::new_err("pop takes one default at most"));
        }
        let (py, bytes) = (key.py(), bytes(key)?);
        let found = self.view.work(py, |seen| seen.family.get(&bytes))?;
        match found {
            Some(value) => {
                // Before the delete: without memory for it the key stays.
                let object = bytes_object(py, &value)?;
                self.view.work(py, |seen| seen.family.delete(&bytes))?;
                Ok(object.into_any())
            }
            None if default.len() == 1 => default.get_item(0),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// Writes all entries of a mapping, or of an iterable of pairs, as one batch.
    fn update(&self, py: Python<'_>, entries: &Bound<'_, PyAny>) -> PyResult<()> {
        let pairs = match entries.cast::<PyDict>() {
            Ok(dict) => dict.items().into_any(),
            Err(_) => match entries.hasattr("items")? {
                true => entries.call_method0("items")?,
                false => entries.clone(),
            },
        };
        let family = self.view.look(|seen| Ok(seen.family.clone()))?;
        let mut batch = WriteBatch::new();
        for pair in pairs.try_iter()? {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            batch.put_cf(&family, &*bytes(&key)?, &*bytes(&value)?);
        }
        self.view.work(py, |seen| seen.db.write(batch))
    }

    /// Makes files of an `SstWriter` part of the family, all of them as one write or none; gives the number of entries.
    #[pyo3(signature = (paths, *, r#move=false, below=false))]
    fn ingest(
        &self,
        py: Python<'_>,
        paths: &Bound<'_, PyAny>,
        r#move: bool,
        below: bool,
    ) -> PyResult<u64> {
        // Its characters would be paths.
        if paths.is_instance_of::<PyString>() {
            let text = "paths is a list of paths; put a single one into a list";
            return Err(PyTypeError::new_err(text));
        }
        let paths = paths.try_iter()?.map(|path| path?.extract::<PathBuf>());
        let paths: Vec<PathBuf> = paths.collect::<PyResult<_>>()?;
        let options = IngestOptions {
            source: if r#move { IngestSource::Move } else { IngestSource::Copy },
            position: if below { IngestPosition::Below } else { IngestPosition::Above },
        };
        self.view.work(py, |seen| Ok(seen.family.ingest(&paths, &options)?.entry_count))
    }

    /// Begins a load of entries in any order.
    #[pyo3(signature = (*, memory=None, below=false))]
    fn bulk_loader(
        &self,
        py: Python<'_>,
        memory: Option<&Bound<'_, PyAny>>,
        below: bool,
    ) -> PyResult<BulkLoader> {
        let mut options = BulkOptions::default();
        if let Some(memory) = memory {
            let text = option_text(memory)?;
            let bytes = parse_size(&text).and_then(|bytes| usize::try_from(bytes).ok());
            let refusal = || {
                let wants = "a number of bytes, such as 65536 or 64MiB";
                raise(Failure::argument(format!("memory is \"{text}\"; it must be {wants}")))
            };
            options.memory_bytes = bytes.ok_or_else(refusal)?;
        }
        if below {
            options.position = IngestPosition::Below;
        }
        self.view.work(py, |seen| seen.family.bulk_loader(&options)).map(BulkLoader::new)
    }

    /// Merges a range down to the last level.
    #[pyo3(signature = (start=None, end=None))]
    fn compact(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (start, end) = (bound(start)?, bound(end)?);
        let range = (
            start.as_ref().map_or(Limit::Unbounded, Limit::Included),
            end.as_ref().map_or(Limit::Unbounded, Limit::Excluded),
        );
        self.view.work(py, |seen| seen.family.compact_range::<Vec<u8>>(range))
    }
}
