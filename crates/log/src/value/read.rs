//! Reading values by their handles: one device read per value, or fewer where neighbours are
//! wanted together.

use super::StoredValue;
use std::io;
use terrace_base::key::MAX_VALUE_BYTES;
use terrace_base::value_handle::VALUE_CHECKSUM_BYTES;
use terrace_base::{Error, Result, ValueHandle};
use terrace_buf::{Buf, BufMut, Slice};
use terrace_compression::{self as codec, Compression};
use terrace_vfs::{RandomFile, ReadRequest, Vfs};

/// Values at most this many bytes apart are read together.
pub const JOINED_GAP_BYTES: u64 = 4 << 10;

/// The most bytes of one read of several values. They share its memory, so this is also what one
/// of them can keep from being freed.
pub const JOINED_READ_BYTES: u64 = 256 << 10;

/// Up to this many bytes of memory are taken for a value although the file ended before it when it
/// was opened.
const UNPROBED_BYTES: usize = 1 << 20;

/// One value to read.
#[derive(Clone, Copy)]
pub struct ValueRead<'a> {
    /// The segment, opened through the same file system as the others of a batch.
    pub file: &'a dyn RandomFile,
    /// The user key of the entry.
    pub key: &'a [u8],
    /// The handle of the entry.
    pub handle: ValueHandle,
}

/// Reads a value with one device read, checks it against key and place, and decompresses it.
/// An uncompressed one is the memory it was read into.
///
/// The file may have grown since it was opened, as the newest commit-log segment does. Memory is
/// taken only for bytes that exist: to be sure of that, a value of over 1 MiB behind the length at
/// opening costs a second read, of one byte.
///
/// # Errors
/// `Corruption` with file, offset, the checksum expected and the one found; or if the file ends
/// before the value does. I/O.
pub fn read_value(read: &ValueRead<'_>) -> Result<Slice> {
    read.open(read.raw()?, 0)
}

/// The length of a value, whose stored bytes are read and checked as by [`read_value`]. It is not decompressed: what it
/// takes depends on the stored bytes alone.
///
/// # Errors
/// As [`read_value`].
pub fn read_value_len(read: &ValueRead<'_>) -> Result<usize> {
    let raw = read.raw()?;
    let stored = read.stored(&raw, 0)?;
    match read.compression()? {
        Compression::None => Ok(stored.len()),
        compression => read.payload_len(stored, compression),
    }
}

