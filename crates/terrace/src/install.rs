//! Installing a change of the file set: written to the manifest, then visible to reads, as one.
//! The only place that writes the manifest; also where files that nobody reads any more go.

use crate::error::Result;
use crate::family::Family;
use crate::inner::{Inner, ManifestLog, Obsolete};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_manifest::{FamilyEdit, VersionEdit, names};

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
    };
    let gone: Vec<Obsolete> = changes.iter().flat_map(removed_files).collect();
    append(inner, &mut log, &edit)?;
    for change in &changes {
        let version = log.state.families.get(&change.family.id).map(|state| state.version.clone());
        if let Some(version) = version {
            change.family.install(version, &change.flushed, &inner.table_cache);
        }
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
    let gone = files.map(|file| Obsolete { number: file.number, file: Arc::downgrade(file) });
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
