//! The manifest file: appending edits, and moving to a new file.
//!
//! A move (on creation, recovery, growth, and after a failure) goes: write the new manifest with
//! a snapshot, sync it, sync the directory; write `CURRENT.tmp`, sync it; rename it to `CURRENT`;
//! sync the directory; only then remove the old manifest. A crash anywhere leaves a `CURRENT`
//! that names a complete manifest of the same state.

use crate::codec::{self, Malformed};
use crate::current;
use crate::edit::VersionEdit;
use crate::evidence::{self, Claims};
use crate::names::{self, FileName};
use crate::state::{ManifestState, Replay};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{Error, Result, SegmentNumber};
use terrace_log::{LogOptions, LogPosition, LogWriter, SegmentFile, Setting};
use terrace_vfs::Vfs;

/// A manifest file grows to this length, or to [`SNAPSHOT_MULTIPLE`] times the snapshot that it
/// starts with, before a new one takes its place.
pub const MIN_ROTATE_BYTES: u64 = 1 << 20;

/// See [`MIN_ROTATE_BYTES`].
pub const SNAPSHOT_MULTIPLE: u64 = 2;

/// A manifest up to this length is not worth a new one on a full disk.
const MIN_SHRINK_BYTES: u64 = 4096;

/// How many numbers below the one in force are looked at for manifests left over.
const OBSOLETE_WINDOW: u64 = 16;

/// How often a read starts over when the manifest changes under it.
const READ_ATTEMPTS: u32 = 5;

/// The manifest in force, open for appending.
pub struct Manifest {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    number: u64,
    writer: LogWriter,
    /// Length of the file when it held only its snapshot.
    snapshot_bytes: u64,
    min_rotate_bytes: u64,
    /// No new file is tried below this length: there was no room for one.
    full_until_bytes: u64,
    /// Set when it is not known what is durable; cleared by a successful rewrite.
    poisoned: bool,
    payload: Vec<u8>,
}

impl Manifest {
    /// Makes the manifest of a new store with family 0, `default`. `CURRENT` must not exist; the
    /// directory must.
    ///
    /// # Errors
    /// I/O of kind `AlreadyExists` if there is a store; `Corruption` if `CURRENT` is missing where
    /// SSTs or log segments lie: a store that lost it must not be written over.
    pub fn create(vfs: Arc<dyn Vfs>, dir: &Path, store_id: u64) -> Result<(Self, ManifestState)> {
        let state = ManifestState::fresh(store_id);
        Ok((Self::create_of(vfs, dir, &state)?, state))
    }

    /// As [`Manifest::create`], of a store with this state, whose files are to come.
    ///
    /// # Errors
    /// As [`Manifest::create`].
    pub fn create_of(vfs: Arc<dyn Vfs>, dir: &Path, state: &ManifestState) -> Result<Self> {
        let current = names::current_path(dir);
        if vfs.exists(&current)? {
            let why = "the directory holds a store already; open it instead";
            let source = io::Error::new(io::ErrorKind::AlreadyExists, why);
            return Err(Error::io("create", &current, source));
        }
        check_no_data(&*vfs, dir)?;
        Self::start(vfs, dir, 1, state)
    }

    /// Reads the manifest in force and goes on in a new file that starts with a snapshot.
    /// Manifests that are no longer in force are removed once the switch is durable.
    ///
    /// # Errors
    /// I/O with `is_not_found()` if there is no `CURRENT`: the directory holds no store.
    /// `Corruption` if `CURRENT` or what it names is damaged, or absent from a directory with data.
    pub fn recover(vfs: Arc<dyn Vfs>, dir: &Path) -> Result<(Self, ManifestState)> {
        let claims = evidence::read(&*vfs, dir)?.claims;
        Self::recover_proven(vfs, dir, &claims)
    }

    /// As [`Manifest::recover`], with the evidence that was read before.
    pub fn recover_proven(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        claims: &Claims,
    ) -> Result<(Self, ManifestState)> {
        let (number, state) = read_proven(&*vfs, dir, claims)?;
        let manifest = Self::start(vfs, dir, number + 1, &state)?;
        Ok((manifest, state))
    }

    /// Reads the manifest in force and writes nothing, because there is no room for it: edits are
    /// refused until a [`Manifest::rewrite`].
    ///
    /// # Errors
    /// As [`Manifest::recover`].
    pub fn recover_unwritten(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        claims: &Claims,
    ) -> Result<(Self, ManifestState)> {
        let (number, state) = read_proven(&*vfs, dir, claims)?;
        let path = names::manifest_path(dir, number);
        let end = LogPosition { segment: SegmentNumber::new(number), offset: vfs.len(&path)? };
        let manifest = Self {
            writer: LogWriter::finished(Arc::clone(&vfs), &path, end),
            dir: dir.to_path_buf(),
            number,
            snapshot_bytes: end.offset,
            min_rotate_bytes: MIN_ROTATE_BYTES,
            full_until_bytes: 0,
            poisoned: true,
            payload: Vec::new(),
            vfs,
        };
        Ok((manifest, state))
    }

