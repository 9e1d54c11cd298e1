//! Opening for reading and writing: the lock, recovery, and what is done if there is no room for it. The background
//! threads start when the store is there.

use crate::env::dir_syncs::DirSyncs;
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::open::read_write::{lock, not_a_store, recover_and_write};
use crate::open::{full_disk, orphans};
use crate::options::Options;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use terrace_manifest::names;
use terrace_vfs::Vfs;

/// Opens the store in `dir` for reading and writing.
pub(crate) fn open(dir: &Path, mut options: Options) -> Result<Inner> {
    options.check()?;
    let start = options.advanced.clock.monotonic_us();
    let vfs = options.advanced.vfs.clone();
    let dir = &vfs.absolute(dir);
    if options.create_if_missing {
        vfs.create_dir_all(dir)?;
    } else if !vfs.exists(dir)? {
        let why = "the directory does not exist, and create_if_missing is not set";
        return Err(not_a_store(dir, why));
    }
    let lock = lock(&*vfs, dir)?;
    let given = vfs.clone();
    let vfs: Arc<dyn Vfs> = Arc::new(DirSyncs::over(vfs, dir));
    options.advanced.vfs = vfs.clone();
    orphans::remove_backup_work(&*vfs, dir);
    let there: HashSet<String> = vfs.list(dir)?.into_iter().collect();
    let is_store = vfs.exists(&names::current_path(dir))?;
    if is_store {
        // Recovery may need the room of the reserve.
        orphans::clear_name_of_reserve(&*vfs, dir, true)?;
        orphans::clear_names_of_removed(&*vfs, dir)?;
    }
    let mut opened = match recover_and_write(dir, &options, start) {
        Err(Error::DiskFull(cause)) if is_store && !cause.is_failed_sync() => {
            full_disk::open(dir, &options, start, &there, cause)?
        }
        opened => {
            let opened = opened?;
            orphans::clear_name_of_reserve(&*vfs, dir, true)?;
            full_disk::take_reserve(&opened, is_store)?;
            opened
        }
    };
    opened.given.advanced.vfs = given;
    *opened.lock.lock() = Some(lock);
    Ok(opened)
}
