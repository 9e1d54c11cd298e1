//! Files that are written for an edit have temporary names until just before the edit: what a crash
//! leaves of them cannot be taken for lost data.

use crate::event;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{Error, FileNumber, Result};
use terrace_manifest::{SegmentKind, SegmentMeta, names};
use terrace_vfs::Vfs;

/// Gives files that a job has written their names, just before an edit puts them in force. Until
/// then they are temporary files: what a crash leaves of a job cannot be taken for lost data. The
/// directory is the caller's to sync.
///
/// # Errors
/// One that [`Error::is_already_there`] if somebody has put a file under one of the names since the number was taken: it is not
/// written over.
pub(crate) fn publish(
    vfs: &dyn Vfs,
    dir: &Path,
    numbers: impl Iterator<Item = FileNumber>,
) -> Result<()> {
    for number in numbers {
        give_name(vfs, &names::temp_path(dir, number), &names::sst_path(dir, number))?;
    }
    Ok(())
}

/// Refuses files that cannot be published as somebody has put others under their names: what says in the log that they are in force
/// cannot be taken back.
///
/// # Errors
/// As [`publish`].
pub(crate) fn check_names(
    vfs: &dyn Vfs,
    dir: &Path,
    mut numbers: impl Iterator<Item = FileNumber>,
) -> Result<()> {
    numbers.try_for_each(|number| check_name(vfs, &names::sst_path(dir, number)))
}

fn give_name(vfs: &dyn Vfs, temp: &Path, path: &Path) -> Result<()> {
    check_name(vfs, path)?;
    vfs.rename(temp, path)
}

fn check_name(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    if vfs.exists(path)? {
        let why =
            "somebody has put a file there, which stays; what is tried again gets another number";
        let error = io::Error::new(io::ErrorKind::AlreadyExists, why);
        return Err(Error::io("name a file that was written", path, error));
    }
    Ok(())
}

/// Removes files that were written, of which perhaps not all were published, by their temporary and their last names, as far as
/// that works: what stays is removed at the next open. Where the temporary name is there, a file of the other one is somebody else's.
pub(crate) fn remove_written(vfs: &dyn Vfs, files: impl Iterator<Item = (PathBuf, PathBuf)>) {
    for (temp, path) in files {
        if vfs.remove(&temp).is_err_and(|error| error.is_not_found()) {
            let _ = vfs.remove(&path);
        }
    }
}

/// Gives segments their names, just before an edit puts them in force; as
/// [`publish`].
pub(crate) fn publish_segments(vfs: &dyn Vfs, dir: &Path, segments: &[SegmentMeta]) -> Result<()> {
    for segment in segments.iter().filter(|segment| segment.kind == SegmentKind::Values) {
        let number = segment.number;
        let (temp, path) =
            (names::temp_path(dir, number.file()), names::value_log_path(dir, number));
        give_name(vfs, &temp, &path)?;
    }
    Ok(())
}

/// Removes unpublished files that were written and are not wanted, as far as that works: what stays is removed
/// at the next open.
pub(crate) fn remove_unpublished(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    numbers: impl Iterator<Item = FileNumber>,
) {
    for number in numbers {
        if let Err(error) = vfs.remove(&names::temp_path(dir, number))
            && !error.is_not_found()
        {
            event::unfinished_file_stays(&error);
        }
    }
}
