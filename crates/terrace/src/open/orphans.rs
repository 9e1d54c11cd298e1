//! Files in a store's directory that nothing names, found by an open after its recovery.
//!
//! What was never finished goes: temporary files, and whatever the manifest's own records say was
//! taken out. A finished SST or segment that no record names may be all that is left of data, so it is
//! never deleted: it moves to `lost/` in the store's directory, and an event names it. So does one that has
//! only the name of a file that was taken out, that of a segment although it is an SST, or that of a temporary file although it is
//! one that a record names.
//! Outputs of jobs bear temporary names until just
//! before their edit ([`crate::version::unpublished::publish`]), so a crash leaves next to nothing that looks lost.

use crate::error::Result;
use crate::event;
use crate::version::file_numbers::FileNumbers;
use crate::version::log_history::LogHistory;
use crate::version::reader_pins::ReaderPins;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use terrace_base::{FileNumber, SegmentNumber};
use terrace_log::{LogReader, SegmentFile, Step};
use terrace_manifest::evidence::EVIDENCE_FILES;
use terrace_manifest::names::{self, FileName};
use terrace_manifest::renamed::is_renamed;
use terrace_manifest::{ManifestState, SegmentKind, backup_work, current};
use terrace_vfs::{OpenMode, Vfs, is_no_file};

/// What is added in `lost/` to the name of a file that is something else than its name says. Nothing takes it back from there.
pub(crate) const MISPLACED: &str = ".misplaced";

/// The log that was replayed, and is out of force.
pub(crate) struct LogBefore<'a> {
    /// The segments that it had.
    pub segments: &'a [SegmentFile],
    /// Those of them to which no link leads.
    pub skipped: &'a [SegmentNumber],
    /// What is kept of it.
    pub history: &'a LogHistory,
}

