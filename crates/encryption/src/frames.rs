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

use crate::header::HEADER_BYTES;
use crate::places::Places;
use ring::aead::{Aad, LessSafeKey, Nonce};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_base::{Error, Result};
use terrace_vfs::{AppendFile, CUTTABLE_APPENDS, RandomFile};

/// No frame goes past a multiple of this in the file.
const BLOCK_BYTES: usize = 4096;

const FRAME_HEADER_BYTES: usize = 10;

const TAG_BYTES: usize = 16;

/// What a frame takes beside its content.
const FRAME_BYTES: usize = FRAME_HEADER_BYTES + TAG_BYTES;

/// The most content of a block.
const BLOCK_CONTENT_BYTES: u64 = (BLOCK_BYTES - FRAME_BYTES) as u64;

/// Bytes that are sealed before they are handed over, and so the memory that an append takes.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Blocks that are read before they are opened.
const BLOCKS_AT_ONCE: u64 = 64;

fn nonce(place: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&place.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Appends to a file in frames.
pub(crate) struct FramesWriter {
    file: Box<dyn AppendFile>,
    key: LessSafeKey,
    /// Bytes of content.
    len: u64,
    sealed: Vec<u8>,
    /// Where the last [`CUTTABLE_APPENDS`] appends began, the newest one last: in the content, and in the file below.
    starts: VecDeque<(u64, u64)>,
    /// An append failed: some of its bytes may be in the file, and no place may be sealed twice.
    has_failed: bool,
}

impl FramesWriter {
    /// For a file that has its header and nothing else.
    pub fn new(file: Box<dyn AppendFile>, key: LessSafeKey) -> Self {
        let (sealed, starts) = (Vec::new(), VecDeque::with_capacity(CUTTABLE_APPENDS));
        Self { file, key, len: 0, sealed, starts, has_failed: false }
    }

    fn refusal(&self, why: &str) -> Error {
        Error::io("append", self.file.path(), io::Error::other(why))
    }

    /// Appends `piece` in as many frames as it takes.
    fn append_piece(&mut self, mut piece: &[u8]) -> Result<()> {
        self.sealed.clear();
        let mut place = self.len;
        while !piece.is_empty() {
            let at = self.file.len() as usize + self.sealed.len();
            let room = BLOCK_BYTES - at % BLOCK_BYTES;
            if room <= FRAME_BYTES {
                self.sealed.resize(self.sealed.len() + room, 0);
                continue;
            }
            let (content, rest) = piece.split_at(piece.len().min(room - FRAME_BYTES));
            self.sealed.extend_from_slice(&place.to_le_bytes());
            self.sealed.extend_from_slice(&(content.len() as u16).to_le_bytes());
            let start = self.sealed.len();
            self.sealed.extend_from_slice(content);
            let sealed = self.sealed.get_mut(start..).unwrap_or_default();
            let tag = self.key.seal_in_place_separate_tag(nonce(place), Aad::empty(), sealed);
            let tag = tag.map_err(|_| self.refusal("a frame could not be encrypted"))?;
            self.sealed.extend_from_slice(tag.as_ref());
            place += content.len() as u64;
            piece = rest;
        }
        self.file.append(&self.sealed)?;
        self.len = place;
        Ok(())
    }
}

impl AppendFile for FramesWriter {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        if self.has_failed {
            return Err(self.refusal("an earlier append to this encrypted file failed"));
        }
        if self.starts.len() == CUTTABLE_APPENDS {
            self.starts.pop_front();
        }
        self.starts.push_back((self.len, self.file.len()));
        for piece in data.chunks(BYTES_AT_ONCE) {
            let appended = self.append_piece(piece);
            self.has_failed |= appended.is_err();
            appended?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn finish(&mut self) -> Result<()> {
        self.file.finish()
    }

    fn cut(&mut self, len: u64) -> Result<()> {
        let now = (self.len, self.file.len());
        let Some((_, below)) = self.starts.iter().chain([&now]).find(|(start, _)| *start == len)
        else {
            let source = io::Error::from(ErrorKind::InvalidInput);
            return Err(Error::io("cut", self.file.path(), source));
        };
        let below = *below;
        // What is cut off had places, and none may be sealed twice.
        self.has_failed = true;
        self.file.cut(below)?;
        self.len = len;
        Ok(())
    }
}

/// Reads a file in frames that may be growing.
pub(crate) struct FramesFile {
    file: Arc<dyn RandomFile>,
    key: LessSafeKey,
    /// Bytes of content when it was opened: up to the end of the last frame.
    len: u64,
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

/// A frame whose tag is right.
struct Frame<'a> {
    place: u64,
    content: &'a [u8],
}

/// What a read has come to.
struct Progress<'a, 'b> {
    /// What is before is read.
    at: u64,
    end: u64,
    buf: &'a mut [u8],
    damaged: Option<&'b mut Vec<Range<u64>>>,
}

impl Progress<'_, '_> {
    fn target(&mut self, to: u64) -> &mut [u8] {
        let start = self.buf.len() - (self.end - self.at) as usize;
        self.buf.get_mut(start..start + (to - self.at) as usize).unwrap_or_default()
    }

    /// Takes what `frame` has, if the read has not passed it.
    fn take(&mut self, frame: &Frame<'_>, path: &Path) -> Result<()> {
        let frame_end = frame.place + frame.content.len() as u64;
        if frame_end <= self.at {
            return Ok(());
        }
        if frame.place > self.at {
            self.pass_damage(frame.place.min(self.end), path)?;
        }
        let to = frame_end.min(self.end);
        if self.at < to {
            let from = (self.at - frame.place) as usize;
            let source = frame.content.get(from..from + (to - self.at) as usize);
            self.target(to).copy_from_slice(source.unwrap_or_default());
            self.at = to;
        }
        Ok(())
    }

    /// Passes over what no frame has.
    fn pass_damage(&mut self, to: u64, path: &Path) -> Result<()> {
        let range = self.at..to;
        match &mut self.damaged {
            Some(damaged) => damaged.push(range),
            None => {
                let why = "what is stored here of an encrypted file is not what was written there";
                return Err(Error::corruption(path, range.start, why));
            }
        }
        self.target(to).fill(0);
        self.at = to;
        Ok(())
    }
}

impl FramesFile {
    /// The content of `file`.
    ///
    /// # Errors
    /// I/O.
    pub fn new(file: Arc<dyn RandomFile>, key: LessSafeKey) -> Result<Self> {
        let known_bytes = AtomicU64::new(file.len());
        let mut this = Self { file, key, len: 0, known_bytes, places: Places::default() };
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

    /// Where the content ends of a file of `known` bytes.
    fn content_end(&self, known: u64) -> Result<u64> {
        let (mut sealed, mut scratch) = (Vec::new(), Vec::new());
        for block in (0..known.div_ceil(BLOCK_BYTES as u64)).rev() {
            self.load(block, 1, known, &mut sealed)?;
            let mut last = None;
            let _ = self.each_frame::<()>(block, &sealed, &mut scratch, &mut |frame| {
                last = Some(frame.place + frame.content.len() as u64);
                ControlFlow::Continue(())
            });
            if let Some(last) = last {
                return Ok(last);
            }
            self.note_if_bad(block, &sealed);
        }
        Ok(0)
    }

    /// Remembers that a block has no frame. One that is not whole yet may get more.
    fn note_if_bad(&self, block: u64, sealed: &[u8]) {
        if sealed.len() == BLOCK_BYTES {
            self.places.note_bad(block);
        }
    }

    /// Reads `count` blocks from `block` on, as far as the file is known to go.
    fn load(&self, block: u64, count: u64, known: u64, sealed: &mut Vec<u8>) -> Result<()> {
        let start = block * BLOCK_BYTES as u64;
        let end = (start + count * BLOCK_BYTES as u64).min(known);
        sealed.resize(end.saturating_sub(start) as usize, 0);
        self.file.read_at(start, sealed)
    }

    /// Calls `each` with the frames of a block, which `sealed` has, until it breaks. Bytes that are no frame are
    /// passed: a damaged one costs itself.
    fn each_frame<B>(
        &self,
        block: u64,
        sealed: &[u8],
        scratch: &mut Vec<u8>,
        each: &mut dyn FnMut(&Frame<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let start = block * BLOCK_BYTES as u64;
        let mut at = if block == 0 { HEADER_BYTES } else { 0 };
        while let Some((header, rest)) =
            sealed.get(at..).and_then(<[u8]>::split_first_chunk::<FRAME_HEADER_BYTES>)
        {
            let [p0, p1, p2, p3, p4, p5, p6, p7, l0, l1] = *header;
            let place = u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
            let len = usize::from(u16::from_le_bytes([l0, l1]));
            // There is less content than file before it.
            let is_likely = len > 0 && place < start + at as u64;
            if is_likely && let Some(ciphertext) = rest.get(..len + TAG_BYTES) {
                scratch.clear();
                scratch.extend_from_slice(ciphertext);
                if let Ok(content) = self.key.open_in_place(nonce(place), Aad::empty(), scratch) {
                    at += FRAME_BYTES + len;
                    each(&Frame { place, content })?;
                    continue;
                }
            }
            at += 1;
        }
        ControlFlow::Continue(())
    }

    /// The place of the first frame of a block; `None` if it has none.
    fn first_place(&self, block: u64, known: u64) -> Result<Option<u64>> {
        if self.places.is_bad(block) {
            return Ok(None);
        }
        let (mut sealed, mut scratch) = (Vec::new(), Vec::new());
        self.load(block, 1, known, &mut sealed)?;
        let found = self
            .each_frame(block, &sealed, &mut scratch, &mut |frame| ControlFlow::Break(frame.place));
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

    /// The block that has the content's byte `at`, unless it is damaged, or one shortly before it; and the place of its
    /// first frame.
    fn find(&self, at: u64, known: u64) -> Result<(u64, u64)> {
        let blocks = known.div_ceil(BLOCK_BYTES as u64);
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

    /// The blocks that are likely to hold `len` bytes of content from `at` on.
    fn blocks_of(&self, at: u64, len: u64, known: u64) -> Result<(u64, u64)> {
        let (block, place) = self.find(at, known)?;
        let count = (at - place).saturating_add(len).div_ceil(BLOCK_CONTENT_BYTES);
        let blocks = known.div_ceil(BLOCK_BYTES as u64);
        Ok((block, count.min(BLOCKS_AT_ONCE).min(blocks.saturating_sub(block))))
    }

    /// Takes what is wanted of the blocks from `first` on, which `sealed` has.
    fn open_blocks(
        &self,
        first: u64,
        sealed: &[u8],
        progress: &mut Progress<'_, '_>,
    ) -> Result<()> {
        let mut scratch = Vec::new();
        let last = first + (sealed.len() as u64).div_ceil(BLOCK_BYTES as u64).saturating_sub(1);
        for (block, sealed) in (first..).zip(sealed.chunks(BLOCK_BYTES)) {
            let mut is_first = true;
            let taken = self.each_frame(block, sealed, &mut scratch, &mut |frame| {
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

    /// Reads on as far as the blocks go that are known to be there.
    fn read_known(&self, progress: &mut Progress<'_, '_>, known: u64) -> Result<()> {
        let blocks = known.div_ceil(BLOCK_BYTES as u64);
        let wanted = |progress: &Progress<'_, '_>| progress.end - progress.at;
        let (mut block, mut count) = self.blocks_of(progress.at, wanted(progress), known)?;
        let mut sealed = Vec::new();
        while progress.at < progress.end && block < blocks {
            self.load(block, count, known, &mut sealed)?;
            self.open_blocks(block, &sealed, progress)?;
            block += count;
            count = wanted(progress).div_ceil(BLOCK_CONTENT_BYTES).min(BLOCKS_AT_ONCE);
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
        let start = first_block * BLOCK_BYTES as u64;
        let end = (start + count * BLOCK_BYTES as u64).min(known);
        Ok(Span { first_block, offset: start, len: end.saturating_sub(start) as usize })
    }

    /// Gives what `buf` is to have from `offset` on, of what `sealed` has of `span`, and of more of the file if that is
    /// not enough.
    ///
    /// # Errors
    /// As [`RandomFile::read_at`].
    pub fn open(&self, span: &Span, sealed: &[u8], offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(end) = offset.checked_add(buf.len() as u64) else {
            return self.read(offset, buf, None);
        };
        let mut progress = Progress { at: offset, end, buf, damaged: None };
        self.open_blocks(span.first_block, sealed, &mut progress)?;
        match progress.end - progress.at {
            0 => Ok(()),
            rest => {
                let start = buf.len() - rest as usize;
                self.read(end - rest, buf.get_mut(start..).unwrap_or_default(), None)
            }
        }
    }

    fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        damaged: Option<&mut Vec<Range<u64>>>,
    ) -> Result<()> {
        let past_the_end = || Error::io("read", self.file.path(), ErrorKind::UnexpectedEof.into());
        let end = offset.checked_add(buf.len() as u64).ok_or_else(past_the_end)?;
        let mut progress = Progress { at: offset, end, buf, damaged };
        loop {
            let known = self.up_to_known(|known| {
                self.read_known(&mut progress, known)?;
                Ok(known)
            })?;
            if progress.at == end {
                return Ok(());
            }
            let current = self.file.current_len()?;
            if current > known {
                self.known_bytes.fetch_max(current, Relaxed);
            } else if end <= self.len {
                // It was there when the file was opened.
                return progress.pass_damage(end, self.file.path());
            } else {
                return Err(past_the_end());
            }
        }
    }
}

impl RandomFile for FramesFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(offset, buf, None)
    }

    fn read_around_damage(
        &self,
        offset: u64,
        buf: &mut [u8],
        damaged: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        self.read(offset, buf, Some(damaged))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn current_len(&self) -> Result<u64> {
        self.known_bytes.fetch_max(self.file.current_len()?, Relaxed);
        self.up_to_known(|known| self.content_end(known))
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
