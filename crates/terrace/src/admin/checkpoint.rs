//! Checkpoints: a second directory that opens as the store was at one moment, made of hard links.
//!
//! The log is synced beside the writers. Then, while nobody writes, what has come since is synced, the log starts a new
//! segment and the manifest's state is copied; from then on every file the state needs is immutable: SSTs and finished
//! segments. Deletions are held until all are linked. Nothing is flushed, so the cost is a link per file.

use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::kill_point::kill_point;
use crate::write::log_segments;
use std::collections::BTreeSet;
use std::path::Path;
use terrace_base::SegmentNumber;
use terrace_log::{LogOptions, LogPosition, LogWriter};
use terrace_manifest::evidence::{Claims, EVIDENCE_FILES, EvidenceFile};
use terrace_manifest::{Manifest, ManifestState, backup_work, names, own_dirs};
use terrace_vfs::{PartialDir, Vfs, is_refusal, is_unreadable};

/// Makes `target`, which must not exist or be empty, a store with the present contents of
/// `inner`. On an error nothing is left at `target`, unless the last sync of its parent fails.
pub(crate) fn create(inner: &Inner, target: &Path) -> Result<()> {
    match own_dirs::refusal(&*inner.base.vfs, target)? {
        Some(why) => Err(Error::InvalidArgument(why)),
        None => make(inner, target),
    }
}

/// As [`create`], where the store has a directory for that.
pub(crate) fn create_for_backup(inner: &Inner) -> Result<()> {
    let [work, _] = backup_work::dirs(&inner.base.dir);
    make(inner, &work)
}

fn make(inner: &Inner, target: &Path) -> Result<()> {
    inner.commit.check_writable()?;
    let vfs = &*inner.base.vfs;
    if vfs.exists(target)? && !vfs.list(target)?.is_empty() {
        return Err(Error::InvalidArgument(format!(
            "{} is not empty; a checkpoint needs a new directory",
            target.display()
        )));
    }
    // A backup's is in the directory of the store.
    let failed = |error| inner.base.poison_if_of_dir("name a checkpoint", error);
    let partial = PartialDir::prepare(vfs, target, names::is_of_checkpoint).map_err(|error| {
        if is_refusal(&error) { Error::InvalidArgument(error.to_string()) } else { failed(error) }
    })?;
    fill(inner, partial.path())?;
    kill_point("checkpoint:filled");
    partial.finish().map_err(failed)
}

fn fill(inner: &Inner, dir: &Path) -> Result<()> {
    let _held = inner.versions.hold_deletions();
    let Frozen { state, segments, fresh, known } = freeze(inner)?;
    kill_point("checkpoint:frozen");
    let vfs = &*inner.base.vfs;
    // First, because a manifest is created only where there is no data yet.
    let manifest = Manifest::create_of(inner.base.vfs.clone(), dir, &state)?;
    for family in state.families.values() {
        for (_, file) in family.version.all_files() {
            let number = file.number;
            link(vfs, &names::sst_path(&inner.base.dir, number), &names::sst_path(dir, number))?;
        }
    }
    for segment in state.segments.values() {
        link(vfs, &segment.path(&inner.base.dir), &segment.path(dir))?;
    }
    for (number, _) in segments.iter().copied() {
        link(vfs, &names::log_path(&inner.base.dir, number), &names::log_path(dir, number))?;
    }
    // It says where the last one ends: what an append left there that failed is not in the store.
    let log = match segments.last().copied() {
        Some((segment, offset)) => {
            // It stays as it is.
            let options =
                LogOptions { preallocate_bytes: 0, zeros_ahead: false, ..inner.base.options.log() };
            let (path, end) = (names::log_path(dir, fresh), LogPosition { segment, offset });
            let mut log = LogWriter::create_after(vfs, &path, fresh, &options, Some(end))?;
            log.sync()?;
            log.end()
        }
        None => Claims::default().log,
    };
    vfs.sync_dir(dir)?;
    kill_point("checkpoint:linked");
    let claims = Claims { store_id: state.store_id, manifest: manifest.synced(), log, ..known };
    for number in 1..=EVIDENCE_FILES as u64 {
        EvidenceFile::create(vfs, dir, number, &claims)?;
    }
    Ok(vfs.sync_dir(dir)?)
}

/// What a store is at one moment.
struct Frozen {
    state: ManifestState,
    /// The finished segments that it needs, and where they end.
    segments: Vec<(SegmentNumber, u64)>,
    /// The one after them, without records.
    fresh: SegmentNumber,
    /// What is known to be durable.
    known: Claims,
}

fn freeze(inner: &Inner) -> Result<Frozen> {
    // Most of the log, so that writers do not wait until the device has it.
    log_segments::sync(&inner.commit)?;
    let lead = inner.commit.queue()?.lead();
    let mut log = lead.log();
    log_segments::seal_segment(&inner.commit, &mut log)?;
    let manifest = inner.versions.manifest.lock();
    // All of it, families that are gone among what their numbers say: nothing of them in the log may go to later ones.
    // What is out of force here is not there.
    let state = ManifestState { retired: BTreeSet::new(), ..manifest.state.clone() };
    let oldest = state.oldest_log_segment();
    let segments = log.segments.iter().copied().filter(|(number, _)| *number >= oldest).collect();
    let (fresh, known) = (log.writer.segment(), inner.versions.evidence.claims());
    Ok(Frozen { state, segments, fresh, known })
}

/// Links, or copies where the file system cannot link.
pub(crate) fn link(vfs: &dyn Vfs, from: &Path, to: &Path) -> Result<()> {
    if vfs.hard_link(from, to).is_ok() {
        return Ok(());
    }
    Ok(vfs.copy(from, to)?)
}

/// As [`link`], but that what the device does not give is zeros in a copy.
pub(crate) fn link_around_loss(vfs: &dyn Vfs, from: &Path, to: &Path) -> Result<()> {
    match link(vfs, from, to) {
        Err(Error::Io(cause)) if is_unreadable(&cause) => {
            if vfs.exists(to)? {
                vfs.remove(to)?;
            }
            Ok(vfs.copy_around_loss(from, to)?)
        }
        linked => linked,
    }
}
