//! The reserve file: room that is given back when the disk is full, so that the manifest and
//! flushes under way can finish. Best effort: a store works without it.

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

/// Gives the space back.
pub(crate) fn release(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    match vfs.remove(&names::reserve_path(dir)) {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
