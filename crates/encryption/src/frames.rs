//! Files that are read while they grow: each append is sealed by itself.
//!
//! ```text
//! file    blocks of 4,096 bytes; the header (128) is the beginning of the first
//! block   frames, none of which goes past the end of its block, and zeros where no frame fits any more
//! frame   0  place        8   where its content begins in the content of the file
//!         8  length       2   of the content, at least 1
//!        10  ciphertext   length
//!            tag         16
//! ```
//! The nonce of a frame is its place (8 bytes) and four zeros. A file has a key of its own, grows at its end, and takes
//! nothing more once an append has failed or it was cut, so that no nonce comes twice. A byte of the content is read only
//! from a frame whose tag says that it stands there: what somebody has changed, moved, or brought from another file is
//! not read at all. What no frame has although later frames are there is *damaged*; behind the last frame the content
//! ends, whatever a crash has torn there. Whether something was cut off, the format above has to know by itself.
//!
//! Every block begins with a frame, and places ascend, so the block of a place is found by a search; what searches
//! have found is kept ([`Places`]).
//!
//! What the device does not give is no damage: what may be in such a block cannot be read, and the error says so. If that is
//! the end of the file, the content may go on as far as there is room for it, and nobody takes what is before for all of it.
//! Who saves what is left of the file gets everything that other blocks have ([`RandomFile::read_around_loss`]).

mod format;
mod progress;
mod writer;

pub(crate) use writer::FramesWriter;

use crate::header::HEADER_BYTES;
use crate::places::Places;
use format::{BLOCK_BYTES, BLOCK_CONTENT_BYTES, blocks_in, each_frame, most_content, start_of};
use progress::{Damage, Progress};
use ring::aead::LessSafeKey;
use std::io::{self, ErrorKind};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_base::{Error, Result};
use terrace_vfs::{EIO, RandomFile, is_unreadable};

/// Blocks that are read before they are opened.
const BLOCKS_AT_ONCE: u64 = 64;

/// Reads a file in frames that may be growing.
pub(crate) struct FramesFile {
    file: Arc<dyn RandomFile>,
    key: LessSafeKey,
    /// Bytes of content when it was opened: up to the end of the last frame that can be read, and as many as there can be.
    len: Range<u64>,
    /// Bytes of the file below that are known to be there.
    known_bytes: AtomicU64,
    places: Places,
}

/// Blocks of the file below.
pub(crate) struct Span {
    first_block: u64,
    /// Where they begin.
    pub offset: u64,
    /// Their bytes.
    pub len: usize,
}

impl FramesFile {
    /// The content of `file`.
    ///
    /// # Errors
    /// I/O, but for blocks that the device does not give.
    pub fn new(file: Arc<dyn RandomFile>, key: LessSafeKey) -> Result<Self> {
        let known_bytes = AtomicU64::new(file.len());
        let mut this = Self { file, key, len: 0..0, known_bytes, places: Places::default() };
        this.len = this.up_to_known(|known| this.content_end(known))?;
        Ok(this)
    }

    /// Carries out `work` with the length that the file below is known to have. A writer whose last append has failed
    /// cuts off what it left of it: the work is then done again.
    fn up_to_known<T>(&self, mut work: impl FnMut(u64) -> Result<T>) -> Result<T> {
        loop {
            let known = self.known_bytes.load(Relaxed);
            match work(known) {
                Err(Error::Io { source, .. })
                    if source.kind() == ErrorKind::UnexpectedEof
                        && self.file.current_len()? < known =>
                {
                    self.known_bytes.store(self.file.current_len()?, Relaxed);
                }
                done => return done,
            }
        }
    }

