//! `repair`: a store that opens, made of what is sound of one that does not.

use crate::callbacks::wait;
use crate::errors::raise;
use crate::options::file_system;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use terrace::{Options, RepairOptions};
use terrace_binding::ServedStores;
use terrace_keyspace::StoreKind;

/// How a server's stores are known, and what they say of themselves.
const SERVED: ServedStores = ServedStores {
    family_signs: terrace_keyspace::FAMILY_SIGNS,
    is_one: |db| match StoreKind::of(db) {
        Ok(kind) => Ok(kind == StoreKind::Keyspace),
        Err(error) => Err(error.to_string()),
    },
    doubt_notes: |db| terrace_keyspace::doubt_notes(db).map_err(|error| error.to_string()),
};

/// Makes the store in `path` one that opens, out of what is sound of it; gives what was saved and lost. With `from_lost` it first
/// takes back what earlier opens and repairs moved to `lost` in it.
#[pyfunction]
#[pyo3(signature = (path, *, dry_run=false, from_lost=false, encryption_key_file=None))]
pub fn repair(
    py: Python<'_>,
    path: PathBuf,
    dry_run: bool,
    from_lost: bool,
    encryption_key_file: Option<PathBuf>,
) -> PyResult<Bound<'_, PyDict>> {
    let mut options = Options::default();
    options.advanced.vfs = file_system(encryption_key_file)?;
    let how = RepairOptions { dry_run, from_lost, ..RepairOptions::default() };
    let report = wait(py, || terrace_binding::repair(&path, options, how, &SERVED), raise)?;
    let dict = PyDict::new(py);
    dict.set_item("was_sound", report.was_sound)?;
    dict.set_item("saved", report.saved)?;
    dict.set_item("lost", report.lost)?;
    dict.set_item("notes", report.notes)?;
    Ok(dict)
}
