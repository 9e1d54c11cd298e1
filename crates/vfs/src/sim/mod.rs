//! A deterministic file system in memory that loses, tears and fails on demand; every crash and
//! fault test of the engine runs on it.
//!
//! One lock guards the device: operations are atomic and counted one by one. Images share file
//! contents with their origin until one of them changes, so that an image costs about as much as
//! a clone of the directory.

mod content;
mod crash;
mod fault;
mod file;
mod state;

#[cfg(test)]
mod tests;

pub use fault::{Fault, FaultKind, OpClass};

use crate::counters::count_sync;
use crate::{AppendFile, CreateOptions, OpenMode, RandomFile, Vfs};
use file::{SimAppendFile, SimLock, SimRandomFile};
use parking_lot::Mutex;
use state::{Node, ROOT, State};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{Error, Result};

struct Shared {
    state: Mutex<State>,
}

/// A deterministic file system in memory; clones are the same file system. Paths are taken from
/// one root whether or not they start with `/`.
///
/// Each call of a [`Vfs`], [`RandomFile`] or [`AppendFile`] method that does something is one
/// operation, except `free_space_bytes` and what needs no device (lengths of open files, a
/// `finish` with nothing to do).
#[derive(Clone)]
pub struct SimVfs {
    shared: Arc<Shared>,
}

impl SimVfs {
    /// An empty file system. The seed decides how much of an append a
    /// [`FaultKind::ShortWrite`] lets through.
    pub fn new(seed: u64) -> Self {
        Self::with(State::new(seed))
    }

    fn with(state: State) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::new(state) }) }
    }

    /// File-system operations so far, failed ones included.
    pub fn op_count(&self) -> u64 {
        self.shared.state.lock().op_count
    }

    /// What a power cut now would leave: synced data, and a part of the rest that `seed` decides.
    /// The image starts with no operation counted, no lock held and no fault set, and keeps the
    /// capacity.
    pub fn crash_image(&self, seed: u64) -> SimVfs {
        Self::with(crash::power_cut(&self.shared.state.lock(), seed))
    }

    /// What a killed process leaves: everything, though what was not synced still is not.
    pub fn kill_image(&self) -> SimVfs {
        Self::with(crash::kill(&self.shared.state.lock()))
    }

    /// From operation number `op` on (counted from 0) everything fails and changes nothing. The
    /// count stops there.
    pub fn crash_after(&self, op: u64) {
        self.shared.state.lock().power_cut_at = Some(op);
    }

    /// Sets the fault to inject, in place of the one before.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.shared.state.lock().fault = fault;
    }

    /// How many times a fault struck.
    pub fn executed_faults(&self) -> u64 {
        self.shared.state.lock().executed_faults
    }

    /// Limits the bytes of all files together; appends past it write what fits and fail with
    /// `StorageFull`. `None` for no limit.
    pub fn set_capacity_bytes(&self, bytes: Option<u64>) {
        self.shared.state.lock().capacity_bytes = bytes;
    }

    /// From now on it does not say how much is free: `u64::MAX`, as [`Vfs::free_space_bytes`] of a file system that
    /// does not know its size.
    pub fn hide_free_space(&self) {
        self.shared.state.lock().hides_room = true;
    }

    /// From now on no room can be set aside for a file that is created, as in some file systems.
    pub fn refuse_preallocation(&self) {
        self.shared.state.lock().sets_aside = false;
    }

    /// From now on zeros go ahead of what is appended to files that are created with [`CreateOptions::zeros_ahead`], up to a
    /// multiple of `step_bytes` (0: none, as at first) and as long as there is room: of short files, too, so that short tests
    /// meet them.
    pub fn write_zeros_ahead(&self, step_bytes: u64) {
        self.shared.state.lock().zeros_step_bytes = (step_bytes > 0).then_some(step_bytes);
    }

    /// Flips the bits `xor` of one byte; false if there is no such byte.
    pub fn corrupt(&self, path: impl AsRef<Path>, offset: u64, xor: u8) -> bool {
        self.edit(path.as_ref(), |file| file.content.flip(offset, xor)).unwrap_or(false)
    }

    /// Makes reads of a file refuse a range, or tell that it is damaged, as of a file system that authenticates what it
    /// stores; the bytes stay what they are. Ranges are given in ascending order. False if there is no such file.
    pub fn know_damage(&self, path: impl AsRef<Path>, range: Range<u64>) -> bool {
        self.edit(path.as_ref(), |file| file.known_damage.push(range)).is_some()
    }

    /// Makes every read that touches a range of a file fail with `EIO`, as a device with a bad sector does. False if there
    /// is no such file.
    pub fn lose_sector(&self, path: impl AsRef<Path>, range: Range<u64>) -> bool {
        self.edit(path.as_ref(), |file| file.unreadable.push(range)).is_some()
    }

    /// Cuts a file to `len` bytes, durably; false if there is no such file.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> bool {
        let cut = |file: &mut state::FileNode| {
            file.content.truncate(len);
            file.synced_bytes = file.synced_bytes.min(file.content.len());
            file.allocated_bytes = file.allocated_bytes.min(len);
            file.synced_allocated_bytes = file.synced_allocated_bytes.min(len);
        };
        self.edit(path.as_ref(), cut).is_some()
    }

    /// The content of a file, or `None` if there is no such file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.shared.state.lock();
        let file = state.file(state.find(path.as_ref()).ok()?).ok()?;
        let mut bytes = vec![0; file.len() as usize];
        file.read(0, &mut bytes).then_some(bytes)
    }

    /// Creates or replaces a file and its directories, durably; false if the path cannot be one.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> bool {
        let (path, bytes) = (path.as_ref(), bytes.as_ref());
        let Some(parent) = path.parent() else { return false };
        let mut state = self.shared.state.lock();
        let mut write = || -> io::Result<()> {
            state.create_dirs(parent)?;
            let id = state.find(path).or_else(|_| state.create_file(path))?;
            let file = state.file_mut(id)?;
            file.write_end(0, bytes);
            file.synced_bytes = bytes.len() as u64;
            (file.allocated_bytes, file.synced_allocated_bytes) = (0, 0);
            let parent = state.find(parent)?;
            state.dir_mut(parent)?.sync();
            Ok(())
        };
        write().is_ok()
    }

    /// Every file with its length, in order of path.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.shared.state.lock();
        let root = if state.absolute == Some(true) { "/" } else { "" };
        let mut files = Vec::new();
        state.collect_files(ROOT, Path::new(root), &mut files);
        files
    }

    fn edit<T>(&self, path: &Path, edit: impl FnOnce(&mut state::FileNode) -> T) -> Option<T> {
        let mut state = self.shared.state.lock();
        let id = state.find(path).ok()?;
        state.file_mut(id).ok().map(edit)
    }

    /// Counts an operation of `class`, then does it.
    fn run<T>(
        &self,
        class: OpClass,
        op: &'static str,
        path: &Path,
        work: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> Result<T> {
        let mut state = self.shared.state.lock();
        let outcome = state.begin(class).and_then(|_| work(&mut state));
        outcome.map_err(|source| {
            // What could not be opened was not synced: see `Error::is_failed_sync`.
            let unopened = source.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
            Error::io(if unopened { "open" } else { op }, path, source)
        })
    }
}

