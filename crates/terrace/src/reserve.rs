//! The reserve file: room that is given back when the disk is full, so that deletions, the manifest,
//! and flushes and compactions that free room can be written, and a full disk can be opened. Best
//! effort: a store works without it.

use std::path::Path;
use terrace_base::Result;
use terrace_manifest::names;
use terrace_vfs::{CreateOptions, Vfs};

/// Sets `bytes` of disk space aside, unless it is done already or there is no room.
pub(crate) fn take(vfs: &dyn Vfs, dir: &Path, bytes: u64) -> Result<()> {
    let path = names::reserve_path(dir);
    if bytes == 0 || vfs.exists(&path)? {
        return Ok(());
    }
    let options = CreateOptions { preallocate_bytes: bytes, ..CreateOptions::default() };
    match vfs.create(&path, &options) {
        Err(error) if !error.is_no_space() => Err(error),
        _ => Ok(()),
    }
}

/// Gives the space back; false if there was none.
pub(crate) fn release(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
    match vfs.remove(&names::reserve_path(dir)) {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
