//! What buffered and direct files share: reads and writes that go on until all is done, and the state
//! of a file that is appended to.

use crate::counters::count_sync;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{pread, pwrite, retry_on_intr};
use std::fs::File;
use std::io;
use std::path::PathBuf;

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

/// The state that buffered and direct files share: the file, whether a failure finished it, and
/// whether it may be longer than what was appended.
pub(super) struct Output {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// The file may have bytes past those appended: reserved room, a partial write.
    pub(super) overlong: bool,
    pub(super) poisoned: bool,
}

impl Output {
    pub(super) fn check(&self) -> io::Result<()> {
        if self.poisoned { Err(io::Error::other("an earlier write failed")) } else { Ok(()) }
    }

    pub(super) fn cut(&mut self, len: u64) -> io::Result<()> {
        if self.overlong {
            retry_on_intr(|| rustix::fs::ftruncate(&self.file, len))?;
            self.overlong = false;
        }
        Ok(())
    }

    /// A failed sync is never repeated: the kernel may have dropped the pages and would say yes.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        count_sync();
        let synced = retry_on_intr(|| rustix::fs::fdatasync(&self.file));
        self.poisoned |= synced.is_err();
        Ok(synced?)
    }
}
