//! Files of a store that somebody has given the name of a temporary one, `NNNNNN.tmp`. Asked before temporary files are
//! removed: by an open, by a repair, and before a store is written anew under another key.

use crate::names;
use crate::state::ManifestState;
use std::path::Path;
use terrace_base::SegmentNumber;
use terrace_vfs::Vfs;

/// Whether temporary file `name` in `dir` has the number of a file that is missing and that `state` names: of an SST, of a segment
/// with values, or of the segment with which the log begins. Those that the store has not finished have numbers of no such file.
pub fn is_renamed(vfs: &dyn Vfs, dir: &Path, state: &ManifestState, name: &str) -> bool {
    let Some(number) = names::temp_number(name) else { return false };
    let segment = number.segment();
    let mut ssts = state.families.values().flat_map(|family| family.version.all_files());
    let is_sst = ssts.any(|(_, file)| file.number == number);
    (is_sst && is_missing(vfs, &names::sst_path(dir, number)))
        || state.segments.get(&segment).is_some_and(|meta| is_missing(vfs, &meta.path(dir)))
        || (segment == state.oldest_log_segment() && is_missing_log(vfs, dir, segment))
}

/// Whether segment `number` of the log is missing. Numbers count from 1.
pub fn is_missing_log(vfs: &dyn Vfs, dir: &Path, number: SegmentNumber) -> bool {
    number > SegmentNumber::ZERO && is_missing(vfs, &names::log_path(dir, number))
}

/// What cannot be told is not missing.
fn is_missing(vfs: &dyn Vfs, path: &Path) -> bool {
    vfs.exists(path).is_ok_and(|is_there| !is_there)
}
