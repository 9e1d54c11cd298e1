//! Options that are given as keyword arguments: texts, and objects that call Python.

use crate::arguments::option_text;
use crate::compaction_filter::CompactionFilter;
use crate::errors::raise;
use crate::merge_operator::MergeOperator;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString};
use std::path::PathBuf;
use std::sync::Arc;
use terrace::vfs::{PosixVfs, Vfs};
use terrace::{CfOptions, Options};
use terrace_binding::{encrypted_vfs, plain_options, set_store_option};

/// What the argument `column_families` is.
const WANTED_FAMILIES: &str =
    "column_families is a list of names, or a mapping of names to mappings of options";

/// The name of the default column family, which always is there.
const DEFAULT_FAMILY: &str = "default";

/// Sets an option that is an object; false if it is none.
fn set_object(options: &mut CfOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match name {
        "merge_operator" => match value.cast::<MergeOperator>() {
            Ok(operator) => options.merge_operator = Some(operator.get().operator()),
            Err(_) => return Ok(false),
        },
        "compaction_filter" if value.is_none() => options.compaction_filter = None,
        "compaction_filter" => match value.cast::<CompactionFilter>() {
            Ok(filter) => options.compaction_filter = Some(filter.get().filter()),
            Err(_) => {
                let text = "compaction_filter is a terracedb.CompactionFilter or None";
                return Err(PyTypeError::new_err(text));
            }
        },
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets the options of a column family that keyword arguments name.
pub fn set_family_options(
    options: &mut CfOptions,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        if !set_object(options, &name, &value)? {
            options.set_option(&name, &option_text(&value)?).map_err(raise)?;
        }
    }
    Ok(())
}

/// Where files are that belong to no open store: encrypted with the keys in this file, if one is named.
pub fn file_system(key_file: Option<PathBuf>) -> PyResult<Arc<dyn Vfs>> {
    match key_file {
        None => Ok(PosixVfs::shared()),
        Some(file) => encrypted_vfs(&file).map_err(raise),
    }
}

/// The options of a store that keyword arguments name.
pub fn store_options(
    given: Option<&Bound<'_, PyDict>>,
    families: Option<&Bound<'_, PyAny>>,
) -> PyResult<Options> {
    let mut options = Options::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        if name == "encryption_key_file" && value.is_none() {
            continue;
        }
        if !set_object(&mut options.default_family, &name, &value)? {
            set_store_option(&mut options, &name, &option_text(&value)?).map_err(raise)?;
        }
    }
    let Some(families) = families else { return Ok(options) };
    if families.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(WANTED_FAMILIES));
    }
    let own = families.cast::<PyMapping>().ok();
    let set_own = |name: &Bound<'_, PyAny>, family: &mut CfOptions| -> PyResult<()> {
        let Some(own) = own else { return Ok(()) };
        let own = own.get_item(name)?;
        let own = own.cast::<PyMapping>().map_err(|_| PyTypeError::new_err(WANTED_FAMILIES))?;
        let own = PyDict::from_sequence(own.items()?.as_any())?;
        set_family_options(family, Some(&own))
    };
    let mut names = Vec::new();
    for name in families.try_iter()? {
        let name = name?;
        let text: String = name.extract()?;
        names.push((name, text));
    }
    // The others begin as the default one, wherever it stands, but without its code.
    for (name, _) in names.iter().filter(|(_, text)| text == DEFAULT_FAMILY) {
        set_own(name, &mut options.default_family)?;
    }
    for (name, text) in names.into_iter().filter(|(_, text)| text != DEFAULT_FAMILY) {
        let mut family = plain_options(&options.default_family);
        set_own(&name, &mut family)?;
        options.column_families.push((text, family));
    }
    Ok(options)
}
