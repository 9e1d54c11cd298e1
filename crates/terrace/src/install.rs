//! Installing a change of the file set: written to the manifest, then visible to reads, as one.
//! The only place that writes the manifest; also where files that nobody reads any more go.

use crate::error::Result;
use crate::event;
use crate::family::Family;
use crate::filter_budget::FilterBudget;
use crate::inner::{Inner, ManifestLog, Obsolete};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_manifest::{FamilyEdit, FileMeta, Version, VersionEdit, names};

/// Files of one run from which new files inherit heat at most: more are too many to look at.
const MOST_FORBEARS: usize = 512;

/// A change of one family: its edit, and the memtables that the edit's files replace.
pub(crate) struct Change {
    pub family: Arc<Family>,
    pub edit: FamilyEdit,
    pub flushed: Vec<u64>,
}

/// Makes the changes durable and then visible. On an error nothing is visible; files that the
/// edits name must be left alone, since the manifest may or may not hold them (the next open
/// removes what it does not).
pub(crate) fn install(inner: &Inner, changes: Vec<Change>) -> Result<()> {
    if changes.iter().any(|change| !change.edit.added.is_empty()) {
        let synced = inner.vfs.sync_dir(&inner.dir);
        synced.map_err(|error| inner.health.fail("sync the directory", error))?;
    }
    let mut log = inner.manifest.lock();
    let edit = VersionEdit {
        next_file_number: Some(inner.next_file_number.load(Ordering::Relaxed)),
        last_seqno: Some(inner.visible_seqno()),
        families: changes.iter().map(|change| change.edit.clone()).collect(),
        ..VersionEdit::default()
    };
    let gone: Vec<Obsolete> = changes.iter().flat_map(removed_files).collect();
    let befores: Vec<Arc<Version>> =
        changes.iter().map(|change| change.family.state().version.clone()).collect();
    append(inner, &mut log, &edit)?;
    for change in &changes {
        let version = log.state.families.get(&change.family.id).map(|state| state.version.clone());
        if let Some(version) = version {
            change.family.install(version, &change.flushed, &inner.table_cache);
        }
    }
    for (change, before) in changes.iter().zip(&befores) {
        hand_filters_over(&inner.filters, change, before);
    }
    drop(log);
    inner.obsolete.lock().extend(gone);
    Ok(())
}

/// Appends an edit; after a failure of an earlier one, first starts a new manifest from the state
/// that is in force, so that a full disk can pass.
pub(crate) fn append(inner: &Inner, log: &mut ManifestLog, edit: &VersionEdit) -> Result<()> {
    let ManifestLog { manifest, state, torn } = log;
    let Some(manifest) = manifest.as_mut() else {
        return Err(crate::error::Error::ReadOnly(inner.dir.clone()));
    };
    // The manifest may also have failed after its last edit, which nobody was told of.
    let written = match *torn || manifest.is_poisoned() {
        true => manifest.rewrite(state).and_then(|()| {
            *torn = false;
            manifest.append(state, edit)
        }),
        false => manifest.append(state, edit),
    };
    written.map_err(|error| {
        *torn = true;
        inner.health.fail("write the manifest", error)
    })
}

/// Durably takes log segments before `segment` out of force for all families.
pub(crate) fn retire_log_before(inner: &Inner, segment: u64) -> Result<()> {
    let mut log = inner.manifest.lock();
    let behind = log.state.families.values().filter(|family| family.min_log_segment < segment);
    let edit = VersionEdit {
        families: behind
            .map(|family| FamilyEdit {
                id: family.id,
                min_log_segment: Some(segment),
                ..FamilyEdit::default()
            })
            .collect(),
        ..VersionEdit::default()
    };
    match edit.families.is_empty() {
        true => Ok(()),
        false => append(inner, &mut log, &edit),
    }
}

