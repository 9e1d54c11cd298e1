//! Making a backup: a checkpoint inside the store, then a copy of each file of it whose content is not
//! there yet, then the record.

use crate::backups::{Backups, content};
use crate::copy::{check, content_of, copy, write};
use crate::error::{Error, Result};
use crate::record::{Backup, BackupFile};
use crate::sound;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use terrace::Db;
use terrace_manifest::backup_work;
use terrace_vfs::{Vfs, is_unreadable, partial_path};

/// What a backup was and cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// Its record.
    pub backup: Backup,
    /// Files that were not in the directory yet.
    pub copied_files: usize,
    /// Bytes of them.
    pub copied_bytes: u64,
}

/// The stores that are backed up just now: the folder of the checkpoint is one per store. Only the process that has a
/// store open can back it up.
static STORES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Signalled when one is taken out.
static ENDED: Condvar = Condvar::new();

/// Keeps other threads from backing up a store.
struct StoreTurn(PathBuf);

impl StoreTurn {
    /// Waits until nobody else backs up the store in `dir`.
    fn take(dir: &Path) -> Self {
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        while !stores.insert(dir.to_path_buf()) {
            stores = ENDED.wait(stores).unwrap_or_else(PoisonError::into_inner);
        }
        Self(dir.to_path_buf())
    }
}

impl Drop for StoreTurn {
    fn drop(&mut self) {
        STORES.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        ENDED.notify_all();
    }
}

/// Removes the files of a checkpoint when dropped, unless the store is closed: then the directory, and what lies in it, may be
/// another process's, and else the next open removes them.
struct Checkpoint<'a> {
    db: &'a Db,
    vfs: &'a dyn Vfs,
    dir: PathBuf,
}

impl Drop for Checkpoint<'_> {
    fn drop(&mut self) {
        if check_open(self.db).is_ok() {
            // What cannot be removed now is removed before the next checkpoint.
            let _ = backup_work::clear(self.vfs, &self.dir);
        }
    }
}

/// # Errors
/// `Closed` if the store is.
fn check_open(db: &Db) -> Result<()> {
    match db.check_writable() {
        Err(closed @ terrace::Error::Closed) => Err(closed.into()),
        _ => Ok(()),
    }
}

impl Backups {
    /// Backs an open store up: what was written and acknowledged before the call is in it. Writes go on
    /// meanwhile; other backups of the same store wait. Every file of the store is read; written is what no backup here has
    /// yet, after its checksums were checked if it is an SST. `progress` gets the bytes read so far. Content that is here
    /// already is not read again: whether it is damaged, [`Self::verify`] says. The number is one more than the largest that
    /// is there: that of the last backup comes again if it was removed.
    ///
    /// # Errors
    /// The store is closed, before or meanwhile, read-only or poisoned, has this directory inside of its own, or other files where its checkpoint is
    /// made; or a file cannot be read or written; [`Error::Damaged`] for an SST of the store. The backups that were there stay; nothing of this one does, so that a full disk has its room again; but if
    /// only the last sync failed, it may be there. What cannot be removed then is removed by the next one, or when the store
    /// is opened.
    pub fn create(&self, db: &Db, progress: &mut dyn FnMut(u64)) -> Result<Created> {
        self.make(db, true, progress)
    }

    /// As [`Self::create`], of a store of which SSTs may be damaged: they are in the backup as they are.
    ///
    /// # Errors
    /// As [`Self::create`], but for damaged SSTs.
    pub fn create_as_is(&self, db: &Db, progress: &mut dyn FnMut(u64)) -> Result<Created> {
        self.make(db, false, progress)
    }

    fn make(&self, db: &Db, checks: bool, progress: &mut dyn FnMut(u64)) -> Result<Created> {
        // Before anything is touched in the directory of the store: another process may be its writer.
        db.check_writable()?;
        // As far as their names tell.
        if self.dir.starts_with(db.path()) {
            let why = format!(
                "{} is inside of the store {}, with which its backups would be lost: name another directory",
                self.dir.display(),
                db.path().display()
            );
            return Err(terrace::Error::InvalidArgument(why).into());
        }
        let _turn = self.changes()?;
        let _store = StoreTurn::take(db.path());
        self.remove_unnamed_files()?;
        let created = self.make_in_turn(db, checks, progress);
        if created.is_err() {
            // The error that counts is the first one.
            let _ = self.remove_unnamed_files();
        }
        created
    }

