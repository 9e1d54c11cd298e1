//! Reading a file front to back through one bounded buffer. Its writer may end it meanwhile, and cut off the room that it
//! had set aside.

use std::ops::Range;
use std::sync::Arc;
use terrace_base::{Error, Result};
use terrace_vfs::{LOST_SECTOR_BYTES, RandomFile, add_damage};

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
    /// What the device did not give, ascending and apart: it is not asked for that again.
    lost: Vec<Range<u64>>,
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
            lost: Vec::new(),
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

    /// Whether it is one of [`Window::around_loss`].
    pub(crate) fn salvages(&self) -> bool {
        self.salvages
    }

    /// The file's length when it was opened, or what it was cut to since.
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
        let mut len = (self.file_bytes.saturating_sub(offset)).min(len as u64) as usize;
        let ahead = offset.wrapping_sub(self.start);
        if offset < self.start || ahead + len as u64 > self.filled as u64 {
            self.load(offset, len)?;
            len = len.min(self.filled);
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

    /// Fills the buffer from `offset` on, with `len` bytes at least unless the file ends before.
    #[cold]
    fn load(&mut self, offset: u64, len: usize) -> Result<()> {
        loop {
            match self.load_known(offset, len) {
                // Every turn sees a shorter file.
                Err(error) if is_cut(&error) && self.is_shorter_now()? => {}
                loaded => return loaded,
            }
        }
    }

    /// Whether the file is shorter than it was known to be.
    fn is_shorter_now(&mut self) -> Result<bool> {
        let now = self.file.current_len()?;
        let is_shorter = now < self.file_bytes;
        self.file_bytes = self.file_bytes.min(now);
        Ok(is_shorter)
    }

    /// [`Window::load`], as far as the file is known to go.
    fn load_known(&mut self, offset: u64, len: usize) -> Result<()> {
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
        match self.salvages {
            _ if want == 0 => {}
            true => self.read_around_loss(offset, want)?,
            false => {
                let buffer = &mut self.buffer[..want];
                self.file.read_around_damage(offset, buffer, &mut self.damaged)?;
            }
        }
        self.start = offset;
        self.filled = want;
        Ok(())
    }

    /// Fills the first `want` bytes of the buffer from `offset` on, around what is lost. Most devices take their time before they
    /// say that they do not give a sector.
    fn read_around_loss(&mut self, offset: u64, want: usize) -> Result<()> {
        let end = offset + want as u64;
        let mut at = offset;
        while at < end {
            let next = self.lost.partition_point(|range| range.end <= at);
            let next = self.lost.get(next).cloned().unwrap_or(end..end);
            let is_lost = next.start <= at;
            let upto = if is_lost { next.end.min(end) } else { next.start.min(end) };
            let piece = &mut self.buffer[(at - offset) as usize..(upto - offset) as usize];
            if is_lost {
                piece.fill(0);
                add_damage(&mut self.damaged, at..upto);
            } else {
                let mut found = Vec::new();
                self.file.read_around_loss(at, piece, &mut found, LOST_SECTOR_BYTES)?;
                for range in found {
                    self.remember_lost(range.clone());
                    add_damage(&mut self.damaged, range);
                }
            }
            at = upto;
        }
        Ok(())
    }

    fn remember_lost(&mut self, range: Range<u64>) {
        let from = self.lost.partition_point(|known| known.end < range.start);
        let upto = self.lost.partition_point(|known| known.start <= range.end);
        let touched = self.lost.get(from..upto).unwrap_or_default();
        let start = touched.first().map_or(range.start, |known| known.start.min(range.start));
        let end = touched.last().map_or(range.end, |known| known.end.max(range.end));
        drop(self.lost.splice(from..upto, std::iter::once(start..end)));
    }
}

/// Whether a file was shorter than it had been when it was opened.
pub(crate) fn is_cut(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => source.kind() == std::io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use terrace_vfs::{BeforeCalls, Call, EIO, OpenMode, SimVfs, Vfs};

    #[test]
    fn the_device_is_asked_for_a_lost_sector_no_more_once_it_has_not_given_it() {
        let (sim, path) = (SimVfs::new(1), Path::new("/a"));
        let bytes: Vec<u8> = (0..3 * CHUNK_BYTES).map(|n| (n % 251) as u8 + 1).collect();
        assert!(sim.write_file(path, &bytes));
        let sector = LOST_SECTOR_BYTES as u64;
        let lost = [3 * sector..5 * sector, 9 * sector..10 * sector];
        let refused = Arc::new(AtomicU64::new(0));
        let (counts, bad) = (refused.clone(), lost.clone());
        let vfs = BeforeCalls::with_reads(sim, move |call, path| match call {
            Call::Read(offset, len)
                if bad.iter().any(|r| r.start < offset + len as u64 && offset < r.end) =>
            {
                counts.fetch_add(1, Ordering::Relaxed);
                Err(Error::io("read", path, std::io::Error::from_raw_os_error(EIO)))
            }
            _ => Ok(()),
        });
        let mut window = Window::around_loss(vfs.open(path, OpenMode::default()).unwrap());
        for (turn, offset) in
            [0, 100, 3 * sector + 7, 5 * sector, 9 * sector].into_iter().enumerate()
        {
            let len = (12 * sector - offset) as usize;
            let got = window.get(offset, len).unwrap().to_vec();
            for (at, byte) in (offset..).zip(got) {
                let is_lost = lost.iter().any(|range| range.contains(&at));
                assert_eq!(byte, if is_lost { 0 } else { bytes[at as usize] }, "{at} of {offset}");
                assert_eq!(window.is_sound(at, 1), !is_lost, "{at} of {offset}");
            }
            // All at once, and each of the three sectors.
            assert_eq!(refused.load(Ordering::Relaxed), 4, "turn {turn}");
            // So that the next one is read again.
            window.get(2 * CHUNK_BYTES as u64, 1).unwrap();
        }
    }
}
