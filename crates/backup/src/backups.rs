//! The directory of backups: opening it, and what is in it.

use crate::copy::{Content, check, content_of};
use crate::error::{Error, Result};
use crate::record::{Backup, BackupFile, HASH_DIGITS};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use terrace::vfs::PosixVfs;
use terrace_vfs::{OpenMode, Vfs, check_not_encrypted};

/// A record is a line per file; more bytes than this are no record.
const MAX_RECORD_BYTES: u64 = 1 << 30;

/// The file that is locked while a process works with the backups.
const LOCK: &str = "LOCK";

/// How the names of files end that are being written.
pub(crate) const PARTIAL: &str = ".partial";

/// A directory of backups, locked against other processes while this lives. Threads may share it: what changes the
/// directory waits for its turn.
pub struct Backups {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) dir: PathBuf,
    /// Locked exclusively by what changes the directory, shared by what needs the files of a backup.
    turn: RwLock<()>,
    /// Against other processes; where nothing can be changed, against those that change something, if there is a lock file.
    _lock: Option<Box<dyn Send + Sync>>,
    /// Why nothing can be changed.
    read_only: Option<io::Error>,
}

/// One entry of [`Backups::list`].
#[derive(Debug)]
pub struct Listed {
    /// The number of the backup.
    pub id: u64,
    /// What its record says, or what is wrong with that.
    pub backup: Result<Backup>,
}

