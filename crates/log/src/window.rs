//! Reading a file front to back through one bounded buffer.

use std::ops::Range;
use std::sync::Arc;
use terrace_base::Result;
use terrace_vfs::{LOST_SECTOR_BYTES, RandomFile};

/// Bytes read at a time.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// A buffer larger than this is given back when what follows is small again.
const KEEP_BYTES: usize = 4 << 20;

/// Bytes that [`Window::aside`] reads at a time.
const ASIDE_BYTES: usize = 4 << 10;

/// A part of a file in memory. Holds [`CHUNK_BYTES`], or the one larger range last asked for.
pub(crate) struct Window {
    file: Arc<dyn RandomFile>,
    file_bytes: u64,
    chunk_bytes: usize,
    start: u64,
    filled: usize,
    buffer: Vec<u8>,
    /// What of the buffer the file system says is damaged, in file offsets.
    damaged: Vec<Range<u64>>,
    /// Whether what the device does not give is damage too, instead of an error.
    salvages: bool,
}

impl Window {
    pub(crate) fn new(file: Arc<dyn RandomFile>) -> Self {
        Self {
            file_bytes: file.len(),
            file,
            chunk_bytes: CHUNK_BYTES,
            start: 0,
            filled: 0,
            buffer: Vec::new(),
            damaged: Vec::new(),
            salvages: false,
        }
    }

    /// Another, small one of the same file, for looks at another place that leave this one where it is.
    pub(crate) fn aside(&self) -> Self {
        let salvages = self.salvages;
        Self { chunk_bytes: ASIDE_BYTES, salvages, ..Self::new(self.file.clone()) }
    }

    /// A window that takes sectors which the device does not give for damage ([`RandomFile::read_around_loss`]).
    pub(crate) fn around_loss(file: Arc<dyn RandomFile>) -> Self {
        Self { salvages: true, ..Self::new(file) }
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

    /// Whether what an earlier [`Window::get`] of this range returned is what was written, as far as the file system
    /// knows.
    #[inline]
    pub(crate) fn is_sound(&self, offset: u64, len: usize) -> bool {
        self.first_damage(offset, len).is_none()
    }

    /// The first offset of a range in the buffer that is damaged.
    #[inline]
    pub(crate) fn first_damage(&self, offset: u64, len: usize) -> Option<u64> {
        let end = offset.saturating_add(len as u64);
        let hit = self.damaged.iter().find(|range| range.start < end && offset < range.end);
        hit.map(|range| range.start.max(offset))
    }

    /// Where what is damaged of a range in the buffer ends, in the range or behind it.
    pub(crate) fn damaged_until(&self, offset: u64, len: usize) -> Option<u64> {
        let end = offset.saturating_add(len as u64);
        let hit = self.damaged.iter().rfind(|range| range.start < end && offset < range.end);
        hit.map(|range| range.end)
    }

    /// All that is in memory from `offset` on, at least one byte unless the file ends there.
    pub(crate) fn get_loaded(&mut self, offset: u64) -> Result<&[u8]> {
        self.get(offset, 1)?;
        let from = (offset - self.start) as usize;
        Ok(self.buffer.get(from..self.filled).unwrap_or_default())
    }

    /// The end of what is damaged of a range in the buffer.
    pub(crate) fn end_of_damage(&self, offset: u64, len: usize) -> Option<u64> {
        let end = offset.saturating_add(len as u64);
        self.damaged_until(offset, len).map(|until| until.min(end))
    }

    #[cold]
    fn load(&mut self, offset: u64, len: usize) -> Result<()> {
        let rest = self.file_bytes.saturating_sub(offset);
        let want = rest.min(len.max(self.chunk_bytes) as u64) as usize;
        self.filled = 0;
        if self.buffer.capacity() > KEEP_BYTES && want <= CHUNK_BYTES {
            self.buffer = Vec::new();
        }
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        self.damaged.clear();
        let (file, buffer, damaged) = (&*self.file, &mut self.buffer[..want], &mut self.damaged);
        match self.salvages {
            true => file.read_around_loss(offset, buffer, damaged, LOST_SECTOR_BYTES)?,
            false => file.read_around_damage(offset, buffer, damaged)?,
        }
        self.start = offset;
        self.filled = want;
        Ok(())
    }
}
