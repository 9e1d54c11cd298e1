//! Installing a change of the file set: written to the manifest, then visible to reads, as one.
//! The only place that writes the manifest; also removes files that no reader needs any more.

use crate::env::reserve;
use crate::error::{Error, Result};
use crate::event;
use crate::kill_point::kill_point;
use crate::listener::{Event, FileCreated, FileDeleted, SstInfo};
use crate::memory::filter_budget::FilterBudget;
use crate::memtable::MemTable;
use crate::metrics::add;
use crate::values::value_log::{SegmentStats, ValueLog};
use crate::version::family::Family;
use crate::version::unpublished;
use crate::version::version_set::{ManifestLog, Obsolete, VersionSet};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::{FileNumber, SegmentNumber, SeqNo, sync};
use terrace_manifest::{
    FamilyEdit, FileMeta, HOT_LEVEL, SegmentKind, SegmentMeta, Version, VersionEdit, names,
};

/// Files of one run from which new files inherit heat at most: more are too many to look at.
const MAX_FORBEARS: usize = 512;

/// A change of one family: its edit, the memtables that the edit's files replace, and the value
/// segments that were written for them.
pub(crate) struct Change {
    pub family: Arc<Family>,
    pub edit: FamilyEdit,
    pub flushed: Vec<u64>,
    pub segments: Vec<SegmentMeta>,
    /// What takes writes from then on, if the files are newer than the mutable memtable, which is empty: a
    /// reader who still has the old files must not see what is written after them.
    pub fresh: Option<Arc<MemTable>>,
}

/// Makes the changes durable and then visible. On an error nothing is visible, and the files that
/// were written for the edits go: at once if the manifest cannot name them, else when it is known
/// that it does not.
///
/// The changes of a family that was dropped meanwhile are left out, and their files removed.
pub(crate) fn install(versions: &VersionSet, changes: Vec<Change>) -> Result<()> {
    install_if(versions, changes, || Some(())).map(|_| ())
}

/// As [`install`], if `permit` gives something, which is held until the changes are visible; it is called right before
/// they become durable, under the manifest's lock. Says whether it did: if not, nothing has changed, and the files that
/// were written are gone.
pub(crate) fn install_if<P>(
    versions: &VersionSet,
    mut changes: Vec<Change>,
    permit: impl FnOnce() -> Option<P>,
) -> Result<bool> {
    if changes.iter().any(|change| !change.edit.added.is_empty()) {
        let named = changes.iter().try_for_each(|change| publish(versions, change));
        let synced = named.and_then(|()| versions.base.vfs.sync_dir(&versions.base.dir));
        if let Err(error) = synced {
            if error.is_already_there() {
                // Nothing has gone wrong, and none of it is named by anything.
                changes.iter().for_each(|change| discard(versions, change));
                return Err(error.into());
            }
            // First of all: the kernel tells nobody else, and another thread may be about to rely on a name.
            let error = versions.base.health.fail("name new files in the directory", error);
            changes.iter().for_each(|change| discard(versions, change));
            return Err(error);
        }
        kill_point("install:directory_synced");
    }
    let mut log = versions.manifest.lock();
    // A family is dropped under this lock.
    for change in changes.extract_if(.., |change| change.family.is_dropped()) {
        discard(versions, &change);
    }
    if changes.is_empty() {
        return Ok(true);
    }
    let Some(_permit) = permit() else {
        changes.iter().for_each(|change| discard(versions, change));
        return Ok(false);
    };
    let edit = VersionEdit {
        next_file_number: Some(versions.file_numbers.next()),
        last_seqno: Some(last_seqno(versions, &changes)),
        families: changes.iter().map(|change| change.edit.clone()).collect(),
        segments_added: changes.iter().flat_map(|change| &change.segments).copied().collect(),
        ..VersionEdit::default()
    };
    let befores: Vec<Before> = changes.iter().map(Before::of).collect();
    if let Err(error) = append(versions, &mut log, &edit) {
        let fresh = changes.iter().flat_map(|change| fresh_paths(versions, change));
        let fresh = fresh.flat_map(|(temp, path)| [temp, path]);
        // An append that found no room has left no whole edit behind. The files must not keep the
        // room that the next manifest needs.
        let is_unwritten = matches!(&error, Error::DiskFull(cause) if !cause.is_failed_sync());
        match log.torn && !is_unwritten {
            // It may name them.
            true => log.undecided.extend(fresh),
            false => fresh.for_each(|path| drop(versions.base.vfs.remove(&path))),
        }
        return Err(error);
    }
    kill_point("install:manifest_written");
    // What the new files refer to must be there before anybody sees them.
    versions.read.value_log.seal(&edit.segments_added);
    for (change, before) in changes.iter().zip(&befores) {
        before.count_values(&versions.read.value_log, &change.edit);
    }
    versions.read.value_log.note_collected(&edit.segments_added);
    for change in &changes {
        let version = log.state.families.get(&change.family.id).map(|state| state.version.clone());
        if let Some(version) = version {
            let fresh = change.fresh.clone();
            change.family.install(version, &change.flushed, fresh, &versions.read.table_cache);
        }
    }
    changes.iter().for_each(|change| tell_created(versions, change));
    for (change, before) in changes.iter().zip(&befores) {
        hand_filters_over(&versions.read.filters, change, before);
    }
    drop(log);
    let gone = changes.iter().zip(&befores).flat_map(|(change, before)| before.gone(&change.edit));
    let gone: Vec<Obsolete> = gone.collect();
    versions.obsolete.lock().extend(gone);
    Ok(true)
}

