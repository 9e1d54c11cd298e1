//! The file system as a trait, and the two file systems there are: the machine's
//! (`PosixVfs`) and a simulated one that loses, tears and fails on demand (`SimVfs`).
//!
//! Floor 1: uses `terrace-base` and `terrace-buf`. Every file the engine touches goes through [`Vfs`];
//! nothing here knows a format.

mod before_calls;
mod counters;
mod interposed;
mod partial;
mod posix;
mod sim;

pub use before_calls::BeforeCalls;
pub use counters::{IoCounters, io_counters};
pub use interposed::{Call, Interposed};
pub use partial::{PARTIAL_LOCK_NAME, PARTIAL_PROBE_NAME, PartialDir, is_refusal, partial_path};
pub use posix::{PosixVfs, open_file_limit, open_file_soft_limit, take_lock_descriptors};
pub use sim::{Fault, FaultKind, OpClass, SimVfs};
pub use terrace_base::{Error, Result};

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first bytes of every file that is kept encrypted (crate `terrace-encryption`). No file of a store begins so
/// when it is read with its keys.
pub const ENCRYPTED_MAGIC: [u8; 8] = *b"\x93TERCRY\x1a";

/// A file system.
///
/// Paths are used as they are given; who keeps one takes its [absolute form](Vfs::absolute). Durability is explicit: file contents by
/// [`AppendFile::sync`] and [`Vfs::sync_file`], directory entries by [`Vfs::sync_dir`]; nothing else promises any.
pub trait Vfs: Send + Sync + 'static {
    /// `path` from the root of the file system on, for what stays open: a relative one is another place as soon as the program
    /// changes its working directory, where files of the same names may be those of another store. No link is resolved, and
    /// nothing need be there. Where there is no working directory, as this default says, every path stays as it is.
    fn absolute(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }
    /// Opens an existing file for reading. What is no regular file is an error, at once.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn RandomFile>>;
    /// Creates a file for appending; it must not exist. The directory is not synced.
    fn create(&self, path: &Path, options: &CreateOptions) -> Result<Box<dyn AppendFile>>;
    /// Renames a file, atomically replacing `to` if it exists. The directory is not synced.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file. The directory is not synced; open readers go on reading.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Gives the file `from` the second name `to`, which must not exist. Fails where the file
    /// system has no hard links; the caller then copies.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes `to`, which must not exist, a durable copy of the file `from`. The directory is not synced. A file system that
    /// stores files in another form copies them as they are stored, also those that it cannot read.
    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let source = self.open(from, OpenMode::default())?;
        let mut copy = self.create(to, &CreateOptions::default())?;
        copy_rest(&*source, 0, &mut *copy)
    }
    /// As [`Vfs::open`], for a caller that saves what is left of a file: also one that is known to be cut is opened, and what
    /// is missing at its end is damage ([`RandomFile::read_around_loss`]). A file system that does not know of cuts, as this
    /// default says, opens what there is.
    fn open_around_loss(&self, path: &Path) -> Result<Arc<dyn RandomFile>> {
        self.open(path, OpenMode::default())
    }
    /// As [`Vfs::copy`], with zeros for the sectors that the device does not give ([`is_unreadable`]).
    fn copy_around_loss(&self, from: &Path, to: &Path) -> Result<()> {
        let source = self.open(from, OpenMode::default())?;
        let mut copy = self.create(to, &CreateOptions::default())?;
        copy_pieces(&*source, 0, &mut *copy, |offset, piece| {
            source.read_around_loss(offset, piece, &mut Vec::new(), LOST_SECTOR_BYTES)
        })
    }
    /// Creates a directory and its missing parents, each entry synced. An existing one is fine.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Makes the entries of a directory (creates, renames, removals, links) durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Makes the content of an existing file durable, whatever process wrote it and whether or not it is
    /// still open for appending. Not for a file that a sync has failed for: what was lost then is
    /// not noticed here.
    fn sync_file(&self, path: &Path) -> Result<()>;
    /// The names of the files in a directory, unsorted; names that are not UTF-8 are left out.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// The names of what else is in a directory: directories, and files whose names are not UTF-8, as far as they can be
    /// written so.
    fn list_others(&self, dir: &Path) -> Result<Vec<String>>;
    /// Whether `path` is a directory of this process's user, and no symbolic link to one. Where there are neither users
    /// nor links, as this default says, every directory is.
    fn is_own_dir(&self, path: &Path) -> Result<bool> {
        let _ = path;
        Ok(true)
    }
    /// Whether `path` is a symbolic link. Where there are none, as this default says, nothing is.
    fn is_link(&self, path: &Path) -> Result<bool> {
        let _ = path;
        Ok(false)
    }
    /// Gives `to` the permissions of `from`. Nothing where there are none, as in this default.
    fn copy_permissions(&self, from: &Path, to: &Path) -> Result<()> {
        let _ = (from, to);
        Ok(())
    }
    /// The length of a file in bytes.
    fn len(&self, path: &Path) -> Result<u64>;
    /// Whether anything has this name: a file, a directory, or a symbolic link, also one to nothing.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Takes the exclusive advisory lock on `path`, creating the file if it is missing, until the
    /// returned value is dropped. If anybody holds it, this process included: an I/O error of
    /// kind `WouldBlock`.
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>>;
    /// Takes a shared advisory lock on the existing file `path`, until the returned value is dropped:
    /// any number may hold one, in any process, but not beside the exclusive one of [`Vfs::lock`].
    /// Needs the right to read the file, no more. If somebody holds the exclusive lock: an I/O
    /// error of kind `WouldBlock`. A file system without shared locks gives one of kind
    /// `Unsupported`, as this default does.
    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        Err(Error::io("lock", path, std::io::ErrorKind::Unsupported.into()))
    }
    /// Whether what it stores is encrypted: a copy of a file's content to a file system for which this is false is not.
    fn is_encrypted(&self) -> bool {
        false
    }
    /// Whether a file that is written now would need the same key as the one at `path`. Where nothing is encrypted it would.
    fn is_under_active_key(&self, _path: &Path) -> Result<bool> {
        Ok(true)
    }
    /// Whether the file at `path` is stored as none of its name is, so that it must have had another name. It is not to
    /// be read, though it may be whole. Where a name decides nothing about that, no file is.
    fn is_misnamed(&self, _path: &Path) -> Result<bool> {
        Ok(false)
    }
    /// Bytes that this process may still write to the file system that holds `dir`.
    fn free_space_bytes(&self, dir: &Path) -> Result<u64>;
    /// Executes many reads, together where the system can; fills the `result` of each.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        read_one_by_one(requests);
    }
}

