//! Value segments that the repaired store may delete: nothing refers to them since SSTs are lost, or values in them
//! are. They stand in `lost/` before the new manifest is in force, under their own names, so that a repair that takes back
//! what is in `lost/` finds them.

use super::Repair;
use crate::admin::checkpoint;
use crate::error::{Error, Result};
use crate::open::orphans;
use crate::version::file_numbers::FileNumbers;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use terrace_base::SegmentNumber;
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{ManifestState, SegmentKind};
use terrace_vfs::{OpenMode, Vfs};

/// Bytes that copies leave free for what the repair still writes.
const LEFT_FREE_BYTES: u64 = 64 << 20;

/// Bytes of two files that are compared at once.
const PIECE_BYTES: u64 = 1 << 20;

impl Repair<'_> {
    /// Gives `lost/` the segments of `state` that no SST of it refers to, and those that have `damaged` values. What was
    /// `backed_up` is there.
    pub(super) fn keep_segments(
        &mut self,
        state: &ManifestState,
        damaged: &BTreeSet<SegmentNumber>,
        backed_up: &HashSet<String>,
    ) -> Result<()> {
        let files = state.families.values().flat_map(|family| family.version.all_files());
        let refs = files.flat_map(|(_, file)| &file.value_refs);
        let referred: HashSet<SegmentNumber> = refs.map(|reference| reference.segment).collect();
        let (mut kept, mut without_room) = (Vec::new(), Vec::new());
        for segment in state.segments.values() {
            let number = segment.number;
            if referred.contains(&number) && !damaged.contains(&number) {
                continue;
            }
            let path = match segment.kind {
                SegmentKind::Values => names::value_log_path(self.dir, number),
                SegmentKind::CommitLog => names::log_path(self.dir, number),
            };
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if backed_up.contains(name) {
                continue;
            }
            match self.keep(&path, name)? {
                true => kept.push(number.to_string()),
                false => without_room.push(number.to_string()),
            }
        }
        if !kept.is_empty() {
            self.vfs.sync_dir(&names::lost_dir(self.dir))?;
            self.note(format!(
                "segments with values that nothing refers to any more, or that are damaged, are in lost/ as well: {}",
                kept.join(", ")
            ));
        }
        if !without_room.is_empty() {
            self.lost(format!(
                "segments with values that nothing refers to any more, or that are damaged: the store may delete them, and \
                 there are no hard links and no room for copies in lost/: {}",
                without_room.join(", ")
            ));
        }
        Ok(())
    }

    /// Gives `lost/` a segment, which is there under its name as a whole or not at all. Gives whether there was room.
    fn keep(&self, path: &Path, name: &str) -> Result<bool> {
        let lost = names::lost_dir(self.dir);
        let target = lost.join(name);
        // Of a repair that did not end, or of an earlier one.
        if is_same(&*self.vfs, path, &target) {
            return Ok(true);
        }
        self.vfs.create_dir_all(&lost)?;
        if self.vfs.exists(&target)? {
            // The name by which it is taken back is for what the store has had last.
            let copy = orphans::free_name(&*self.vfs, self.dir, name)?;
            self.vfs.rename(&target, &copy)?;
        }
        self.give_too(path, &target)
    }

    /// As [`Self::give_whole`], where there are hard links, or room for a copy. Gives whether there was room.
    pub(super) fn give_too(&self, path: &Path, target: &Path) -> Result<bool> {
        if self.vfs.hard_link(path, target).is_ok() {
            return Ok(true);
        }
        let needed = self.vfs.len(path).unwrap_or(0).saturating_add(LEFT_FREE_BYTES);
        if self.vfs.free_space_bytes(self.dir).is_ok_and(|free| free < needed) {
            return Ok(false);
        }
        match self.give_whole(path, target) {
            Err(Error::DiskFull(_)) => Ok(false),
            given => given.map(|()| true),
        }
    }

    /// Gives the file at `path` the name `target` as well, or, where there are no hard links, a copy of it, which is there as a
    /// whole or not at all: what a repair that is cut short has copied half is taken for no file.
    pub(super) fn give_whole(&self, path: &Path, target: &Path) -> Result<()> {
        if self.vfs.hard_link(path, target).is_ok() {
            return Ok(());
        }
        let temp = names::rewrite_path(&names::lost_dir(self.dir));
        if self.vfs.exists(&temp)? {
            self.vfs.remove(&temp)?;
        }
        if let Err(error) = checkpoint::link_around_loss(&*self.vfs, path, &temp) {
            // It takes room. The error that counts is that of the copy.
            let _ = self.vfs.remove(&temp);
            return Err(error);
        }
        Ok(self.vfs.rename(&temp, target)?)
    }

    /// Value segments that neither an SST nor the manifest knows go to `lost/`, whatever can be read of them. What the manifest
    /// had taken out does not.
    pub(super) fn set_unknown_aside(
        &mut self,
        state: &ManifestState,
        numbers: &FileNumbers,
        aside: &mut Vec<(String, &'static str)>,
    ) -> Result<()> {
        for name in self.vfs.list(self.dir)? {
            let FileName::ValueLog(number) = names::parse(&name) else { continue };
            let is_known = state.segments.contains_key(&number)
                || state.retired.contains(&number.file())
                || numbers.is_foreign(number.file());
            if !is_known && !aside.iter().any(|(goes, _)| *goes == name) {
                self.note(format!(
                    "value segment {number}, which nothing refers to, moves to lost/"
                ));
                aside.push((name, ""));
            }
        }
        Ok(())
    }
}

/// Whether both files are there, can be read, and have the same in them.
pub(super) fn is_same(vfs: &dyn Vfs, one: &Path, other: &Path) -> bool {
    let compare = || -> terrace_base::Result<bool> {
        let one = vfs.open(one, OpenMode::default())?;
        let other = vfs.open(other, OpenMode::default())?;
        if one.len() != other.len() {
            return Ok(false);
        }
        let mut offset = 0;
        while offset < one.len() {
            let len = PIECE_BYTES.min(one.len() - offset) as usize;
            let (mut left, mut right) = (vec![0; len], vec![0; len]);
            one.read_at(offset, &mut left)?;
            other.read_at(offset, &mut right)?;
            if left != right {
                return Ok(false);
            }
            offset += len as u64;
        }
        Ok(true)
    };
    compare().unwrap_or(false)
}
