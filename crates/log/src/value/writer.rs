//! Writing a value segment: the header of a log segment, then one record of type 3 per value.
//! Garbage collection writes them, in key order.

use super::{checksum, place_mask, put_head};
use crate::format::{self, Header, RECORD_HEADER_BYTES, RecordType};
use crc32c::crc32c_append;
use std::path::Path;
use terrace_base::key::MAX_KEY_BYTES;
use terrace_base::value_handle::{MAX_SEGMENT_BYTES, MAX_STORED_VALUE_BYTES, VALUE_CHECKSUM_BYTES};
use terrace_base::{Error, Result, SegmentNumber, ValueHandle};
use terrace_compression::Compression;
use terrace_vfs::{AppendFile, CreateOptions, Vfs};

/// Values are handed to the kernel in pieces of about this many bytes; a longer value is handed
/// over where it stands.
pub const VALUE_WRITE_BYTES: usize = 1 << 20;

/// Appends values to a new segment. If a call fails for any reason but an invalid argument, the
/// file is useless and the caller removes it.
pub struct ValueWriter {
    file: Box<dyn AppendFile>,
    segment: SegmentNumber,
    segment_seed: u32,
    buffer: Vec<u8>,
    /// File bytes that the kernel has.
    handed_bytes: u64,
}

impl ValueWriter {
    /// Creates segment `segment` (not 0) at `path`, which must not exist. Nothing is durable before
    /// [`ValueWriter::finish`]; the directory is the caller's to sync.
    pub fn create(
        vfs: &dyn Vfs,
        path: &Path,
        segment: SegmentNumber,
        preallocate_bytes: u64,
    ) -> Result<Self> {
        if segment == SegmentNumber::ZERO {
            return Err(Error::InvalidArgument("segment numbers start at 1".into()));
        }
        let options = CreateOptions { preallocate_bytes, ..Default::default() };
        let file = vfs.create(path, &options)?;
        let header = format::encode_header(&Header { segment, previous: None });
        let mut buffer = Vec::with_capacity(VALUE_WRITE_BYTES + VALUE_WRITE_BYTES / 8);
        buffer.extend_from_slice(&header);
        let segment_seed = format::segment_seed(segment);
        Ok(Self { file, segment, segment_seed, buffer, handed_bytes: 0 })
    }

    /// Appends a value as it is `stored`, compressed by `compression` (the number of a
    /// [`Compression`]), and says where it lies. It can be read once the file is finished.
    ///
    /// # Errors
    /// An invalid argument, which leaves the writer as it was: a key over 64 KiB, a value over
    /// [`MAX_STORED_VALUE_BYTES`], an unknown compression, or a segment that would pass
    /// [`MAX_SEGMENT_BYTES`]. I/O.
    pub fn add(&mut self, key: &[u8], stored: &[u8], compression: u8) -> Result<ValueHandle> {
        check(key, stored, compression)?;
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        put_head(&mut self.buffer, key, stored.len() as u32, compression);
        let (record_at, offset) = (self.handed_bytes + start as u64, self.len_bytes());
        let handle =
            ValueHandle { segment: self.segment, offset, len: stored.len() as u32, compression };
        if handle.end() > MAX_SEGMENT_BYTES {
            self.buffer.truncate(start);
            return Err(Error::InvalidArgument("a value segment would pass 1 TiB".into()));
        }
        let sum = checksum(key, stored) ^ place_mask(self.segment, offset);
        self.complete_header(start, record_at, stored, sum);
        if stored.len() < VALUE_WRITE_BYTES {
            self.buffer.extend_from_slice(stored);
        } else {
            self.flush()?;
            self.file.append(stored)?;
            self.handed_bytes += stored.len() as u64;
        }
        self.buffer.extend_from_slice(&sum.to_le_bytes());
        if self.buffer.len() >= VALUE_WRITE_BYTES {
            self.flush()?;
        }
        Ok(handle)
    }

    /// Fills in the record header at `start` of the buffer, behind which stands what precedes
    /// `stored` in the payload.
    fn complete_header(&mut self, start: usize, record_at: u64, stored: &[u8], sum: u32) {
        let Some((head, before)) = self
            .buffer
            .get_mut(start..)
            .and_then(|record| record.split_first_chunk_mut::<RECORD_HEADER_BYTES>())
        else {
            return;
        };
        let payload_bytes = before.len() + stored.len() + VALUE_CHECKSUM_BYTES;
        head[4..8].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
        head[8] = RecordType::Value as u8;
        let record = format::checksum_start(self.segment_seed, record_at, head);
        let record = crc32c_append(crc32c_append(record, before), stored);
        let record = crc32c_append(record, &sum.to_le_bytes());
        head[..4].copy_from_slice(&record.to_le_bytes());
    }

    /// Bytes of the segment so far, buffered ones and the header included.
    pub fn len_bytes(&self) -> u64 {
        self.handed_bytes + self.buffer.len() as u64
    }

    /// The segment number.
    pub fn segment(&self) -> SegmentNumber {
        self.segment
    }

    /// Writes what is left, gives preallocated room back and syncs the file; its length.
    pub fn finish(mut self) -> Result<u64> {
        self.flush()?;
        self.file.finish()?;
        self.file.sync()?;
        Ok(self.handed_bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.append(&self.buffer)?;
        self.handed_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn check(key: &[u8], stored: &[u8], compression: u8) -> Result<()> {
    let refuse = |message: &str| Err(Error::InvalidArgument(message.into()));
    if key.len() > MAX_KEY_BYTES {
        return refuse("a key is longer than 64 KiB");
    }
    if stored.len() > MAX_STORED_VALUE_BYTES {
        return refuse("a stored value is 1 GiB or longer");
    }
    if Compression::from_byte(compression).is_none() {
        return refuse("a value is compressed in a way that has no number");
    }
    Ok(())
}