fn read_one_by_one(requests: &mut [ReadRequest<'_>]) {
    for request in requests {
        request.result = Some(request.file.read_at(request.offset, request.buf));
    }
}

/// Refuses a file that is encrypted and is read without its keys: its bytes must not be taken for damage.
///
/// # Errors
/// `Unsupported` if it is; I/O.
pub fn check_not_encrypted(file: &dyn RandomFile) -> Result<()> {
    let mut start = [0; ENCRYPTED_MAGIC.len()];
    if file.len() >= start.len() as u64 {
        // What is damaged has been read with keys, or is nobody's; what cannot be read is noticed where it is needed.
        file.read_around_loss(0, &mut start, &mut Vec::new(), LOST_PAGE_BYTES)?;
    }
    match start == ENCRYPTED_MAGIC {
        false => Ok(()),
        true => {
            let detail = "it is encrypted: open the store with its keys".into();
            Err(Error::Unsupported { path: file.path().to_path_buf(), detail })
        }
    }
}

/// What the kernel says of a bad sector.
pub const EIO: i32 = 5;

/// Whether the device does not give what was asked for ([`EIO`]): another attempt will most likely meet the same.
pub fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(EIO))
}

/// What the kernel says of links that lead in a circle.
const ELOOP: i32 = 40;

/// Whether what was to be opened is no regular file: a directory, say, a named pipe, or a link to itself.
pub fn is_no_file(error: &Error) -> bool {
    use std::io::ErrorKind::{InvalidInput, IsADirectory};
    matches!(error, Error::Io { op: "open", source, .. }
        if matches!(source.kind(), IsADirectory | InvalidInput) || source.raw_os_error() == Some(ELOOP))
}

/// What is read again by itself where a longer read fails: what the kernel reads at least.
pub const LOST_PAGE_BYTES: usize = 4096;

/// The least that a device loses.
pub const LOST_SECTOR_BYTES: usize = 512;

