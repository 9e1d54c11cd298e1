//! The advisory lock on a file: `flock` against other processes, and a list of what this process
//! holds, because some network file systems give a process the locks it already has.

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Device and inode of every file locked by this process.
static HELD: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// A held lock.
pub(super) struct FileLock {
    identity: (u64, u64),
    /// Closing it frees the lock.
    _file: File,
}

impl FileLock {
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let mut held = HELD.lock();
        // Asked by name first: where locks belong to processes, closing a second handle of a
        // locked file would free it.
        if path.metadata().is_ok_and(|metadata| held.contains(&identity(&metadata))) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let identity = identity(&file.metadata()?);
        retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive))?;
        held.insert(identity);
        Ok(Self { identity, _file: file })
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        HELD.lock().remove(&self.identity);
    }
}
