//! A directory or file that gets its name when it is whole: until then it has another one, which what was
//! interrupted leaves behind.

use crate::{Error, Result, Vfs};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The file that a [`PartialDir`] has locked. No other directory has a file of this name, and a store takes it
/// for a temporary one, should it stay.
pub const PARTIAL_LOCK_NAME: &str = "filling.tmp";

/// The empty directory in it that tries whether one can take the place of the target.
pub const PARTIAL_PROBE_NAME: &str = "probe";

/// The name of a file or directory while it is being written: beside its later one.
pub fn partial_path(target: &Path) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    target.with_file_name(name)
}

/// A directory that is filled at [`partial_path`] and then gets its name. Dropped before [`Self::finish`], it leaves no
/// file, and no directory that was not there.
///
/// It has a lock, which keeps a second one for the same target out. The lock also tells what an interrupted one left
/// from a directory of the user's that happens to have this name: that is refused, and so is one with files that nobody fills it
/// with, and a link or a directory of another user, who could read or change what is written. If the target is there, the new
/// directory has its permissions.
pub struct PartialDir<'a> {
    vfs: &'a dyn Vfs,
    target: PathBuf,
    path: PathBuf,
    is_own: fn(&str) -> bool,
    /// Whether the directory was made by this one, or by one that was interrupted.
    is_made: bool,
    is_finished: bool,
    _lock: Box<dyn Send + Sync>,
}

impl<'a> PartialDir<'a> {
    /// An empty one for `target`; what an interrupted one left is removed. `is_own` says which names the files may have that
    /// it is filled with: no other is removed.
    ///
    /// # Errors
    /// An I/O error of kind `InvalidInput` if `target` ends in no name, `WouldBlock` if it is being filled, and
    /// `AlreadyExists` if the directory is not this user's own, has directories, other files, or any without a lock, or if the
    /// target is anything but an empty directory; see [`is_refusal`].
    pub fn prepare(vfs: &'a dyn Vfs, target: &Path, is_own: fn(&str) -> bool) -> Result<Self> {
        if target.file_name().is_none() {
            return Err(refusal(target, ErrorKind::InvalidInput, "a new directory needs a name"));
        }
        let target = vfs.absolute(target);
        let path = partial_path(&target);
        let was_there = vfs.exists(&path)?;
        if was_there && !vfs.is_own_dir(&path)? {
            let text = "the new directory is filled there first, but it is a link or another user's; move it away";
            return Err(refusal(&path, ErrorKind::AlreadyExists, text));
        }
        vfs.create_dir_all(&path)?;
        let (names, others) = (vfs.list(&path)?, vfs.list_others(&path)?);
        let is_locked = names.iter().any(|name| name == PARTIAL_LOCK_NAME);
        // A power cut may bring it back without the lock. If it is another's and has anything, it cannot be removed.
        let foreign = others.iter().filter(|name| *name != PARTIAL_PROBE_NAME);
        let is_left = |name: &str| is_locked && (name == PARTIAL_LOCK_NAME || is_own(name));
        if let Some(first) = foreign.chain(names.iter().filter(|name| !is_left(name))).next() {
            let text = format!(
                "the new directory is filled there first, but it has other files ({first}); move them away"
            );
            return Err(refusal(&path, ErrorKind::AlreadyExists, &text));
        }
        let lock = vfs.lock(&path.join(PARTIAL_LOCK_NAME)).map_err(|error| match &error {
            Error::Io { source, .. } if source.kind() == ErrorKind::WouldBlock => {
                let text = "the same directory is being made by somebody else";
                refusal(&path, ErrorKind::WouldBlock, text)
            }
            _ => error,
        })?;
        // After a power cut the lock must be there if anything else is.
        vfs.sync_dir(&path)?;
        let is_made = is_locked || !was_there;
        let this = Self { vfs, target, path, is_own, is_made, is_finished: false, _lock: lock };
        if !others.is_empty() {
            // What a kill has left of the check that follows.
            vfs.remove(&this.path.join(PARTIAL_PROBE_NAME))?;
        }
        this.check_replaceable()?;
        this.remove_files()?;
        Ok(this)
    }

