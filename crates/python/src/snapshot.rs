//! `Snapshot`: the store at one moment.

use crate::reader::Reader;
use crate::view::View;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use terrace::Error;

/// The whole store as of one moment; it reads the default column family.
#[pyclass(module = "terracedb", extends = Reader, frozen)]
pub struct Snapshot {
    view: Arc<View>,
}

impl Snapshot {
    /// An object of Python for `view`, which is at a snapshot.
    pub fn initializer(view: Arc<View>) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Reader { view: view.clone() }).add_subclass(Self { view })
    }
}

#[pymethods]
impl Snapshot {
    /// A column family at the same moment.
    fn column_family(&self, name: &str) -> PyResult<Reader> {
        self.view.look(|seen| {
            let family = seen.db.column_family(name);
            let family = family.ok_or_else(|| Error::NoSuchFamily(name.to_string()));
            let family = family.map_err(crate::errors::raise)?;
            let view = View::new(seen.db.clone(), family, seen.reading.snapshot.clone());
            Ok(Reader { view: Arc::new(view) })
        })
    }

    /// Lets go of the moment; also at the end of a `with` block.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.view.release());
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
