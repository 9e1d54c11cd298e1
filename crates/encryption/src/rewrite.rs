//! Files under another key: a store is encrypted, gets a new key, or is decrypted, while no process has it open.

use crate::encrypted_vfs::EncryptedVfs;
use crate::header::{self, HEADER_BYTES};
use crate::keys::KeyRing;
use crate::kind::Kind;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{Error, FileNumber, Result};
use terrace_manifest::names::{self, FileName};
use terrace_manifest::renamed::is_renamed;
use terrace_manifest::{Manifest, ManifestState, backup_work};
use terrace_vfs::{
    CreateOptions, EIO, OpenMode, RandomFile, Vfs, check_not_encrypted, copy_rest, has_only_zeros,
    is_no_file,
};

/// Bytes of one read of a file that is only checked.
const READ_BYTES: usize = 1 << 20;

/// What files are to become.
#[derive(Debug, Clone)]
pub enum Target {
    /// Encrypted with the active key of this ring; files under its other keys, or not encrypted, are written anew.
    Encrypted(KeyRing),
    /// Not encrypted; the keys are those that they are read with.
    Plain(KeyRing),
}

/// What [`rewrite`] has done.
#[derive(Debug, Default)]
pub struct Rewritten {
    /// Files that were written anew.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Files that were as they are to be.
    pub kept: u64,
    /// Why files in `lost/` stay as they were: they are damaged, their key is missing, the device does not give all of them,
    /// or they are none.
    pub unreadable: Vec<Error>,
}

/// Files that need one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsedKey {
    /// How many.
    pub files: u64,
    /// Their bytes on the disk.
    pub bytes: u64,
}

/// What files are encrypted with.
#[derive(Debug, Default)]
pub struct UsedKeys {
    /// By the number of a key, or nothing.
    pub keys: BTreeMap<Option<u32>, UsedKey>,
    /// Why it is unknown of some: the device does not give their first bytes, without which nobody reads them.
    pub unreadable: Vec<Error>,
}