/// The files of `version` with these levels and numbers, in its order. Costs a pass over the numbers of the levels that they are in.
fn files_at(
    version: &Version,
    places: impl Iterator<Item = (u8, FileNumber)>,
) -> Vec<(u8, Arc<FileMeta>)> {
    let mut places: Vec<(u8, FileNumber)> = places.collect();
    places.sort_unstable();
    let mut found = Vec::with_capacity(places.len());
    for (n, level) in (0..).zip(version.levels().iter().chain([version.hot()])) {
        let of_level = places.partition_point(|place| place.0 < n)
            ..places.partition_point(|place| place.0 <= n);
        let places = &places[of_level];
        if places.is_empty() {
            continue;
        }
        for (number, file) in level.numbers().iter().zip(level.files()) {
            if places.binary_search(&(n, *number)).is_ok() {
                found.push((n, file.clone()));
            }
        }
    }
    found
}

/// What there is before a change.
struct Before {
    version: Arc<Version>,
    /// The files that the change takes out of their levels, those that only move to another one among them.
    removed: Vec<(u8, Arc<FileMeta>)>,
}

impl Before {
    fn of(change: &Change) -> Self {
        let version = change.family.state().version.clone();
        let removed = files_at(&version, change.edit.removed.iter().copied());
        Self { version, removed }
    }

    /// The files that `edit` removes for good, with their levels.
    fn left<'a>(&'a self, edit: &FamilyEdit) -> impl Iterator<Item = &'a (u8, Arc<FileMeta>)> {
        // A merge may have a hundred thousand inputs, and as many outputs.
        let stay: HashSet<FileNumber> = edit.added.iter().map(|(_, file)| file.number).collect();
        self.removed.iter().filter(move |(_, file)| !stay.contains(&file.number))
    }

    /// These, as they wait for their removal.
    fn gone(&self, edit: &FamilyEdit) -> Vec<Obsolete> {
        let weak =
            |file: &Arc<FileMeta>| Obsolete { number: file.number, file: Arc::downgrade(file) };
        self.left(edit).map(|(_, file)| weak(file)).collect()
    }

    /// Enters the references of the files that `edit` adds and removes into the stats.
    fn count_values(&self, values: &ValueLog, edit: &FamilyEdit) {
        let added = edit.added.iter().map(|(_, file)| file);
        let of_levels = self.removed.iter().filter(|(level, _)| *level < HOT_LEVEL);
        values.count(added, of_levels.map(|(_, file)| &**file));
    }
}