/// What becomes of a file.
enum Fate {
    /// The store needs it, or it is none of the store's.
    Stays,
    /// It was never finished, or a record took it out.
    Goes,
    /// It looks like data; why nothing needs it.
    IsLost(&'static str),
    /// It is another file than its name says, and may be the only one of its kind.
    IsMisplaced,
}

/// Removes what a backup that was interrupted has linked. Nobody works there: only who has the store open for writing
/// backs it up. What cannot be removed is removed by the next backup.
pub(crate) fn remove_backup_work(vfs: &dyn Vfs, dir: &Path) {
    // In another directory, which is about to be refused or to become a store, nothing is ours.
    if !vfs.exists(&names::current_path(dir)).unwrap_or(false) {
        return;
    }
    for work in backup_work::dirs(dir) {
        let foreign = backup_work::clear(vfs, &work).unwrap_or_default();
        foreign.iter().for_each(|path| event::foreign_in_backup_work(path));
    }
}

/// Sets aside what has the name of the reserve and is no file: it could be neither removed nor counted, and writes would fail.
/// Where there was no store before, there was no reserve either, and whatever has its name is somebody's.
pub(crate) fn clear_name_of_reserve(vfs: &dyn Vfs, dir: &Path, is_store: bool) -> Result<()> {
    let path = names::reserve_path(dir);
    let is_none = |error: terrace_base::Error| is_no_file(&error) || error.is_not_found();
    if vfs.exists(&path)? && (!is_store || vfs.open(&path, OpenMode::default()).is_err_and(is_none))
    {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        set_aside(vfs, dir, (name, ""), "it has the name of the reserve, and is none")?;
        vfs.sync_dir(dir)?;
    }
    Ok(())
}

/// Sets SSTs and segments aside that have the name of the reserve, or of a manifest that is not in force: the store removes what
/// has one of these names when it needs the room, or has moved to the next manifest. What cannot be read is taken for what its
/// name says.
pub(crate) fn clear_names_of_removed(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let Ok(in_force) = current::read(vfs, dir) else { return Ok(()) };
    let mut changed = false;
    for name in vfs.list(dir)? {
        let path = dir.join(&name);
        // The store gives no segment the number 0.
        let number = match names::parse(&name) {
            FileName::Reserve => SegmentNumber::ZERO,
            FileName::Manifest(number) if number != in_force => SegmentNumber::new(number),
            _ => continue,
        };
        if is_another_segment(vfs, &path, number) || is_no_segment(vfs, &path) {
            let why = "it has the name of a file that the store removes, and is another one";
            set_aside(vfs, dir, (&name, MISPLACED), why)?;
            changed = true;
        }
    }
    if changed {
        vfs.sync_dir(dir)?;
    }
    Ok(())
}

/// Settles every file in `dir` that neither `state` nor what is kept of the `log` needs. Foreign files stay, as
/// `numbers` tells them. What goes and readers of the writer before still need goes when they do. What cannot be removed stays,
/// and keeps no store closed, unless it is in the way of what the store will write.
pub(crate) fn settle(
    vfs: &dyn Vfs,
    dir: &Path,
    state: &ManifestState,
    log: &LogBefore<'_>,
    numbers: &FileNumbers,
    reader_pins: &ReaderPins,
) -> Result<()> {
    let files = state.families.values().flat_map(|family| family.version.all_files());
    let live: HashSet<FileNumber> = files.map(|(_, file)| file.number).collect();
    let value_segment = |number: SegmentNumber, kind: SegmentKind| {
        state.segments.get(&number).is_some_and(|segment| segment.kind == kind)
    };
    let records = |path: &Path, number: SegmentNumber| has_records(vfs, path, number);
    let mut changed = false;
    let mut gone = Vec::new();
    for name in vfs.list(dir)? {
        if numbers.is_foreign_name(&name) {
            event::foreign_file(&name);
            continue;
        }
        let path = dir.join(&name);
        let fate = match names::parse(&name) {
            FileName::Sst(number) if live.contains(&number) => Fate::Stays,
            FileName::Sst(number) if state.retired.contains(&number) => {
                misplaced_if(is_no_sst_of(vfs, &path, number))
            }
            FileName::Sst(number) => {
                let finished = is_finished_sst(vfs, &path, number, state.keeps_evidence);
                lost_if(finished, "no version names this SST")
            }
            FileName::Log(number) if log.history.keeps(number) => Fate::Stays,
            FileName::Log(number) if value_segment(number, SegmentKind::CommitLog) => Fate::Stays,
            FileName::Log(number) if log.skipped.contains(&number) && records(&path, number) => {
                Fate::IsLost("the log does not lead to this segment")
            }
            FileName::Log(number) if log.segments.iter().any(|file| file.number == number) => {
                misplaced_if(is_no_segment(vfs, &path))
            }
            // Whatever can be read of it: an encrypted one says nothing under a name that is not its own.
            FileName::Log(number) if state.segments.contains_key(&number) => {
                Fate::IsLost("the manifest knows this segment under another name")
            }
            FileName::ValueLog(number) if value_segment(number, SegmentKind::Values) => Fate::Stays,
            FileName::ValueLog(number)
                if !state.retired.contains(&number.file()) && records(&path, number) =>
            {
                Fate::IsLost("the manifest does not know this value segment")
            }
            FileName::Log(number) | FileName::ValueLog(number) => {
                misplaced_if(is_another_segment(vfs, &path, number) || is_no_segment(vfs, &path))
            }
            FileName::Temp if is_renamed(vfs, dir, state, &name) => Fate::IsMisplaced,
            // No reader knows it.
            FileName::Temp => {
                match vfs.remove(&path) {
                    Ok(()) => changed = true,
                    Err(error) if is_written_again(dir, &path) => return Err(error.into()),
                    Err(error) => event::unfinished_file_stays(&error),
                }
                Fate::Stays
            }
            _ => Fate::Stays,
        };
        match fate {
            Fate::Stays => {}
            Fate::Goes => gone.push(path),
            Fate::IsLost(why) => {
                set_aside(vfs, dir, (&name, ""), why)?;
                changed = true;
            }
            Fate::IsMisplaced => {
                let why = "it has the name of a file that nothing needs, and is another one";
                set_aside(vfs, dir, (&name, MISPLACED), why)?;
                changed = true;
            }
        }
    }
    let (gone, removed) = reader_pins.remove(vfs, gone, "open:orphans_removed", false);
    if let Err(error) = removed {
        event::unneeded_file_stays(&error);
    }
    changed |= !gone.is_empty();
    if changed {
        vfs.sync_dir(dir)?;
    }
    Ok(())
}

/// Whether the store writes the temporary file at `path` again while it is open, which would fail then.
fn is_written_again(dir: &Path, path: &Path) -> bool {
    let is_of_evidence = |number| *path == names::evidence_temp_path(dir, number);
    *path == names::current_temp_path(dir) || (1..=EVIDENCE_FILES as u64).any(is_of_evidence)
}

fn lost_if(lost: bool, why: &'static str) -> Fate {
    if lost { Fate::IsLost(why) } else { Fate::Goes }
}

fn misplaced_if(misplaced: bool) -> Fate {
    if misplaced { Fate::IsMisplaced } else { Fate::Goes }
}

/// Moves file `name` of `dir` to `lost/`, with `suffix` behind its name, under a name that is free there. The
/// entry in `lost/` is durable; that the old one is gone is for the caller to sync.
fn set_aside(vfs: &dyn Vfs, dir: &Path, (name, suffix): (&str, &str), why: &str) -> Result<()> {
    let target = free_name(vfs, dir, &format!("{name}{suffix}"))?;
    vfs.rename(&dir.join(name), &target)?;
    vfs.sync_dir(&names::lost_dir(dir))?;
    event::set_aside(name, &target, why);
    Ok(())
}

/// A path in `lost/`, which is made if it is missing, that nothing has: `name`, or that with a number.
pub(crate) fn free_name(vfs: &dyn Vfs, dir: &Path, name: &str) -> terrace_base::Result<PathBuf> {
    let lost = names::lost_dir(dir);
    vfs.create_dir_all(&lost)?;
    let mut target = lost.join(name);
    let mut copy = 1;
    while vfs.exists(&target)? {
        target = lost.join(format!("{name}.{copy}"));
        copy += 1;
    }
    Ok(target)
}

/// Whether an SST was ever finished. Builds that keep evidence give a file this name only after that;
/// of earlier ones a sound end tells. What cannot be read is taken for finished.
fn is_finished_sst(vfs: &dyn Vfs, path: &Path, number: FileNumber, names_say_so: bool) -> bool {
    names_say_so
        || !terrace_sst::read_properties(vfs, path, number).is_err_and(|e| e.is_corruption())
}

/// Whether a file does not end as the SST of this number does.
fn is_no_sst_of(vfs: &dyn Vfs, path: &Path, number: FileNumber) -> bool {
    terrace_sst::read_properties(vfs, path, number).is_err_and(|error| error.is_corruption())
}

/// Whether what has the name of a segment ends as an SST does, of whatever number, or is encrypted as no segment of that name is.
fn is_no_segment(vfs: &dyn Vfs, path: &Path) -> bool {
    matches!(terrace_sst::read_number(vfs, path), Ok(Some(_)))
        || vfs.is_misnamed(path).unwrap_or(false)
}

/// Whether a segment says that it has another number.
fn is_another_segment(vfs: &dyn Vfs, path: &Path, number: SegmentNumber) -> bool {
    matches!(terrace_log::read_header(vfs, path), Ok(Ok(header)) if header.segment != number)
}

/// Whether a segment has a header and at least one sound record. What cannot be read is taken for one.
fn has_records(vfs: &dyn Vfs, path: &Path, number: SegmentNumber) -> bool {
    match LogReader::open(vfs, path, number) {
        Ok(mut reader) => !matches!(reader.next(), Ok(Step::End { .. })),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests;