    /// Where the content ends of a file of `known` bytes: behind the last frame that can be read, and, if the device does
    /// not give blocks behind it, at most as far as they have room for.
    fn content_end(&self, known: u64) -> Result<Range<u64>> {
        let (mut sealed, mut scratch) = (Vec::new(), Vec::new());
        // Where the last block ends that the device does not give.
        let mut lost_until = None;
        let upto = |end: u64, behind: u64, lost_until: Option<u64>| {
            end..end + lost_until.map_or(0, |until| most_content(behind, until))
        };
        for block in (0..blocks_in(known)).rev() {
            if self.load_or_lose(block, known, &mut sealed)?.is_some() {
                lost_until.get_or_insert(start_of(block + 1).min(known));
                continue;
            }
            let mut last = None;
            let _ = each_frame::<()>(&self.key, block, &sealed, &mut scratch, &mut |frame| {
                last = Some((frame.end(), frame.file_end));
                ControlFlow::Continue(())
            });
            if let Some((end, behind)) = last {
                return Ok(upto(end, behind, lost_until));
            }
            self.note_if_bad(block, &sealed);
        }
        Ok(upto(0, HEADER_BYTES as u64, lost_until))
    }

    /// Remembers that a block has no frame. One that is not whole yet may get more.
    fn note_if_bad(&self, block: u64, sealed: &[u8]) {
        if sealed.len() == BLOCK_BYTES {
            self.places.note_bad(block);
        }
    }

    /// Reads `count` blocks from `block` on, as far as the file is known to go.
    fn load(&self, block: u64, count: u64, known: u64, sealed: &mut Vec<u8>) -> Result<()> {
        let start = start_of(block);
        let end = start_of(block + count).min(known);
        sealed.resize(end.saturating_sub(start) as usize, 0);
        self.file.read_at(start, sealed)
    }

    /// Reads one block; what the device said if it does not give it.
    fn load_or_lose(&self, block: u64, known: u64, sealed: &mut Vec<u8>) -> Result<Option<Error>> {
        match self.load(block, 1, known, sealed) {
            Err(error) if is_unreadable(&error) => {
                self.places.note_lost(block);
                Ok(Some(error))
            }
            loaded => loaded.map(|()| None),
        }
    }

    /// The place of the first frame of a block; `None` if it has none, or is lost.
    fn first_place(&self, block: u64, known: u64) -> Result<Option<u64>> {
        if self.places.are_unknown_of(block) {
            return Ok(None);
        }
        let (mut sealed, mut scratch) = (Vec::new(), Vec::new());
        if self.load_or_lose(block, known, &mut sealed)?.is_some() {
            return Ok(None);
        }
        let found = each_frame(&self.key, block, &sealed, &mut scratch, &mut |frame| {
            ControlFlow::Break(frame.place)
        });
        match found {
            ControlFlow::Break(place) => {
                self.places.note(place, block);
                Ok(Some(place))
            }
            ControlFlow::Continue(()) => {
                self.note_if_bad(block, &sealed);
                Ok(None)
            }
        }
    }

    /// The block that has the content's byte `at`, unless it is damaged or lost, or one before it; and the place of its
    /// first frame.
    fn find(&self, at: u64, known: u64) -> Result<(u64, u64)> {
        let blocks = blocks_in(known);
        let (mut low, high) = self.places.around(at);
        // Each is a place and its block.
        let mut high = high.unwrap_or((known.max(at + 1), blocks));
        let mut guesses = true;
        // To read the next block as well costs less than to find out where it begins.
        while high.1.saturating_sub(low.1) > 1 && at - low.0 >= BLOCK_CONTENT_BYTES {
            // Places are spread evenly as a rule; where they are not, halving bounds the search.
            let ahead = match guesses {
                true => {
                    let share = u128::from(at - low.0) * u128::from(high.1 - low.1);
                    (share / u128::from((high.0 - low.0).max(1))) as u64
                }
                false => (high.1 - low.1) / 2,
            };
            guesses = !guesses;
            let guess = low.1 + ahead.clamp(1, high.1 - low.1 - 1);
            let mut block = guess;
            let found = loop {
                if block >= high.1 {
                    break None;
                }
                if let Some(place) = self.first_place(block, known)? {
                    break Some(place);
                }
                block += 1;
            };
            match found {
                Some(place) if place <= at => low = (place, block),
                Some(place) => high = (place, guess),
                None => high.1 = guess,
            }
        }
        Ok((low.1, low.0))
    }