    /// Whether a directory can take the place of the target, if there is something: this is better known before than
    /// after hours. The target is another empty directory then, with its permissions.
    fn check_replaceable(&self) -> Result<()> {
        if !self.vfs.exists(&self.target)? {
            return Ok(());
        }
        let probe = self.path.join(PARTIAL_PROBE_NAME);
        self.vfs.create_dir_all(&probe)?;
        let copied = self.vfs.copy_permissions(&self.target, &probe);
        copied.and_then(|()| self.vfs.rename(&probe, &self.target)).map_err(|error| {
            // Empty as it is, it would hinder nobody.
            let _ = self.vfs.remove(&probe);
            let text = format!("it cannot be replaced by the new directory: {error}");
            refusal(&self.target, ErrorKind::AlreadyExists, &text)
        })
    }

    /// Where the files are written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the directory its name, durably. Its files are durable already.
    ///
    /// # Errors
    /// The target has come into being meanwhile, or the file system refuses. If only the sync failed the directory has
    /// its name, until a power cut.
    pub fn finish(mut self) -> Result<()> {
        if self.vfs.exists(&self.target)? {
            // Only now: they may not allow to write.
            self.vfs.copy_permissions(&self.target, &self.path)?;
        }
        self.vfs.rename(&self.path, &self.target)?;
        self.is_finished = true;
        self.vfs.sync_dir(self.target.parent().unwrap_or(Path::new("/")))?;
        // Harmless where it is, should this fail.
        let _ = self.vfs.remove(&self.target.join(PARTIAL_LOCK_NAME));
        Ok(())
    }

    /// Removes all files that it may be filled with, but the lock.
    fn remove_files(&self) -> Result<()> {
        for name in self.vfs.list(&self.path)? {
            if name != PARTIAL_LOCK_NAME && (self.is_own)(&name) {
                self.vfs.remove(&self.path.join(name))?;
            }
        }
        Ok(())
    }
}

impl Drop for PartialDir<'_> {
    fn drop(&mut self) {
        // The error that brought us here is the one to report. The lock goes last, also for a power cut: it says whose
        // the rest is.
        let is_empty = || self.remove_files().and_then(|()| self.vfs.sync_dir(&self.path)).is_ok();
        if !self.is_finished && is_empty() {
            let _ = self.vfs.remove(&self.path.join(PARTIAL_LOCK_NAME));
            if self.is_made {
                // Unless it has files of others.
                let _ = self.vfs.remove(&self.path);
            }
        }
    }
}

/// What [`refusal`] says it was doing.
const REFUSED: &str = "prepare";

fn refusal(path: &Path, kind: ErrorKind, text: &str) -> Error {
    Error::io(REFUSED, path, io::Error::new(kind, text))
}