/// Tells which files have come.
fn tell_created(versions: &VersionSet, change: &Change) {
    if !versions.base.events.is_heard() {
        return;
    }
    let fresh: HashSet<FileNumber> = fresh_files(change).collect();
    for (level, file) in change.edit.added.iter().filter(|(_, f)| fresh.contains(&f.number)) {
        versions.base.events.tell(|| {
            Event::FileCreated(FileCreated {
                family: change.family.name.clone(),
                file: sst_info(*level, file),
                path: names::sst_path(&versions.base.dir, file.number),
            })
        });
    }
}

/// A file as listeners see it.
pub(crate) fn sst_info(level: u8, file: &FileMeta) -> SstInfo {
    SstInfo {
        number: file.number.get(),
        level: usize::from(level),
        size_bytes: file.size_bytes,
        entry_count: file.entry_count,
    }
}

/// The last sequence number that was given out: what is visible, or what files have that will be
/// visible.
fn last_seqno(versions: &VersionSet, changes: &[Change]) -> SeqNo {
    let added = changes.iter().flat_map(|change| &change.edit.added);
    let newest = added.map(|(_, file)| file.largest_seqno).max();
    versions.read.visible_seqno().max(newest.unwrap_or_default())
}

/// Gives the files that were written for a change their names.
fn publish(versions: &VersionSet, change: &Change) -> terrace_base::Result<()> {
    unpublished::publish(&*versions.base.vfs, &versions.base.dir, fresh_files(change))?;
    unpublished::publish_segments(&*versions.base.vfs, &versions.base.dir, &change.segments)
}

/// The files that a change adds and that did not just move to another level.
fn fresh_files(change: &Change) -> impl Iterator<Item = FileNumber> {
    let removed: HashSet<FileNumber> =
        change.edit.removed.iter().map(|(_, number)| *number).collect();
    let added = change.edit.added.iter().map(|(_, file)| file.number);
    added.filter(move |number| !removed.contains(number))
}

/// Removes the files that were written for a change that nobody wants any more, as far as that
/// works: what stays is removed at the next open.
fn discard(versions: &VersionSet, change: &Change) {
    let fresh = fresh_paths(versions, change).into_iter();
    unpublished::remove_written(&*versions.base.vfs, fresh);
}

/// The files that were written for a change: the temporary names that they had, and their names.
fn fresh_paths(versions: &VersionSet, change: &Change) -> Vec<(PathBuf, PathBuf)> {
    let dir = &versions.base.dir;
    let ssts = fresh_files(change).map(|n| (names::temp_path(dir, n), names::sst_path(dir, n)));
    let fresh = change.segments.iter().filter(|segment| segment.kind == SegmentKind::Values);
    let segments = fresh.map(|s| (names::temp_path(dir, s.number.file()), s.path(dir)));
    ssts.chain(segments).collect()
}

/// Waits, after the store was closed, until nobody writes to its directory any more: jobs of callers
/// have ended, and so have changes of the manifest and deletions that had begun.
pub(crate) fn wait_for_last(versions: &VersionSet) {
    versions.jobs.scheduler.wait_until_none_runs();
    drop(versions.manifest.lock());
    drop(versions.purging.lock());
}

/// Appends an edit; after a failure of an earlier one, first starts a new manifest from the state
/// that is in force, so that a full disk can pass.
pub(crate) fn append(
    versions: &VersionSet,
    log: &mut ManifestLog,
    edit: &VersionEdit,
) -> Result<()> {
    // `close` waits for this lock before another process may open it.
    versions.base.health.check_open()?;
    make_whole(versions, log)?;
    let ManifestLog { manifest, state, torn, .. } = log;
    let Some(manifest) = manifest.as_mut() else {
        return Err(Error::ReadOnly(versions.base.dir.clone()));
    };
    match manifest.append(state, edit) {
        Ok(()) => {
            versions.evidence.note_manifest(manifest.synced(), state, None);
            Ok(())
        }
        // It does not fit the state, and nothing of it was written.
        Err(error @ terrace_base::Error::InvalidArgument(_)) => Err(error.into()),
        Err(error) => {
            *torn = true;
            Err(versions.base.health.fail("write the manifest", error))
        }
    }
}