    /// [`Self::make`], while nobody else changes the directory or backs the store up.
    fn make_in_turn(
        &self,
        db: &Db,
        checks: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Created> {
        let store_vfs = &db.options().advanced.vfs;
        if store_vfs.is_encrypted() && !self.vfs.is_encrypted() {
            let why = "the store is encrypted and its backups would not be: open the directory of \
                       backups with an encrypted file system, too";
            return Err(terrace::Error::InvalidArgument(why.into()).into());
        }
        let checkpoint = Checkpoint { db, vfs: &**store_vfs, dir: checkpoint_dir(db)? };
        db.checkpoint_for_backup()?;
        let mut names = store_vfs.list(&checkpoint.dir)?;
        names.sort_unstable();
        let created_ms = db.options().advanced.clock.wall_ms();
        let id = self.next_id()?;
        let mut backup = Backup { id, created_ms, files: Vec::with_capacity(names.len()) };
        let (mut copied_files, mut copied_bytes, mut done) = (0, 0, 0);
        for name in names {
            let added = self.add_file(store_vfs, &checkpoint.dir, name, checks);
            // Else what was read may be of another process's checkpoint: its files have the same names.
            check_open(db)?;
            let (file, is_new) = added?;
            done += file.size_bytes;
            if is_new {
                copied_files += 1;
                copied_bytes += file.size_bytes;
            }
            backup.files.push(file);
            progress(done);
        }
        let vfs = &*self.vfs;
        vfs.sync_dir(&self.dir.join("files"))?;
        let path = self.record_path(id);
        let partial = partial_path(&path);
        write(vfs, &partial, backup.encode().as_bytes())?;
        vfs.rename(&partial, &path)?;
        vfs.sync_dir(&self.dir.join("backups"))?;
        Ok(Created { backup, copied_files, copied_bytes })
    }

    /// One more than the largest number of a backup that is there.
    fn next_id(&self) -> Result<u64> {
        let last = self.ids()?.last().copied().unwrap_or(0);
        let damaged = || Error::Damaged {
            path: self.record_path(last),
            what: "no backup has so large a number".into(),
        };
        last.checked_add(1).ok_or_else(damaged)
    }

    /// Copies a file of the checkpoint unless its content is there, under the key that new files get: the keys before that
    /// need not be kept for this backup. Gives whether it did. With `checks` a damaged SST is refused: it would be new content, and
    /// drive sound ones out where only some backups are kept.
    fn add_file(
        &self,
        from: &Arc<dyn Vfs>,
        dir: &Path,
        name: String,
        checks: bool,
    ) -> Result<(BackupFile, bool)> {
        let source = dir.join(&name);
        let found = content_of(&**from, &source)?;
        let file = BackupFile { name, size_bytes: found.size_bytes, hash: found.hash };
        let path = self.content_path(&file);
        let vfs = &*self.vfs;
        if vfs.exists(&path)? && is_whole(vfs, &path, file.size_bytes)? {
            return Ok((file, false));
        }
        if checks {
            sound::check(from, dir, &file.name)?;
        }
        let partial = partial_path(&path);
        let copied = copy((&**from, &source), (vfs, &partial))?;
        check(&source, copied, content(&file))?;
        vfs.rename(&partial, &path)?;
        Ok((file, true))
    }
}

/// The folder of the store in which the checkpoint is made: on the same file system, so that its files are hard links. It
/// stays, empty. What an earlier backup has left there is removed.
fn checkpoint_dir(db: &Db) -> Result<PathBuf> {
    let [work, partial] = backup_work::dirs(db.path());
    for dir in [&partial, &work] {
        if let Some(foreign) = backup_work::clear(&*db.options().advanced.vfs, dir)?.first() {
            let why = format!(
                "no backup has made {}, and backups of the store have their checkpoint there: move it away",
                foreign.display()
            );
            return Err(terrace::Error::InvalidArgument(why).into());
        }
    }
    Ok(work)
}

/// Whether the content at `path` is there under the active key and has its length. One so damaged that nothing can be read
/// of it is not there: it is copied anew, for all backups that have it.
fn is_whole(vfs: &dyn Vfs, path: &Path, size_bytes: u64) -> Result<bool> {
    let looked =
        vfs.is_under_active_key(path).and_then(|active| Ok(active && vfs.len(path)? == size_bytes));
    match looked {
        Err(error) if error.is_corruption() || is_unreadable(&error) => Ok(false),
        looked => Ok(looked?),
    }
}
