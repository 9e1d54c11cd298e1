//! A file that is there as a whole or not at all: written under another name, `FILE.<process id>.partial`, and renamed at
//! the end.

use crate::outcome::tell;
use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use terrace_manifest::names::{self, FileName};

/// A file that is being written. Dropped before [`Self::finish`], it leaves nothing.
pub struct OutputFile {
    file: File,
    path: PathBuf,
    /// Where it is written; `None` if in place, since a pipe or device has no other name.
    partial: Option<PathBuf>,
}

impl OutputFile {
    /// Begins to write the file at `path`, which only its owner may read unless it is there already: then it keeps its
    /// permissions and its owner. What is there stays until [`Self::finish`].
    ///
    /// # Errors
    /// It is a directory or a file of a store, or cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        // A link is followed.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let old = fs::metadata(&path).ok();
        if old.as_ref().is_some_and(fs::Metadata::is_dir) {
            bail!("{} is a directory; name a file", path.display());
        }
        if is_of_store(&path) {
            bail!("{} is a file of a store; name another", path.display());
        }
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            let file = OpenOptions::new().write(true).open(&path).with_context(cannot)?;
            return Ok(Self { file, path, partial: None });
        }
        remove_unfinished(&path);
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        // What an earlier process of this number may have left.
        drop(fs::remove_file(&partial));
        let file = create_locked(&partial).with_context(cannot)?;
        let output = Self { file, path, partial: Some(partial) };
        if let Some(old) = old {
            // Only root may give a file to another user; the others are its owner.
            let _ = fchown(&output.file, Some(old.uid()), Some(old.gid()));
            output.file.set_permissions(old.permissions()).with_context(cannot)?;
        }
        Ok(output)
    }

    /// Makes the file durable under its name; gives its length.
    pub fn finish(mut self) -> io::Result<u64> {
        if let Some(partial) = &self.partial {
            self.file.sync_all()?;
            fs::rename(partial, &self.path)?;
            self.partial = None;
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(self.file.metadata()?.len())
    }
}

/// Creates the file at `path`, which tells others by its lock that it is being written.
fn create_locked(path: &Path) -> io::Result<File> {
    loop {
        // A dump has all that is in the store, whose files only their owner may read.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        // Where locks are not to be had, the process id in the name has to do.
        let _ = file.lock();
        // Another call may have taken it for a left one while it was not locked.
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Removes what calls that were killed have left beside the file at `path`, and says so. Keys may be in it.
fn remove_unfinished(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let number_in = |found: &str| {
        let number = found.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".partial")?;
        number.parse::<u32>().ok()
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new(".")));
    for entry in entries.into_iter().flatten().flatten() {
        let left = entry.path();
        let Some(number) = entry.file_name().to_str().and_then(number_in) else { continue };
        // Anything else is somebody's, and to open a pipe may wait for ever.
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        // Held until it is removed. What cannot be opened may be locked.
        let Ok(file) = File::open(&left) else { continue };
        let is_written = match file.try_lock() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => Path::new("/proc").join(number.to_string()).exists(),
        };
        if is_written {
            continue;
        }
        // What cannot be removed is no reason to write nothing.
        if fs::remove_file(&left).is_ok() {
            tell(&format!("removed {}, which a killed call had left", left.display()));
        }
    }
}

/// Whether a store beside it has the file at `path`.
fn is_of_store(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_known = !matches!(names::parse(name), FileName::Other);
    is_known && path.with_file_name("CURRENT").is_file()
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // The write has already given its error.
            drop(fs::remove_file(partial));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_there_when_it_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let mut output = OutputFile::create(&path).unwrap();
        output.write_all(b"longer").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(output);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let mut output = OutputFile::create(&path).unwrap();
        output.write_all(b"longer").unwrap();
        assert_eq!(output.finish().unwrap(), 6);
        assert_eq!(fs::read(&path).unwrap(), b"longer");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// The mask of a process is usually 022: it takes nothing from those who may read.
    #[test]
    fn only_the_owner_may_read_a_new_file() {
        let mode_of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let output = OutputFile::create(&path).unwrap();
        assert_eq!(mode_of(output.partial.as_ref().unwrap()), 0o600);
        output.finish().unwrap();
        assert_eq!(mode_of(&path), 0o600);
        // One that is there keeps what was given to it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        OutputFile::create(&path).unwrap().finish().unwrap();
        assert_eq!(mode_of(&path), 0o640);
    }

    #[test]
    fn what_a_killed_call_has_left_is_removed_unless_somebody_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // A process has the first number: it need not be the one that wrote the file.
        for name in ["a.1.partial", "a.2.partial", "a.b.partial", "b.1.partial"] {
            fs::write(path(name), "a part").unwrap();
        }
        let writer = File::open(path("a.2.partial")).unwrap();
        writer.lock().unwrap();
        fs::create_dir(path("a.3.partial")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(path("a.4.partial")).status();
        assert!(pipe.unwrap().success());
        OutputFile::create(&path("a")).unwrap().finish().unwrap();
        assert!(!path("a.1.partial").exists());
        for name in ["a.2.partial", "a.3.partial", "a.4.partial", "a.b.partial", "b.1.partial"] {
            assert!(path(name).exists(), "{name}");
        }
        drop(writer);
        OutputFile::create(&path("a")).unwrap().finish().unwrap();
        assert!(!path("a.2.partial").exists());
    }

    #[test]
    fn a_device_is_written_in_place() {
        let mut output = OutputFile::create(Path::new("/dev/null")).unwrap();
        output.write_all(b"x").unwrap();
        output.finish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(OutputFile::create(Path::new("/")).is_err());
    }
}
