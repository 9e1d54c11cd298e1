//! `repair`: a store that opens, made of what is sound of one that does not.

use crate::callbacks::wait;
use crate::errors::raise;
use crate::options::file_system;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use terrace::{Options, RepairOptions, RepairReport};
use terrace_binding::Outcome;

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
    let work = || -> Outcome<RepairReport> { Ok(terrace_keyspace::repair(&path, options, how)?) };
    let report = wait(py, work, raise)?;
    let dict = PyDict::new(py);
    dict.set_item("was_sound", report.was_sound)?;
    dict.set_item("saved", report.saved)?;
    dict.set_item("lost", report.lost)?;
    dict.set_item("notes", report.notes)?;
    Ok(dict)
}
