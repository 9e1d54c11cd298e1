//! Bytes into chunks.

use crate::chunk::{self, ChunkHeader, MAX_CHUNK_BYTES};
use crate::error::Result;
use std::io::Write;
use terrace_compression::{Compression, Compressor};

/// Writes a stream as the header and the chunks of a dump.
pub struct ChunkWriter<W> {
    out: W,
    /// What is not written yet.
    pending: Vec<u8>,
    compressor: Compressor,
    number: u64,
}

impl<W: Write> ChunkWriter<W> {
    /// Writes the header of a dump without merge operators and options.
    pub fn start(out: W) -> Result<Self> {
        Self::start_as(out, chunk::MAJOR)
    }

    /// Writes the header of a major version, of which there are 1 to 3.
    pub fn start_as(mut out: W, major: u16) -> Result<Self> {
        out.write_all(&chunk::header(major))?;
        let pending = Vec::with_capacity(MAX_CHUNK_BYTES);
        Ok(Self { out, pending, compressor: Compressor::default(), number: 0 })
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.pending.len() == MAX_CHUNK_BYTES {
                self.write(false)?;
            }
            let room = MAX_CHUNK_BYTES - self.pending.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.pending.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Writes the last chunk, and gives the writer back, which has everything.
    pub fn finish(mut self) -> Result<W> {
        self.write(true)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write(&mut self, is_last: bool) -> Result<()> {
        let packed = self.compressor.compress(&self.pending, Compression::Zstd);
        let (compression, content) = match packed {
            Some(content) => (Compression::Zstd, content),
            None => (Compression::None, self.pending.as_slice()),
        };
        let header = ChunkHeader::encode(self.number, is_last, compression as u8, content);
        self.out.write_all(&header)?;
        self.out.write_all(content)?;
        self.number += 1;
        self.pending.clear();
        Ok(())
    }
}
