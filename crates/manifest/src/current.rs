//! The `CURRENT` file: which manifest is in force.
//!
//! One line: the manifest's name, a space, the crc32c of the name in eight hex digits. Replaced
//! as a whole by a rename, so that it names either the old or the new manifest.

use crate::names;
use std::io;
use std::path::Path;
use terrace_base::checksum::crc32c;
use terrace_base::{Error, Result};
use terrace_vfs::{CreateOptions, OpenMode, Vfs, check_not_encrypted};

/// Longer than any `CURRENT`.
const MAX_BYTES: u64 = 64;

/// The content of `CURRENT` that puts manifest `number` in force.
pub fn encode(number: u64) -> String {
    let name = names::manifest_name(number);
    let checksum = crc32c(&[name.as_bytes()]);
    format!("{name} {checksum:08x}\n")
}

/// The manifest that `content` puts in force; `None` if it is not exactly what [`encode`] makes, or
/// leaves no number for the next manifest.
pub fn decode(content: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(content).ok()?;
    let (name, _) = text.split_once(' ')?;
    match names::parse(name) {
        names::FileName::Manifest(number) if number < u64::MAX && encode(number) == text => {
            Some(number)
        }
        _ => None,
    }
}

/// Reads `CURRENT`.
///
/// # Errors
/// I/O with `is_not_found()` if there is none; `Corruption` if it is not what was written.
pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<u64> {
    let path = names::current_path(dir);
    let file = vfs.open(&path, OpenMode::default()).map_err(|error| {
        if !error.is_not_found() {
            return error;
        }
        let why = "there is no CURRENT, so the directory holds no store; check the path, or \
                   create a store here";
        Error::io("open", &path, io::Error::new(io::ErrorKind::NotFound, why))
    })?;
    check_not_encrypted(&*file)?;
    let len = file.len();
    let mut content = vec![0; len.min(MAX_BYTES) as usize];
    file.read_at(0, &mut content)?;
    let number = if len <= MAX_BYTES { decode(&content) } else { None };
    number.ok_or_else(|| {
        let found = String::from_utf8_lossy(&content).trim_end().to_string();
        let detail = format!(
            "it should name a manifest and its checksum and says {found:?}; restore it from a \
             checkpoint, or let `terrace repair` look for the newest manifest"
        );
        Error::corruption(&path, 0, detail)
    })
}

/// Puts manifest `number`, which must be durable under its name, in force: durable when this
/// returns. After an error either manifest may be in force.
pub fn switch(vfs: &dyn Vfs, dir: &Path, number: u64) -> Result<()> {
    let temp = names::current_temp_path(dir);
    if vfs.exists(&temp)? {
        vfs.remove(&temp)?;
    }
    let mut file = vfs.create(&temp, &CreateOptions::default())?;
    file.append(encode(number).as_bytes())?;
    file.finish()?;
    file.sync()?;
    drop(file);
    vfs.rename(&temp, &names::current_path(dir))?;
    vfs.sync_dir(dir)
}