/// Starts a new manifest if an append to the one in force failed. What it does not name then goes.
pub(crate) fn make_whole(versions: &VersionSet, log: &mut ManifestLog) -> Result<()> {
    let ManifestLog { manifest, state, torn, undecided, before_next } = log;
    let Some(manifest) = manifest.as_mut() else { return Ok(()) };
    // It may also have failed after its last edit, which nobody was told of.
    if *torn || manifest.is_poisoned() {
        let reserve_bytes = versions.base.dynamic.reserve_bytes();
        let rewrite = || {
            before_next.as_ref().map_or(Ok(()), |work| work())?;
            manifest.rewrite(state)
        };
        let written =
            reserve::with_reserve(&*versions.base.vfs, &versions.base.dir, reserve_bytes, rewrite);
        written.map_err(|error| versions.base.health.fail("write the manifest", error))?;
        (*torn, *before_next) = (false, None);
    }
    for path in undecided.drain(..) {
        let _ = versions.base.vfs.remove(&path);
    }
    Ok(())
}

/// Makes sure that an edit whose append failed is not in force, and lets go of files that wait for that. What is written
/// afterwards counts on it: an edit that drops a family may be there whole.
pub(crate) fn settle_manifest(versions: &VersionSet) -> Result<()> {
    make_whole(versions, &mut versions.manifest.lock())
}

/// As [`settle_manifest`]; and gives back what the manifest takes beyond a snapshot, if that is worth it.
pub(crate) fn shrink_manifest(versions: &VersionSet) -> Result<()> {
    let mut log = versions.manifest.lock();
    make_whole(versions, &mut log)?;
    let ManifestLog { manifest, state, .. } = &mut *log;
    let Some(manifest) = manifest.as_mut() else { return Ok(()) };
    manifest.shrink(state).map_err(|error| versions.base.health.fail("write the manifest", error))
}

/// Durably takes log segments before `segment` out of force for all families. Those of `flushed`
/// (number and length) that SSTs refer to are value segments from then on.
pub(crate) fn retire_log_before(
    versions: &VersionSet,
    segment: SegmentNumber,
    flushed: &[(SegmentNumber, u64)],
) -> Result<()> {
    let mut log = versions.manifest.lock();
    // Nothing can begin to refer to a segment whose memtables are flushed.
    let is_referred = |segment: SegmentNumber| {
        segment.fits_handles() && versions.read.value_log.live_bytes_of(segment) > 0
    };
    let sealed: Vec<SegmentMeta> = flushed
        .iter()
        .filter(|(number, _)| is_referred(*number))
        .map(|(number, size_bytes)| {
            let (kind, size_bytes) = (SegmentKind::CommitLog, *size_bytes);
            SegmentMeta { number: *number, kind, size_bytes }
        })
        .filter(|meta| !log.state.segments.contains_key(&meta.number))
        .collect();
    let behind = log.state.families.values().filter(|family| family.min_log_segment < segment);
    let edit = VersionEdit {
        families: behind
            .map(|family| FamilyEdit {
                id: family.id,
                min_log_segment: Some(segment),
                ..FamilyEdit::default()
            })
            .collect(),
        segments_added: sealed,
        ..VersionEdit::default()
    };
    if edit.families.is_empty() && edit.segments_added.is_empty() {
        return Ok(());
    }
    // The segments may be all that says which numbers were given out.
    let newest = log.state.last_seqno.max(versions.read.visible_seqno());
    let edit = VersionEdit { last_seqno: Some(newest), ..edit };
    append(versions, &mut log, &edit)?;
    versions.read.value_log.seal(&edit.segments_added);
    Ok(())
}

/// Deletes commit-log segments that the manifest took out of force, but for those that are value
/// segments now and those that somebody may still read: these go when they are let go of. Those that are
/// kept for change feeds stay until the caller names them again. What cannot be removed is reported.
pub(crate) fn drop_log_segments(versions: &VersionSet, numbers: &[SegmentNumber]) {
    // `close` waits for this lock before another process may open the directory.
    let _alone = versions.purging.lock();
    if versions.base.health.is_closed() {
        return;
    }
    let mut gone = Vec::new();
    for number in numbers {
        let values = &versions.read.value_log;
        if values.is_sealed(*number) || values.is_pending_delete(*number) {
            continue;
        }
        match versions.read.value_log.has(*number) {
            true => versions.read.value_log.remove(&[*number]),
            false if versions.log_history.keeps(*number) => {}
            // A sealed segment may have died since the manifest was told, and be gone already.
            false => gone.push(names::log_path(&versions.base.dir, *number)),
        }
    }
    if let Err(error) = remove_files(versions, gone, "retire:file_removed") {
        versions.base.report("delete log segments", &error);
    }
}