    /// Reads the manifest in force and writes nothing. Fit for a store that another process has
    /// open: sees one of its states.
    ///
    /// # Errors
    /// As [`Manifest::recover`].
    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<ManifestState> {
        let claims = evidence::read(vfs, dir)?.claims;
        let mut attempt = 1;
        loop {
            match read_proven(vfs, dir, &claims).map(|(_, state)| state) {
                // A writer may have moved to a new file, or appended, while this one was read.
                Err(error) if error.is_corruption() && attempt < READ_ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    /// Makes `edit` durable, then applies it to `state`, which must be the one that this manifest
    /// returned and has applied every edit since.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit does not fit the state: nothing was written. After any other
    /// error it is not known whether the edit is durable; `state` is unchanged and the manifest
    /// refuses further edits until [`Manifest::rewrite`] or a new recovery.
    pub fn append(&mut self, state: &mut ManifestState, edit: &VersionEdit) -> Result<()> {
        if self.poisoned {
            let why = "an earlier write to the manifest failed; rewrite it or reopen the store";
            let path = names::manifest_path(&self.dir, self.number);
            return Err(Error::io("append", &path, io::Error::other(why)));
        }
        let prepared = state.prepare(edit).map_err(|why| {
            Error::InvalidArgument(format!("the edit does not fit the manifest: {why}"))
        })?;
        if self.len_bytes() > self.rotate_bytes() {
            self.rotate(state)?;
        }
        self.payload.clear();
        codec::encode_edit(edit, &mut self.payload);
        let written = self.writer.append(&[&self.payload]).and_then(|_| self.writer.sync());
        self.poisoned = written.is_err();
        written?;
        state.commit(prepared);
        // The edit is durable and this marker says so. Failing to say it fails the next append.
        self.poisoned = self.writer.append(&[]).is_err();
        Ok(())
    }

    /// Goes on in a new file if there is room for a snapshot: an edit takes less, and needs none.
    fn rotate(&mut self, state: &ManifestState) -> Result<()> {
        let written = Self::write_next(&*self.vfs, &self.dir, self.number + 1, state);
        let is_of_dir = |error: &Error| error.path() == Some(&*self.dir);
        if matches!(&written, Err(error) if error.is_no_space() && !is_of_dir(error)) {
            // Also if a sync of the file says so: nothing of what is in force was touched.
            self.full_until_bytes = self.len_bytes().saturating_mul(5) / 4;
            return Ok(());
        }
        let poisoned = std::mem::replace(&mut self.poisoned, true);
        let next = written.and_then(|(number, writer)| {
            let next = Self::put_in_force(self.vfs.clone(), &self.dir, number, writer);
            next.inspect_err(|error| self.take_back(number, error))
        });
        match next {
            Ok(next) => *self = Self { min_rotate_bytes: self.min_rotate_bytes, ..next },
            // The file in force is as it was.
            Err(error) if is_short_of_room(&error) && self.is_in_force() => {
                self.poisoned = poisoned;
                self.full_until_bytes = self.len_bytes().saturating_mul(5) / 4;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether `CURRENT` names this manifest, as far as can be seen.
    fn is_in_force(&self) -> bool {
        current::read(&*self.vfs, &self.dir).is_ok_and(|number| number == self.number)
    }

    /// Removes manifest `next`, which could not be put in force for want of room: it takes some.
    fn take_back(&self, next: u64, error: &Error) {
        if is_short_of_room(error) && self.is_in_force() {
            let _ = self.vfs.remove(&names::current_temp_path(&self.dir));
            let _ = self.vfs.remove(&names::manifest_path(&self.dir, next));
        }
    }

    /// Goes on in a new file that starts with a snapshot of `state` if that gives room back, and there is room for it:
    /// what a file may grow to may be much on a full disk.
    ///
    /// # Errors
    /// The manifest refuses further edits until [`Manifest::rewrite`] or a new recovery.
    pub fn shrink(&mut self, state: &ManifestState) -> Result<()> {
        let grown = self.snapshot_bytes.saturating_mul(SNAPSHOT_MULTIPLE);
        let worth_it = grown.max(MIN_SHRINK_BYTES).max(self.full_until_bytes);
        match self.poisoned || self.len_bytes() <= worth_it {
            true => Ok(()),
            false => self.rotate(state),
        }
    }

    /// Goes on in a new file that starts with a snapshot of `state`. If this succeeds, exactly
    /// `state` is durable, whatever failed before.
    pub fn rewrite(&mut self, state: &ManifestState) -> Result<()> {
        self.poisoned = true;
        let next = Self::start(Arc::clone(&self.vfs), &self.dir, self.number + 1, state)?;
        *self = Self { min_rotate_bytes: self.min_rotate_bytes, ..next };
        Ok(())
    }

    /// The number of the manifest file in force.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the manifest file in force.
    pub fn len_bytes(&self) -> u64 {
        self.writer.len_bytes()
    }

    /// The manifest file in force and the length of it that is durable.
    pub fn synced(&self) -> LogPosition {
        let segment = SegmentNumber::new(self.number);
        LogPosition { segment, offset: self.writer.synced_bytes() }
    }

    /// Whether edits are refused after a failure.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// The length past which the next edit moves to a new file.
    fn rotate_bytes(&self) -> u64 {
        let grown = self.snapshot_bytes.saturating_mul(SNAPSHOT_MULTIPLE);
        grown.max(self.min_rotate_bytes).max(self.full_until_bytes)
    }

    /// Moves to a new file at this length instead of [`MIN_ROTATE_BYTES`]; for tests.
    pub fn set_min_rotate_bytes(&mut self, bytes: u64) {
        self.min_rotate_bytes = bytes;
    }

    /// Writes a manifest of `state` under the first free number from `number` on and puts it in
    /// force.
    pub(crate) fn start(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        number: u64,
        state: &ManifestState,
    ) -> Result<Self> {
        let (number, writer) = Self::write_next(&*vfs, dir, number, state)?;
        Self::put_in_force(vfs, dir, number, writer)
    }

    /// Writes a manifest of `state` that is not in force under the first free number from `number` on. Leaves none if
    /// that fails.
    fn write_next(
        vfs: &dyn Vfs,
        dir: &Path,
        mut number: u64,
        state: &ManifestState,
    ) -> Result<(u64, LogWriter)> {
        // Left over from a switch that a crash cut short, and never in force.
        while vfs.exists(&names::manifest_path(dir, number))? {
            number += 1;
        }
        let written = write_snapshot(vfs, dir, number, state);
        if written.is_err() {
            // Not in force, and perhaps what filled the disk. The error that counts is ours.
            let _ = vfs.remove(&names::manifest_path(dir, number));
        }
        Ok((number, written?))
    }

    /// Puts manifest `number`, which is durable and holds a snapshot alone, in force.
    fn put_in_force(vfs: Arc<dyn Vfs>, dir: &Path, number: u64, writer: LogWriter) -> Result<Self> {
        current::switch(&*vfs, dir, number)?;
        remove_obsolete(&*vfs, dir, number)?;
        Ok(Self {
            dir: dir.to_path_buf(),
            number,
            snapshot_bytes: writer.len_bytes(),
            min_rotate_bytes: MIN_ROTATE_BYTES,
            full_until_bytes: 0,
            poisoned: false,
            payload: Vec::new(),
            vfs,
            writer,
        })
    }
}

/// Whether nothing but room was missing.
fn is_short_of_room(error: &Error) -> bool {
    error.is_no_space() && !error.is_failed_sync()
}

/// Writes a durable manifest that holds one snapshot and the marker that proves it.
fn write_snapshot(
    vfs: &dyn Vfs,
    dir: &Path,
    number: u64,
    state: &ManifestState,
) -> Result<LogWriter> {
    let path = names::manifest_path(dir, number);
    let mut writer =
        LogWriter::create(vfs, &path, SegmentNumber::new(number), &LogOptions::default())?;
    let mut payload = Vec::new();
    state.encode_snapshot(&mut payload);
    writer.append(&[&payload])?;
    writer.sync()?;
    writer.append(&[])?;
    vfs.sync_dir(dir)?;
    Ok(writer)
}

/// Removes manifests just below `number`, which is durably in force. What cannot be removed now
/// stays until the next move: it harms nothing.
///
/// # Errors
/// The directory was synced, and that failed.
fn remove_obsolete(vfs: &dyn Vfs, dir: &Path, number: u64) -> Result<()> {
    let mut removed = false;
    for old in number.saturating_sub(OBSOLETE_WINDOW)..number {
        let path = names::manifest_path(dir, old);
        if vfs.exists(&path).unwrap_or(false) {
            removed |= vfs.remove(&path).is_ok();
        }
    }
    match removed.then(|| vfs.sync_dir(dir)) {
        // The kernel tells of an error once, and other names may be lost.
        Some(Err(error)) if error.is_failed_sync() => Err(error),
        _ => Ok(()),
    }
}

/// The manifest in force and the state that it says, which must not be less than `claims` prove.
fn read_proven(vfs: &dyn Vfs, dir: &Path, claims: &Claims) -> Result<(u64, ManifestState)> {
    let number = read_current(vfs, dir)?;
    let LogPosition { segment: newest, offset: bytes } = claims.manifest;
    let segment = SegmentNumber::new(number);
    if segment < newest {
        let detail = format!(
            "it names manifest {number}, and the evidence files (SYNCED-1, SYNCED-2) prove that manifest \
             {newest} was in force: this is an older CURRENT. Put the newer one back, or save what \
             is left with `terrace repair`"
        );
        return Err(Error::corruption(&names::current_path(dir), 0, detail));
    }
    let proven = LogPosition { segment, offset: bytes };
    let state = read_manifest(vfs, dir, number, Some(proven).filter(|_| segment == newest))?;
    if claims.store_id != 0 && claims.store_id != state.store_id {
        let detail = "the evidence files (SYNCED-1, SYNCED-2) are of another store; remove them, or put \
                      the store's own back";
        return Err(Error::corruption(&names::evidence_path(dir, 1), 0, detail));
    }
    Ok((number, state))
}

/// Reads `CURRENT`, and tells a directory without a store from a store that lost its `CURRENT`.
fn read_current(vfs: &dyn Vfs, dir: &Path) -> Result<u64> {
    current::read(vfs, dir).map_err(|error| {
        if !error.is_not_found() {
            return error;
        }
        match check_no_data(vfs, dir) {
            Err(lost) if lost.is_corruption() => lost,
            _ => error,
        }
    })
}

/// Refuses a directory with data or evidence: those are made only once `CURRENT` is durable.
fn check_no_data(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let is_data = |name: &String| {
        use FileName::{Evidence, Log, Sst, ValueLog};
        matches!(names::parse(name), Sst(_) | Log(_) | ValueLog(_) | Evidence(_))
    };
    match vfs.list(dir)?.into_iter().filter(is_data).min() {
        Some(name) => {
            let detail = format!(
                "it is missing although the directory holds data ({name}); put it back, \
                 restore the store from a checkpoint, or run `terrace repair`"
            );
            Err(Error::corruption(&names::current_path(dir), 0, detail))
        }
        None => Ok(()),
    }
}

/// The error for a `CURRENT` that names a manifest which does not exist. Never "not found": that
/// would read as "no store here".
fn absent(dir: &Path, number: u64) -> Error {
    let name = names::manifest_name(number);
    let detail = format!(
        "it names {name}, which does not exist; put that file back, restore the store from a \
         checkpoint, or run `terrace repair`"
    );
    Error::corruption(&names::current_path(dir), 0, detail)
}

/// The state that manifest `number` says.
fn read_manifest(
    vfs: &dyn Vfs,
    dir: &Path,
    number: u64,
    proven: Option<LogPosition>,
) -> Result<ManifestState> {
    let path = names::manifest_path(dir, number);
    let damaged = |offset: u64, why: String| {
        let detail = format!(
            "{why}; restore the store from a checkpoint, or save what is left with `terrace repair`"
        );
        Error::corruption(&path, offset, detail)
    };
    let mut replay = Replay::default();
    let mut last = 0;
    let segments = [SegmentFile { number: SegmentNumber::new(number), path: path.clone() }];
    let setting = Setting { proven, ..Setting::default() };
    terrace_log::recover_with(vfs, &segments, setting, &mut |_, offset, payload| {
        last = offset;
        let record = codec::decode_record(payload).map_err(|malformed| match malformed {
            Malformed::Unknown(..) => {
                let detail = format!(
                    "the record at offset {offset} has an {malformed}; open the store with the \
                     build that wrote it"
                );
                Error::Unsupported { path: path.clone(), detail }
            }
            Malformed::Field(..) => damaged(offset, malformed.to_string()),
        })?;
        replay.add(record).map_err(|why| damaged(offset, why))
    })
    .map_err(|error| if error.is_not_found() { absent(dir, number) } else { error })?;
    match replay.finish().map_err(|why| damaged(last, why))? {
        Some(state) => Ok(state),
        // A manifest is put in force only after its snapshot is durable.
        None => Err(damaged(0, "the snapshot that it starts with is lost".into())),
    }
}

#[cfg(test)]
mod tests;
