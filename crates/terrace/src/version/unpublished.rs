//! Files that are written for an edit have temporary names until just before the edit: what a crash
//! leaves of them cannot be taken for lost data.

use crate::event;
use std::path::Path;
use std::sync::Arc;
use terrace_base::{FileNumber, Result};
use terrace_manifest::{SegmentKind, SegmentMeta, names};
use terrace_vfs::Vfs;

/// Gives files that a job has written their names, just before an edit puts them in force. Until
/// then they are temporary files: what a crash leaves of a job cannot be taken for lost data. The
/// directory is the caller's to sync.
pub(crate) fn publish(
    vfs: &dyn Vfs,
    dir: &Path,
    numbers: impl Iterator<Item = FileNumber>,
) -> Result<()> {
    for number in numbers {
        vfs.rename(&names::temp_path(dir, number), &names::sst_path(dir, number))?;
    }
    Ok(())
}

/// Gives segments their names, just before an edit puts them in force; as
/// [`publish`].
pub(crate) fn publish_segments(vfs: &dyn Vfs, dir: &Path, segments: &[SegmentMeta]) -> Result<()> {
    for segment in segments.iter().filter(|segment| segment.kind == SegmentKind::Values) {
        let number = segment.number;
        vfs.rename(&names::temp_path(dir, number.file()), &names::value_log_path(dir, number))?;
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
