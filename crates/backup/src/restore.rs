//! Making a store of a backup.

use crate::backups::{Backups, content};
use crate::copy::{check, copy};
use crate::error::{Error, Result};
use std::path::Path;
use terrace_manifest::{names, own_dirs};
use terrace_vfs::{PartialDir, is_refusal};

impl Backups {
    /// Makes `target`, which must not exist or be empty, the store that was backed up. It is filled
    /// under another name beside it (`.partial`), every byte compared with what was written, and gets its
    /// name when it is whole and durable. `progress` gets the bytes written so far.
    ///
    /// # Errors
    /// There is no such backup, it is damaged, `target` cannot be replaced by a new directory or is one that a store has for its
    /// own use, or a file cannot be written. Nothing is left at `target`, unless only the last sync failed.
    pub fn restore(
        &self,
        id: u64,
        target: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let (target, vfs) = (target.as_ref(), &*self.vfs);
        let _turn = self.reads();
        if let Some(why) = own_dirs::refusal(vfs, target)? {
            return Err(Error::Target(why));
        }
        if vfs.exists(target)? && !vfs.list(target)?.is_empty() {
            return Err(Error::TargetNotEmpty(target.into()));
        }
        let backup = self.get(id)?;
        let partial =
            PartialDir::prepare(vfs, target, names::is_of_checkpoint).map_err(|error| {
                if is_refusal(&error) { Error::Target(error.to_string()) } else { error.into() }
            })?;
        let mut done = 0;
        for file in &backup.files {
            let source = self.content_path(file);
            let copied = copy((vfs, &source), (vfs, &partial.path().join(&file.name)))?;
            check(&source, copied, content(file))?;
            done += file.size_bytes;
            progress(done);
        }
        vfs.sync_dir(partial.path())?;
        Ok(partial.finish()?)
    }
}