/// Reads many values in one [`Vfs::read_batch`], the results in the order of `reads`. Neighbours
/// ([`JOINED_GAP_BYTES`]) are read together, up to [`JOINED_READ_BYTES`], and then share memory.
///
/// All values are in memory at once: the caller bounds their sum.
///
/// # Errors
/// As [`read_value`], for each value by itself.
pub fn read_values(vfs: &dyn Vfs, reads: &[ValueRead<'_>]) -> Vec<Result<Slice>> {
    read_values_within(vfs, reads, usize::MAX)
}

/// As [`read_values`], but only the first ones: no more follow once the values have `max_bytes` together. At least one, if
/// one is asked for. In memory are the stored bytes of all that is asked for, `max_bytes`, and one value.
pub fn read_values_within(
    vfs: &dyn Vfs,
    reads: &[ValueRead<'_>],
    max_bytes: usize,
) -> Vec<Result<Slice>> {
    if let [read] = reads {
        return vec![read_value(read)];
    }
    let mut fetched: Vec<Fetched> = Vec::with_capacity(reads.len());
    fetched.extend(reads.iter().map(|read| match read.check_room() {
        Ok(()) => Fetched::Alone,
        Err(error) => Fetched::Failed(error),
    }));
    let groups = group(reads, |at| matches!(fetched[at], Fetched::Alone));
    let mut bufs: Vec<BufMut> = groups
        .iter()
        .map(|group| BufMut::for_overwrite((group.end - group.start) as usize))
        .collect();
    let mut requests: Vec<ReadRequest<'_>> = groups
        .iter()
        .zip(&mut bufs)
        .map(|(group, buf)| ReadRequest::new(reads[group.first].file, group.start, buf))
        .collect();
    vfs.read_batch(&mut requests);
    let outcomes: Vec<Option<Result<()>>> =
        requests.into_iter().map(|request| request.result).collect();
    for ((group, buf), outcome) in groups.iter().zip(bufs).zip(outcomes) {
        match outcome {
            Some(Ok(())) => {
                let buf = buf.freeze();
                for at in &group.members {
                    let start = reads[*at].handle.offset - group.start;
                    fetched[*at] = Fetched::Stored(buf.clone(), start as usize);
                }
            }
            Some(Err(error)) if group.members.len() == 1 => {
                fetched[group.first] = Fetched::Failed(reads[group.first].explain(error));
            }
            // One of them may be at fault: each answers for itself.
            _ => {}
        }
    }
    let mut bytes = 0;
    let mut values = Vec::with_capacity(reads.len());
    for (read, fetched) in reads.iter().zip(fetched) {
        if bytes >= max_bytes && !values.is_empty() {
            break;
        }
        let value = match fetched {
            Fetched::Stored(buf, start) => read.open(buf, start),
            Fetched::Failed(error) => Err(error),
            Fetched::Alone => read_value(read),
        };
        bytes += value.as_ref().map_or(0, |value| value.len());
        values.push(value);
    }
    values
}

/// What has become of a value of a batch.
enum Fetched {
    /// It lies at this place of what was read.
    Stored(Buf, usize),
    Failed(Error),
    /// It is to be read by itself.
    Alone,
}

/// Values that one read fetches.
struct Group {
    /// Index of the one that lies first.
    first: usize,
    members: Vec<usize>,
    start: u64,
    end: u64,
}

/// Sorts the reads that are `wanted` by place and joins neighbours.
fn group(reads: &[ValueRead<'_>], wanted: impl Fn(usize) -> bool) -> Vec<Group> {
    let mut order: Vec<usize> = (0..reads.len()).filter(|at| wanted(*at)).collect();
    order.sort_unstable_by_key(|at| (reads[*at].handle.segment, reads[*at].handle.offset));
    let mut groups: Vec<Group> = Vec::with_capacity(order.len());
    for at in order {
        let ValueRead { file, handle, .. } = reads[at];
        let (start, end) = (handle.offset, handle.end());
        if let Some(group) = groups.last_mut()
            && std::ptr::addr_eq(reads[group.first].file, file)
            && start <= group.end.saturating_add(JOINED_GAP_BYTES)
            && end.max(group.end) - group.start <= JOINED_READ_BYTES
        {
            group.members.push(at);
            group.end = group.end.max(end);
            continue;
        }
        groups.push(Group { first: at, members: vec![at], start, end });
    }
    groups
}

impl ValueRead<'_> {
    /// Stored bytes and checksum.
    fn raw_bytes(&self) -> usize {
        self.handle.len as usize + VALUE_CHECKSUM_BYTES
    }

    /// Reads stored bytes and checksum.
    fn raw(&self) -> Result<Buf> {
        self.check_room()?;
        let mut raw = BufMut::for_overwrite(self.raw_bytes());
        self.file.read_at(self.handle.offset, &mut raw).map_err(|error| self.explain(error))?;
        Ok(raw.freeze())
    }

    /// Refuses a value for which no memory may be taken.
    fn check_room(&self) -> Result<()> {
        let end = self.handle.end();
        if end <= self.file.len() || self.raw_bytes() <= UNPROBED_BYTES {
            return Ok(());
        }
        let mut last = [0];
        self.file.read_at(end - 1, &mut last).map_err(|error| self.explain(error))
    }

    #[cold]
    fn corrupt(&self, detail: String) -> Error {
        Error::corruption(self.file.path(), self.handle.offset, detail)
    }

    /// A file that is too short is damaged, or the handle is.
    #[cold]
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof => {
                let len = self.handle.len;
                self.corrupt(format!("the file ends before the value of {len} stored bytes does"))
            }
            error => error,
        }
    }

    /// Checks the value at `start` of `buf` and returns it.
    #[inline]
    fn open(&self, buf: Buf, start: usize) -> Result<Slice> {
        let stored = self.stored(&buf, start)?;
        match self.compression()? {
            Compression::None if stored.is_empty() => Ok(Slice::empty()),
            Compression::None => Ok(Slice::of(buf, start, self.handle.len as usize)),
            compression => self.decompress(stored, compression),
        }
    }

    /// Checks the value at `start` of `buf` and returns its stored bytes.
    #[inline]
    fn stored<'b>(&self, buf: &'b Buf, start: usize) -> Result<&'b [u8]> {
        let len = self.handle.len as usize;
        let (stored, sum) = buf
            .get(start..start + self.raw_bytes())
            .and_then(|raw| raw.split_last_chunk::<VALUE_CHECKSUM_BYTES>())
            .ok_or_else(|| self.corrupt("a value is cut off".into()))?;
        let expected = u32::from_le_bytes(*sum);
        let value = StoredValue { key: self.key, handle: self.handle, stored, checksum: expected };
        let found = value.computed_checksum();
        if found != expected {
            let key = shown(self.key);
            return Err(self.corrupt(format!(
                "the checksum of the value of key \"{key}\", {len} stored bytes, is {found:08x}, \
                 {expected:08x} is stored"
            )));
        }
        Ok(stored)
    }

    #[inline]
    fn compression(&self) -> Result<Compression> {
        let byte = self.handle.compression;
        Compression::from_byte(byte).ok_or_else(|| {
            self.corrupt(format!("the value is compressed in way {byte}, which does not exist"))
        })
    }

    fn payload_len(&self, stored: &[u8], compression: Compression) -> Result<usize> {
        let len = codec::payload_len(stored, compression, MAX_VALUE_BYTES);
        len.map_err(|fault| self.explain_fault(fault))
    }

    fn decompress(&self, stored: &[u8], compression: Compression) -> Result<Slice> {
        let len = self.payload_len(stored, compression)?;
        if len == 0 {
            return Ok(Slice::empty());
        }
        let mut payload = BufMut::for_overwrite(len);
        let unpacked = codec::decompress_into(stored, compression, &mut payload);
        unpacked.map_err(|fault| self.explain_fault(fault))?;
        Ok(payload.freeze().into())
    }

    #[cold]
    fn explain_fault(&self, fault: codec::Fault) -> Error {
        match fault {
            codec::Fault::NotBuiltIn(_) => Error::Unsupported {
                path: self.file.path().to_path_buf(),
                detail: fault.to_string(),
            },
            _ => self.corrupt(fault.to_string()),
        }
    }
}

/// The most bytes of a key in a message.
const SHOWN_BYTES: usize = 32;

fn shown(key: &[u8]) -> String {
    let more = if key.len() > SHOWN_BYTES { ".." } else { "" };
    format!("{}{more}", key[..key.len().min(SHOWN_BYTES)].escape_ascii())
}
