//! What Python passes: bytes, times to live, options.

use crate::errors::raise;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyList, PyMemoryView, PyTuple};
use std::borrow::Cow;
use std::time::Duration;
use terrace::{SyncMode, WriteOptions};

/// The bytes of `bytes`, `bytearray` or `memoryview`. Text is refused: how it is encoded is the caller's to
/// say.
#[inline]
pub fn bytes<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    match object.cast::<PyBytes>() {
        Ok(bytes) => Ok(Cow::Borrowed(bytes.as_bytes())),
        Err(_) => other_bytes(object),
    }
}

#[cold]
fn other_bytes<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(array) = object.cast::<PyByteArray>() {
        return Ok(Cow::Owned(array.to_vec()));
    }
    if object.is_instance_of::<PyMemoryView>() {
        let bytes = object.call_method0("tobytes")?;
        return Ok(Cow::Owned(bytes.cast_into::<PyBytes>()?.as_bytes().to_vec()));
    }
    let kind = object.get_type().name()?;
    Err(PyTypeError::new_err(format!("keys and values are bytes, not {kind}; encode text first")))
}

/// As [`bytes`], nothing for `None`.
pub fn bound(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<u8>>> {
    object.map(|object| Ok(bytes(object)?.into_owned())).transpose()
}

/// A time to live in seconds.
pub fn ttl(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let duration = |seconds| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| PyValueError::new_err(format!("ttl is {seconds}; it must be seconds")))
    };
    seconds.map(duration).transpose()
}

/// A time of expiry, given in seconds since 1970, in milliseconds: the nearest one, since a float of seconds may be a
/// little less than the milliseconds that it was made of.
pub fn until_ms(expires_at: Option<f64>) -> PyResult<Option<u64>> {
    match expires_at {
        None => Ok(None),
        Some(at) if at.is_finite() && at >= 0.0 => Ok(Some((at * 1000.0).round() as u64)),
        Some(at) => {
            let text = format!("expires_at is {at}; it must be seconds since 1970");
            Err(PyValueError::new_err(text))
        }
    }
}

/// How a write is done.
pub fn write_options(sync: Option<&str>) -> PyResult<WriteOptions> {
    let sync = sync.map(str::parse::<SyncMode>).transpose().map_err(raise)?;
    Ok(WriteOptions { sync })
}

/// The text of an option's value: of a list, that of its parts. These are no lists themselves, since one may be within
/// itself.
pub fn option_text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if !is_list(value) {
        return one_text(value);
    }
    let part = |part: PyResult<Bound<'_, PyAny>>| {
        let part = part?;
        if is_list(&part) {
            return Err(PyTypeError::new_err("an option's list has no lists in it"));
        }
        one_text(&part)
    };
    Ok(value.try_iter()?.map(part).collect::<PyResult<Vec<_>>>()?.join(","))
}

fn is_list(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>()
}

/// The text of what is no list.
fn one_text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_none() {
        return Ok("none".to_string());
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    Ok(value.str()?.to_string())
}
