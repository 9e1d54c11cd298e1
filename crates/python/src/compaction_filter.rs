//! `CompactionFilter`: which entries compactions keep, as a function of Python.

use crate::arguments::bytes;
use crate::callbacks::{call, take_raised};
use crate::results::bytes_object;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace::{FilterContext, FilterDecision, FilterEntry, FilterError, FilterJob};

/// A compaction filter that calls Python.
#[pyclass(module = "terracedb", frozen)]
pub struct CompactionFilter {
    filter: Arc<Function>,
}

struct Function {
    name: String,
    function: Py<PyAny>,
    keys_only: bool,
    flushes: bool,
    ignores_snapshots: bool,
    /// Whether an exception of it was reported: only the first one is.
    has_reported: AtomicBool,
}

fn decision(said: &Bound<'_, PyAny>) -> PyResult<FilterDecision> {
    if let Ok(flag) = said.cast::<PyBool>() {
        return Ok(if flag.is_true() { FilterDecision::Keep } else { FilterDecision::Remove });
    }
    let value = bytes(said).map_err(|_| {
        let kind = said.get_type().to_string();
        PyTypeError::new_err(format!("a compaction filter says True, False or bytes, not {kind}"))
    })?;
    Ok(FilterDecision::Change(value.into_owned()))
}

impl Function {
    /// Shows the first exception as those of threads that nobody waits for are shown.
    fn report(&self) {
        let Some(raised) = take_raised() else { return };
        if !self.has_reported.swap(true, Ordering::Relaxed) {
            // An interpreter that has ended shows nothing.
            let _ = call(|py| {
                raised.write_unraisable(py, Some(self.function.bind(py)));
                Ok(())
            });
        }
    }
}

impl terrace::CompactionFilter for Function {
    fn name(&self) -> &str {
        &self.name
    }

    fn filter(
        &self,
        _job: &FilterContext,
        entry: &FilterEntry<'_>,
    ) -> Result<FilterDecision, FilterError> {
        // Read before the interpreter is taken.
        let value = if self.keys_only { None } else { Some(entry.value()?) };
        let decided = call(|py| {
            let value = value.map(|value| bytes_object(py, value)).transpose()?;
            let said = self.function.bind(py).call1((bytes_object(py, entry.key())?, value))?;
            decision(&said)
        });
        if decided.is_err() {
            self.report();
        }
        decided.map_err(FilterError)
    }

    fn applies_to(&self, job: &FilterContext) -> bool {
        self.flushes || job.job == FilterJob::Compaction
    }

    fn ignores_snapshots(&self) -> bool {
        self.ignores_snapshots
    }
}

impl CompactionFilter {
    /// For the engine.
    pub fn filter(&self) -> Arc<dyn terrace::CompactionFilter> {
        self.filter.clone()
    }
}

#[pymethods]
impl CompactionFilter {
    #[new]
    #[pyo3(signature = (name, filter, *, keys_only=false, flushes=false, ignores_snapshots=false))]
    fn new(
        name: String,
        filter: &Bound<'_, PyAny>,
        keys_only: bool,
        flushes: bool,
        ignores_snapshots: bool,
    ) -> PyResult<Self> {
        if !filter.is_callable() {
            return Err(PyTypeError::new_err("filter must be callable"));
        }
        let function = filter.clone().unbind();
        let has_reported = AtomicBool::new(false);
        let filter =
            Function { name, function, keys_only, flushes, ignores_snapshots, has_reported };
        Ok(Self { filter: Arc::new(filter) })
    }

    /// The name in events.
    #[getter]
    fn name(&self) -> &str {
        &self.filter.name
    }

    fn __repr__(&self) -> String {
        format!("<terracedb.CompactionFilter {}>", self.filter.name)
    }
}