impl Vfs for SimVfs {
    fn open(&self, path: &Path, _mode: OpenMode) -> Result<Arc<dyn RandomFile>> {
        match SimRandomFile::open(&self.shared, path) {
            Ok(file) => Ok(Arc::new(file)),
            Err(source) => Err(Error::io("open", path, source)),
        }
    }

    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        match SimAppendFile::create(&self.shared, path, options) {
            Ok(file) => Ok(Box::new(file)),
            Err(source) => Err(Error::io("create", path, source)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.run(OpClass::Rename, "rename", from, |state| state.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.run(OpClass::Remove, "remove", path, |state| state.remove(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.run(OpClass::Link, "link", to, |state| state.link(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.run(OpClass::Create, "create directory", path, |state| state.create_dirs(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        count_sync();
        self.run(OpClass::SyncDir, "sync directory", path, |state| {
            let id = state.find(path)?;
            state.dir_mut(id)?.sync();
            state.collect();
            Ok(())
        })
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        count_sync();
        self.run(OpClass::Sync, "sync", path, |state| {
            let id = state.find(path)?;
            let file = state.file_mut(id)?;
            file.synced_bytes = file.content.len();
            file.synced_allocated_bytes = file.allocated_bytes;
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let is_file = |node: &Node| matches!(node, Node::File(_));
        self.run(OpClass::Open, "list", dir, |state| state.names(dir, is_file))
    }

    fn list_others(&self, dir: &Path) -> Result<Vec<String>> {
        let is_other = |node: &Node| !matches!(node, Node::File(_));
        self.run(OpClass::Open, "list", dir, |state| state.names(dir, is_other))
    }

    fn len(&self, path: &Path) -> Result<u64> {
        self.run(OpClass::Open, "length of", path, |state| Ok(state.file(state.find(path)?)?.len()))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.run(OpClass::Open, "look up", path, |state| Ok(state.find(path).is_ok()))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        match SimLock::take(&self.shared, path) {
            Ok(lock) => Ok(Box::new(lock)),
            Err(source) => Err(Error::io("lock", path, source)),
        }
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        match SimLock::share(&self.shared, path) {
            Ok(lock) => Ok(Box::new(lock)),
            Err(source) => Err(Error::io("lock", path, source)),
        }
    }

    fn free_space_bytes(&self, _dir: &Path) -> Result<u64> {
        let state = self.shared.state.lock();
        Ok(if state.hides_room { u64::MAX } else { state.free_bytes() })
    }
}
