//! Opening a store on a disk that is full, or that has too little room for the reserve.

use crate::env::reserve;
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::open::family_options;
use crate::open::merged;
use crate::open::read_write::{Nouns, Opened, open_families, recover_and_write};
use crate::open::recover::{self, OnDisk, Replayed};
use crate::options::Options;
use crate::version::evidence::Evidence;
use crate::version::file_numbers::FileNumbers;
use crate::version::log_history::LogHistory;
use crate::version::version_set::{BeforeNext, ManifestLog};
use crate::write::log_segments;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use terrace_base::{FileNumber, SegmentNumber, SeqNo};
use terrace_manifest::Manifest;
use terrace_manifest::evidence;
use terrace_manifest::names::{self, FileName};
use terrace_manifest::renamed::{is_missing_log, is_renamed};
use terrace_vfs::Vfs;

/// Opens a store although the disk is full: with the room of the reserve, or else with everything
/// that was replayed in memory. Writes are refused until there is room, but for deletions.
pub(super) fn open(
    dir: &Path,
    options: &Options,
    start: u64,
    there: &HashSet<String>,
    cause: Arc<terrace_base::Error>,
) -> Result<Inner> {
    let vfs = &options.advanced.vfs;
    let found_room = remove_attempt(&**vfs, dir, there)?;
    let opened = match reserve::release(&**vfs, dir)? || found_room {
        true => recover_and_write(dir, options, start),
        false => Err(Error::DiskFull(cause.clone())),
    };
    let opened = match opened {
        Err(Error::DiskFull(_)) => {
            remove_attempt(&**vfs, dir, there)?;
            recover_in_memory(dir, options)?
        }
        opened => opened?,
    };
    opened.base.health.disk_is_full(cause);
    Ok(opened)
}

/// Sets the reserve of a store that was just opened aside. If there is not room for all of it, and the store
/// was there before, only what removes is let through until there is.
pub(super) fn take_reserve(opened: &Inner, is_store: bool) -> Result<()> {
    let base = &opened.base;
    let reserve_bytes = base.dynamic.reserve_bytes();
    if !reserve::take(&*base.vfs, &base.dir, reserve_bytes)? && is_store {
        let why = format!(
            "there is no room for the {reserve_bytes} bytes that deletions need on a full disk \
             (reserve_bytes); only what removes is written until there is"
        );
        let error = io::Error::new(io::ErrorKind::StorageFull, why);
        base.health.reserve_is_short(terrace_base::Error::io(
            "set room aside in",
            &base.dir,
            error,
        ));
    }
    Ok(())
}

/// Removes what an attempt to open has written since `there` was listed, as far as the manifest does
/// not put it in force, and what jobs had begun when the store was killed: it takes room. True if it removed
/// such a file of before.
fn remove_attempt(vfs: &dyn Vfs, dir: &Path, there: &HashSet<String>) -> Result<bool> {
    let state = Manifest::read(vfs, dir)?;
    let listing = vfs.list(dir)?;
    let numbers = FileNumbers::new(&listing, state.next_file_number);
    let files = state.families.values().flat_map(|family| family.version.all_files());
    let live: HashSet<FileNumber> = files.map(|(_, file)| file.number).collect();
    let oldest = state.oldest_log_segment();
    let proven = evidence::read(vfs, dir)?.claims.log.segment;
    let mut found_room = false;
    for name in &listing {
        let was_there = there.contains(name);
        let goes = match names::parse(name) {
            FileName::Sst(number) => !was_there && !live.contains(&number),
            FileName::Log(number) => !was_there && number > oldest,
            // Never finished, by an open or a job.
            FileName::Temp if is_renamed(vfs, dir, &state, name) => false,
            FileName::Temp if is_renamed_log(vfs, dir, proven, name) => false,
            FileName::Temp => !was_there || !numbers.is_foreign_name(name),
            _ => false,
        };
        if goes {
            vfs.remove(&dir.join(name))?;
            found_room |= was_there;
        }
    }
    Ok(found_room)
}

