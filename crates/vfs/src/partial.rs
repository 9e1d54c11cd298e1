//! A directory or file that gets its name when it is whole: until then it has another one, which what was
//! interrupted leaves behind.

use crate::{Result, Vfs};
use std::path::{Path, PathBuf};

/// The name of a file or directory while it is being written: beside its later one.
pub fn partial_path(target: &Path) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    target.with_file_name(name)
}

/// Removes the files of a directory, if there is one; the directory stays.
pub fn empty_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    if vfs.exists(dir)? {
        for name in vfs.list(dir)? {
            vfs.remove(&dir.join(name))?;
        }
    }
    Ok(())
}