/// Removes files that nothing names any more, now or when readers beside this process need them no
/// more, and those of earlier calls. On a full disk readers come last. After an error every later call tries again
/// those that are still there; a sync of the directory that fails poisons the store.
fn remove_files(versions: &VersionSet, paths: Vec<PathBuf>, step: &'static str) -> Result<()> {
    let regardless = versions.base.health.is_disk_full();
    let (gone, removed) = versions.reader_pins.remove(&*versions.base.vfs, paths, step, regardless);
    if gone.is_empty() {
        return Ok(removed?);
    }
    let synced = versions.base.vfs.sync_dir(&versions.base.dir);
    let synced = synced.map_err(|error| match error.is_failed_sync() {
        // It may be the name of a log segment that is lost, and no later sync may say so.
        true => versions.base.health.poison("remove files from the directory", error),
        false => error.into(),
    });
    for path in gone {
        versions.base.events.tell(|| Event::FileDeleted(FileDeleted { path }));
    }
    removed?;
    synced
}

/// Takes value segments that nothing refers to any more out of the store. Their files go when
/// nobody reads them any more.
pub(crate) fn drop_dead_segments(versions: &VersionSet) -> Result<()> {
    let is_dead = |segment: &SegmentStats| segment.live_bytes == 0;
    if !versions.read.value_log.segment_stats().iter().any(is_dead) {
        return Ok(());
    }
    let mut log = versions.manifest.lock();
    // Under the lock no edit comes in between that seals a segment or refers to one.
    let dead = versions.read.value_log.segment_stats().into_iter().filter(is_dead);
    let dead: Vec<SegmentStats> =
        dead.filter(|segment| log.state.segments.contains_key(&segment.number)).collect();
    if dead.is_empty() {
        // Another thread came first.
        return Ok(());
    }
    let numbers: Vec<SegmentNumber> = dead.iter().map(|segment| segment.number).collect();
    let edit = VersionEdit { segments_removed: numbers.clone(), ..VersionEdit::default() };
    append(versions, &mut log, &edit)?;
    kill_point("dead_segment:out_of_force");
    versions.read.value_log.remove(&numbers);
    add(
        &versions.base.counters.gc_freed_bytes,
        dead.iter().map(|segment| segment.size_bytes).sum(),
    );
    Ok(())
}

/// Tells the filter budget which files come and go, and from which the new ones can inherit: after
/// a merge from its inputs, the deepest run last; after a flush from the newest run there was.
fn hand_filters_over(filters: &FilterBudget, change: &Change, before: &Before) {
    if !filters.is_elastic() {
        return;
    }
    let (edit, after) = (&change.edit, change.family.state().version.clone());
    let added = edit.added.iter().filter(|(level, _)| *level < HOT_LEVEL);
    let added = files_at(&after, added.map(|(level, file)| (*level, file.number)));
    let moved: HashSet<FileNumber> = before.removed.iter().map(|(_, file)| file.number).collect();
    let mut heirs: Vec<Arc<FileMeta>> = Vec::new();
    for (level, file) in &added {
        filters.file_lives(usize::from(*level), file);
        if !moved.contains(&file.number) {
            heirs.push(file.clone());
        }
    }
    let left: Vec<(u8, Arc<FileMeta>)> =
        before.left(edit).filter(|(level, _)| *level < HOT_LEVEL).cloned().collect();
    let is_forbear = |count: usize| (1..=MAX_FORBEARS).contains(&count);
    let mut runs: Vec<Vec<Arc<FileMeta>>> = Vec::new();
    if edit.removed.is_empty() {
        let deeper = before.version.levels().iter().skip(1).map(|level| level.files());
        let mut all = before.version.level(0).files().chunks(1).chain(deeper);
        runs.extend(all.find(|run| is_forbear(run.len())).map(<[_]>::to_vec));
    } else {
        // Each file of L0 is a run.
        let of_runs = left.chunk_by(|(a, _), (b, _)| a == b && *a > 0);
        let of_runs = of_runs.filter(|run| is_forbear(run.len()));
        runs.extend(of_runs.map(|run| run.iter().map(|(_, file)| file.clone()).collect()));
    }
    filters.adopt(&heirs, &runs);
    left.iter().for_each(|(_, file)| filters.file_leaves(file.number));
}

