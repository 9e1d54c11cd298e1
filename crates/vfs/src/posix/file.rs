//! Files of the machine through the page cache; readers of direct files too, by way of
//! [`super::direct`].

use super::direct;
use super::output::{Output, read_up_to, set_direct, write_all_at};
use super::zeros_ahead::ZerosAhead;
use crate::counters::{count_read, count_write};
use crate::{AppendFile, CreateOptions, OpenMode, RandomFile, SyncHandle};
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_setfl, ftruncate};
use rustix::io::{Errno, retry_on_intr};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_base::{Error, Result};

/// A file open for reading.
pub(super) struct PosixRandomFile {
    file: File,
    path: PathBuf,
    len: u64,
    /// Cleared for good when the file system turns out to refuse direct reads after all.
    direct: AtomicBool,
}

impl PosixRandomFile {
    pub(super) fn open(path: &Path, mode: OpenMode) -> io::Result<Self> {
        let (file, metadata) = open_existing(path)?;
        let direct = mode.direct && set_direct(&file, true);
        if mode.random {
            let _ = fadvise(&file, 0, None, Advice::Random);
        }
        let direct = AtomicBool::new(direct);
        Ok(Self { file, path: path.to_path_buf(), len: metadata.len(), direct })
    }

    fn try_read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.direct.load(Relaxed) {
            match direct::read(&self.file, offset, buf) {
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    self.direct.store(false, Relaxed);
                    set_direct(&self.file, false);
                }
                other => return other,
            }
        }
        match read_up_to(&self.file, offset, buf)? {
            len if len == buf.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl RandomFile for PosixRandomFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        count_read(buf.len());
        self.try_read(offset, buf).map_err(|source| Error::io("read", &self.path, source))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn current_len(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        metadata.map(|found| found.len()).map_err(|source| Error::io("stat", &self.path, source))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn direct_fd(&self) -> Option<(i32, bool)> {
        Some((self.file.as_raw_fd(), self.direct.load(Relaxed)))
    }

    fn advise_willneed(&self, offset: u64, len: u64) {
        if let (false, Some(len)) = (self.direct.load(Relaxed), NonZeroU64::new(len)) {
            let _ = fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }
}

/// Opens the regular file `path` for reading. Anything else is an error: a named pipe has no end, and to open it would
/// wait for a writer.
pub(super) fn open_existing(path: &Path) -> io::Result<(File, Metadata)> {
    let no_wait = OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(no_wait).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        // Sockets, and devices without a driver.
        Some(Errno::NXIO) => not_regular(),
        _ => error,
    })?;
    let metadata = check_regular(&file)?;
    // Some kernels give up reads of a ring for it. Every other flag that can be set is off here.
    fcntl_setfl(&file, OFlags::empty())?;
    Ok((file, metadata))
}

/// The metadata of a file, which must be a regular one.
pub(super) fn check_regular(file: &File) -> io::Result<Metadata> {
    let metadata = file.metadata()?;
    match metadata.file_type() {
        kind if kind.is_file() => Ok(metadata),
        kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Creates the file `path` for writing; it must not exist. Only its owner may read it. Gives whether it may have bytes
/// that nobody has appended: reserved room, or what a reservation that failed has left of it.
pub(super) fn create_new(path: &Path, options: &CreateOptions) -> io::Result<(File, bool)> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let wanted = options.preallocate_bytes;
    if wanted > 0 {
        reserve(&file, || retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, wanted)));
    }
    Ok((file, wanted > 0))
}

/// Reserves room for an empty file by `allocate`, best effort: all of it or none. Some file systems leave a file for which there
/// is not enough all that there is, of the disk or of a quota, and others would find nothing.
pub(super) fn reserve(file: &File, allocate: impl FnOnce() -> rustix::io::Result<()>) {
    if allocate().is_err() {
        let _ = retry_on_intr(|| ftruncate(file, 0));
    }
}

/// A file appended to through the page cache. A failed append may leave bytes past `len`, which
/// the next append overwrites and `finish` cuts off.
pub(super) struct BufferedFile {
    output: Output,
    len: u64,
    ahead: ZerosAhead,
}

impl BufferedFile {
    pub(super) fn new(file: File, path: &Path, options: &CreateOptions, overlong: bool) -> Self {
        let output = Output::new(file, path, overlong);
        Self { output, len: 0, ahead: ZerosAhead::new(options.zeros_ahead) }
    }

    fn try_cut(&mut self, len: u64) -> io::Result<()> {
        self.output.check()?;
        if len > self.len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.output.overlong |= len < self.len;
        self.output.cut(len)?;
        self.len = len;
        self.ahead.end = len;
        Ok(())
    }

    fn try_finish(&mut self) -> io::Result<()> {
        self.output.check()?;
        self.output.cut(self.len)?;
        self.ahead.end = self.len;
        Ok(())
    }

    fn try_append(&mut self, data: &[u8]) -> io::Result<()> {
        self.output.check()?;
        if let Some(zeros) = self.ahead.due(self.len, data.len()) {
            self.output.overlong = true;
            let written = write_all_at(self.output.file(), zeros.start, zeros.bytes());
            self.ahead.note(&zeros, written.is_ok());
        }
        count_write(data.len());
        let written = write_all_at(self.output.file(), self.len, data);
        match written {
            Ok(()) => self.len += data.len() as u64,
            Err(_) => self.output.overlong = true,
        }
        written
    }
}

impl AppendFile for BufferedFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        match self.try_append(data) {
            Ok(()) => Ok(()),
            Err(source) => Err(Error::io("append", self.output.path(), source)),
        }
    }

    fn sync(&mut self) -> Result<()> {
        let synced = self.output.check().and_then(|()| self.output.sync());
        synced.map_err(|source| Error::io("sync", self.output.path(), source))
    }

    fn sync_handle(&self) -> Option<Arc<dyn SyncHandle>> {
        Some(self.output.sync_handle())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        self.output.path()
    }

    fn finish(&mut self) -> Result<()> {
        self.try_finish().map_err(|source| Error::io("finish", self.output.path(), source))
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        self.try_cut(len).map_err(|source| Error::io("cut", self.output.path(), source))
    }
}
