//! Checkpoints: a second directory that opens as the store was at one moment, made of hard links.
//!
//! While nobody writes, the log starts a new segment and the manifest's state is copied; from then
//! on every file the state needs is immutable: SSTs and finished segments. Deletions are held
//! until all are linked. Nothing is flushed, so the cost is a link per file.

use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::kill_point::kill_point;
use crate::values::value_log::segment_path;
use crate::write::log_segments;
use std::path::Path;
use terrace_base::SegmentNumber;
use terrace_manifest::evidence::{Claims, EVIDENCE_FILES, EvidenceFile};
use terrace_manifest::{FamilyEdit, Manifest, ManifestState, VersionEdit, names};
use terrace_vfs::{CreateOptions, OpenMode, PartialDir, Vfs, copy_rest, is_refusal};

/// Makes `target`, which must not exist or be empty, a store with the present contents of
/// `inner`. On an error nothing is left at `target`, unless the last sync of its parent fails.
pub(crate) fn create(inner: &Inner, target: &Path) -> Result<()> {
    inner.commit.check_writable()?;
    let vfs = &*inner.base.vfs;
    if vfs.exists(target)? && !vfs.list(target)?.is_empty() {
        return Err(Error::InvalidArgument(format!(
            "{} is not empty; a checkpoint needs a new directory",
            target.display()
        )));
    }
    let partial = PartialDir::prepare(vfs, target).map_err(|error| {
        if is_refusal(&error) { Error::InvalidArgument(error.to_string()) } else { error.into() }
    })?;
    fill(inner, partial.path())?;
    kill_point("checkpoint:filled");
    Ok(partial.finish()?)
}

fn fill(inner: &Inner, dir: &Path) -> Result<()> {
    let _held = inner.versions.hold_deletions();
    let (state, segments, known) = freeze(inner)?;
    kill_point("checkpoint:frozen");
    let vfs = &*inner.base.vfs;
    // First, because a manifest is created only where there is no data yet.
    let (mut manifest, mut fresh) = Manifest::create(inner.base.vfs.clone(), dir, state.store_id)?;
    for family in state.families.values() {
        for (_, file) in family.version.all_files() {
            let number = file.number;
            link(vfs, &names::sst_path(&inner.base.dir, number), &names::sst_path(dir, number))?;
        }
    }
    for segment in state.segments.values() {
        link(vfs, &segment_path(&inner.base.dir, segment), &segment_path(dir, segment))?;
    }
    for number in segments.iter().copied() {
        link(vfs, &names::log_path(&inner.base.dir, number), &names::log_path(dir, number))?;
    }
    vfs.sync_dir(dir)?;
    kill_point("checkpoint:linked");
    manifest.append(&mut fresh, &whole(&state))?;
    let log = Some(known.log).filter(|log| segments.contains(&log.segment));
    let claims = Claims {
        store_id: state.store_id,
        manifest: manifest.synced(),
        log: log.unwrap_or(Claims::default().log),
        ..known
    };
    for number in 1..=EVIDENCE_FILES as u64 {
        EvidenceFile::create(vfs, dir, number, &claims)?;
    }
    Ok(vfs.sync_dir(dir)?)
}

/// The state at one moment, the finished segments it needs, and what is known to be durable.
fn freeze(inner: &Inner) -> Result<(ManifestState, Vec<SegmentNumber>, Claims)> {
    let lead = inner.commit.queue()?.lead();
    let mut log = lead.log();
    log_segments::seal_segment(&inner.commit, &mut log)?;
    let manifest = inner.versions.manifest.lock();
    let state = manifest.state.clone();
    let oldest = state.families.values().map(|f| f.min_log_segment).min().unwrap_or_default();
    let live = log.segments.iter().map(|(number, _)| *number).filter(|n| *n >= oldest);
    Ok((state, live.collect(), inner.versions.evidence.claims()))
}

/// One edit that makes an empty store have `state`.
fn whole(state: &ManifestState) -> VersionEdit {
    let families = state.families.values().map(|family| {
        let added = family.version.all_files().map(|(level, file)| (level, (**file).clone()));
        FamilyEdit {
            id: family.id,
            create: (family.id != 0).then(|| family.name.clone()),
            min_log_segment: Some(family.min_log_segment),
            flushed_seqno: Some(family.flushed_seqno),
            merge_operator: family.merge_operator.clone(),
            added: added.collect(),
            ..FamilyEdit::default()
        }
    });
    VersionEdit {
        next_file_number: Some(state.next_file_number),
        last_seqno: Some(state.last_seqno),
        families: families.collect(),
        filter_heat: Some(state.filter_heat.clone()),
        segments_added: state.segments.values().copied().collect(),
        keeps_evidence: state.keeps_evidence,
        ..VersionEdit::default()
    }
}

/// Links, or copies where the file system cannot link.
pub(crate) fn link(vfs: &dyn Vfs, from: &Path, to: &Path) -> Result<()> {
    if vfs.hard_link(from, to).is_ok() {
        return Ok(());
    }
    let source = vfs.open(from, OpenMode::default())?;
    let mut copy = vfs.create(to, &CreateOptions::default())?;
    Ok(copy_rest(&*source, 0, &mut *copy)?)
}
