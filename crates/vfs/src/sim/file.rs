//! Handles of simulated files.

use super::Shared;
use super::fault::OpClass;
use super::state::{EXCLUSIVE, NodeId, State, error, io_error};
use crate::counters::{count_read, count_sync, count_write};
use crate::{AppendFile, CreateOptions, RandomFile, SyncHandle};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_base::{Error, Result, Rng};

/// A counted reference to a node: it stays readable after its last name is removed.
struct Handle {
    shared: Arc<Shared>,
    node: NodeId,
    path: PathBuf,
}

impl Handle {
    /// `state` is the locked state of `shared`.
    fn new(shared: &Arc<Shared>, state: &mut State, node: NodeId, path: &Path) -> io::Result<Self> {
        state.file_mut(node)?.open += 1;
        Ok(Self { shared: Arc::clone(shared), node, path: path.to_path_buf() })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if let Ok(file) = state.file_mut(self.node) {
            file.open -= 1;
        }
    }
}

/// A simulated file open for reading.
pub(super) struct SimRandomFile {
    handle: Handle,
    len: u64,
}

impl SimRandomFile {
    pub(super) fn open(shared: &Arc<Shared>, path: &Path) -> io::Result<Self> {
        let mut state = shared.state.lock();
        state.begin(OpClass::Open)?;
        let node = state.find(path)?;
        let len = state.file(node)?.len();
        Ok(Self { handle: Handle::new(shared, &mut state, node, path)?, len })
    }
}

impl RandomFile for SimRandomFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut damaged = Vec::new();
        self.read_around_damage(offset, buf, &mut damaged)?;
        match damaged.first() {
            None => Ok(()),
            Some(range) => Err(Error::corruption(&self.handle.path, range.start, "known damage")),
        }
    }

    fn read_around_damage(
        &self,
        offset: u64,
        buf: &mut [u8],
        damaged: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        let mut state = self.handle.shared.state.lock();
        let read = state.begin(OpClass::Read).and_then(|_| {
            let file = state.file(self.handle.node)?;
            if !file.read(offset, buf) {
                return Err(error(io::ErrorKind::UnexpectedEof));
            }
            if file.is_unreadable(offset, buf.len()) {
                return Err(io_error());
            }
            count_read(buf.len());
            let end = offset + buf.len() as u64;
            let known = file.known_damage.iter();
            let within = known.map(|range| range.start.max(offset)..range.end.min(end));
            damaged.extend(within.filter(|range| !range.is_empty()));
            Ok(())
        });
        read.map_err(|source| Error::io("read", &self.handle.path, source))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn current_len(&self) -> Result<u64> {
        let state = self.handle.shared.state.lock();
        let file = state.file(self.handle.node);
        file.map(|file| file.len()).map_err(|source| Error::io("stat", &self.handle.path, source))
    }

    fn path(&self) -> &Path {
        &self.handle.path
    }
}

/// A simulated file open for appending.
pub(super) struct SimAppendFile {
    handle: Arc<Handle>,
    /// Bytes appended with success; what a failed append left past them is overwritten.
    written: u64,
    /// A sync failed: the file is finished for ever.
    poisoned: Arc<AtomicBool>,
    /// Zeros go ahead of appends, until there was no room for them.
    zeros_ahead: bool,
}

impl SimAppendFile {
    pub(super) fn create(
        shared: &Arc<Shared>,
        path: &Path,
        options: &CreateOptions,
    ) -> io::Result<Self> {
        let CreateOptions { preallocate_bytes: preallocate, zeros_ahead, .. } = *options;
        let mut state = shared.state.lock();
        state.begin(OpClass::Create)?;
        let room = state.free_bytes();
        let node = state.create_file(path)?;
        if preallocate <= room && state.sets_aside {
            state.file_mut(node)?.allocated_bytes = preallocate;
        }
        let handle = Arc::new(Handle::new(shared, &mut state, node, path)?);
        Ok(Self { handle, written: 0, poisoned: Arc::default(), zeros_ahead })
    }

    /// Writes zeros ahead of an append that ends at `end`, if that is wanted. They are no content, and no operation.
    fn lengthen(&mut self, state: &mut State, end: u64) -> io::Result<()> {
        let Some(step) = state.zeros_step_bytes.filter(|_| self.zeros_ahead) else {
            return Ok(());
        };
        let (end, free) = (end.next_multiple_of(step), state.free_bytes());
        let file = state.file_mut(self.handle.node)?;
        match end.saturating_sub(file.len()) <= free {
            true => file.allocated_bytes = file.allocated_bytes.max(end),
            false => self.zeros_ahead = false,
        }
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        check_syncs(&self.poisoned)
    }

    fn try_append(&mut self, data: &[u8]) -> io::Result<()> {
        self.check()?;
        let shared = Arc::clone(&self.handle.shared);
        let mut state = shared.state.lock();
        let short = state.begin(OpClass::Append)?;
        self.lengthen(&mut state, self.written + data.len() as u64)?;
        let free = state.free_bytes();
        let file = state.file(self.handle.node)?;
        let reserved = file.len().saturating_sub(self.written);
        let room = free.saturating_add(reserved);
        let taken = if short {
            state.rng.below(data.len() as u64 + 1)
        } else {
            room.min(data.len() as u64)
        };
        state.file_mut(self.handle.node)?.write_end(self.written, &data[..taken as usize]);
        if short {
            return Err(io_error());
        }
        if taken < data.len() as u64 {
            return Err(error(io::ErrorKind::StorageFull));
        }
        self.written += taken;
        count_write(data.len());
        Ok(())
    }

