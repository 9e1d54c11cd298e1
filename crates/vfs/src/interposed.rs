//! A file system over another that does something at its calls: counts them, holds them, lets them
//! fail, takes images between them. For tests and simulations: implement [`Interposed`], and the rest
//! of a [`Vfs`] passes through. Where one action before each call is enough, `BeforeCalls` is one.

use crate::{
    AppendFile, CreateOptions, OpenMode, RandomFile, ReadRequest, Result, SyncHandle, Vfs,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A call of a file system or of a file, without its path.
#[derive(Debug, Clone, Copy)]
pub enum Call<'a> {
    /// [`Vfs::open`] or [`Vfs::open_around_loss`].
    Open,
    /// [`Vfs::create`].
    Create,
    /// [`Vfs::rename`] to this name.
    Rename(&'a Path),
    /// [`Vfs::remove`].
    Remove,
    /// [`Vfs::hard_link`] to this name.
    HardLink(&'a Path),
    /// [`Vfs::create_dir_all`].
    CreateDirAll,
    /// [`Vfs::sync_dir`].
    SyncDir,
    /// [`Vfs::sync_file`].
    SyncFile,
    /// [`Vfs::list`] or [`Vfs::list_others`].
    List,
    /// [`Vfs::len`] or [`RandomFile::current_len`].
    Len,
    /// [`Vfs::exists`].
    Exists,
    /// [`Vfs::lock`].
    Lock,
    /// [`Vfs::lock_shared`].
    LockShared,
    /// [`RandomFile::read_at`] or [`RandomFile::read_around_damage`]: offset and length.
    Read(u64, usize),
    /// [`RandomFile::advise_willneed`], which cannot fail.
    Advise,
    /// [`AppendFile::append`] of these bytes.
    Append(&'a [u8]),
    /// [`AppendFile::sync`] or [`SyncHandle::sync`] of a file of this length.
    Sync(u64),
    /// [`AppendFile::finish`] of a file of this length.
    Finish(u64),
    /// [`AppendFile::cut`] to this length.
    Cut(u64),
}

/// What stands between an engine and its file system. A clone shares the state.
pub trait Interposed: Clone + Send + Sync + 'static {
    /// The file system below.
    type Files: Vfs;

    /// The file system below.
    fn files(&self) -> &Self::Files;

    /// Carries out `call`, which concerns the file at `path`, by `work`; or does not.
    fn around<T>(&self, call: Call<'_>, path: &Path, work: impl FnOnce() -> Result<T>)
    -> Result<T>;

    /// Appends `data` to `file`.
    fn append(&self, file: &mut dyn AppendFile, data: &[u8]) -> Result<()> {
        let path = file.path().to_path_buf();
        self.around(Call::Append(data), &path, || file.append(data))
    }

    /// Whether [`Self::around`] is called for reads of the file at `path`, too.
    fn sees_reads(&self, path: &Path) -> bool {
        let _ = path;
        false
    }
}

impl<I: Interposed> Vfs for I {
    fn absolute(&self, path: &Path) -> PathBuf {
        self.files().absolute(path)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn RandomFile>> {
        let file = self.around(Call::Open, path, || self.files().open(path, mode))?;
        Ok(seen(self, file))
    }

    fn open_around_loss(&self, path: &Path) -> Result<Arc<dyn RandomFile>> {
        let file = self.around(Call::Open, path, || self.files().open_around_loss(path))?;
        Ok(seen(self, file))
    }

    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>> {
        let file = self.around(Call::Create, path, || self.files().create(path, options))?;
        Ok(Box::new(InterposedAppends { file, between: self.clone(), len: Arc::default() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.around(Call::Rename(to), from, || self.files().rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.around(Call::Remove, path, || self.files().remove(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.around(Call::HardLink(to), from, || self.files().hard_link(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.around(Call::CreateDirAll, path, || self.files().create_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.around(Call::SyncDir, path, || self.files().sync_dir(path))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.around(Call::SyncFile, path, || self.files().sync_file(path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.around(Call::List, dir, || self.files().list(dir))
    }

    fn list_others(&self, dir: &Path) -> Result<Vec<String>> {
        self.around(Call::List, dir, || self.files().list_others(dir))
    }

    fn is_own_dir(&self, path: &Path) -> Result<bool> {
        self.files().is_own_dir(path)
    }

    fn is_link(&self, path: &Path) -> Result<bool> {
        self.files().is_link(path)
    }

    fn copy_permissions(&self, from: &Path, to: &Path) -> Result<()> {
        self.files().copy_permissions(from, to)
    }

    fn len(&self, path: &Path) -> Result<u64> {
        self.around(Call::Len, path, || self.files().len(path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.around(Call::Exists, path, || self.files().exists(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.around(Call::Lock, path, || self.files().lock(path))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.around(Call::LockShared, path, || self.files().lock_shared(path))
    }

    fn is_encrypted(&self) -> bool {
        self.files().is_encrypted()
    }

    fn is_under_active_key(&self, path: &Path) -> Result<bool> {
        self.files().is_under_active_key(path)
    }

    fn is_misnamed(&self, path: &Path) -> Result<bool> {
        self.files().is_misnamed(path)
    }

    fn free_space_bytes(&self, dir: &Path) -> Result<u64> {
        self.files().free_space_bytes(dir)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        // One by one where a file is ours: its reads are seen.
        match requests.iter().any(|request| self.sees_reads(request.file.path())) {
            true => crate::read_one_by_one(requests),
            false => self.files().read_batch(requests),
        }
    }
}

/// An open file, with its reads seen where they are to be.
fn seen<I: Interposed>(between: &I, file: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
    match between.sees_reads(file.path()) {
        true => Arc::new(InterposedReads { file, between: between.clone() }),
        false => file,
    }
}

struct InterposedReads<I> {
    file: Arc<dyn RandomFile>,
    between: I,
}

impl<I: Interposed> RandomFile for InterposedReads<I> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let call = Call::Read(offset, buf.len());
        self.between.around(call, self.file.path(), || self.file.read_at(offset, buf))
    }

    fn read_around_damage(
        &self,
        offset: u64,
        buf: &mut [u8],
        damaged: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        let call = Call::Read(offset, buf.len());
        let read = || self.file.read_around_damage(offset, buf, damaged);
        self.between.around(call, self.file.path(), read)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn current_len(&self) -> Result<u64> {
        self.between.around(Call::Len, self.file.path(), || self.file.current_len())
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn advise_willneed(&self, offset: u64, len: u64) {
        let advise = || {
            self.file.advise_willneed(offset, len);
            Ok(())
        };
        let _ = self.between.around(Call::Advise, self.file.path(), advise);
    }
}

struct InterposedAppends<I> {
    file: Box<dyn AppendFile>,
    between: I,
    /// What [`AppendFile::len`] says, for who syncs beside this.
    len: Arc<AtomicU64>,
}

impl<I: Interposed> AppendFile for InterposedAppends<I> {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let appended = self.between.append(&mut *self.file, data);
        self.len.store(self.file.len(), Ordering::SeqCst);
        appended
    }

    fn sync(&mut self) -> Result<()> {
        let (call, path) = (Call::Sync(self.file.len()), self.file.path().to_path_buf());
        self.between.around(call, &path, || self.file.sync())
    }

    fn sync_handle(&self) -> Option<Arc<dyn SyncHandle>> {
        let (path, between) = (self.file.path().to_path_buf(), self.between.clone());
        let file = self.file.sync_handle()?;
        Some(Arc::new(InterposedSyncs { file, between, path, len: self.len.clone() }))
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn finish(&mut self) -> Result<()> {
        let (call, path) = (Call::Finish(self.file.len()), self.file.path().to_path_buf());
        self.between.around(call, &path, || self.file.finish())
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        let path = self.file.path().to_path_buf();
        self.between.around(Call::Cut(len), &path, || self.file.cut(len))
    }
}

struct InterposedSyncs<I> {
    file: Arc<dyn SyncHandle>,
    between: I,
    path: PathBuf,
    len: Arc<AtomicU64>,
}

impl<I: Interposed> SyncHandle for InterposedSyncs<I> {
    fn sync(&self) -> Result<()> {
        let call = Call::Sync(self.len.load(Ordering::SeqCst));
        self.between.around(call, &self.path, || self.file.sync())
    }
}