/// Makes every file of the store in `dir` what `target` says; `each` is called with the bytes of content after each
/// file that was written anew. Takes the store's lock meanwhile.
///
/// Files are replaced one by one, each as a whole and durably, so that a crash leaves files of both kinds: call it
/// again, and it does what is left. Other names of a replaced file, in checkpoints, keep what they have. The disk needs
/// room for a copy of the largest file. Files that are not the store's are left alone.
///
/// # Errors
/// An I/O error of kind `WouldBlock` if a process has the store open, also read-only with a lock, and one of kind `NotFound`
/// if there is no file of a store; `Unsupported` for files whose key is missing, and `Corruption` for those that are not what was
/// written, and I/O for what the device does not give, for links, and for a file that has the name of a temporary one: the store is
/// then as before. Other I/O: it is as after a crash.
pub fn rewrite(
    below: &Arc<dyn Vfs>,
    dir: &Path,
    target: &Target,
    each: &mut dyn FnMut(u64),
) -> Result<Rewritten> {
    let dir = below.absolute(dir);
    let dir = dir.as_path();
    let folders = folders(&**below, dir)?;
    let _lock = lock(&**below, &names::lock_path(dir), "for writing")?;
    let _readers = lock_out_readers(&**below, dir)?;
    let (Target::Encrypted(keys) | Target::Plain(keys)) = target;
    let source = EncryptedVfs::accepting_plain(below.clone(), keys.clone());
    let (to, wanted): (&dyn Vfs, _) = match target {
        Target::Encrypted(keys) => (&source, Some(keys.active())),
        Target::Plain(_) => (&**below, None),
    };
    // Nothing is changed if a key is missing, or a file is damaged: what is half converted opens in no way, nor can it be
    // repaired.
    let state = stated(&source, dir).map_err(|e| advise(e, target))?;
    let foreign = foreign_numbers(&**below, state.as_ref(), dir)?;
    refuse_links(&**below, dir, &folders, &foreign)?;
    refuse_renamed(&**below, state.as_ref(), dir)?;
    for path in contents(&**below, dir, &foreign)? {
        check(&**below, &source, wanted, &path).map_err(|error| advise(error, target))?;
    }
    remove_temporary(&**below, dir, &folders, &foreign)?;
    let mut done = Rewritten::default();
    for folder in folders {
        let mut paths = contents(&**below, &folder, &foreign)?;
        // A store that is not wholly encrypted must not open without its keys: `CURRENT` is read first, and tells.
        paths.sort_by_key(|path| (path.ends_with("CURRENT") != wanted.is_some(), path.clone()));
        for path in paths {
            match convert(&**below, &source, to, wanted, &path) {
                Ok(Some(bytes)) => {
                    done.files += 1;
                    done.bytes += bytes;
                    each(bytes);
                }
                Ok(None) => done.kept += 1,
                Err(error) if folder != dir && is_unreadable(&error) => done.unreadable.push(error),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(done)
}

/// Locks a file that the processes have locked which have the store open as `how` says.
fn lock(below: &dyn Vfs, path: &Path, how: &str) -> Result<Box<dyn Send + Sync>> {
    below.lock(path).map_err(|error| match error {
        Error::Io { op, path, source } if source.kind() == ErrorKind::WouldBlock => {
            let why = format!("a process has the store open {how}: nothing is changed");
            Error::Io { op, path, source: std::io::Error::new(ErrorKind::WouldBlock, why) }
        }
        error => error,
    })
}

/// Refuses a store that is open read-only: a reader opens files later on, which would not be what it takes them for. One that
/// comes meanwhile waits for a second, and is then given an error by files that are not as it opens them.
fn lock_out_readers(below: &dyn Vfs, dir: &Path) -> Result<Vec<Box<dyn Send + Sync>>> {
    let mut names = below.list(dir)?;
    names.retain(|name| matches!(names::parse(name), FileName::Readers(_)));
    names.iter().map(|name| lock(below, &dir.join(name), "read-only")).collect()
}

/// Refuses symbolic links among what is to be written anew: what they lead to would stay as it is. The directory of the store may
/// be reached by one.
fn refuse_links(
    below: &dyn Vfs,
    dir: &Path,
    folders: &[PathBuf],
    foreign: &[FileNumber],
) -> Result<()> {
    let mut paths = Vec::new();
    for folder in folders {
        paths.extend((folder != dir).then(|| folder.clone()));
        paths.extend(contents(below, folder, foreign)?);
    }
    for path in paths {
        if below.is_link(&path)? {
            let why = "it is a symbolic link, and what it leads to would stay as it is: nothing is changed; put that in \
                       its place, or move it away";
            return Err(Error::io("convert", &path, io::Error::other(why)));
        }
    }
    Ok(())
}

/// Refuses a file of the store that somebody has given the name of a temporary one: those are removed.
fn refuse_renamed(below: &dyn Vfs, state: Option<&ManifestState>, dir: &Path) -> Result<()> {
    let Some(state) = state else { return Ok(()) };
    let names = below.list(dir)?;
    match names.iter().find(|name| is_renamed(below, dir, state, name)) {
        Some(name) => {
            let why = "it has the number of a file that is missing, and temporary files are removed: nothing is changed; give \
                       it its name back, or move it away";
            Err(Error::io("convert", &dir.join(name), io::Error::other(why)))
        }
        None => Ok(()),
    }
}

/// Reads the file at `path`, if it is to be written anew, for the errors.
fn check(below: &dyn Vfs, source: &dyn Vfs, wanted: Option<u32>, path: &Path) -> Result<()> {
    let stored = below.open(path, OpenMode::default())?;
    let id = header::key_id_of(&*stored)?;
    match to_convert(source, &*stored, id, wanted)? {
        Some(file) => read_through(&*file),
        None => Ok(()),
    }
}

/// The error with what to do about a file that the device does not give.
fn advise(error: Error, target: &Target) -> Error {
    match error {
        Error::Io { op, path, source } if source.raw_os_error() == Some(EIO) => {
            let back = match target {
                Target::Encrypted(_) => "decrypt",
                Target::Plain(_) => "encrypt",
            };
            let why = format!(
                "{source}: nothing is changed; repair the store first with `terrace repair`, or, if one part of it is \
                 encrypted and another is not, go back with `terrace {back}` and then repair it; if that is refused as well, \
                 restore a backup"
            );
            Error::Io { op, path, source: std::io::Error::new(source.kind(), why) }
        }
        error => error,
    }
}

/// Makes the file at `path` need the key `wanted`, and be on the file system `to`. Gives the bytes of its content; `None` if it
/// stays as it is.
fn convert(
    below: &dyn Vfs,
    source: &dyn Vfs,
    to: &dyn Vfs,
    wanted: Option<u32>,
    path: &Path,
) -> Result<Option<u64>> {
    let stored = below.open(path, OpenMode::default())?;
    let id = header::key_id_of(&*stored)?;
    let Some(file) = to_convert(source, &*stored, id, wanted)? else { return Ok(None) };
    write_anew(&*file, below, to, path)?;
    Ok(Some(file.len()))
}

/// Whether an error is about what a file has: it is damaged, its key is missing, or the device does not give all of it; or about
/// what is no file.
fn is_unreadable(error: &Error) -> bool {
    let is_of_device = terrace_vfs::is_unreadable(error);
    match error {
        error if is_no_file(error) => true,
        Error::Io { op, .. } => is_of_device && *op == "read",
        error => error.is_corruption() || matches!(error, Error::Unsupported { .. }),
    }
}

/// The content of a `stored` file that needs the key `id` and is to need `wanted`; `None` if it stays as it is.
fn to_convert(
    source: &dyn Vfs,
    stored: &dyn RandomFile,
    id: Option<u32>,
    wanted: Option<u32>,
) -> Result<Option<Arc<dyn RandomFile>>> {
    if id == wanted {
        // One that was cut within its header has no key and is not plain.
        let is_cut = id.is_none() && check_not_encrypted(stored).is_err();
        if !is_cut || source.open(stored.path(), OpenMode::default())?.len() > 0 {
            return Ok(None);
        }
    }
    open_whole(source, stored, id).map(Some)
}

/// Reads a file, for the errors.
fn read_through(file: &dyn RandomFile) -> Result<()> {
    let mut bytes = vec![0; READ_BYTES];
    let mut at = 0;
    while at < file.len() {
        let len = (file.len() - at).min(READ_BYTES as u64) as usize;
        file.read_at(at, &mut bytes[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// Opens the content of a `stored` file that is to be written anew. One that seems to have none, and no key whose pages
/// say so, must have none.
fn open_whole(
    source: &dyn Vfs,
    stored: &dyn RandomFile,
    id: Option<u32>,
) -> Result<Arc<dyn RandomFile>> {
    let file = source.open(stored.path(), OpenMode::default())?;
    let is_short = stored.len() <= HEADER_BYTES as u64;
    if file.len() > 0 || is_short || id.is_some() || has_only_zeros(stored)? {
        return Ok(file);
    }
    let why = "it begins with zeros, and something follows: repair the store first";
    Err(Error::corruption(stored.path(), 0, why))
}

/// Puts a copy of `file` in its place, on the file system `to`.
fn write_anew(file: &dyn RandomFile, below: &dyn Vfs, to: &dyn Vfs, path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let temp = names::rewrite_path(folder);
    if below.exists(&temp)? {
        below.remove(&temp)?;
    }
    let grows = Kind::of(path) == Kind::Growing;
    let written = to
        .create(&temp, &CreateOptions { grows, ..Default::default() })
        .and_then(|mut copy| copy_rest(file, 0, &mut *copy))
        .and_then(|()| below.copy_permissions(path, &temp))
        .and_then(|()| below.rename(&temp, path));
    if written.is_err() {
        // The first error counts; the next open would remove it.
        let _ = below.remove(&temp);
    }
    written?;
    below.sync_dir(folder)
}

/// Removes what would not be converted and is of no use any more: temporary files, and links to the store's files that an
/// interrupted backup has left.
fn remove_temporary(
    below: &dyn Vfs,
    dir: &Path,
    folders: &[PathBuf],
    foreign: &[FileNumber],
) -> Result<()> {
    for folder in folders {
        for name in below.list(folder)? {
            if names::parse(&name) == FileName::Temp && !is_foreign(&name, foreign) {
                below.remove(&folder.join(&name))?;
            }
        }
    }
    for work in backup_work::dirs(dir) {
        if let Some(foreign) = backup_work::clear(below, &work)?.first() {
            let why = "backups of the store have their checkpoint there, and no backup has made this: move it away";
            return Err(Error::io("convert", foreign, io::Error::other(why)));
        }
    }
    Ok(())
}

/// What the files of the store in `dir` are encrypted with. Needs no key, and may be
/// called while a process has the store open. Counts every file with a name as the store's files have. `dir` may be a directory
/// of backups, too.
///
/// # Errors
/// I/O, of kind `NotFound` if there is no file of a store.
pub fn used_keys(below: &dyn Vfs, dir: &Path) -> Result<UsedKeys> {
    let mut used = UsedKeys::default();
    let of_backups = ["files", "backups"].map(|name| dir.join(name));
    let mut paths = Vec::new();
    if below.exists(&of_backups[0])? && below.exists(&of_backups[1])? {
        for folder in of_backups {
            paths.extend(below.list(&folder)?.into_iter().map(|name| folder.join(name)));
        }
    } else {
        for folder in folders(below, dir)? {
            paths.extend(contents(below, &folder, &[])?);
        }
    }
    for path in paths {
        let opened = below.open(&path, OpenMode::default());
        match opened.and_then(|file| Ok((header::key_id_of(&*file)?, file.len()))) {
            Ok((id, bytes)) => {
                let used = used.keys.entry(id).or_default();
                used.files += 1;
                used.bytes += bytes;
            }
            // The writer has removed it meanwhile, or it is a link to nothing.
            Err(error) if error.is_not_found() => {}
            // A named pipe, say, needs no key.
            Err(error) if is_no_file(&error) => {}
            Err(error) if terrace_vfs::is_unreadable(&error) => used.unreadable.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(used)
}

/// The folders of the store in `dir` that have files with content of users.
fn folders(below: &dyn Vfs, dir: &Path) -> Result<Vec<PathBuf>> {
    if !below.exists(dir)? || contents(below, dir, &[])?.is_empty() {
        let none = std::io::Error::new(ErrorKind::NotFound, "there is no file of a store in it");
        return Err(Error::io("read", dir, none));
    }
    let lost = names::lost_dir(dir);
    let has_lost = below.exists(&lost)?;
    Ok(std::iter::once(dir.to_path_buf()).chain(has_lost.then_some(lost)).collect())
}

/// The files in `folder` that may have something of users; in `lost/` all.
fn contents(below: &dyn Vfs, folder: &Path, foreign: &[FileNumber]) -> Result<Vec<PathBuf>> {
    let is_lost = folder.parent().is_some_and(|dir| folder == names::lost_dir(dir));
    let mut names = below.list(folder)?;
    let is_of_store = |name: &str| names::parse(name).has_content() && !is_foreign(name, foreign);
    names.retain(|name| is_lost || is_of_store(name));
    names.sort();
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// What the manifest says; nothing if there is none that can be read.
fn stated(source: &dyn Vfs, dir: &Path) -> Result<Option<ManifestState>> {
    match Manifest::read(source, dir) {
        Ok(state) => Ok(Some(state)),
        Err(error) if error.is_corruption() || error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The numbers of files that are not the store's, ascending, as the engine takes them. Without a manifest that can be read
/// all are the store's: no file of it may be left as it is.
fn foreign_numbers(
    below: &dyn Vfs,
    state: Option<&ManifestState>,
    dir: &Path,
) -> Result<Vec<FileNumber>> {
    let Some(state) = state else { return Ok(Vec::new()) };
    Ok(names::foreign_numbers(&below.list(dir)?, state.next_file_number).1)
}

fn is_foreign(name: &str, foreign: &[FileNumber]) -> bool {
    names::number_of(name).is_some_and(|number| foreign.binary_search(&number).is_ok())
}