/// Whether temporary file `name` is a segment of the log that has lost its name: the newest one that is `proven`, or one that
/// continues another. What a job has begun is neither.
fn is_renamed_log(vfs: &dyn Vfs, dir: &Path, proven: SegmentNumber, name: &str) -> bool {
    let Some(number) = names::temp_number(name).map(FileNumber::segment) else { return false };
    let continues_log = || {
        let header = terrace_log::read_header(vfs, &dir.join(name));
        matches!(header, Ok(Ok(header)) if header.segment == number && header.previous.is_some())
    };
    is_missing_log(vfs, dir, number) && (number == proven || continues_log())
}

/// Does what a repair that was cut short has left to do. Where there is no room for that it is to be done before the next
/// manifest is in force: beside that one nothing says any more what was merged.
fn settle_merged(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Option<BeforeNext>> {
    match merged::settle(&**vfs, dir) {
        Err(error) if error.is_no_space() && !error.is_failed_sync() => {
            let (vfs, dir) = (vfs.clone(), dir.to_path_buf());
            Ok(Some(Box::new(move || merged::settle(&*vfs, &dir))))
        }
        settled => {
            settled?;
            Ok(None)
        }
    }
}

/// Recovers the store and writes nothing: what the log holds stays in memtables, and the log as it
/// is goes on in a segment that the first write begins.
fn recover_in_memory(dir: &Path, options: &Options) -> Result<Inner> {
    let vfs = &options.advanced.vfs;
    let claims = evidence::read(&**vfs, dir)?.claims;
    let before_next = settle_merged(vfs, dir)?;
    let (manifest, mut state) = Manifest::recover_unwritten(vfs.clone(), dir, &claims)?;
    let listing = vfs.list(dir)?;
    let mut parts = Nouns::new(dir, options, false)?;
    parts.mind_readers(&listing, options);
    let families = open_families(&state, options, &parts.table_cache, &[])?;
    // What follows gets into the manifest that is written when there is room, before any operand does.
    for family in state.families.values_mut() {
        if let Some(text) = family_options::to_store(options, family)? {
            family.options = Some(text);
        }
        if family.merge_operator.is_none() {
            let given = family_options::given_operator(options, family);
            family.merge_operator = given.map(|operator| operator.name().into());
        }
    }
    let numbers = FileNumbers::new(&listing, state.next_file_number);
    let segments = recover::live_segments(dir, &listing, &state, &numbers)?;
    let log = recover::Log::new(&**vfs, dir, &segments, &claims, &state);
    let table_cache = &parts.table_cache;
    let on_disk = OnDisk { families: &families, state: &state, table_cache };
    let mut outcome = recover::replay(&log, &on_disk, usize::MAX, &mut |_| Ok(()))?;
    outcome.use_up_for_hot();
    for replayed in outcome.families.into_values() {
        adopt(replayed, dir)?;
    }
    let with_values = segments.iter().map(|file| file.number).filter(|n| n.fits_handles());
    with_values.for_each(|number| parts.value_log.begin(number, 0));
    let (log, unsynced) =
        log_segments::unfinished_log(vfs, &segments, &outcome.log, outcome.last_seqno)?;
    let (manifest, torn, undecided) = (Some(manifest), true, Vec::new());
    let manifest = ManifestLog { manifest, state, torn, undecided, before_next };
    let last_seqno = outcome.last_seqno;
    // The files stay as they are, and true, until there is room to write them anew.
    let evidence = Evidence::unwritten(vfs.clone(), dir, claims);
    let history = LogHistory::new(log_segments::unfinished_history(&outcome.log), SeqNo::ZERO);
    let (file_numbers, log) = (numbers, Some(log));
    let opened = Opened { families, manifest, file_numbers, last_seqno, evidence, history, log };
    let inner = parts.into_inner(options.clone(), opened)?;
    let queue = inner.commit.queue()?;
    unsynced.into_iter().for_each(|segment| queue.push_unsynced(segment));
    Ok(inner)
}

fn adopt(replayed: Replayed, dir: &Path) -> Result<()> {
    let adopted = replayed.family.adopt(replayed.memtables);
    Ok(adopted.map_err(|e| terrace_base::Error::io("reserve memory for", dir, e))?)
}

#[cfg(test)]
mod tests;
