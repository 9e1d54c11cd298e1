//! What Python gets: bytes of the engine as an object.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// An object with a copy of `bytes`; `MemoryError` without memory for it, where `PyBytes::new` panics.
#[inline]
pub fn bytes_object<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |room| {
        room.copy_from_slice(bytes);
        Ok(())
    })
}