    /// The blocks that are likely to hold `len` bytes of content from `at` on: the first, and how many.
    fn blocks_of(&self, at: u64, len: u64, known: u64) -> Result<(u64, u64)> {
        let (found, place) = self.find(at, known)?;
        // Blocks before it cannot have so much content that it is in them.
        let block = found + (at - place) / BLOCK_CONTENT_BYTES;
        let within = (at - place) % BLOCK_CONTENT_BYTES;
        let count = within.saturating_add(len).div_ceil(BLOCK_CONTENT_BYTES);
        let blocks = blocks_in(known).saturating_sub(block);
        Ok((block, count.min(BLOCKS_AT_ONCE).min(blocks)))
    }

    /// Takes what is wanted of the blocks from `first` on, which `sealed` has.
    fn open_blocks(
        &self,
        first: u64,
        sealed: &[u8],
        progress: &mut Progress<'_, '_>,
    ) -> Result<()> {
        let mut scratch = Vec::new();
        let last = first + blocks_in(sealed.len() as u64).saturating_sub(1);
        for (block, sealed) in (first..).zip(sealed.chunks(BLOCK_BYTES)) {
            let mut is_first = true;
            let taken = each_frame(&self.key, block, sealed, &mut scratch, &mut |frame| {
                // The next read may begin where this one ends.
                if std::mem::take(&mut is_first) && block == last {
                    self.places.note(frame.place, block);
                }
                match progress.take(frame, self.file.path()) {
                    Ok(()) if progress.at < progress.end => ControlFlow::Continue(()),
                    taken => ControlFlow::Break(taken),
                }
            });
            if let ControlFlow::Break(taken) = taken {
                return taken;
            }
        }
        Ok(())
    }

    /// As [`Self::open_blocks`], of blocks some of which the device does not give.
    fn open_one_by_one(
        &self,
        blocks: Range<u64>,
        known: u64,
        sealed: &mut Vec<u8>,
        progress: &mut Progress<'_, '_>,
    ) -> Result<()> {
        for block in blocks {
            if progress.at == progress.end {
                break;
            }
            // An error of the device may pass, but who saves what is left does not wait for the same one again and again.
            let lost = match progress.passes_loss() && self.places.is_lost(block) {
                true => Some(self.unreadable()),
                false => self.load_or_lose(block, known, sealed)?,
            };
            match lost {
                Some(why) => progress.lose(why),
                None => self.open_blocks(block, sealed, progress)?,
            }
        }
        Ok(())
    }

    /// What the device says of a lost block.
    fn unreadable(&self) -> Error {
        Error::io("read", self.file.path(), io::Error::from_raw_os_error(EIO))
    }

    /// Reads on as far as the blocks go that are known to be there.
    fn read_known(&self, progress: &mut Progress<'_, '_>, known: u64) -> Result<()> {
        progress.begin();
        let blocks = blocks_in(known);
        let (mut block, mut count) = self.blocks_of(progress.at, progress.rest(), known)?;
        let mut sealed = Vec::new();
        while progress.at < progress.end && block < blocks {
            match self.load(block, count, known, &mut sealed) {
                Err(error) if is_unreadable(&error) => {
                    let blocks = block..(block + count).min(blocks);
                    self.open_one_by_one(blocks, known, &mut sealed, progress)?;
                }
                loaded => {
                    loaded?;
                    self.open_blocks(block, &sealed, progress)?;
                }
            }
            block += count;
            count = progress.rest().div_ceil(BLOCK_CONTENT_BYTES).min(BLOCKS_AT_ONCE);
        }
        Ok(())
    }