/// Whether an error of [`PartialDir::prepare`] is about what the caller asked for, not about the file system.
pub fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Io { op: REFUSED, .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, PosixVfs, SimVfs};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// What these are filled with.
    fn is_own(name: &str) -> bool {
        name.len() == 1
    }

    fn write(vfs: &SimVfs, path: &str) {
        let mut file = vfs.create(Path::new(path), &CreateOptions::default()).unwrap();
        file.append(b"x").unwrap();
        file.finish().unwrap();
    }

    fn names(vfs: &SimVfs, dir: &str) -> Vec<String> {
        let mut names = vfs.list(Path::new(dir)).unwrap();
        names.sort();
        names
    }

    #[test]
    fn files_of_the_user_are_not_removed() {
        let vfs = SimVfs::new(1);
        vfs.create_dir_all(Path::new("/new.partial")).unwrap();
        write(&vfs, "/new.partial/precious");
        let refused = PartialDir::prepare(&vfs, Path::new("/new"), is_own).err().unwrap();
        assert!(is_refusal(&refused) && refused.to_string().contains("other files"), "{refused}");
        assert_eq!(names(&vfs, "/new.partial"), ["precious"]);
    }

    /// Somebody has put it beside what an interrupted one has left.
    #[test]
    fn files_of_other_names_stay_beside_a_lock_too() {
        let vfs = SimVfs::new(1);
        vfs.create_dir_all(Path::new("/new.partial")).unwrap();
        let put = |name: &str| write(&vfs, &format!("/new.partial/{name}"));
        ["filling.tmp", "a", "precious"].into_iter().for_each(put);
        let refused = PartialDir::prepare(&vfs, Path::new("/new"), is_own).err().unwrap();
        let text = refused.to_string();
        assert!(is_refusal(&refused) && text.contains("other files (precious)"), "{text}");
        assert_eq!(names(&vfs, "/new.partial"), ["a", "filling.tmp", "precious"]);
        vfs.remove(Path::new("/new.partial/precious")).unwrap();
        let partial = PartialDir::prepare(&vfs, Path::new("/new"), is_own).unwrap();
        ["b", "precious"].into_iter().for_each(put);
        drop(partial);
        assert_eq!(names(&vfs, "/new.partial"), ["precious"]);
    }

    #[test]
    fn a_directory_with_directories_is_not_taken_for_an_empty_one() {
        let vfs = SimVfs::new(1);
        for inner in ["/new.partial/precious", "/other.partial/probe/precious"] {
            vfs.create_dir_all(Path::new(inner)).unwrap();
        }
        write(&vfs, "/new.partial/filling.tmp");
        let refused = PartialDir::prepare(&vfs, Path::new("/new"), is_own).err().unwrap();
        let text = refused.to_string();
        assert!(is_refusal(&refused) && text.contains("other files (precious)"), "{text}");
        assert!(PartialDir::prepare(&vfs, Path::new("/other"), is_own).is_err());
        assert!(vfs.exists(Path::new("/other.partial/probe/precious")).unwrap());
        // But for the one that a kill, or a power cut, may leave.
        for target in ["/third", "/fourth"] {
            let partial = partial_path(Path::new(target));
            vfs.create_dir_all(&partial.join("probe")).unwrap();
            if target == "/third" {
                write(&vfs, "/third.partial/filling.tmp");
            }
            PartialDir::prepare(&vfs, Path::new(target), is_own).unwrap().finish().unwrap();
            assert!(vfs.list_others(Path::new(target)).unwrap().is_empty());
        }
    }

    /// What is written there would be in the hands of the one who made the link.
    #[test]
    fn a_link_in_place_of_the_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (target, elsewhere) = (dir.path().join("new"), dir.path().join("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        for linked in [&elsewhere, &dir.path().join("nothing")] {
            std::os::unix::fs::symlink(linked, partial_path(&target)).unwrap();
            let refused = PartialDir::prepare(&PosixVfs, &target, is_own).err().unwrap();
            assert!(is_refusal(&refused) && refused.to_string().contains("a link"), "{refused}");
            assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
            fs::remove_file(partial_path(&target)).unwrap();
        }
    }

    #[test]
    fn a_target_keeps_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        // Also one that its owner may not write to.
        for mode in [0o700, 0o750, 0o500] {
            let target = dir.path().join(format!("{mode:o}"));
            let mode_of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            fs::create_dir(&target).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(mode)).unwrap();
            let partial = PartialDir::prepare(&PosixVfs, &target, is_own).unwrap();
            assert_eq!(mode_of(&target), mode);
            partial.finish().unwrap();
            assert_eq!(mode_of(&target), mode);
        }
    }

    /// A store has a lock of its own, which does not make it one of ours.
    #[test]
    fn a_closed_store_is_not_removed() {
        let vfs = SimVfs::new(1);
        vfs.create_dir_all(Path::new("/new.partial")).unwrap();
        write(&vfs, "/new.partial/LOCK");
        write(&vfs, "/new.partial/000001.sst");
        let refused = PartialDir::prepare(&vfs, Path::new("/new"), is_own).err().unwrap();
        assert!(is_refusal(&refused), "{refused}");
        assert_eq!(names(&vfs, "/new.partial"), ["000001.sst", "LOCK"]);
    }

    /// A power cut while an unfinished one goes never leaves files without the lock, which would be taken for another's.
    #[test]
    fn after_a_power_cut_the_next_one_is_not_refused() {
        let vfs = SimVfs::new(5);
        let partial = PartialDir::prepare(&vfs, Path::new("/new"), is_own).unwrap();
        vfs.sync_dir(Path::new("/")).unwrap();
        for name in ["a", "b", "c"] {
            write(&vfs, &format!("/new.partial/{name}"));
        }
        vfs.sync_dir(Path::new("/new.partial")).unwrap();
        drop(partial);
        for seed in 0..100 {
            let after = vfs.crash_image(seed);
            PartialDir::prepare(&after, Path::new("/new"), is_own).unwrap();
        }
    }

    #[test]
    fn two_do_not_fill_the_same_directory() {
        let vfs = SimVfs::new(2);
        let first = PartialDir::prepare(&vfs, Path::new("/new"), is_own).unwrap();
        write(&vfs, "/new.partial/a");
        let refused = PartialDir::prepare(&vfs, Path::new("/new"), is_own).err().unwrap();
        assert!(is_refusal(&refused) && refused.to_string().contains("somebody else"), "{refused}");
        first.finish().unwrap();
        assert_eq!(names(&vfs, "/new"), ["a"]);
        assert!(!vfs.exists(Path::new("/new.partial")).unwrap());
    }

    #[test]
    fn what_is_left_of_an_interrupted_one_goes() {
        let vfs = SimVfs::new(3);
        // As a killed process leaves it: the file of the lock, and nobody has the lock.
        vfs.create_dir_all(Path::new("/new.partial")).unwrap();
        write(&vfs, "/new.partial/filling.tmp");
        write(&vfs, "/new.partial/a");
        let partial = PartialDir::prepare(&vfs, Path::new("/new"), is_own).unwrap();
        assert_eq!(names(&vfs, "/new.partial"), [PARTIAL_LOCK_NAME]);
        write(&vfs, "/new.partial/b");
        drop(partial);
        assert!(!vfs.exists(Path::new("/new.partial")).unwrap());
        // One of the user's stays.
        vfs.create_dir_all(Path::new("/new.partial")).unwrap();
        drop(PartialDir::prepare(&vfs, Path::new("/new"), is_own).unwrap());
        assert!(names(&vfs, "/new.partial").is_empty());
    }

    #[test]
    fn a_target_that_cannot_be_replaced_is_refused_before_the_work() {
        let vfs = SimVfs::new(6);
        vfs.create_dir_all(Path::new("/new/inner")).unwrap();
        write(&vfs, "/file");
        for target in ["/new", "/file"] {
            let refused = PartialDir::prepare(&vfs, Path::new(target), is_own).err().unwrap();
            let text = refused.to_string();
            assert!(is_refusal(&refused) && text.contains("cannot be replaced"), "{text}");
            assert!(!vfs.exists(&partial_path(Path::new(target))).unwrap());
        }
        // An empty one is taken.
        vfs.remove(Path::new("/new/inner")).unwrap();
        let partial = PartialDir::prepare(&vfs, Path::new("/new"), is_own).unwrap();
        write(&vfs, "/new.partial/a");
        partial.finish().unwrap();
        assert_eq!(names(&vfs, "/new"), ["a"]);
    }

    #[test]
    fn a_directory_without_a_name_is_refused() {
        let vfs = SimVfs::new(4);
        for target in ["", ".", "..", "/", "a/.."] {
            let refused = PartialDir::prepare(&vfs, Path::new(target), is_own).err().unwrap();
            assert!(is_refusal(&refused), "{target}: {refused}");
        }
        assert!(vfs.files().is_empty());
    }
}