    fn try_sync(&mut self) -> io::Result<()> {
        let mut state = self.handle.shared.state.lock();
        self.check()?;
        count_sync();
        if let Err(error) = state.begin(OpClass::Sync) {
            self.poisoned.store(true, Ordering::SeqCst);
            return Err(error);
        }
        let file = state.file_mut(self.handle.node)?;
        file.synced_bytes = self.written;
        file.synced_allocated_bytes = file.allocated_bytes;
        Ok(())
    }

    fn try_finish(&mut self) -> io::Result<()> {
        self.check()?;
        let mut state = self.handle.shared.state.lock();
        let file = state.file(self.handle.node)?;
        if file.len() == self.written {
            return Ok(());
        }
        if state.begin(OpClass::Append)? {
            return Err(io_error());
        }
        let file = state.file_mut(self.handle.node)?;
        file.content.truncate(self.written);
        file.allocated_bytes = 0;
        Ok(())
    }

    fn try_cut(&mut self, len: u64) -> io::Result<()> {
        self.check()?;
        if len > self.written {
            return Err(error(io::ErrorKind::InvalidInput));
        }
        let mut state = self.handle.shared.state.lock();
        if state.file(self.handle.node)?.len() > len {
            if state.begin(OpClass::Append)? {
                return Err(io_error());
            }
            let file = state.file_mut(self.handle.node)?;
            file.write_end(len, &[]);
            file.allocated_bytes = 0;
        }
        self.written = len;
        Ok(())
    }
}

impl AppendFile for SimAppendFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.try_append(data).map_err(|source| Error::io("append", &self.handle.path, source))
    }

    fn sync(&mut self) -> Result<()> {
        self.try_sync().map_err(|source| Error::io("sync", &self.handle.path, source))
    }

    fn sync_handle(&self) -> Option<Arc<dyn SyncHandle>> {
        let (handle, poisoned) = (self.handle.clone(), self.poisoned.clone());
        Some(Arc::new(SimSyncHandle { handle, poisoned }))
    }

    fn len(&self) -> u64 {
        self.written
    }

    fn path(&self) -> &Path {
        &self.handle.path
    }

    fn finish(&mut self) -> Result<()> {
        self.try_finish().map_err(|source| Error::io("finish", &self.handle.path, source))
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        self.try_cut(len).map_err(|source| Error::io("cut", &self.handle.path, source))
    }
}

fn check_syncs(have_failed: &AtomicBool) -> io::Result<()> {
    match have_failed.load(Ordering::SeqCst) {
        true => Err(io::Error::other("an earlier sync failed")),
        false => Ok(()),
    }
}

/// Of a [`SimAppendFile`].
struct SimSyncHandle {
    handle: Arc<Handle>,
    poisoned: Arc<AtomicBool>,
}

impl SimSyncHandle {
    fn try_sync(&self) -> io::Result<()> {
        let mut state = self.handle.shared.state.lock();
        check_syncs(&self.poisoned)?;
        count_sync();
        if let Err(error) = state.begin(OpClass::Sync) {
            self.poisoned.store(true, Ordering::SeqCst);
            return Err(error);
        }
        let file = state.file_mut(self.handle.node)?;
        file.synced_bytes = file.content.len();
        file.synced_allocated_bytes = file.allocated_bytes;
        Ok(())
    }
}

impl SyncHandle for SimSyncHandle {
    fn sync(&self) -> Result<()> {
        self.try_sync().map_err(|source| Error::io("sync", &self.handle.path, source))
    }
}

/// An advisory lock on a node, freed when dropped.
pub(super) struct SimLock {
    handle: Handle,
}

impl SimLock {
    /// The exclusive lock; the file is created if it is missing.
    pub(super) fn take(shared: &Arc<Shared>, path: &Path) -> io::Result<Self> {
        let mut state = shared.state.lock();
        state.begin(OpClass::Create)?;
        let node = match state.find(path) {
            Ok(node) => node,
            Err(_) => state.create_file(path)?,
        };
        if state.locked.contains_key(&node) {
            return Err(error(io::ErrorKind::WouldBlock));
        }
        let handle = Handle::new(shared, &mut state, node, path)?;
        state.locked.insert(node, EXCLUSIVE);
        Ok(Self { handle })
    }

    /// A shared lock on an existing file.
    pub(super) fn share(shared: &Arc<Shared>, path: &Path) -> io::Result<Self> {
        let mut state = shared.state.lock();
        state.begin(OpClass::Open)?;
        let node = state.find(path)?;
        let holders = state.locked.get(&node).copied().unwrap_or(0);
        if holders == EXCLUSIVE {
            return Err(error(io::ErrorKind::WouldBlock));
        }
        let handle = Handle::new(shared, &mut state, node, path)?;
        state.locked.insert(node, holders + 1);
        Ok(Self { handle })
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.handle.shared.state.lock();
        match state.locked.get_mut(&self.handle.node) {
            Some(holders) if *holders > 1 && *holders != EXCLUSIVE => *holders -= 1,
            _ => drop(state.locked.remove(&self.handle.node)),
        }
    }
}
