//! `Db`: an open store, which is its default column family as well.

use crate::arguments::option_text;
use crate::batch::Batch;
use crate::callbacks::wait;
use crate::errors::{ConflictError, raise, raise_error};
use crate::family::ColumnFamily;
use crate::options::{set_family_options, store_options};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::updates::Updates;
use crate::view::View;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;
use std::sync::Arc;
use terrace::Error;
use terrace_binding::Outcome;

/// An open store. All threads may use it.
#[pyclass(module = "terracedb", extends = ColumnFamily, frozen)]
pub struct Db {
    view: Arc<View>,
}

impl Db {
    /// The store itself.
    pub fn store(&self) -> PyResult<terrace::Db> {
        self.view.look(|seen| Ok(seen.db.clone()))
    }

    fn family(&self, py: Python<'_>, family: terrace::ColumnFamily) -> PyResult<Py<ColumnFamily>> {
        let view = self.view.look(|seen| Ok(View::new(seen.db.clone(), family, None)))?;
        Py::new(py, ColumnFamily::initializer(Arc::new(view)))
    }
}

#[pymethods]
impl Db {
    #[new]
    #[pyo3(signature = (path, *, read_only=false, column_families=None, **options))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        read_only: bool,
        column_families: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let options = store_options(options, column_families)?;
        let open = || -> Outcome<View> {
            let db = match read_only {
                false => terrace::Db::open(&path, options)?,
                true => terrace::Db::open_read_only(&path, options)?,
            };
            let family = db.default_family();
            Ok(View::new(db, family, None))
        };
        let view = Arc::new(wait(py, open, raise)?);
        Ok(ColumnFamily::initializer(view.clone()).add_subclass(Self { view }))
    }

    /// Flushes and closes the store; also at the end of a `with` block. A second time does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.view.work(py, |seen| seen.db.close())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, *_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        // The exception is what the caller is to see, as `SystemExit` in a forked process, which has nothing to close.
        if !kind.is_none() && !self.view.is_own() {
            return Ok(());
        }
        self.close(py)
    }

    fn __repr__(&self) -> PyResult<String> {
        self.view.look(|seen| Ok(format!("<terracedb.Db at {:?}>", seen.db.path())))
    }

    /// The directory, from the root of the file system on.
    #[getter]
    fn path(&self) -> PyResult<PathBuf> {
        self.view.look(|seen| Ok(seen.db.path().to_path_buf()))
    }

    /// The store at this moment.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Py<Snapshot>> {
        // In a read-only store it may have to wait for a refresh.
        let view = self.view.work(py, |seen| {
            let snapshot = Some(seen.db.snapshot());
            Ok(View::new(seen.db.clone(), seen.db.default_family(), snapshot))
        })?;
        Py::new(py, Snapshot::initializer(Arc::new(view)))
    }

    /// A batch of writes.
    fn batch(&self) -> Batch {
        Batch::new(self.view.clone())
    }

    /// A transaction that begins now.
    fn transaction(&self, py: Python<'_>) -> PyResult<Transaction> {
        self.view.work(py, |seen| Ok(Transaction::new(&seen.db)))
    }

    /// Calls `function` with a transaction and commits it, again if it conflicts, at most `attempts` times;
    /// gives what it returns. The transaction has ended whatever comes of it.
    #[pyo3(signature = (function, *, attempts=100))]
    fn transact<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        attempts: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut at = 1;
        loop {
            let transaction = Py::new(py, self.transaction(py)?)?.into_bound(py);
            let outcome = function.call1((&transaction,)).and_then(|returned| {
                transaction.get().end(py)?;
                Ok(returned)
            });
            if outcome.is_err() {
                transaction.get().rollback(py);
            }
            match outcome {
                Err(error) if at < attempts && error.is_instance_of::<ConflictError>(py) => at += 1,
                outcome => return outcome,
            }
        }
    }

    /// The column family called `name`.
    fn column_family(&self, py: Python<'_>, name: &str) -> PyResult<Py<ColumnFamily>> {
        let family = self.view.look(|seen| {
            let family = seen.db.column_family(name);
            family.ok_or_else(|| raise(Error::NoSuchFamily(name.to_string())))
        })?;
        self.family(py, family)
    }

    /// Creates a column family.
    #[pyo3(signature = (name, **options))]
    fn create_column_family(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<ColumnFamily>> {
        let mut chosen = terrace::CfOptions::default();
        set_family_options(&mut chosen, options)?;
        let family = self.view.work(py, |seen| seen.db.create_column_family(name, chosen))?;
        self.family(py, family)
    }

    /// Drops a column family with all its keys.
    fn drop_column_family(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.view.work(py, |seen| seen.db.drop_column_family(name))
    }

    /// The names of all column families.
    fn column_families(&self) -> PyResult<Vec<String>> {
        self.view.look(|seen| Ok(seen.db.column_families()))
    }

    /// What was committed from a sequence number on, as an iterator of batches.
    #[pyo3(signature = (seqno, *, synced_only=false))]
    fn updates_since(&self, py: Python<'_>, seqno: u64, synced_only: bool) -> PyResult<Updates> {
        let feed = self.view.work(py, |seen| Ok(Updates::open(&seen.db, seqno, synced_only)))?;
        feed.map_err(raise_error)
    }

    /// The sequence number of the newest write that reads see; 0 in an empty store.
    fn latest_seqno(&self) -> PyResult<u64> {
        self.view.look(|seen| Ok(seen.db.latest_seqno()))
    }

    /// The oldest sequence number that `updates_since` takes now.
    fn oldest_update(&self, py: Python<'_>) -> PyResult<u64> {
        self.view.work(py, |seen| seen.db.oldest_update())
    }

    /// Makes everything written so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.view.work(py, |seen| seen.db.sync())
    }

    /// Writes all memtables to sorted files.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.view.work(py, |seen| seen.db.flush())
    }

    /// Waits until no flush or compaction is running or wanted.
    fn wait_idle(&self, py: Python<'_>) -> PyResult<()> {
        self.view.work(py, |seen| seen.db.wait_idle())
    }

    /// Collects segments of the value log with at least this share of garbage.
    #[pyo3(signature = (min_share=0.3))]
    fn collect_garbage(&self, py: Python<'_>, min_share: f64) -> PyResult<()> {
        self.view.work(py, |seen| seen.db.collect_garbage(min_share))
    }

    /// Makes a directory a store with the present contents of this one.
    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.view.work(py, |seen| seen.db.checkpoint(&path))
    }

    /// Checks every sorted file; gives their number.
    fn verify(&self, py: Python<'_>) -> PyResult<u64> {
        self.view.work(py, |seen| seen.db.verify())
    }

    /// Shows in a read-only store what was written since; whether there is anything new.
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        self.view.work(py, |seen| seen.db.refresh())
    }

    /// Changes an option of the open store.
    fn set_option(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = option_text(value)?;
        self.view.work(py, |seen| seen.db.set_option(name, &value))
    }

    /// What such an option is now; `None` for other names.
    fn option(&self, name: &str) -> PyResult<Option<String>> {
        self.view.look(|seen| Ok(seen.db.option(name)))
    }

    /// The state of the store and what it did, for people.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        self.view.work(py, |seen| Ok(seen.db.metrics().to_string()))
    }

    /// The same in the format of Prometheus.
    fn metrics_prometheus(&self, py: Python<'_>) -> PyResult<String> {
        self.view.work(py, |seen| Ok(seen.db.metrics().to_prometheus()))
    }
}
