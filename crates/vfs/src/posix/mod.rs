//! The machine's file system. Everything is retried when interrupted, and what a file system
//! refuses (direct I/O, reserved room, batches) falls back to what it grants.

mod absolute;
#[cfg(feature = "io-uring")]
mod batch;
mod direct;
mod file;
mod lock;
mod output;
mod zeros_ahead;

#[cfg(test)]
mod tests;

use crate::counters::count_sync;
use crate::{AppendFile, CreateOptions, OpenMode, RandomFile, Vfs};
use direct::DirectFile;
use file::{BufferedFile, PosixRandomFile, create_new, open_existing};
use lock::FileLock;
pub use lock::take_lock_descriptors;
use output::set_direct;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, geteuid, getrlimit, setrlimit};
use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use terrace_base::{Error, Result};

/// The machine's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct PosixVfs;

impl PosixVfs {
    /// The machine's file system.
    pub fn new() -> Self {
        Self
    }

    /// The machine's file system, shareable.
    pub fn shared() -> Arc<dyn Vfs> {
        Arc::new(Self)
    }
}

/// The limit on open files of this process, after raising it as far as the process may.
pub fn open_file_limit() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let mut limit = getrlimit(Resource::Nofile);
        let soft = limit.current;
        limit.current = limit.maximum;
        let reached = if setrlimit(Resource::Nofile, limit).is_ok() { limit.maximum } else { soft };
        reached.unwrap_or(u64::MAX)
    })
}

/// The limit on open files of this process as it is.
pub fn open_file_soft_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Names the operation and the file in an error.
fn at<T>(op: &'static str, path: &Path, outcome: io::Result<T>) -> Result<T> {
    outcome.map_err(|source| Error::io(op, path, source))
}

/// `path`, or the working directory for an empty one (the parent of a bare file name).
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn remove_entry(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|error| match error.kind() {
        io::ErrorKind::IsADirectory => fs::remove_dir(path),
        _ => Err(error),
    })
}

fn create_dirs(path: &Path) -> Result<()> {
    let path = or_here(path);
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().map_or(Path::new("."), or_here);
    create_dirs(parent)?;
    let made = match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_is_dir(path),
        made => made,
    };
    at("create directory", path, made)?;
    // One that another process created a moment ago may not be durable yet either.
    PosixVfs.sync_dir(parent)
}

/// Refuses what is there and is no directory. What cannot be looked at, as behind a link to where one may not look, may be one: the
/// error is that of the look.
fn check_is_dir(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        // A file, or a link to nothing.
        _ => {
            let why = "it is there and is no directory; name another one, or move it away";
            Err(io::Error::new(io::ErrorKind::NotADirectory, why))
        }
    }
}

fn sync_entries(dir: &File) -> io::Result<()> {
    count_sync();
    match retry_on_intr(|| rustix::fs::fsync(dir)) {
        // Says a file system on which directories cannot be synced: they are durable by design.
        Err(Errno::INVAL) => Ok(()),
        other => Ok(other?),
    }
}

fn sync_content(file: &File) -> io::Result<()> {
    count_sync();
    Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?)
}

/// Whether an entry of a directory, of which this is the kind, is a directory; `None` if it is gone. Some file systems do not say
/// of what kind entries are when they list them: each is looked up then, and may have been removed since.
fn is_dir(kind: io::Result<FileType>) -> io::Result<Option<bool>> {
    match kind {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        kind => kind.map(|kind| Some(kind.is_dir())),
    }
}

fn names_of_files(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(or_here(dir))? {
        let entry = entry?;
        if is_dir(entry.file_type())? == Some(false) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

fn names_of_others(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(or_here(dir))? {
        let entry = entry?;
        let name = entry.file_name();
        if is_dir(entry.file_type())?.is_some_and(|is_dir| is_dir || name.to_str().is_none()) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// What `path` itself is, not what it links to, if it is anything.
fn itself(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Whether `path` itself, not what it links to, is a directory of this process's user.
fn is_own_dir(path: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    Ok(metadata.is_dir() && metadata.uid() == geteuid().as_raw())
}

fn free_bytes(dir: &Path) -> io::Result<u64> {
    let stat = retry_on_intr(|| rustix::fs::statvfs(or_here(dir)))?;
    if stat.f_blocks == 0 {
        // A file system that does not say how large it is.
        return Ok(u64::MAX);
    }
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

impl Vfs for PosixVfs {
    fn absolute(&self, path: &Path) -> PathBuf {
        absolute::absolute(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn RandomFile>> {
        Ok(Arc::new(at("open", path, PosixRandomFile::open(path, mode))?))
    }

    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let (file, overlong) = at("create", path, create_new(path, options))?;
        if options.direct && set_direct(&file, true) {
            Ok(Box::new(DirectFile::new(file, path, overlong)))
        } else {
            Ok(Box::new(BufferedFile::new(file, path, options, overlong)))
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        at("rename", from, fs::rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        at("remove", path, remove_entry(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        at("link", to, fs::hard_link(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        create_dirs(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        // A directory that cannot be opened was not synced, and no sync of it has failed.
        let dir = at("open", path, File::open(or_here(path)))?;
        at("sync directory", path, sync_entries(&dir))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        let (file, _) = at("open", path, open_existing(path))?;
        at("sync", path, sync_content(&file))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        at("list", dir, names_of_files(dir))
    }

    fn list_others(&self, dir: &Path) -> Result<Vec<String>> {
        at("list", dir, names_of_others(dir))
    }

    fn is_own_dir(&self, path: &Path) -> Result<bool> {
        at("look up", path, is_own_dir(path))
    }

    fn is_link(&self, path: &Path) -> Result<bool> {
        Ok(at("look up", path, itself(path))?.is_some_and(|found| found.is_symlink()))
    }

    fn copy_permissions(&self, from: &Path, to: &Path) -> Result<()> {
        let copied =
            fs::metadata(from).and_then(|from| fs::set_permissions(to, from.permissions()));
        at("set permissions of", to, copied)
    }

    fn len(&self, path: &Path) -> Result<u64> {
        at("length of", path, fs::metadata(path).map(|metadata| metadata.len()))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(at("look up", path, itself(path))?.is_some())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(at("lock", path, FileLock::take(path))?))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(at("lock", path, FileLock::share(path))?))
    }

    fn free_space_bytes(&self, dir: &Path) -> Result<u64> {
        at("free space of", dir, free_bytes(dir))
    }

    #[cfg(feature = "io-uring")]
    fn read_batch(&self, requests: &mut [crate::ReadRequest<'_>]) {
        batch::read(requests);
    }
}
