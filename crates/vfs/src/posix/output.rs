//! What buffered and direct files share: reads and writes that go on until all is done, and the state
//! of a file that is appended to.

use crate::SyncHandle;
use crate::counters::count_sync;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{pread, pwrite, retry_on_intr};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_base::sync::Mutex;
use terrace_base::{Error, Result};

/// Turns the bypass of the page cache on or off; false if the file system refuses. By `fcntl`,
/// because `open` with the flag may create the file and then refuse it.
pub(super) fn set_direct(file: &File, direct: bool) -> bool {
    let Ok(flags) = fcntl_getfl(file) else { return false };
    let flags = if direct { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    fcntl_setfl(file, flags).is_ok()
}

/// Reads until `buf` is full or the file ends; says how much that was.
pub(super) fn read_up_to(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        let rest = &mut buf[done..];
        match retry_on_intr(|| pread(file, &mut *rest, offset + done as u64))? {
            0 => break,
            len => done += len,
        }
    }
    Ok(done)
}

/// Writes all of `data` at `offset`.
pub(super) fn write_all_at(file: &File, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        let len = retry_on_intr(|| pwrite(file, data, offset))?;
        if len == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        data = &data[len..];
        offset += len as u64;
    }
    Ok(())
}

/// A file that is appended to, as those see it who sync it.
pub(super) struct SyncedFile {
    file: File,
    path: PathBuf,
    /// Held during a sync: the kernel tells of an error once, and who syncs beside that one would not learn of it.
    syncing: Mutex<()>,
    /// Whether a sync failed: the file is finished for ever.
    failed: AtomicBool,
}

impl SyncedFile {
    fn check(&self) -> io::Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => Err(io::Error::other("an earlier sync failed")),
            false => Ok(()),
        }
    }

    /// A failed sync is never repeated: the kernel may have dropped the pages and would say yes.
    fn try_sync(&self) -> io::Result<()> {
        let _turn = self.syncing.lock();
        self.check()?;
        count_sync();
        let synced = retry_on_intr(|| rustix::fs::fdatasync(&self.file));
        if synced.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        Ok(synced?)
    }
}

impl SyncHandle for SyncedFile {
    fn sync(&self) -> Result<()> {
        self.try_sync().map_err(|source| Error::io("sync", &self.path, source))
    }
}

/// The state that buffered and direct files share: the file, whether a failure finished it, and
/// whether it may be longer than what was appended.
pub(super) struct Output {
    synced: Arc<SyncedFile>,
    /// The file may have bytes past those appended: reserved room, a partial write.
    pub(super) overlong: bool,
    /// A write failed, and what was appended before is not all in the file.
    pub(super) poisoned: bool,
}

impl Output {
    pub(super) fn new(file: File, path: &Path, overlong: bool) -> Self {
        let (syncing, failed) = (Mutex::new(()), AtomicBool::new(false));
        let synced = Arc::new(SyncedFile { file, path: path.to_path_buf(), syncing, failed });
        Self { synced, overlong, poisoned: false }
    }

    pub(super) fn file(&self) -> &File {
        &self.synced.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.synced.path
    }

    pub(super) fn check(&self) -> io::Result<()> {
        if self.poisoned {
            return Err(io::Error::other("an earlier write failed"));
        }
        self.synced.check()
    }

    pub(super) fn cut(&mut self, len: u64) -> io::Result<()> {
        if self.overlong {
            retry_on_intr(|| rustix::fs::ftruncate(self.file(), len))?;
            self.overlong = false;
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.synced.try_sync()
    }

    pub(super) fn sync_handle(&self) -> Arc<dyn SyncHandle> {
        self.synced.clone()
    }
}
