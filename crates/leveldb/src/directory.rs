//! What lies in a directory: a store of Terrace, LevelDB's own files, or something else.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terrace_binding::{Code, Failure, Outcome};
use terrace_manifest::names::{self, FileName};

/// Longer than any `CURRENT` of LevelDB.
const MAX_CURRENT_BYTES: u64 = 64;

/// Refuses a directory with files that only LevelDB writes.
pub fn refuse_leveldb(dir: &Path) -> Outcome<()> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(()) };
    let names_manifest = is_leveldb_current(&names::current_path(dir));
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_current = name == "CURRENT" && names_manifest;
        if name.ends_with(".ldb") || name == "LOG" || is_current {
            let message = format!(
                "{} holds files of LevelDB itself ({name}), which Terrace does not read; copy the \
                 entries into a new directory",
                dir.display()
            );
            return Err(Failure::argument(message));
        }
    }
    Ok(())
}

/// Whether `path` is a `CURRENT` as LevelDB writes it: the name of a manifest in a line. A store of Terrace has a
/// checksum behind the name.
fn is_leveldb_current(path: &Path) -> bool {
    let mut content = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_CURRENT_BYTES).read_to_end(&mut content));
    let number = content.strip_prefix(b"MANIFEST-").and_then(|rest| rest.strip_suffix(b"\n"));
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    read.is_ok() && number.is_some_and(is_number)
}

/// Whether there is a store.
pub fn has_store(dir: &Path) -> bool {
    names::current_path(dir).exists()
}

/// Refuses what an open does not want: a store where there may be none, or none where there must be one.
pub fn check_wanted(dir: &Path, create_if_missing: bool, error_if_exists: bool) -> Outcome<()> {
    let there = dir.display();
    match has_store(dir) {
        true if error_if_exists => {
            Err(Failure::argument(format!("{there}: exists (error_if_exists is true)")))
        }
        // A directory that cannot be written is the more telling error, as in LevelDB.
        false if !create_if_missing && dir.is_dir() && !is_writable(dir) => {
            let error = io::Error::from(io::ErrorKind::PermissionDenied);
            Err(Failure { code: Code::Io, message: format!("{there}: {error}") })
        }
        false if !create_if_missing => {
            Err(Failure::argument(format!("{there}: does not exist (create_if_missing is false)")))
        }
        _ => Ok(()),
    }
}

/// Whether this process may create files in a directory.
fn is_writable(dir: &Path) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return false };
    // SAFETY: a string that ends with zero.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// Removes the files of a store, and the directory if nothing else is in it.
pub fn destroy(dir: &Path) -> Outcome<()> {
    let failed = |error: io::Error| Failure {
        code: Code::Io,
        message: format!("{}: {error}", dir.display()),
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    // `CURRENT` first: a half-removed store is none.
    names.sort_by_key(|name| names::parse(name) != FileName::Current);
    for name in names.iter().filter(|name| names::parse(name) != FileName::Other) {
        std::fs::remove_file(dir.join(name)).map_err(failed)?;
    }
    // Something of another's may be in it.
    let _ = std::fs::remove_dir(dir);
    Ok(())
}