impl Backups {
    /// Opens the backups in `dir`, which is made if it is missing; a relative one is that of the call. Where there is no right
    /// to write, as on a snapshot or for another user, they can be listed, verified and restored, and what would change
    /// something is an error; others may read them at the same time.
    ///
    /// # Errors
    /// `dir` is not empty and holds no backups, or another process has them open.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(Arc::new(PosixVfs::new()), dir)
    }

    /// As [`Self::open`], on another file system: an encrypted one, with the keys, for backups that are encrypted. Backups
    /// that are and backups that are not do not share a directory: what reads the record of one of the other
    /// kind is refused, so that nothing is created beside it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(vfs: Arc<dyn Vfs>, dir: impl AsRef<Path>) -> Result<Self> {
        let dir = match dir.as_ref() {
            // The directory of the process, whose files are to be looked at as well.
            empty if empty.as_os_str().is_empty() => Path::new("."),
            dir => dir,
        };
        let dir = vfs.absolute(dir);
        if !holds_only_backups(&*vfs, &dir)? {
            return Err(Error::NotBackups(dir));
        }
        for part in ["files", "backups"] {
            vfs.create_dir_all(&dir.join(part))?;
        }
        let path = dir.join(LOCK);
        let failed = |error: terrace_vfs::Error| match &error {
            terrace_vfs::Error::Io { source, .. } if source.kind() == ErrorKind::WouldBlock => {
                Error::Busy(dir.clone())
            }
            _ => error.into(),
        };
        let (lock, read_only) = match vfs.lock(&path) {
            Ok(lock) => (Some(lock), None),
            Err(terrace_vfs::Error::Io { source, .. }) if is_denied(&source) => {
                (lock_for_reading(&*vfs, &path).map_err(failed)?, Some(source))
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { vfs, dir, turn: RwLock::default(), _lock: lock, read_only })
    }

    /// All backups, the oldest first. One whose record is damaged is in the list with its error. One that is being
    /// removed may be left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let listed = self.ids()?.into_iter().map(|id| Listed { id, backup: self.get(id) });
        // Removed meanwhile.
        let is_gone = |listed: &Listed| matches!(listed.backup, Err(Error::NoSuchBackup(_)));
        Ok(listed.filter(|listed| !is_gone(listed)).collect())
    }

    /// The numbers of all backups, the oldest first; no record is read.
    pub(crate) fn ids(&self) -> Result<Vec<u64>> {
        let names = self.vfs.list(&self.dir.join("backups"))?;
        let mut ids: Vec<u64> = names.iter().filter_map(|name| parse_id(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The record of one backup.
    ///
    /// # Errors
    /// There is none, or it is damaged; `Unsupported` if it is encrypted and its key is not given, or if it is not
    /// encrypted and keys are.
    pub fn get(&self, id: u64) -> Result<Backup> {
        let path = self.record_path(id);
        let damaged = |what: &str| Error::Damaged { path: path.clone(), what: what.into() };
        // Asked by the open alone: it may be removed at any time.
        let file = match self.vfs.open(&path, OpenMode::default()) {
            Err(error) if error.is_not_found() => return Err(Error::NoSuchBackup(id)),
            opened => opened?,
        };
        check_not_encrypted(&*file).map_err(|error| match error {
            terrace_vfs::Error::Unsupported { path, .. } => {
                let detail = "it is encrypted: open the backups with their keys".into();
                terrace_vfs::Error::Unsupported { path, detail }
            }
            error => error,
        })?;
        if file.len() > MAX_RECORD_BYTES {
            return Err(damaged("it is too long"));
        }
        let mut bytes = vec![0; usize::try_from(file.len()).unwrap_or(0)];
        file.read_at(0, &mut bytes)?;
        let backup = Backup::decode(&bytes).map_err(damaged)?;
        if backup.id != id {
            return Err(damaged("it is the record of another backup"));
        }
        Ok(backup)
    }

    /// Reads every byte of a backup and compares it with what was written. `progress` gets the bytes
    /// read so far.
    ///
    /// # Errors
    /// The first file that is missing or damaged.
    pub fn verify(&self, id: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let _turn = self.reads();
        let mut done = 0;
        for file in &self.get(id)?.files {
            let path = self.content_path(file);
            if !self.vfs.exists(&path)? {
                return Err(Error::Damaged { path, what: "it is missing".into() });
            }
            check(&path, content_of(&*self.vfs, &path)?, content(file))?;
            done += file.size_bytes;
            progress(done);
        }
        Ok(())
    }

    /// Nothing is removed while this lives.
    pub(crate) fn reads(&self) -> RwLockReadGuard<'_, ()> {
        // A thread that panicked has left what a crash leaves.
        self.turn.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody else changes the directory, or needs a file of it, while this lives.
    ///
    /// # Errors
    /// Nothing in it can be changed.
    pub(crate) fn changes(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        if let Some(why) = &self.read_only {
            let again = why.raw_os_error().map(io::Error::from_raw_os_error);
            let source = again.unwrap_or_else(|| why.kind().into());
            return Err(terrace_vfs::Error::io("lock", &self.dir.join(LOCK), source).into());
        }
        Ok(self.turn.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn record_path(&self, id: u64) -> PathBuf {
        self.dir.join("backups").join(id.to_string())
    }

    pub(crate) fn content_path(&self, file: &BackupFile) -> PathBuf {
        self.dir.join("files").join(file.content_name())
    }
}

/// Whether there is no right to write, or nothing can be written at all, as on a snapshot.
fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Keeps out processes that change something, without a right to write. `None` if there is no lock file, which any such
/// process has made, or it may not be read.
fn lock_for_reading(
    vfs: &dyn Vfs,
    path: &Path,
) -> terrace_vfs::Result<Option<Box<dyn Send + Sync>>> {
    match vfs.lock_shared(path) {
        Err(terrace_vfs::Error::Io { source, .. })
            if source.kind() == ErrorKind::NotFound || is_denied(&source) =>
        {
            Ok(None)
        }
        locked => locked.map(Some),
    }
}

/// What a record says of a file's content.
pub(crate) fn content(file: &BackupFile) -> Content {
    Content { size_bytes: file.size_bytes, hash: file.hash }
}

/// Whether `dir` may be used: it is missing, empty, or has backups. Directories called `files` and `backups` are nothing
/// unusual, so what is in them decides: content that no backup names is removed.
fn holds_only_backups(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
    if !vfs.exists(dir)? {
        return Ok(true);
    }
    let no_look = |error| no_look(dir, error);
    let has_records = vfs.exists(&dir.join("backups")).map_err(no_look)?;
    // What somebody puts beside backups is left alone.
    if !has_records && vfs.list(dir).map_err(no_look)?.iter().any(|name| name != LOCK) {
        return Ok(false);
    }
    let names = |part: &str| -> Result<Vec<String>> {
        let path = dir.join(part);
        Ok(if vfs.exists(&path)? { vfs.list(&path)? } else { Vec::new() })
    };
    let records = names("backups")?;
    // A record says whose the directory is, whatever came beside it.
    let is_ours = records.iter().any(|name| is_record(name));
    Ok(is_ours || (records.is_empty() && names("files")?.iter().all(|name| is_content(name))))
}

/// The error of a look into the directory of backups; one that is none has what to do.
fn no_look(dir: &Path, error: terrace_vfs::Error) -> terrace_vfs::Error {
    match error {
        terrace_vfs::Error::Io { op, source, .. } if source.kind() == ErrorKind::NotADirectory => {
            let why = "it is no directory; name that of the backups, or a new one";
            terrace_vfs::Error::io(op, dir, io::Error::new(ErrorKind::NotADirectory, why))
        }
        error => error,
    }
}

/// Whether a file may be a record, or one that is being written.
pub(crate) fn is_record(name: &str) -> bool {
    parse_id(name.strip_suffix(PARTIAL).unwrap_or(name)).is_some()
}

/// Whether a file may be content, or some that is being written.
pub(crate) fn is_content(name: &str) -> bool {
    let name = name.strip_suffix(PARTIAL).unwrap_or(name);
    let Some((hash, len)) = name.split_once('-') else { return false };
    let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash && parse_id(len).is_some()
}

/// The number that a record's name means: written one way only.
fn parse_id(name: &str) -> Option<u64> {
    name.parse().ok().filter(|id: &u64| id.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashes_with_lengths_are_content() {
        let file = BackupFile { name: String::new(), size_bytes: 120, hash: 7 };
        assert!(is_content(&file.content_name()) && is_record("7") && is_record("7.partial"));
        assert!(is_content(&format!("{}.partial", file.content_name())));
        for name in ["", "precious", "a-1", "00000000000000000000000000000007-012", ".partial"] {
            assert!(!is_content(name) && !is_record(name), "{name}");
        }
    }

    #[test]
    fn only_numbers_are_records() {
        assert_eq!(parse_id("12"), Some(12));
        for name in ["012", "+1", "1.partial", "", "-1", "x"] {
            assert_eq!(parse_id(name), None, "{name}");
        }
    }
}
