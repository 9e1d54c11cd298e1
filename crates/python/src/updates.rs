//! The change feed: `Updates` gives `UpdateBatch`es, these `Update`s.

use crate::batch::Batch;
use crate::callbacks::{free, wait};
use crate::errors::{ended, raise, raise_error};
use crate::family::ColumnFamily;
use crate::results::bytes_object;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use terrace::{Error, UpdateOp, UpdateOptions};
use terrace_binding::{Failure, Kept};

/// An iterator over committed batches. At its end it may be asked again: it holds its store open until it is closed.
#[pyclass(module = "terracedb", frozen)]
pub struct Updates {
    /// Nothing after `close`. Taken without the interpreter's lock, since a read of the log waits under it, and not
    /// in a forked process, where it may be held for ever.
    feed: Kept<Mutex<Option<Feed>>>,
}

struct Feed {
    updates: terrace::Updates,
    /// Goes after the feed: its last owner closes the store.
    _db: terrace::Db,
}

/// Why there is no next batch, before it is an exception.
enum Failed {
    Refused(Failure),
    Engine(Error),
    Ended,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl Failed {
    fn raised(self) -> PyErr {
        match self {
            Self::Refused(failure) => raise(failure),
            Self::Engine(error) => raise_error(error),
            Self::Ended => ended("feed"),
        }
    }
}

impl Updates {
    /// What was committed in `db` from `seqno` on.
    pub fn open(db: &terrace::Db, seqno: u64, synced_only: bool) -> terrace::Result<Self> {
        let updates = db.updates_with(seqno, &UpdateOptions { synced_only })?;
        let feed = Feed { updates, _db: db.clone() };
        Ok(Self { feed: Kept::new(Mutex::new(Some(feed))) })
    }

    /// Works on the feed while other threads of Python go on.
    fn work<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut terrace::Updates) -> terrace::Result<T> + Send,
    ) -> PyResult<T> {
        let work = || {
            let mut feed = self.feed.get()?.lock();
            let feed = feed.as_mut().ok_or(Failed::Ended)?;
            work(&mut feed.updates).map_err(Failed::Engine)
        };
        wait(py, work, Failed::raised)
    }
}

/// A feed holds its store open.
impl Drop for Updates {
    fn drop(&mut self) {
        if let Ok(feed) = self.feed.get_mut()
            && let Some(feed) = feed.get_mut().take()
        {
            free(feed);
        }
    }
}

#[pymethods]
impl Updates {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<UpdateBatch>> {
        let batch = self.work(py, |feed| feed.next().transpose())?;
        Ok(batch.map(|batch| UpdateBatch { batch: Kept::new(batch) }))
    }

    /// The sequence number that comes next.
    #[getter]
    fn next_seqno(&self, py: Python<'_>) -> PyResult<u64> {
        self.work(py, |feed| Ok(feed.next_seqno()))
    }

    /// Lets go of the store and of the log that it has not read; also at the end of a `with` block. In a forked process
    /// it does nothing.
    fn close(&self, py: Python<'_>) {
        let Ok(feed) = self.feed.get() else { return };
        if let Some(feed) = py.detach(|| feed.lock().take()) {
            free(feed);
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}

/// Writes that were committed together.
#[pyclass(module = "terracedb", frozen)]
pub struct UpdateBatch {
    batch: Kept<terrace::UpdateBatch>,
}

impl UpdateBatch {
    fn read(&self) -> PyResult<&terrace::UpdateBatch> {
        self.batch.get().map_err(raise)
    }
}

#[pymethods]
impl UpdateBatch {
    /// The sequence number of the first operation.
    #[getter]
    fn first_seqno(&self) -> PyResult<u64> {
        Ok(self.read()?.first_seqno())
    }

    /// The sequence number of the last operation: go on with the one after it.
    #[getter]
    fn last_seqno(&self) -> PyResult<u64> {
        Ok(self.read()?.last_seqno())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.read()?.len())
    }

    fn __repr__(&self) -> PyResult<String> {
        let batch = self.read()?;
        let (first, last) = (batch.first_seqno(), batch.last_seqno());
        Ok(format!("<terracedb.UpdateBatch {first} to {last}>"))
    }

    /// The operations in their order.
    fn updates(&self, py: Python<'_>) -> PyResult<Vec<Update>> {
        let each = self.read()?.updates().map(|update| Update::of(py, &update.map_err(raise)?));
        each.collect()
    }

    /// The same operations as a batch for another store, of which `target` is an object.
    fn to_batch(&self, target: &Bound<'_, ColumnFamily>) -> PyResult<Batch> {
        let batch = self.read()?;
        let view = &target.get().view;
        let copied = view.look(|seen| batch.to_write_batch(&seen.db).map_err(raise))?;
        Ok(Batch::filled(view.clone(), copied))
    }
}

/// One operation. What it does not have is `None`.
#[pyclass(module = "terracedb", frozen)]
pub struct Update {
    /// Its sequence number.
    #[pyo3(get)]
    seqno: u64,
    /// `put`, `delete`, `delete_range`, `merge` or `ingested`.
    #[pyo3(get)]
    kind: &'static str,
    /// The name of its column family, unless that was dropped since.
    #[pyo3(get)]
    family: Option<String>,
    /// The key, or the first one of a range.
    #[pyo3(get)]
    key: Py<PyBytes>,
    /// The value that was put, or the operand that was merged.
    #[pyo3(get)]
    value: Option<Py<PyBytes>>,
    /// The first key after a deleted range, or the largest one of an ingested file.
    #[pyo3(get)]
    end: Option<Py<PyBytes>>,
    /// When the value that was put expires, in seconds since 1970.
    #[pyo3(get)]
    expires_at: Option<f64>,
}

impl Update {
    fn of(py: Python<'_>, update: &terrace::Update<'_>) -> PyResult<Self> {
        let (kind, key, value, end, expiry): (_, &[u8], Option<&[u8]>, Option<&[u8]>, _) =
            match &update.op {
                UpdateOp::Put { key, value, expires_at_ms } => {
                    ("put", key, Some(value), None, *expires_at_ms)
                }
                UpdateOp::Delete { key } => ("delete", key, None, None, None),
                UpdateOp::DeleteRange { start, end } => {
                    ("delete_range", start, None, Some(end), None)
                }
                UpdateOp::Merge { key, operand } => ("merge", key, Some(operand), None, None),
                UpdateOp::Ingested { smallest, largest } => {
                    ("ingested", smallest, None, Some(largest), None)
                }
                _ => ("other", &[], None, None, None),
            };
        let bytes = |part: &[u8]| bytes_object(py, part).map(Bound::unbind);
        Ok(Self {
            seqno: update.seqno,
            kind,
            family: update.family.map(str::to_string),
            key: bytes(key)?,
            value: value.map(bytes).transpose()?,
            end: end.map(bytes).transpose()?,
            expires_at: expiry.map(|ms| ms as f64 / 1000.0),
        })
    }
}

#[pymethods]
impl Update {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let key = self.key.bind(py).repr()?;
        Ok(format!("<terracedb.Update {} {} {key}>", self.seqno, self.kind))
    }
}