/// Saves the heat of the filters with the manifest, if there was a lookup since the last time. An
/// error is reported and costs nothing else, unless it is a failed sync of the directory: the next edit starts a new manifest.
pub(crate) fn save_filter_heat(versions: &VersionSet) {
    if versions.base.read_only || versions.base.health.check_writable().is_err() {
        return;
    }
    let Some(heat) = versions.read.filters.packed_heat() else { return };
    let edit = VersionEdit { filter_heat: Some(heat.into()), ..VersionEdit::default() };
    let mut log = versions.manifest.lock();
    let ManifestLog { manifest, state, torn, .. } = &mut *log;
    let Some(manifest) = manifest.as_mut().filter(|manifest| !*torn && !manifest.is_poisoned())
    else {
        return;
    };
    match manifest.append(state, &edit) {
        Ok(()) => versions.evidence.note_manifest(manifest.synced(), state, None),
        Err(error) => {
            *torn = true;
            event::filter_heat_not_saved(&error);
            // A new manifest repairs the old one, and not what another file has lost.
            versions.base.poison_if_of_dir("sync the directory for a manifest", error);
        }
    }
}

/// Marks all files of a dropped family as gone.
pub(crate) fn retire_family(versions: &VersionSet, family: &Family) {
    versions.jobs.errors.forget_family(family.id);
    let state = family.state();
    let gone = state.version.all_files().map(|(_, file)| {
        versions.read.filters.file_leaves(file.number);
        Obsolete { number: file.number, file: Arc::downgrade(file) }
    });
    versions.obsolete.lock().extend(gone);
    let files = state.version.files().map(|(_, file)| &**file);
    versions.read.value_log.count(std::iter::empty(), files);
    family.let_go(&versions.read.table_cache);
}

/// Deletes obsolete files that no read state, iterator or job holds any more. When it returns,
/// they are gone, whichever thread removed them, unless a reader beside this process needs them. A
/// store that is open read-only owns no file. What cannot be removed is in the way of no other file, and every later
/// call tries it again.
pub(crate) fn purge(versions: &VersionSet) -> Result<()> {
    if versions.base.read_only {
        return Ok(());
    }
    if versions.deletions_held.load(Ordering::SeqCst) > 0 || versions.base.health.is_poisoned() {
        return Ok(());
    }
    sync::interleave();
    let _alone = versions.purging.lock();
    let unheld = |o: &&Obsolete| o.file.strong_count() == 0;
    let ssts: Vec<FileNumber> =
        versions.obsolete.lock().iter().filter(unheld).map(|o| o.number).collect();
    let segments = versions.read.value_log.unheld(|number| versions.log_history.keeps(number));
    // A checkpoint that begins from here on does not see these files: they are obsolete already.
    if versions.deletions_held.load(Ordering::SeqCst) > 0 || versions.base.health.is_closed() {
        return Ok(());
    }
    let gone: HashSet<FileNumber> = ssts.iter().copied().collect();
    versions.obsolete.lock().retain(|o| !gone.contains(&o.number));
    ssts.iter().for_each(|number| versions.read.table_cache.forget(*number));
    ssts.iter().for_each(|number| versions.jobs.errors.forget(*number));
    versions.read.value_log.forget(&segments);
    let ssts = ssts.iter().map(|number| names::sst_path(&versions.base.dir, *number)).collect();
    // They are in no other list any more: both kinds are handed over, whatever becomes of the first.
    let removed = remove_files(versions, ssts, "purge:sst_removed");
    if segments.is_empty() {
        return removed;
    }
    removed.and(remove_files(versions, segments, "purge:segment_removed"))
}

#[cfg(test)]
mod tests;
