//! Advisory locks on files, exclusive and shared: `flock` against other processes, and a list of what
//! this process holds, because some network file systems give a process the locks it already has. The child of a fork
//! has the descriptors too, and with them the locks: it can be asked to close them.

use super::file::{check_regular, open_existing};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

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

/// Descriptors that are known at most; those of further locks stay open in a child.
const MAX_DESCRIPTORS: usize = 1024;

/// The place of no descriptor.
const NO_DESCRIPTOR: RawFd = -1;

static DESCRIPTORS: Descriptors<MAX_DESCRIPTORS> = Descriptors::new();

/// The descriptors of the locks that this process holds, for the child of a fork, which can neither take a lock nor
/// allocate.
struct Descriptors<const N: usize>([AtomicI32; N]);

impl<const N: usize> Descriptors<N> {
    const fn new() -> Self {
        Self([const { AtomicI32::new(NO_DESCRIPTOR) }; N])
    }

    /// Puts `after` in the place of `before`, if there is such a place.
    fn replace(&self, before: RawFd, after: RawFd) -> bool {
        let replace = |place: &AtomicI32| {
            place.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed)
        };
        self.0.iter().any(|place| replace(place).is_ok())
    }

    /// Gives all of them to `close`, and forgets them.
    fn take_each(&self, mut close: impl FnMut(RawFd)) {
        for place in &self.0 {
            let descriptor = place.swap(NO_DESCRIPTOR, Ordering::Relaxed);
            if descriptor != NO_DESCRIPTOR {
                close(descriptor);
            }
        }
    }
}

/// For the child of a fork, before anything else: gives the descriptors of the locks that the parent holds to `close`. A
/// lock lasts until the last of its descriptors is closed, so a child that keeps them holds the parent's stores after the
/// parent was killed. Then nothing in the child may use or drop what has such a lock. Neither waits nor allocates.
pub fn take_lock_descriptors(close: impl FnMut(RawFd)) {
    DESCRIPTORS.take_each(close);
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
        DESCRIPTORS.replace(NO_DESCRIPTOR, file.as_raw_fd());
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
        DESCRIPTORS.replace(NO_DESCRIPTOR, file.as_raw_fd());
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
        DESCRIPTORS.replace(self.file.as_raw_fd(), NO_DESCRIPTOR);
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

    #[test]
    fn a_child_is_given_the_descriptors_of_the_locks_that_are_held_once() {
        let descriptors = Descriptors::<3>::new();
        for descriptor in [7, 0, 9] {
            assert!(descriptors.replace(NO_DESCRIPTOR, descriptor));
        }
        assert!(!descriptors.replace(NO_DESCRIPTOR, 11), "there is no place");
        assert!(descriptors.replace(9, NO_DESCRIPTOR));
        let mut taken = Vec::new();
        descriptors.take_each(|descriptor| taken.push(descriptor));
        assert_eq!(taken, [7, 0]);
        descriptors.take_each(|descriptor| taken.push(descriptor));
        assert_eq!(taken.len(), 2);
    }

    #[test]
    fn the_descriptors_of_held_locks_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let is_known = |lock: &FileLock| {
            let descriptor = lock.file.as_raw_fd();
            DESCRIPTORS.0.iter().any(|place| place.load(Ordering::Relaxed) == descriptor)
        };
        let own = FileLock::take(&dir.path().join("own")).unwrap();
        std::fs::write(dir.path().join("shared"), "").unwrap();
        let shared = FileLock::share(&dir.path().join("shared")).unwrap();
        assert!(is_known(&own) && is_known(&shared));
    }
}
