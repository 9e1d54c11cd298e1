//! What lies in a directory: a store of Terrace, LevelDB's own files, or something else.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use terrace::Db;
use terrace::vfs::{PosixVfs, Vfs};
use terrace_base::FileNumber;
use terrace_binding::{Code, Failure, Outcome};
use terrace_manifest::names::{self, FileName};

/// Longer than any `CURRENT` of LevelDB.
const MAX_CURRENT_BYTES: u64 = 64;

/// Refuses a directory with LevelDB's files. A `LOG` alone does not tell: a program may write one of its own.
pub fn refuse_leveldb(dir: &Path) -> Outcome<()> {
    let Ok(names) = names_in(dir) else { return Ok(()) };
    let current = names::current_path(dir);
    let is_table = |name: &str| name.strip_suffix(".ldb").is_some_and(is_number);
    let table = names.iter().find(|name| is_table(name));
    let shown = match table {
        Some(name) => Some(name.as_str()),
        None if is_leveldb_current(&current) => Some("CURRENT"),
        None if !is_terrace(dir, &names) => log_of_leveldb(&names),
        None => None,
    };
    let Some(name) = shown else { return Ok(()) };
    let message = format!(
        "{} holds files of LevelDB itself ({name}), which Terrace does not read; copy the entries into a \
         new directory",
        dir.display()
    );
    Err(Failure::argument(message))
}

/// `LOG`, if files beside it have names that LevelDB gives. Those that Terrace gives, too, are among them.
fn log_of_leveldb(names: &[String]) -> Option<&'static str> {
    use FileName::{Current, Log, Manifest, Sst};
    let is_data =
        |name: &String| matches!(names::parse(name), Current | Manifest(_) | Log(_) | Sst(_));
    (names.iter().any(|name| name == "LOG") && names.iter().any(is_data)).then_some("LOG")
}

/// Whether a store of Terrace is there, or what is left of one: its `CURRENT`, or files that LevelDB never has.
fn is_terrace(dir: &Path, names: &[String]) -> bool {
    use FileName::{Evidence, Readers, Reserve, ValueLog};
    let is_ours = |name: &String| {
        matches!(names::parse(name), Evidence(_) | Readers(_) | Reserve | ValueLog(_))
    };
    names.iter().any(is_ours) || terrace_manifest::current::read(&PosixVfs::new(), dir).is_ok()
}

fn names_in(dir: &Path) -> io::Result<Vec<String>> {
    let entries = std::fs::read_dir(dir)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether `path` is a `CURRENT` as LevelDB writes it: the name of a manifest in a line. A store of Terrace has a
/// checksum behind the name. A pipe is none, and is not waited for.
fn is_leveldb_current(path: &Path) -> bool {
    let mut content = Vec::new();
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let read = opened.and_then(|file| file.take(MAX_CURRENT_BYTES).read_to_end(&mut content));
    let text = std::str::from_utf8(&content).unwrap_or_default();
    let number = text.strip_prefix("MANIFEST-").and_then(|rest| rest.strip_suffix('\n'));
    read.is_ok() && number.is_some_and(is_number)
}

/// Whether there is a store.
pub fn has_store(dir: &Path) -> bool {
    names::current_path(dir).exists()
}

/// Refuses what an open does not want: a store where there may be none, or none where there must be one. And what is
/// left of a store without its `CURRENT`.
pub fn check_wanted(dir: &Path, create_if_missing: bool, error_if_exists: bool) -> Outcome<()> {
    let there = dir.display();
    if has_store(dir) {
        return match error_if_exists {
            true => Err(exists(dir)),
            false => Ok(()),
        };
    }
    if let Some(name) = data_in(dir) {
        let message =
            format!("{there}: CURRENT is missing although there is {name}; RepairDB makes it anew");
        return Err(Failure { code: Code::Corruption, message });
    }
    match create_if_missing {
        // As in LevelDB, only the last directory is made.
        true if !has_parent(dir) => Err(failed(dir, &io::Error::from_raw_os_error(libc::ENOENT))),
        true => Ok(()),
        false => {
            check_usable(dir)?;
            Err(Failure::argument(format!("{there}: does not exist (create_if_missing is false)")))
        }
    }
}

/// Refuses what is there and is no directory, or cannot be looked at or written: the more telling error, as in LevelDB, which
/// locks before it looks for a store.
fn check_usable(dir: &Path) -> Outcome<()> {
    let error = match std::fs::metadata(dir) {
        Ok(found) if !found.is_dir() => io::Error::from_raw_os_error(libc::ENOTDIR),
        Ok(_) if !is_writable(dir) => io::Error::from(io::ErrorKind::PermissionDenied),
        Err(error) if error.kind() != io::ErrorKind::NotFound => error,
        _ => return Ok(()),
    };
    Err(failed(dir, &error))
}

fn exists(dir: &Path) -> Failure {
    Failure::argument(format!("{}: exists (error_if_exists is true)", dir.display()))
}

/// Refuses a store that has been written to, where there must be a new one: another process may have made it since
/// [`check_wanted`] has looked, without the store's lock. One that was never written to is as good as a new one.
pub fn check_new(dir: &Path, db: &Db) -> Outcome<()> {
    match db.latest_seqno() {
        0 => Ok(()),
        _ => Err(exists(dir)),
    }
}

/// A file that holds data of a store.
fn data_in(dir: &Path) -> Option<String> {
    use FileName::{Evidence, Log, Sst, ValueLog};
    let is_data =
        |name: &String| matches!(names::parse(name), Evidence(_) | Log(_) | Sst(_) | ValueLog(_));
    names_in(dir).ok()?.into_iter().find(is_data)
}

/// Whether the directory that `dir` lies in is there.
fn has_parent(dir: &Path) -> bool {
    match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => true,
        Some(parent) => parent.is_dir(),
        None => true,
    }
}

