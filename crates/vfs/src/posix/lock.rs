//! Advisory locks on files, exclusive and shared: `flock` against other processes, and a list of what
//! this process holds, because some network file systems give a process the locks it already has.

use super::file::{check_regular, open_existing};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Every file locked by this process, by device and inode.
static HELD: Mutex<BTreeMap<(u64, u64), Holders>> = Mutex::new(BTreeMap::new());

/// Who holds the lock of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holders {
    Exclusive,
    /// This many, at least one.
    Shared(u64),
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// A held lock.
pub(super) struct FileLock {
    identity: (u64, u64),
    file: File,
}

impl FileLock {
    /// The exclusive lock; the file is created if it is missing.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let mut held = HELD.lock();
        // Asked by name first: where locks belong to processes, closing a second handle of a
        // locked file would free it.
        if path.metadata().is_ok_and(|metadata| held.contains_key(&identity(&metadata))) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let identity = identity(&check_regular(&file)?);
        retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive))?;
        // Who had it may have removed the file meanwhile: this is then the lock of nothing.
        if path.metadata().ok().map(|metadata| self::identity(&metadata)) != Some(identity) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        held.insert(identity, Holders::Exclusive);
        Ok(Self { identity, file })
    }

    /// A shared lock on an existing file.
    pub(super) fn share(path: &Path) -> io::Result<Self> {
        let mut held = HELD.lock();
        let known = held.get(&identity(&path.metadata()?));
        if known == Some(&Holders::Exclusive) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (file, metadata) = open_existing(path)?;
        let identity = identity(&metadata);
        retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockShared))?;
        let before = match held.get(&identity) {
            Some(Holders::Shared(count)) => *count,
            _ => 0,
        };
        held.insert(identity, Holders::Shared(before + 1));
        Ok(Self { identity, file })
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        match held.get_mut(&self.identity) {
            Some(Holders::Shared(count)) if *count > 1 => *count -= 1,
            _ => drop(held.remove(&self.identity)),
        }
        // A process that this one starts has its open files, and with them the lock, until it is another program:
        // to close the file here would not free it before. If this fails, closing it does what it can.
        let _ = retry_on_intr(|| flock(&self.file, FlockOperation::Unlock));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_free_at_once_although_a_child_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let lock = FileLock::take(&path).unwrap();
        // What a child has between fork and exec.
        let inherited = lock.file.try_clone().unwrap();
        drop(lock);
        drop(FileLock::take(&path).unwrap());
        let shared = FileLock::share(&path).unwrap();
        let of_child = shared.file.try_clone().unwrap();
        drop(shared);
        FileLock::take(&path).unwrap();
        drop((inherited, of_child));
    }
}
