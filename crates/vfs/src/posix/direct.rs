//! I/O past the page cache: reads through an aligned buffer of the thread, appends through an
//! aligned buffer of the file.

use super::output::{Output, set_direct, write_all_at};
use crate::AppendFile;
use crate::counters::count_write;
use rustix::io::{Errno, pread, retry_on_intr};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::Path;
use terrace_base::{Error, Result};
use terrace_buf::Region;

/// What offsets, lengths and addresses of direct I/O are multiples of: the largest logical block
/// of devices in use, so that none has to be asked.
pub(super) const ALIGN: u64 = 4096;

/// Bytes read at once through the buffer of a thread.
const READ_BYTES: usize = 1 << 20;

/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;

thread_local! {
    static BOUNCE: RefCell<Region> = RefCell::new(Region::zeroed(0));
}

/// Runs `work` on an aligned buffer of at least `len` bytes.
pub(super) fn with_bounce<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    // Taken out while in use; in the last moments of a thread there is none.
    let mut bounce = BOUNCE.try_with(RefCell::take).unwrap_or_default();
    if bounce.len() < len {
        bounce = Region::zeroed(len.next_power_of_two());
    }
    let outcome = work(&mut bounce);
    let _ = BOUNCE.try_with(|kept| kept.replace(bounce));
    outcome
}

pub(super) fn align_down(offset: u64) -> u64 {
    offset / ALIGN * ALIGN
}

/// Fills `buf` from `offset` on. The file is in direct mode; offset + length fit `i64`.
pub(super) fn read(file: &File, mut offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let aligned = |number: usize| (number as u64).is_multiple_of(ALIGN);
    if aligned(buf.as_ptr() as usize) && aligned(buf.len()) && offset.is_multiple_of(ALIGN) {
        let needed = buf.len();
        return read_aligned(file, offset, buf, needed);
    }
    for part in buf.chunks_mut(READ_BYTES - ALIGN as usize) {
        let start = align_down(offset);
        let skip = (offset - start) as usize;
        let len = (skip + part.len()).next_multiple_of(ALIGN as usize);
        with_bounce(len, |bounce| {
            read_aligned(file, start, &mut bounce[..len], skip + part.len())?;
            part.copy_from_slice(&bounce[skip..skip + part.len()]);
            io::Result::Ok(())
        })?;
        offset += part.len() as u64;
    }
    Ok(())
}

/// Reads at least the first `needed` bytes of the aligned `buf`; the file may end after those.
fn read_aligned(file: &File, offset: u64, buf: &mut [u8], needed: usize) -> io::Result<()> {
    let mut done = 0;
    while done < needed {
        let rest = &mut buf[done..];
        let len = retry_on_intr(|| pread(file, &mut *rest, offset + done as u64))?;
        done += len;
        // Only the end of the file makes a direct read stop between two blocks.
        if done < needed && (len == 0 || !(done as u64).is_multiple_of(ALIGN)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// A file appended to past the page cache, in large aligned writes. The bytes since the last
/// multiple of [`ALIGN`] stay in the process until `sync` or `finish`. Any failed write finishes
/// the file, since the buffer may hold bytes of earlier appends.
pub(super) struct DirectFile {
    output: Output,
    /// Bytes from `flushed` on; the first `filled` are appended data.
    buffer: Region,
    filled: usize,
    /// A multiple of [`ALIGN`]; everything before has been written for good.
    flushed: u64,
    /// `finish` or `sync` wrote the tail and nothing was appended since.
    tail_written: bool,
}

impl DirectFile {
    /// `file` is empty and in direct mode.
    pub(super) fn new(file: File, path: &Path, overlong: bool) -> Self {
        let output = Output::new(file, path, overlong);
        Self {
            output,
            buffer: Region::zeroed(WRITE_BYTES),
            filled: 0,
            flushed: 0,
            tail_written: true,
        }
    }

    /// Writes the first `len` bytes of the buffer, a multiple of [`ALIGN`].
    fn write(&mut self, len: usize) -> io::Result<()> {
        let data = &self.buffer[..len];
        count_write(len);
        let mut written = write_all_at(self.output.file(), self.flushed, data);
        let refused = Some(Errno::INVAL.raw_os_error());
        if written.as_ref().is_err_and(|error| error.raw_os_error() == refused)
            && set_direct(self.output.file(), false)
        {
            written = write_all_at(self.output.file(), self.flushed, data);
        }
        self.output.poisoned |= written.is_err();
        written
    }

    fn try_append(&mut self, mut data: &[u8]) -> io::Result<()> {
        self.output.check()?;
        self.tail_written &= data.is_empty();
        while !data.is_empty() {
            let (now, rest) = data.split_at(data.len().min(WRITE_BYTES - self.filled));
            self.buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            data = rest;
            if self.filled == WRITE_BYTES {
                self.write(WRITE_BYTES)?;
                self.flushed += WRITE_BYTES as u64;
                self.filled = 0;
            }
        }
        Ok(())
    }

    /// Writes what the buffer holds, padded to a block, and cuts the padding off. The tail stays
    /// in the buffer: its block is written again when more comes.
    fn write_tail(&mut self) -> io::Result<()> {
        self.output.check()?;
        if !self.tail_written {
            let padded = self.filled.next_multiple_of(ALIGN as usize);
            self.buffer[self.filled..padded].fill(0);
            self.write(padded)?;
            self.output.overlong |= padded > self.filled;
            self.tail_written = true;
        }
        self.output.cut(self.flushed + self.filled as u64)
    }

    /// After a failed write this fails too: what was appended before is not all in the file.
    fn try_cut(&mut self, len: u64) -> io::Result<()> {
        self.output.check()?;
        if len > self.flushed + self.filled as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.output.overlong = true;
        match len.checked_sub(self.flushed) {
            // The tail is in the buffer, and may not be in the file.
            Some(filled) => {
                self.filled = filled as usize;
                self.tail_written = false;
                self.write_tail()
            }
            None => {
                self.output.cut(len)?;
                // No multiple of ALIGN, but nothing is appended after a cut.
                (self.flushed, self.filled, self.tail_written) = (len, 0, true);
                Ok(())
            }
        }
    }
}

impl AppendFile for DirectFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        match self.try_append(data) {
            Ok(()) => Ok(()),
            Err(source) => Err(Error::io("append", self.output.path(), source)),
        }
    }

    fn sync(&mut self) -> Result<()> {
        let synced = self.write_tail().and_then(|()| self.output.sync());
        synced.map_err(|source| Error::io("sync", self.output.path(), source))
    }

    fn len(&self) -> u64 {
        self.flushed + self.filled as u64
    }

    fn path(&self) -> &Path {
        self.output.path()
    }

    fn finish(&mut self) -> Result<()> {
        self.write_tail().map_err(|source| Error::io("finish", self.output.path(), source))
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        self.try_cut(len).map_err(|source| Error::io("cut", self.output.path(), source))
    }
}