    /// The file below.
    pub fn below(&self) -> &dyn RandomFile {
        &*self.file
    }

    /// What has to be read of the file below for `len` bytes of the content from `offset` on, if they are where they are
    /// likely to be.
    ///
    /// # Errors
    /// I/O.
    pub fn span(&self, offset: u64, len: usize) -> Result<Span> {
        let known = self.known_bytes.load(Relaxed);
        let (first_block, count) = self.blocks_of(offset, len as u64, known)?;
        let start = start_of(first_block);
        let end = start_of(first_block + count).min(known);
        Ok(Span { first_block, offset: start, len: end.saturating_sub(start) as usize })
    }

    /// Gives what `buf` is to have from `offset` on, of what `sealed` has of `span`, and of more of the file if that is
    /// not enough.
    ///
    /// # Errors
    /// As [`RandomFile::read_at`].
    pub fn open(&self, span: &Span, sealed: &[u8], offset: u64, buf: &mut [u8]) -> Result<()> {
        let progress = Progress::new(offset, buf, Damage::Fails);
        let mut progress = progress.ok_or_else(|| self.past_the_end())?;
        self.open_blocks(span.first_block, sealed, &mut progress)?;
        self.read(progress)
    }

    fn past_the_end(&self) -> Error {
        Error::io("read", self.file.path(), ErrorKind::UnexpectedEof.into())
    }

    /// Reads what is not read yet.
    fn read(&self, mut progress: Progress<'_, '_>) -> Result<()> {
        while progress.at < progress.end {
            let known = self.up_to_known(|known| {
                self.read_known(&mut progress, known)?;
                Ok(known)
            })?;
            if progress.at == progress.end {
                break;
            }
            let current = self.file.current_len()?;
            if current > known {
                self.known_bytes.fetch_max(current, Relaxed);
            } else if progress.has_lost() || progress.end <= self.len.start {
                // What was there when the file was opened, or may be.
                progress.pass(progress.end, self.file.path())?;
            } else if progress.passes_loss() && progress.end <= self.len.end {
                // The device gives now what it did not give then, and the content ends before what it might have had.
                progress.lose(self.unreadable());
                progress.pass(progress.end, self.file.path())?;
            } else {
                return Err(self.past_the_end());
            }
        }
        Ok(())
    }
}

impl RandomFile for FramesFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let progress = Progress::new(offset, buf, Damage::Fails);
        self.read(progress.ok_or_else(|| self.past_the_end())?)
    }

    fn read_around_damage(
        &self,
        offset: u64,
        buf: &mut [u8],
        damaged: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        let progress = Progress::new(offset, buf, Damage::IsPassed(damaged));
        self.read(progress.ok_or_else(|| self.past_the_end())?)
    }

    /// Lost is what lost blocks have, no more and no less.
    fn read_around_loss(
        &self,
        offset: u64,
        buf: &mut [u8],
        damaged: &mut Vec<Range<u64>>,
        _page_bytes: usize,
    ) -> Result<()> {
        let progress = Progress::new(offset, buf, Damage::AndLossArePassed(damaged));
        let progress = progress.filter(|progress| progress.end <= self.len.end);
        self.read(progress.ok_or_else(|| self.past_the_end())?)
    }

    fn len(&self) -> u64 {
        self.len.end
    }

    fn current_len(&self) -> Result<u64> {
        self.known_bytes.fetch_max(self.file.current_len()?, Relaxed);
        Ok(self.up_to_known(|known| self.content_end(known))?.end)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn advise_willneed(&self, offset: u64, len: u64) {
        let (low, _) = self.places.around(offset);
        let blocks = |content: u64| content / BLOCK_CONTENT_BYTES;
        let first = low.1 + blocks(offset - low.0);
        let count = blocks(len) + 2;
        let block = BLOCK_BYTES as u64;
        self.file.advise_willneed(first.saturating_mul(block), count.saturating_mul(block));
    }

    fn as_any(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        Some(self)
    }
}
