//! The directory of a store that is made whole or not at all.
//!
//! The store is made in `DIR.partial`, which becomes `DIR` by a rename when everything is in it and
//! durable. So `DIR` is never a part of a store: an error removes `DIR.partial`, a killed process
//! leaves it, and the next one removes it. A file in it, which is locked while the process lives, tells
//! what was left from a directory of the user's: it comes first and goes last. Called by `restore` and `convert`.
//! A checkpoint, and the restore of a backup, are made in a directory of the same name with another such file
//! ([`PartialDir`]): what one of the two kinds has left goes with the next of either.

use crate::outcome::tell;
use crate::store;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use terrace::vfs::{PosixVfs, Vfs};
use terrace_base::Error;
use terrace_manifest::{names, own_dirs};
use terrace_vfs::{PARTIAL_LOCK_NAME, PartialDir, partial_path};

/// The locked file, which no store has.
const MARK: &str = "UNFINISHED";

/// What a new store can be made in.
const TO_NAME: &str = "a new or an empty one";

/// A directory in the unfinished one that takes the place of an empty `DIR`, and so shows that one can.
const TRIAL: &str = "trial";

/// Where a store is made before it has its name. Dropped before [`Self::finish`], it leaves nothing.
pub struct Target {
    dir: PathBuf,
    /// Where it is made.
    pub partial: PathBuf,
    finished: bool,
    /// Of [`MARK`]. Until it is there the directory may be that of another process.
    lock: Option<Box<dyn Send + Sync>>,
}

