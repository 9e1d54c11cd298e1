//! Removing backups, and the content that only they had.

use crate::backups::{Backups, PARTIAL, is_content, is_record};
use crate::error::{Error, Result};
use std::collections::HashSet;

impl Backups {
    /// Removes a backup, and the files that no other one has. Gives the bytes of these files.
    ///
    /// # Errors
    /// There is no such backup; a file cannot be removed; or the record of another backup is damaged,
    /// so that nobody knows which files it needs: then the backup is gone and its files stay.
    pub fn remove(&self, id: u64) -> Result<u64> {
        let _turn = self.changes()?;
        let path = self.record_path(id);
        if !self.vfs.exists(&path)? {
            return Err(Error::NoSuchBackup(id));
        }
        self.vfs.remove(&path)?;
        self.vfs.sync_dir(&self.dir.join("backups"))?;
        self.remove_unnamed_files()
    }

    /// Removes all backups but the `keep` latest. Gives the bytes of the files that went.
    ///
    /// # Errors
    /// The record of a backup that would stay is damaged or cannot be read: then nothing is removed, since the older ones
    /// may be the only sound ones. A file cannot be removed: then some backups may be gone.
    pub fn keep_latest(&self, keep: usize) -> Result<u64> {
        let _turn = self.changes()?;
        let ids = self.ids()?;
        let (old, kept) = ids.split_at(ids.len().saturating_sub(keep));
        for id in kept {
            self.get(*id)?;
        }
        for id in old {
            self.vfs.remove(&self.record_path(*id))?;
        }
        self.vfs.sync_dir(&self.dir.join("backups"))?;
        self.remove_unnamed_files()
    }

    /// Removes what a crash, an error or a removal left: files that no record names, and files that
    /// were being written. Gives their bytes. With a damaged record it removes no content, since that
    /// record may need it. The caller has the turn.
    pub(crate) fn remove_unnamed_files(&self) -> Result<u64> {
        let records = self.dir.join("backups");
        for name in self.vfs.list(&records)? {
            if name.ends_with(PARTIAL) && is_record(&name) {
                self.vfs.remove(&records.join(name))?;
            }
        }
        let mut named = HashSet::new();
        for listed in self.list()? {
            named.extend(listed.backup?.files.iter().map(|file| file.content_name()));
        }
        let files = self.dir.join("files");
        let mut removed_bytes = 0;
        for name in self.vfs.list(&files)? {
            if !named.contains(&name) && is_content(&name) {
                let path = files.join(name);
                // One that is damaged may not tell, and goes all the same.
                removed_bytes += self.vfs.len(&path).unwrap_or(0);
                self.vfs.remove(&path)?;
            }
        }
        self.vfs.sync_dir(&files)?;
        Ok(removed_bytes)
    }
}