/// Adds to the ranges that a read around damage has found one that is behind them.
pub fn add_damage(damaged: &mut Vec<Range<u64>>, range: Range<u64>) {
    match damaged.last_mut() {
        Some(before) if before.end == range.start => before.end = range.end,
        _ => damaged.push(range),
    }
}

/// Whether a file has nothing but zeros, and no damage.
pub fn has_only_zeros(file: &dyn RandomFile) -> Result<bool> {
    /// Read at once.
    const PIECE_BYTES: u64 = 64 << 10;
    let mut buffer = vec![0; PIECE_BYTES.min(file.len()) as usize];
    let (mut offset, mut damaged) = (0, Vec::new());
    while offset < file.len() {
        let len = (buffer.len() as u64).min(file.len() - offset) as usize;
        file.read_around_damage(offset, &mut buffer[..len], &mut damaged)?;
        if !damaged.is_empty() || buffer[..len].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        offset += len as u64;
    }
    Ok(true)
}

/// Appends what `source` has from `offset` on to `copy`, piece by piece, and makes `copy` durable.
pub fn copy_rest(source: &dyn RandomFile, offset: u64, copy: &mut dyn AppendFile) -> Result<()> {
    copy_pieces(source, offset, copy, |offset, piece| source.read_at(offset, piece))
}

/// As [`copy_rest`], with what `read` gives of each piece of `source`.
fn copy_pieces(
    source: &dyn RandomFile,
    mut offset: u64,
    copy: &mut dyn AppendFile,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    /// Read at once.
    const PIECE_BYTES: u64 = 1 << 20;
    let mut buffer = vec![0; PIECE_BYTES.min(source.len().saturating_sub(offset)) as usize];
    while offset < source.len() {
        let len = (buffer.len() as u64).min(source.len() - offset) as usize;
        read(offset, &mut buffer[..len])?;
        copy.append(&buffer[..len])?;
        offset += len as u64;
    }
    copy.finish()?;
    copy.sync()
}

/// How a file is opened for reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenMode {
    /// Bypass the page cache where the file system allows it.
    pub direct: bool,
    /// Tell the kernel that reads will be scattered, so that it does not read ahead.
    pub random: bool,
}

/// How a file is created.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    /// Bypass the page cache where the file system allows it.
    pub direct: bool,
    /// Reserve this much room on the device; best effort, 0 for none.
    pub preallocate_bytes: u64,
    /// Write zeros ahead of short appends, where that makes them cheaper: less than [`MOST_ZEROS_AHEAD_BYTES`], and none before the
    /// file has as much content. Best effort. As reserved room they stand behind what was appended until
    /// [`AppendFile::finish`].
    pub zeros_ahead: bool,
    /// The file is read while it grows, and after a crash up to where it came. Without this it is read once
    /// [`AppendFile::finish`] has been called.
    pub grows: bool,
}

/// See [`CreateOptions::zeros_ahead`].
pub const MOST_ZEROS_AHEAD_BYTES: u64 = 32 << 10;

/// One read of a batch.
pub struct ReadRequest<'a> {
    /// The file to read, opened through the same file system.
    pub file: &'a dyn RandomFile,
    /// Where the read starts.
    pub offset: u64,
    /// Filled whole, or the result is an error and the content arbitrary.
    pub buf: &'a mut [u8],
    /// Set by [`Vfs::read_batch`].
    pub result: Option<Result<()>>,
}

impl<'a> ReadRequest<'a> {
    /// A read that has not been executed.
    pub fn new(file: &'a dyn RandomFile, offset: u64, buf: &'a mut [u8]) -> Self {
        Self { file, offset, buf, result: None }
    }
}