impl Target {
    /// Makes an empty `DIR.partial` beside `dir`; one that a killed process left is removed.
    pub fn prepare(dir: &Path) -> Result<Self> {
        check_name(dir)?;
        store::check_directory(dir, TO_NAME)?;
        let shown = dir.display();
        let old = match fs::symlink_metadata(dir) {
            Ok(_) => Some(fs::metadata(dir).with_context(|| format!("cannot look at {shown}"))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
        };
        if old.is_some() {
            let mut entries = fs::read_dir(dir).with_context(|| format!("cannot read {shown}"))?;
            if entries.next().is_some() {
                bail!("{shown} is not empty; a store is made in a new or an empty directory");
            }
        }
        let dir = absolute(dir, old.is_some())?;
        let partial = partial_path(&dir);
        if fs::symlink_metadata(&partial).is_ok() {
            remove_unfinished(&dir, &partial)?;
        }
        let cannot = || format!("cannot make {}", partial.display());
        fs::create_dir(&partial).with_context(cannot)?;
        let mut target = Self { dir, partial: partial.clone(), finished: false, lock: None };
        if let Some(old) = &old {
            fs::set_permissions(&partial, old.permissions()).with_context(cannot)?;
        }
        target.lock = Some(PosixVfs::new().lock(&partial.join(MARK)).with_context(cannot)?);
        // After a power cut it must be there if anything else is.
        File::open(&partial).and_then(|partial| partial.sync_all()).with_context(cannot)?;
        if let Some(old) = old {
            // Whether a directory can take its place is better known before than after hours. Not `partial` itself: until its
            // mark is locked it may be that of another process, and it must not be in two places.
            let trial = partial.join(TRIAL);
            fs::create_dir(&trial).with_context(cannot)?;
            fs::set_permissions(&trial, old.permissions()).with_context(cannot)?;
            fs::rename(&trial, &target.dir).with_context(|| target.cannot_replace())?;
        }
        Ok(target)
    }

    fn cannot_replace(&self) -> String {
        format!("{} cannot be replaced by the new store; name a new directory", self.dir.display())
    }

    /// Gives the store its name, durably.
    pub fn finish(mut self) -> Result<()> {
        fs::rename(&self.partial, &self.dir).with_context(|| self.cannot_replace())?;
        self.finished = true;
        // Harmless where it is, should this fail.
        drop(fs::remove_file(self.dir.join(MARK)));
        let folder = self.dir.parent().unwrap_or(Path::new("/"));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.with_context(|| format!("cannot sync {}", folder.display()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // The error that brought us here is the one to tell.
        match self.lock {
            _ if self.finished => {}
            Some(_) => drop(remove_marked(&self.partial)),
            None => drop(fs::remove_dir(&self.partial)),
        }
    }
}

/// Removes what a killed restore of a dump, or conversion, has left beside `dir`, for a command that makes that by a
/// [`PartialDir`].
///
/// # Errors
/// As [`check_name`]; `dir` is there and is no directory; a process has it, or it cannot be removed.
pub fn remove_left(dir: &Path) -> Result<()> {
    check_name(dir)?;
    store::check_directory(dir, TO_NAME)?;
    let partial = partial_path(dir);
    match dir.file_name().is_some() && is_file(&partial.join(MARK)) {
        true => remove_unfinished(dir, &partial),
        false => Ok(()),
    }
}

/// Refuses a directory for a new store that another one has for its own use.
///
/// # Errors
/// It is one.
pub fn check_name(dir: &Path) -> Result<()> {
    match own_dirs::refusal(&PosixVfs::new(), dir)? {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Removes what a killed process has left at `partial`, and says so. `dir` is what it made.
///
/// # Errors
/// A process has it, it is not certain that it was left so, or it cannot be removed.
fn remove_unfinished(dir: &Path, partial: &Path) -> Result<()> {
    let (vfs, shown) = (PosixVfs::new(), partial.display());
    let is_dir = vfs.is_own_dir(partial).unwrap_or(false);
    let mark = partial.join(MARK);
    if !is_dir || !is_file(&mark) {
        // An empty one is left by a kill at the beginning. No other can be removed so.
        if is_dir && fs::remove_dir(partial).is_ok() {
            return Ok(());
        }
        if is_dir && is_file(&partial.join(PARTIAL_LOCK_NAME)) {
            // It removes what it finds, and leaves nothing.
            PartialDir::prepare(&vfs, dir, names::is_of_checkpoint).map(drop)?;
            tell(&format!("removed {shown}, which a killed checkpoint or restore had left"));
            return Ok(());
        }
        bail!(
            "the new store is made in {shown} first, but something else is there; move it away, or remove it if \
             it is what a killed restore or conversion has left"
        );
    }
    let _lock = match vfs.lock(&mark) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
            bail!("{shown} is there: another process makes the same store, and has not ended")
        }
        locked => locked.with_context(|| format!("cannot lock {shown}"))?,
    };
    remove_marked(partial).with_context(|| format!("cannot remove {shown}"))?;
    tell(&format!("removed {shown}, which a killed restore or conversion had left"));
    Ok(())
}

/// Removes a directory whose mark is locked. The mark goes last, so that what a kill leaves is marked, or empty.
fn remove_marked(partial: &Path) -> io::Result<()> {
    let entries = fs::read_dir(partial)?.collect::<io::Result<Vec<_>>>()?;
    for entry in entries.iter().filter(|entry| entry.file_name() != MARK) {
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_file(partial.join(MARK))?;
    fs::remove_dir(partial)
}

/// The path with its last component, which can be replaced, and the directories above made.
fn absolute(dir: &Path, exists: bool) -> Result<PathBuf> {
    let shown = dir.display();
    if exists {
        let dir = dir.canonicalize().with_context(|| format!("cannot look at {shown}"))?;
        let here = std::env::current_dir().and_then(|here| here.canonicalize()).ok();
        if dir.parent().is_none() || here.is_some_and(|here| here.starts_with(&dir)) {
            bail!("{shown} is in use as the current directory; name another one");
        }
        return Ok(dir);
    }
    let Some(name) = dir.file_name() else { bail!("{shown} names no directory") };
    let folder = dir.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let made = fs::create_dir_all(folder).and_then(|()| folder.canonicalize());
    Ok(made.with_context(|| format!("cannot make {}", folder.display()))?.join(name))
}
