//! `MergeOperator`: what operands do to values, as functions of Python.

use crate::arguments::bytes;
use crate::callbacks::{call, note_reads_call_python};
use crate::results::bytes_object;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::Arc;
use terrace::MergeError;
use terrace_binding::{Failure, Outcome};

/// A merge operator that calls Python.
#[pyclass(module = "terracedb", frozen)]
pub struct MergeOperator {
    operator: Arc<dyn terrace::MergeOperator>,
}

/// The functions of one.
struct Functions {
    name: String,
    full_merge: Py<PyAny>,
    partial_merge: Option<Py<PyAny>>,
}

fn callable(function: &Bound<'_, PyAny>, what: &str) -> PyResult<Py<PyAny>> {
    match function.is_callable() {
        true => Ok(function.clone().unbind()),
        false => Err(PyTypeError::new_err(format!("{what} must be callable"))),
    }
}

fn named(name: &str) -> Outcome<String> {
    match terrace::builtin_merge_operator(name) {
        None => Ok(name.to_string()),
        Some(_) => {
            let text = format!("`{name}` is the name of a built-in merge operator; choose another");
            Err(Failure::argument(text))
        }
    }
}

fn list<'py>(py: Python<'py>, operands: &[&[u8]]) -> PyResult<Bound<'py, PyList>> {
    let objects = operands.iter().map(|operand| bytes_object(py, operand));
    PyList::new(py, objects.collect::<PyResult<Vec<_>>>()?)
}

impl terrace::MergeOperator for Functions {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let merged = call(|py| {
            let existing = existing.map(|value| bytes_object(py, value)).transpose()?;
            let arguments = (bytes_object(py, key)?, existing, list(py, operands)?);
            let value = self.full_merge.bind(py).call1(arguments)?;
            Ok(bytes(&value)?.into_owned())
        });
        merged.map_err(MergeError)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let function = self.partial_merge.as_ref()?;
        let merged = call(|py| {
            let value = function.bind(py).call1((bytes_object(py, key)?, list(py, operands)?))?;
            if value.is_none() { Ok(None) } else { Ok(Some(bytes(&value)?.into_owned())) }
        });
        // What it raises, the full merge will have to deal with, when it is asked.
        merged.ok().flatten()
    }
}

impl MergeOperator {
    /// For the engine.
    pub fn operator(&self) -> Arc<dyn terrace::MergeOperator> {
        note_reads_call_python();
        self.operator.clone()
    }
}

#[pymethods]
impl MergeOperator {
    #[new]
    #[pyo3(signature = (name, full_merge, partial_merge=None))]
    fn new(
        name: &str,
        full_merge: &Bound<'_, PyAny>,
        partial_merge: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let functions = Functions {
            name: named(name).map_err(crate::errors::raise)?,
            full_merge: callable(full_merge, "full_merge")?,
            partial_merge: partial_merge
                .map(|function| callable(function, "partial_merge"))
                .transpose()?,
        };
        Ok(Self { operator: Arc::new(functions) })
    }

    /// The operator of a function for which values and operands are the same kind of thing.
    #[staticmethod]
    fn associative(name: &str, merge: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name = named(name).map_err(crate::errors::raise)?;
        let function = callable(merge, "merge")?;
        let operator = terrace::associative(name, move |key, existing, operand| {
            let merged = call(|py| {
                let existing = existing.map(|value| bytes_object(py, value)).transpose()?;
                let arguments = (bytes_object(py, key)?, existing, bytes_object(py, operand)?);
                Ok(bytes(&function.bind(py).call1(arguments)?)?.into_owned())
            });
            merged.map_err(MergeError)
        });
        Ok(Self { operator })
    }

    /// The name that is stored with the column family.
    #[getter]
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn __repr__(&self) -> String {
        format!("<terracedb.MergeOperator {}>", self.operator.name())
    }
}