/// Refuses a store in `dir` that lacks SSTs. The engine opens one that does, and gives an error where they are read.
pub fn check_ssts(dir: &Path, db: &Db) -> Outcome<()> {
    let needed = || -> BTreeSet<u64> {
        let levels = db.shape().families.into_iter().flat_map(|family| family.levels);
        levels.flatten().map(|file| file.number).collect()
    };
    let path = |number: u64| names::sst_path(dir, FileNumber::new(number));
    let mut missing = needed();
    // What cannot be asked for is not known to be missing.
    missing.retain(|number| path(*number).try_exists().is_ok_and(|is_there| !is_there));
    if missing.is_empty() {
        return Ok(());
    }
    // Merges are under way: what they have removed is not needed any more.
    let still = needed();
    missing.retain(|number| still.contains(number));
    let Some(first) = missing.first() else { return Ok(()) };
    let message = format!("{} missing files; e.g.: {}", missing.len(), path(*first).display());
    Err(Failure { code: Code::Corruption, message })
}

/// Whether this process may create files in a directory.
fn is_writable(dir: &Path) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return false };
    // SAFETY: a string that ends with zero.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// Removes the files of a store, and the directory if nothing else is in it. It goes on where an earlier call was
/// interrupted, which may be just before the directory goes. Nothing is removed while the store is open. A file that cannot be
/// removed keeps no other: the error is the first one.
pub fn destroy(dir: &Path) -> Outcome<()> {
    let dir = &PosixVfs::new().absolute(dir);
    if files_to_remove(dir)?.is_empty() {
        remove_empty(dir);
        return Ok(());
    }
    let lock = PosixVfs::new().lock(&names::lock_path(dir)).map_err(|error| match &error {
        terrace_base::Error::Io { source, .. } if source.kind() == io::ErrorKind::WouldBlock => {
            terrace::Error::Locked(dir.to_path_buf())
        }
        _ => error.into(),
    })?;
    let mut outcome: Outcome<()> = Ok(());
    for name in files_to_remove(dir)? {
        let (path, turn) = (dir.join(&name), turn(&name));
        // With data that is left stays what tells whose it is.
        if outcome.is_err() && turn > Turn::Data {
            break;
        }
        let removed = std::fs::remove_file(&path).map_err(|error| failed(&path, &error));
        if turn == Turn::First {
            removed.clone()?;
        }
        outcome = outcome.and(removed);
    }
    drop(lock);
    outcome?;
    remove_empty(dir);
    Ok(())
}

/// Removes a directory, unless something of another's is in it.
fn remove_empty(dir: &Path) {
    let _ = std::fs::remove_dir(dir);
}

/// When a file is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// `CURRENT`: a half-removed store is none.
    First,
    Data,
    /// What tells data that is left of a store from LevelDB's files.
    Signs,
    Lock,
}

fn turn(name: &str) -> Turn {
    match names::parse(name) {
        FileName::Current => Turn::First,
        FileName::Evidence(_) | FileName::Reserve => Turn::Signs,
        FileName::Lock => Turn::Lock,
        _ => Turn::Data,
    }
}

/// The files of a store in the order in which they are removed.
fn files_to_remove(dir: &Path) -> Outcome<Vec<String>> {
    // Where nothing can be listed there is nothing to remove, as for LevelDB.
    let mut names = names_in(dir).unwrap_or_default();
    names.retain(|name| names::parse(name) != FileName::Other);
    names.sort_by_cached_key(|name| (turn(name), name.clone()));
    Ok(names)
}

fn failed(dir: &Path, error: &io::Error) -> Failure {
    Failure { code: Code::Io, message: format!("{}: {error}", dir.display()) }
}

#[cfg(test)]
mod tests;