/// A file open for reads at any place.
#[expect(clippy::len_without_is_empty, reason = "files are not collections; no caller asks")]
pub trait RandomFile: Send + Sync {
    /// Fills `buf` from `offset` on, or fails: past the end with `UnexpectedEof`. Any offset,
    /// length and buffer alignment will do, for direct files too.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// As [`RandomFile::read_at`], for a format that can go on behind damage. Where a file system knows that what is
    /// stored is not what was written, `buf` has arbitrary bytes, and the ranges, in file offsets and ascending, are
    /// added to `damaged`; [`RandomFile::read_at`] fails with `Corruption` there. A file system that knows no damage, as
    /// this default says, reads what there is.
    fn read_around_damage(
        &self,
        offset: u64,
        buf: &mut [u8],
        damaged: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        let _ = damaged;
        self.read_at(offset, buf)
    }
    /// As [`RandomFile::read_around_damage`], for a caller that saves what is left of a file: where the device does not give a
    /// page ([`is_unreadable`]), `buf` has zeros and the page is added to `damaged`. Not for a file of which a crash may have
    /// cut the end: what cannot be read may well have been written. A page has `page_bytes`, [`LOST_PAGE_BYTES`] or, where
    /// nothing may be lost that a shorter read gives, [`LOST_SECTOR_BYTES`], which takes longer. A file system that knows
    /// better what is lost with a page says just that.
    ///
    /// # Errors
    /// Others than [`is_unreadable`].
    fn read_around_loss(
        &self,
        offset: u64,
        buf: &mut [u8],
        damaged: &mut Vec<Range<u64>>,
        page_bytes: usize,
    ) -> Result<()> {
        let known = damaged.len();
        match self.read_around_damage(offset, buf, damaged) {
            Err(error) if is_unreadable(&error) => damaged.truncate(known),
            read => return read,
        }
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            // To the end of the page.
            let len = page_bytes - (offset % page_bytes as u64) as usize;
            let (piece, after) = rest.split_at_mut(len.min(rest.len()));
            let (end, known) = (offset + piece.len() as u64, damaged.len());
            match self.read_around_damage(offset, piece, damaged) {
                Err(error) if is_unreadable(&error) => {
                    piece.fill(0);
                    damaged.truncate(known);
                    add_damage(damaged, offset..end);
                }
                read => read?,
            }
            (offset, rest) = (end, after);
        }
        Ok(())
    }
    /// The length of the file when it was opened.
    fn len(&self) -> u64;
    /// The length of the file at this moment: more than [`RandomFile::len`] if it has grown.
    fn current_len(&self) -> Result<u64>;
    /// The name under which it was opened.
    fn path(&self) -> &Path;
    /// The file descriptor and whether it bypasses the page cache; `None` if there is none.
    fn direct_fd(&self) -> Option<(i32, bool)> {
        None
    }
    /// Says that a range will be read soon. Best effort.
    fn advise_willneed(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// The file itself, for a file system that handles its own files in [`Vfs::read_batch`].
    fn as_any(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        None
    }
}

/// How many appends can be taken back by [`AppendFile::cut`].
pub const CUTTABLE_APPENDS: usize = 16;

/// A file that grows at its end.
#[expect(clippy::len_without_is_empty, reason = "files are not collections; no caller asks")]
pub trait AppendFile: Send {
    /// Appends `data`. It has reached the kernel when this returns, so that it survives the
    /// process (for direct files: all but the last unaligned bytes).
    fn append(&mut self, data: &[u8]) -> Result<()>;
    /// Makes everything appended durable, length included. After a failure every later call on
    /// this file fails too: what the device holds is unknown, and asking again may lie.
    fn sync(&mut self) -> Result<()>;
    /// What makes the file durable while this appends; `None` where only this can.
    fn sync_handle(&self) -> Option<Arc<dyn SyncHandle>> {
        None
    }
    /// Bytes appended so far.
    fn len(&self) -> u64;
    /// The name under which it was created.
    fn path(&self) -> &Path;
    /// Gives back preallocated room and writes the unaligned tail of a direct file. Does not
    /// sync. A second call does nothing.
    fn finish(&mut self) -> Result<()>;
    /// Ends the file at `len`, which [`AppendFile::len`] said before one of the last [`CUTTABLE_APPENDS`] appends or
    /// says now: what a failed append has left behind it is gone, and so is preallocated room. Nothing may be appended
    /// afterwards. Who has the file open may have read what is cut off. Does not sync: until a sync a power cut may
    /// bring it back.
    ///
    /// # Errors
    /// I/O; of kind `Unsupported` where files of this form cannot be cut, `InvalidInput` for another length. What the
    /// file has behind `len` is then unknown.
    fn cut(&mut self, len: u64) -> Result<()>;
}

/// Makes a file durable beside the [`AppendFile`] that it is of, for others than who appends.
pub trait SyncHandle: Send + Sync {
    /// Makes durable what had been appended by the time of the call, as [`AppendFile::sync`] does. One is carried out at a
    /// time: the system tells one caller that it failed. After a failure of this or of that, every later call of either fails.
    ///
    /// # Errors
    /// I/O.
    fn sync(&self) -> Result<()>;
}
