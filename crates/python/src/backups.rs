//! `Backups`: incremental backups that share their files.

use crate::callbacks::wait;
use crate::db::Db;
use crate::errors::{ended, raise};
use crate::options::file_system;
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_backup::Error as BackupError;
use terrace_binding::{Code, Failure, Kept};

/// A directory of backups.
#[pyclass(module = "terracedb", frozen)]
pub struct Backups {
    /// Nothing after `close`. A forked process must not wait for the lock, which may be held there for ever.
    backups: Kept<RwLock<Option<Arc<terrace_backup::Backups>>>>,
}

/// What a directory has of one backup.
#[pyclass(module = "terracedb", frozen)]
pub struct Backup {
    /// Its number: later ones are larger.
    #[pyo3(get)]
    id: u64,
    /// When it was made, in seconds since 1970; `None` if its record is damaged.
    #[pyo3(get)]
    created_at: Option<f64>,
    /// The bytes that a restore writes; `None` if its record is damaged.
    #[pyo3(get)]
    size_bytes: Option<u64>,
    /// What is wrong with its record.
    #[pyo3(get)]
    damage: Option<String>,
}

impl From<terrace_backup::Backup> for Backup {
    fn from(backup: terrace_backup::Backup) -> Self {
        let (created_at, size) = (backup.created_ms as f64 / 1000.0, backup.size_bytes());
        Self { id: backup.id, created_at: Some(created_at), size_bytes: Some(size), damage: None }
    }
}

fn failure(error: BackupError) -> Failure {
    let message = error.to_string();
    let code = match error {
        BackupError::Store(error) => return error.into(),
        BackupError::Busy(_) => Code::Locked,
        BackupError::Damaged { .. } => Code::Corruption,
        _ => Code::InvalidArgument,
    };
    Failure { code, message }
}

impl Backups {
    /// Works while other threads of Python go on.
    fn work<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&terrace_backup::Backups) -> terrace_backup::Result<T> + Send,
    ) -> PyResult<T> {
        let opened = self.backups.get().map_err(raise)?.read().clone();
        let opened = opened.ok_or_else(|| ended("directory of backups"))?;
        wait(py, || work(&opened).map_err(failure), raise)
    }
}

#[pymethods]
impl Backups {
    #[new]
    #[pyo3(signature = (path, *, encryption_key_file=None))]
    fn new(py: Python<'_>, path: PathBuf, encryption_key_file: Option<PathBuf>) -> PyResult<Self> {
        let vfs = file_system(encryption_key_file)?;
        let open = || terrace_backup::Backups::open_with(vfs, path).map_err(failure);
        let opened = Arc::new(wait(py, open, raise)?);
        Ok(Self { backups: Kept::new(RwLock::new(Some(opened))) })
    }

    /// Backs an open store up; with `as_is` also one with damaged SSTs.
    #[pyo3(signature = (db, *, as_is=false))]
    fn create(&self, py: Python<'_>, db: &Bound<'_, Db>, as_is: bool) -> PyResult<Backup> {
        let db = db.get().store()?;
        let created = self.work(py, |backups| {
            let created = match as_is {
                true => backups.create_as_is(&db, &mut |_| {}),
                false => backups.create(&db, &mut |_| {}),
            };
            // Without the interpreter: it may be the last handle.
            drop(db);
            created
        })?;
        Ok(created.backup.into())
    }

    /// All backups, the oldest first.
    fn list(&self, py: Python<'_>) -> PyResult<Vec<Backup>> {
        let listed = self.work(py, terrace_backup::Backups::list)?;
        let each = listed.into_iter().map(|listed| match listed.backup {
            Ok(backup) => backup.into(),
            Err(error) => {
                let damage = Some(error.to_string());
                Backup { id: listed.id, created_at: None, size_bytes: None, damage }
            }
        });
        Ok(each.collect())
    }

    /// Reads every byte of a backup and compares it with what was written.
    fn verify(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.work(py, |backups| backups.verify(id, &mut |_| {}))
    }

    /// Makes a directory, new or empty, the store that was backed up.
    fn restore(&self, py: Python<'_>, id: u64, target: PathBuf) -> PyResult<()> {
        self.work(py, |backups| backups.restore(id, target, &mut |_| {}))
    }

    /// Removes a backup; gives the bytes of the files that only it had.
    fn remove(&self, py: Python<'_>, id: u64) -> PyResult<u64> {
        self.work(py, |backups| backups.remove(id))
    }

    /// Removes all backups but the latest; none if the record of one that would stay is damaged. Gives the bytes of the
    /// files that went.
    fn keep_latest(&self, py: Python<'_>, keep: usize) -> PyResult<u64> {
        self.work(py, |backups| backups.keep_latest(keep))
    }

    /// Lets other processes open the directory; also at the end of a `with` block. In a forked process it does nothing.
    fn close(&self) {
        if let Ok(opened) = self.backups.get() {
            *opened.write() = None;
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }
}

#[pymethods]
impl Backup {
    fn __repr__(&self) -> String {
        format!("<terracedb.Backup {}>", self.id)
    }
}