/// Tells the filter budget which files come and go, and from which the new ones can inherit: after
/// a merge from its inputs, the deepest run last; after a flush from the newest run there was.
fn hand_filters_over(filters: &FilterBudget, change: &Change, before: &Version) {
    if !filters.is_elastic() {
        return;
    }
    let after = change.family.state().version.clone();
    let old: HashSet<u64> = before.files().map(|(_, file)| file.number).collect();
    let added: HashSet<u64> = change.edit.added.iter().map(|(_, file)| file.number).collect();
    let mut heirs: Vec<Arc<FileMeta>> = Vec::new();
    for (level, file) in after.files().filter(|(_, file)| added.contains(&file.number)) {
        filters.file_lives(usize::from(level), file);
        if !old.contains(&file.number) {
            heirs.push(file.clone());
        }
    }
    let removed: HashSet<u64> = change.edit.removed.iter().map(|(_, number)| *number).collect();
    let left =
        |file: &Arc<FileMeta>| removed.contains(&file.number) && !added.contains(&file.number);
    let of_run = |files: &[Arc<FileMeta>]| -> Vec<Arc<FileMeta>> {
        files.iter().filter(|file| removed.is_empty() || left(file)).cloned().collect()
    };
    let level0 = before.level(0).files();
    let deeper = before.levels().iter().skip(1).map(|level| level.files());
    let mut runs: Vec<Vec<Arc<FileMeta>>> = level0.chunks(1).chain(deeper).map(of_run).collect();
    runs.retain(|run| (1..=MOST_FORBEARS).contains(&run.len()));
    if removed.is_empty() {
        runs.truncate(1);
    }
    filters.adopt(&heirs, &runs);
    before.files().filter(|(_, file)| left(file)).for_each(|(_, f)| filters.file_leaves(f.number));
}

/// Saves the heat of the filters with the manifest, if there was a lookup since the last time. An
/// error is reported and costs nothing else: the next edit starts a new manifest.
pub(crate) fn save_filter_heat(inner: &Inner) {
    if inner.read_only || inner.health.check_writable().is_err() {
        return;
    }
    let Some(heat) = inner.filters.packed_heat() else { return };
    let edit = VersionEdit { filter_heat: Some(heat.into()), ..VersionEdit::default() };
    let mut log = inner.manifest.lock();
    let ManifestLog { manifest, state, torn } = &mut *log;
    let Some(manifest) = manifest.as_mut().filter(|manifest| !*torn && !manifest.is_poisoned())
    else {
        return;
    };
    if let Err(error) = manifest.append(state, &edit) {
        *torn = true;
        event::filter_heat_not_saved(&error);
    }
}

/// The files that a change removes for good (a file that only moves to another level stays).
fn removed_files(change: &Change) -> Vec<Obsolete> {
    let state = change.family.state();
    let files = state.version.levels().iter().flat_map(|level| level.files());
    let live: HashMap<u64, _> = files.map(|file| (file.number, file)).collect();
    let stays = |number: u64| change.edit.added.iter().any(|(_, file)| file.number == number);
    let removed = change.edit.removed.iter().map(|(_, number)| *number);
    removed
        .filter(|number| !stays(*number))
        .filter_map(|number| live.get(&number))
        .map(|file| Obsolete { number: file.number, file: Arc::downgrade(file) })
        .collect()
}

/// Marks all files of a dropped family as gone.
pub(crate) fn retire_family(inner: &Inner, family: &Family) {
    let state = family.state();
    let files = state.version.levels().iter().flat_map(|level| level.files());
    let gone = files.map(|file| {
        inner.filters.file_leaves(file.number);
        Obsolete { number: file.number, file: Arc::downgrade(file) }
    });
    inner.obsolete.lock().extend(gone);
}

/// Deletes obsolete files that no read state, iterator or job holds any more. When it returns,
/// they are gone, whichever thread removed them.
pub(crate) fn purge(inner: &Inner) -> Result<()> {
    if inner.deletions_held.load(Ordering::SeqCst) > 0 || inner.health.is_poisoned() {
        return Ok(());
    }
    let _alone = inner.purging.lock();
    let free: Vec<u64> = {
        let mut obsolete = inner.obsolete.lock();
        let (free, held) = obsolete.drain(..).partition(|o| o.file.strong_count() == 0);
        *obsolete = held;
        let free: Vec<Obsolete> = free;
        free.into_iter().map(|o| o.number).collect()
    };
    for number in &free {
        inner.table_cache.forget(*number);
        match inner.vfs.remove(&names::sst_path(&inner.dir, *number)) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    if !free.is_empty() {
        inner.vfs.sync_dir(&inner.dir)?;
    }
    Ok(())
}
