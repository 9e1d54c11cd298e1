//! Chunks into bytes. No byte is given out before the checksum of its chunk was compared, and no
//! length is believed before it was compared with the limit of a chunk.

use crate::chunk::{self, CHUNK_HEADER_BYTES, ChunkHeader, HEADER_BYTES, MAX_CHUNK_BYTES};
use crate::error::{Error, Result};
use std::io::{self, Read};
use terrace_compression::{Compression, decompress_into, payload_len};

/// Reads the stream that a [`ChunkWriter`](crate::ChunkWriter) was given.
pub(crate) struct ChunkReader<R> {
    input: R,
    content: Vec<u8>,
    bytes: Vec<u8>,
    /// How many of `bytes` were given out.
    taken: usize,
    number: u64,
    /// Where the chunk that `bytes` are of begins.
    offset: u64,
    next_offset: u64,
    saw_last: bool,
    /// The major version of the dump.
    pub major: u16,
}

impl<R: Read> ChunkReader<R> {
    /// Reads the header.
    pub fn start(mut input: R) -> Result<Self> {
        let mut header = [0; HEADER_BYTES];
        // Whatever ends before a header could is no dump, unless it begins as one.
        let read = read_up_to(&mut input, &mut header)?;
        if !chunk::MAGIC.starts_with(&header[..read.min(chunk::MAGIC.len())]) || read == 0 {
            return Err(Error::NoDump);
        }
        if read < HEADER_BYTES {
            return Err(Error::Cut);
        }
        let major = chunk::check_header(&header)?;
        let next_offset = HEADER_BYTES as u64;
        let (content, bytes) = (Vec::new(), Vec::new());
        let (offset, saw_last) = (next_offset, false);
        Ok(Self {
            input,
            content,
            bytes,
            taken: 0,
            number: 0,
            offset,
            next_offset,
            saw_last,
            major,
        })
    }

    /// An error about the bytes that were given out last.
    pub fn damaged(&self, what: impl Into<String>) -> Error {
        Error::Damaged { offset: self.offset, what: what.into() }
    }

    /// The next bytes, at least one and at most `most`.
    ///
    /// # Errors
    /// There are none; [`Error::Cut`] if there should be.
    pub fn take(&mut self, most: usize) -> Result<&[u8]> {
        while self.taken == self.bytes.len() {
            if self.saw_last {
                return Err(self.damaged("it ends in the middle of a record"));
            }
            self.read_chunk()?;
        }
        let end = self.bytes.len().min(self.taken.saturating_add(most));
        let taken = &self.bytes[self.taken..end];
        self.taken = end;
        Ok(taken)
    }

    /// Sees to it that the stream ends here, and the input too.
    pub fn check_end(&mut self) -> Result<()> {
        while !self.saw_last && self.taken == self.bytes.len() {
            self.read_chunk()?;
        }
        if self.taken < self.bytes.len() {
            return Err(self.damaged("there are bytes behind the last record"));
        }
        self.offset = self.next_offset;
        match read_up_to(&mut self.input, &mut [0])? {
            0 => Ok(()),
            _ => Err(self.damaged("there are bytes behind the last chunk")),
        }
    }

    fn read_chunk(&mut self) -> Result<()> {
        self.offset = self.next_offset;
        let mut header = [0; CHUNK_HEADER_BYTES];
        self.input.read_exact(&mut header)?;
        let header = ChunkHeader::decode(&header).map_err(|what| self.damaged(what))?;
        self.content.resize(header.length, 0);
        self.input.read_exact(&mut self.content)?;
        if !header.fits(self.number, &self.content) {
            return Err(self.damaged("a chunk fails its checksum"));
        }
        let Some(compression) = Compression::from_byte(header.compression) else {
            let what = format!("a chunk is compressed in way {}", header.compression);
            return Err(self.damaged(what));
        };
        let length = payload_len(&self.content, compression, MAX_CHUNK_BYTES);
        let length = length.map_err(|fault| self.damaged(fault.to_string()))?;
        self.bytes.resize(length, 0);
        decompress_into(&self.content, compression, &mut self.bytes)
            .map_err(|fault| self.damaged(fault.to_string()))?;
        self.taken = 0;
        self.number += 1;
        self.next_offset += (CHUNK_HEADER_BYTES + self.content.len()) as u64;
        self.saw_last = header.is_last;
        if self.bytes.is_empty() && !self.saw_last {
            return Err(self.damaged("a chunk is empty"));
        }
        Ok(())
    }
}

/// Fills `bytes` as far as the input goes.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match input.read(&mut bytes[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(read)
}
