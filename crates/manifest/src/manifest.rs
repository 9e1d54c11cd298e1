//! The manifest file: appending edits, and moving to a new file.

use crate::edit::VersionEdit;
use crate::state::ManifestState;
use std::path::Path;
use std::sync::Arc;
use terrace_base::Result;
use terrace_vfs::Vfs;

/// The manifest in force, open for appending.
pub struct Manifest {}

#[allow(unused_variables, clippy::todo)]
impl Manifest {
    /// Makes the manifest of a new store with family 0, `default`. `CURRENT` must not exist; the
    /// directory must.
    pub fn create(vfs: Arc<dyn Vfs>, dir: &Path, store_id: u64) -> Result<(Self, ManifestState)> {
        todo!()
    }

    /// Reads the manifest in force and goes on in a new file that starts with a snapshot.
    /// Manifests that are no longer in force are removed once the switch is durable.
    ///
    /// # Errors
    /// I/O with `is_not_found()` if there is no `CURRENT`: the directory holds no store.
    /// `Corruption` if `CURRENT` or what it names is damaged or absent.
    pub fn recover(vfs: Arc<dyn Vfs>, dir: &Path) -> Result<(Self, ManifestState)> {
        todo!()
    }

    /// Reads the manifest in force and writes nothing. Fit for a store that another process has
    /// open: sees one of its states.
    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<ManifestState> {
        todo!()
    }

    /// Makes `edit` durable, then applies it to `state`, which must be the one that this manifest
    /// returned and has applied every edit since.
    ///
    /// # Errors
    /// `InvalidArgument` if the edit does not fit the state: nothing was written. After any other
    /// error it is not known whether the edit is durable; `state` is unchanged and the manifest
    /// refuses further edits until [`Manifest::rewrite`] or a new recovery.
    pub fn append(&mut self, state: &mut ManifestState, edit: &VersionEdit) -> Result<()> {
        todo!()
    }

    /// Goes on in a new file that starts with a snapshot of `state`. If this succeeds, exactly
    /// `state` is durable, whatever failed before.
    pub fn rewrite(&mut self, state: &ManifestState) -> Result<()> {
        todo!()
    }

    /// The number of the manifest file in force.
    pub fn number(&self) -> u64 {
        todo!()
    }

    /// Bytes of the manifest file in force.
    pub fn len_bytes(&self) -> u64 {
        todo!()
    }
}
