//! What a repair merges or writes anew stands beside what came of it when the new manifest is in force, and moves to `lost/` then.
//! The next repair knows it by the list of [`crate::open::merged`] if this one is cut short: it is not taken in once more.

use super::misplaced::MISPLACED;
use super::taken_back::{make_way, size_bytes};
use super::{Repair, taken_back, unended};
use crate::error::Result;
use crate::open::merged::{self, Listed, Merged, NAME};
use std::collections::HashSet;
use std::path::Path;
use terrace_base::FileNumber;
use terrace_manifest::names::{self, FileName};
use terrace_vfs::Vfs;

/// What is known of the repair before that did not end.
#[derive(Default)]
pub(super) struct MergedBefore {
    /// SSTs in the directory that it has merged or written anew, where they may not be moved.
    pub left: HashSet<FileNumber>,
    /// Why it is not known which ones these are, until that is reported.
    unknown: Option<String>,
}

impl Repair<'_> {
    /// Moves to `lost/` what a repair that did not end has merged or written anew; a dry run leaves it out.
    pub(super) fn settle_merged(&mut self, dry_run: bool) -> Result<()> {
        let vfs = self.vfs.clone();
        match merged::look(&*vfs, self.dir)? {
            Merged::Void if !dry_run => merged::end(&*vfs, self.dir)?,
            Merged::NoList | Merged::Void => {}
            Merged::Unknown(why) => self.merged_before.unknown = Some(why),
            Merged::Left(left) => {
                if !left.is_empty() {
                    let numbers: Vec<String> =
                        left.iter().map(|file| file.number.to_string()).collect();
                    self.note(format!(
                        "SSTs that an earlier repair, which did not end, has merged or written anew move to lost/: {}",
                        numbers.join(", ")
                    ));
                }
                if dry_run {
                    self.merged_before.left = left.iter().map(|file| file.number).collect();
                    return Ok(());
                }
                merged::set_aside(&*vfs, self.dir, &left)?;
                // What it had taken back is in the store, or has moved.
                taken_back::end(&*vfs, self.dir)?;
                merged::end(&*vfs, self.dir)?;
            }
        }
        Ok(())
    }

    /// SSTs are taken in that may have been merged before: tells, once, that the list which says it cannot be read.
    pub(super) fn tell_merged_unknown(&mut self) {
        if let Some(why) = self.merged_before.unknown.take() {
            self.lost(format!(
                "which SSTs a repair that did not end has merged already (lost/: {why}): keys that were deleted may have come back"
            ));
        }
    }

    /// Lists the SSTs of `aside` for the manifest that is about to be put in force, durably; gives its number, the first free one
    /// from `number` on.
    pub(super) fn list_merged(
        &self,
        mut number: u64,
        aside: &[(String, &'static str)],
    ) -> Result<u64> {
        while self.vfs.exists(&names::manifest_path(self.dir, number))? {
            number += 1;
        }
        let mut files = Vec::new();
        for (name, suffix) in aside.iter().filter(|(_, suffix)| *suffix != MISPLACED) {
            let FileName::Sst(file) = names::parse(name) else { continue };
            if let Some(size_bytes) = size_bytes(&*self.vfs, &self.dir.join(name))? {
                files.push(Listed { number: file, size_bytes, suffix: (*suffix).to_string() });
            }
        }
        if !files.is_empty() {
            let folder = names::lost_dir(self.dir);
            let list = merged::encode(number, &files);
            let temp = unended::write_temp(&*self.vfs, self.dir, [list])?;
            make_way(&*self.vfs, self.dir, NAME)?;
            self.vfs.rename(&temp, &folder.join(NAME))?;
            self.vfs.sync_dir(&folder)?;
        }
        Ok(number)
    }
}

/// Removes the list: what it had has moved, or nothing can be read of it.
pub(super) fn end(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    make_way(vfs, dir, NAME)?;
    Ok(merged::end(vfs, dir)?)
}
