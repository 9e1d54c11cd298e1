//! Reading a file front to back through one bounded buffer.

use std::sync::Arc;
use terrace_base::Result;
use terrace_vfs::RandomFile;

/// Bytes read at a time.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// A buffer larger than this is given back when what follows is small again.
const KEEP_BYTES: usize = 4 << 20;

/// A part of a file in memory. Holds [`CHUNK_BYTES`], or the one larger range last asked for.
pub(crate) struct Window {
    file: Arc<dyn RandomFile>,
    file_bytes: u64,
    start: u64,
    filled: usize,
    buffer: Vec<u8>,
}

impl Window {
    pub(crate) fn new(file: Arc<dyn RandomFile>) -> Self {
        let file_bytes = file.len();
        Self { file, file_bytes, start: 0, filled: 0, buffer: Vec::new() }
    }

    /// The file's length when it was opened.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(crate) fn file(&self) -> &Arc<dyn RandomFile> {
        &self.file
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// `len` bytes at `offset`, fewer at the end of the file.
    #[inline]
    pub(crate) fn get(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let len = (self.file_bytes.saturating_sub(offset)).min(len as u64) as usize;
        let ahead = offset.wrapping_sub(self.start);
        if offset < self.start || ahead + len as u64 > self.filled as u64 {
            self.load(offset, len)?;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from..from + len])
    }

    /// What an earlier [`Window::get`] of the same range returned; empty if it is gone.
    pub(crate) fn loaded(&self, offset: u64, len: usize) -> &[u8] {
        let from = offset.saturating_sub(self.start) as usize;
        self.buffer.get(from..from.saturating_add(len)).unwrap_or_default()
    }

    #[cold]
    fn load(&mut self, offset: u64, len: usize) -> Result<()> {
        let rest = self.file_bytes.saturating_sub(offset);
        let want = rest.min(len.max(CHUNK_BYTES) as u64) as usize;
        self.filled = 0;
        if self.buffer.capacity() > KEEP_BYTES && want <= CHUNK_BYTES {
            self.buffer = Vec::new();
        }
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        self.file.read_at(offset, &mut self.buffer[..want])?;
        self.start = offset;
        self.filled = want;
        Ok(())
    }
}
