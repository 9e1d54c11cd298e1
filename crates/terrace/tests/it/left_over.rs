//! Which files of a closed store nothing accounts for.

use std::collections::BTreeSet;
use std::path::Path;
use terrace::vfs::Vfs;
use terrace_base::{FileNumber, SegmentNumber};
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{Manifest, current};

/// Names in `dir`, a closed store that nobody has open, that the manifest in force does not name and
/// that are not of a kind which every store has. What was set aside in `lost/` is not looked at.
pub fn left_over(vfs: &dyn Vfs, dir: &Path) -> terrace_base::Result<Vec<String>> {
    let state = Manifest::read(vfs, dir)?;
    let in_force = current::read(vfs, dir)?;
    let families = state.families.values();
    let ssts: BTreeSet<FileNumber> = families
        .clone()
        .flat_map(|family| family.version.files().map(|(_, f)| f.number).collect::<Vec<_>>())
        .collect();
    let oldest = families.map(|family| family.min_log_segment).min().unwrap_or_default();
    let sealed = |n: SegmentNumber| state.segments.contains_key(&n);
    let is_known = |name: &str| match names::parse(name) {
        FileName::Current | FileName::Lock | FileName::Reserve => true,
        FileName::Readers(_) | FileName::Evidence(_) => true,
        FileName::Manifest(number) => number == in_force,
        FileName::Sst(number) => ssts.contains(&number),
        FileName::Log(number) => number >= oldest || sealed(number),
        FileName::ValueLog(number) => sealed(number),
        FileName::Temp => false,
        FileName::Other => names::lost_dir(dir).ends_with(name),
    };
    let mut names = vfs.list(dir)?;
    names.retain(|name| !is_known(name));
    Ok(names)
}
