//! Files in sealed pages: written once, read when they are whole.
//!
//! ```text
//! header (128) │ page 0 │ page 1 │ …  │ last page
//! page         │ ciphertext of 4,096 bytes, fewer in the last page │ tag (16) │
//! ```
//! The nonce of a page is its number (8 bytes), 1 for the last page and 0 for the others (1), and three zeros. A file has
//! a key of its own and a page is sealed once, so no nonce comes twice. Only a file that was finished has a last page:
//! one that was cut ends in a page that is not marked, which reads of its end notice. Pages are those of the engine's
//! blocks: a block that lies in one page is read and opened alone.

use crate::header::HEADER_BYTES;
use ring::aead::{Aad, LessSafeKey, Nonce};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use terrace_base::{Error, Result};
use terrace_vfs::{AppendFile, RandomFile, add_damage, is_unreadable};

/// Bytes of content in a page.
pub(crate) const PAGE_BYTES: usize = 4096;

const TAG_BYTES: usize = 16;

/// Bytes that a page takes in the file.
const SEALED_BYTES: usize = PAGE_BYTES + TAG_BYTES;

/// Pages that are sealed before they are handed over, or read before they are opened, and so the memory that it takes.
const PAGES_AT_ONCE: usize = 256;

/// Where page `page` begins in the file.
fn place(page: u64) -> u64 {
    HEADER_BYTES as u64 + page * SEALED_BYTES as u64
}

/// Bytes of content in a finished file of `file_bytes`.
pub(crate) fn content_len(file_bytes: u64) -> u64 {
    let body = file_bytes.saturating_sub(HEADER_BYTES as u64);
    let (full, rest) = (body / SEALED_BYTES as u64, body % SEALED_BYTES as u64);
    full * PAGE_BYTES as u64 + rest.saturating_sub(TAG_BYTES as u64)
}

fn nonce(page: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&page.to_le_bytes());
    bytes[8] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

/// Appends to a file in pages.
pub(crate) struct PagesWriter {
    file: Box<dyn AppendFile>,
    key: LessSafeKey,
    /// Content that is not sealed yet: at most a page, since the last page must be known as such.
    pending: Vec<u8>,
    /// The number of the page that `pending` becomes.
    page: u64,
    is_finished: bool,
    /// An append failed: what is in the file is unknown, and no page may be sealed twice.
    has_failed: bool,
}

impl PagesWriter {
    /// For a file that has its header.
    pub fn new(file: Box<dyn AppendFile>, key: LessSafeKey) -> Self {
        let pending = Vec::with_capacity(PAGE_BYTES);
        Self { file, key, pending, page: 0, is_finished: false, has_failed: false }
    }

    fn refusal(&self, op: &'static str, why: &str) -> Error {
        Error::io(op, self.file.path(), io::Error::other(why))
    }

    /// Seals what `sealed` has from `start` on as the next page, and appends its tag.
    fn seal(&mut self, sealed: &mut Vec<u8>, start: usize, is_last: bool) -> Result<()> {
        let content = sealed.get_mut(start..).unwrap_or_default();
        let nonce = nonce(self.page, is_last);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), content);
        let tag = tag.map_err(|_| self.refusal("append", "a page could not be encrypted"))?;
        sealed.extend_from_slice(tag.as_ref());
        self.page += 1;
        Ok(())
    }

    fn hand_over(&mut self, sealed: &[u8]) -> Result<()> {
        let handed = self.file.append(sealed);
        self.has_failed |= handed.is_err();
        handed
    }

    fn check(&self, op: &'static str) -> Result<()> {
        match self.has_failed {
            true => Err(self.refusal(op, "an earlier append to this encrypted file failed")),
            false => Ok(()),
        }
    }
}

impl AppendFile for PagesWriter {
    fn append(&mut self, mut data: &[u8]) -> Result<()> {
        self.check("append")?;
        if self.is_finished {
            let why = "an encrypted file in pages is finished, and takes no more";
            return Err(self.refusal("append", why));
        }
        // What is left is at least a byte: it may become the last page.
        while self.pending.len() + data.len() > PAGE_BYTES {
            let pages = ((self.pending.len() + data.len() - 1) / PAGE_BYTES).min(PAGES_AT_ONCE);
            let mut sealed = Vec::with_capacity(pages * SEALED_BYTES);
            for _ in 0..pages {
                let (first, rest) = data.split_at(PAGE_BYTES - self.pending.len());
                let start = sealed.len();
                sealed.append(&mut self.pending);
                sealed.extend_from_slice(first);
                self.seal(&mut sealed, start, false)?;
                data = rest;
            }
            self.hand_over(&sealed)?;
        }
        self.pending.extend_from_slice(data);
        Ok(())
    }

    /// Before [`AppendFile::finish`], of the pages that are full.
    fn sync(&mut self) -> Result<()> {
        self.check("sync")?;
        self.file.sync()
    }

    fn len(&self) -> u64 {
        let sealed = self.page - u64::from(self.is_finished);
        sealed * PAGE_BYTES as u64 + self.pending.len() as u64
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn finish(&mut self) -> Result<()> {
        self.check("finish")?;
        if !self.is_finished {
            let mut sealed = Vec::with_capacity(self.pending.len() + TAG_BYTES);
            sealed.extend_from_slice(&self.pending);
            self.is_finished = true;
            self.seal(&mut sealed, 0, true)?;
            self.hand_over(&sealed)?;
        }
        self.file.finish()
    }

    fn cut(&mut self, _len: u64) -> Result<()> {
        let why = "an encrypted file in pages is never cut";
        let source = io::Error::new(io::ErrorKind::Unsupported, why);
        Err(Error::io("cut", self.file.path(), source))
    }
}

/// Reads a file in pages.
pub(crate) struct PagesFile {
    file: Arc<dyn RandomFile>,
    key: LessSafeKey,
    len: u64,
    /// The number of the page that is marked as the last; none of a file that was cut.
    last_page: Option<u64>,
}

/// What has to be read of the file below for a range of the content.
pub(crate) struct Span {
    first_page: u64,
    /// Where it begins in the file below.
    pub offset: u64,
    /// How much it is.
    pub len: usize,
}

impl PagesFile {
    /// The pages of `file`.
    ///
    /// # Errors
    /// `Corruption` if no finished file has this length, or an empty one is not marked as finished. Of others the last
    /// page tells when it is read. I/O.
    pub fn new(file: Arc<dyn RandomFile>, key: LessSafeKey) -> Result<Self> {
        let len = content_len(file.len());
        let pages = len.div_ceil(PAGE_BYTES as u64).max(1);
        if file.len() != HEADER_BYTES as u64 + len + pages * TAG_BYTES as u64 {
            let why = "an encrypted file was cut off, or never finished";
            return Err(Error::corruption(file.path(), len, why));
        }
        let last_page = Some(len.saturating_sub(1) / PAGE_BYTES as u64);
        let pages = Self { file, key, len, last_page };
        if len == 0 {
            // Nobody reads its only page, which must be marked like any last one.
            let span = Span { first_page: 0, offset: place(0), len: TAG_BYTES };
            let mut sealed = [0; TAG_BYTES];
            pages.file.read_at(span.offset, &mut sealed)?;
            pages.open(&span, &mut sealed, 0, &mut [])?;
        }
        Ok(pages)
    }

    /// As [`Self::new`], to save what is left of a file that may have been cut: behind its whole pages a byte is missing at
    /// least, which cannot be read.
    ///
    /// # Errors
    /// I/O, but for a page that the device does not give; `Corruption` if nothing follows the header.
    pub fn of_what_is_left(file: Arc<dyn RandomFile>, key: LessSafeKey) -> Result<Self> {
        let body = file.len().saturating_sub(HEADER_BYTES as u64);
        if body == 0 {
            let why = "an encrypted file was cut off behind its header, or never written";
            return Err(Error::corruption(file.path(), 0, why));
        }
        let (page, tag) = (PAGE_BYTES as u64, TAG_BYTES as u64);
        let (full, rest) = (body / SEALED_BYTES as u64, body % SEALED_BYTES as u64);
        let len = content_len(file.len());
        let whole = Self { file, key, len, last_page: Some(len.saturating_sub(1) / page) };
        let is_cut = match (full, rest) {
            // A page that is not the last one has another after it.
            (_, 0) => whole.has_page(full - 1, SEALED_BYTES, false)?,
            (0, rest) if rest == tag => !whole.has_page(0, TAG_BYTES, true)?,
            // Of a longer piece of a page the tag is wrong.
            (_, rest) => rest <= tag,
        };
        Ok(match is_cut {
            true => Self { len: full * page + 1, last_page: None, ..whole },
            false => whole,
        })
    }

    /// Whether the page of `sealed_bytes` is what was written, as the last one or as another. What the device does not give is
    /// not known to be.
    fn has_page(&self, page: u64, sealed_bytes: usize, is_last: bool) -> Result<bool> {
        let mut sealed = vec![0; sealed_bytes];
        match self.file.read_at(place(page), &mut sealed) {
            Err(error) if is_unreadable(&error) => return Ok(false),
            read => read?,
        }
        Ok(self.key.open_in_place(nonce(page, is_last), Aad::empty(), &mut sealed).is_ok())
    }

    /// The file below.
    pub fn below(&self) -> &dyn RandomFile {
        &*self.file
    }

    /// Which pages hold `len` bytes from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end.
    pub fn span(&self, offset: u64, len: usize) -> Result<Span> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len);
        let end = end.ok_or_else(|| self.past_the_end())?;
        let page = PAGE_BYTES as u64;
        let (first_page, end_page) = (offset / page, end.div_ceil(page));
        let offset = place(first_page);
        let len = place(end_page.max(first_page)).min(self.file.len()).saturating_sub(offset);
        Ok(Span { first_page, offset, len: len as usize })
    }

    fn past_the_end(&self) -> Error {
        Error::io("read", self.file.path(), ErrorKind::UnexpectedEof.into())
    }

    /// Opens the pages of `span` that `sealed` has and copies what `buf` is to have from `offset` on.
    ///
    /// # Errors
    /// `Corruption` if a page is not what was written there.
    pub fn open(&self, span: &Span, sealed: &mut [u8], offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let end_page = span.first_page + sealed.len().div_ceil(SEALED_BYTES) as u64;
        if end_page * (PAGE_BYTES as u64) < end {
            let why = "an encrypted file was cut off here";
            return Err(Error::corruption(self.file.path(), end_page * PAGE_BYTES as u64, why));
        }
        for (page, sealed) in (span.first_page..).zip(sealed.chunks_mut(SEALED_BYTES)) {
            let nonce = nonce(page, Some(page) == self.last_page);
            let content = self.key.open_in_place(nonce, Aad::empty(), sealed).map_err(|_| {
                let why = "an encrypted page is not what was written there";
                Error::corruption(self.file.path(), page * PAGE_BYTES as u64, why)
            })?;
            let start = page * PAGE_BYTES as u64;
            let from = offset.max(start);
            let to = end.min(start + content.len() as u64);
            let source = content.get((from - start) as usize..(to - start) as usize);
            let target = buf.get_mut((from - offset) as usize..(to - offset) as usize);
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
        }
        Ok(())
    }
}

impl RandomFile for PagesFile {
    fn read_at(&self, mut offset: u64, mut buf: &mut [u8]) -> Result<()> {
        // All of it is there, or nothing is read.
        self.span(offset, buf.len())?;
        let mut sealed = Vec::new();
        loop {
            let in_page = (offset % PAGE_BYTES as u64) as usize;
            let len = buf.len().min(PAGES_AT_ONCE * PAGE_BYTES - in_page);
            let (now, later) = buf.split_at_mut(len);
            let span = self.span(offset, len)?;
            sealed.resize(span.len, 0);
            self.file.read_at(span.offset, &mut sealed)?;
            self.open(&span, &mut sealed, offset, now)?;
            if later.is_empty() {
                return Ok(());
            }
            offset += len as u64;
            buf = later;
        }
    }

    /// A page that is not what was written is lost, as one that the device does not give, and no other with it. Only who
    /// saves what is left reads around either: of a finished file nothing is missing.
    fn read_around_loss(
        &self,
        mut offset: u64,
        mut buf: &mut [u8],
        damaged: &mut Vec<Range<u64>>,
        _page_bytes: usize,
    ) -> Result<()> {
        let is_lost = |error: &Error| error.is_corruption() || is_unreadable(error);
        match self.read_at(offset, buf) {
            Err(error) if is_lost(&error) => {}
            read => return read,
        }
        while !buf.is_empty() {
            let in_page = (offset % PAGE_BYTES as u64) as usize;
            let (now, later) = buf.split_at_mut(buf.len().min(PAGE_BYTES - in_page));
            let end = offset + now.len() as u64;
            match self.read_at(offset, now) {
                Err(error) if is_lost(&error) => {
                    now.fill(0);
                    add_damage(damaged, offset..end);
                }
                read => read?,
            }
            (offset, buf) = (end, later);
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    /// A finished file does not grow.
    fn current_len(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn advise_willneed(&self, offset: u64, len: u64) {
        let page = PAGE_BYTES as u64;
        let (first, end) = (offset / page, offset.saturating_add(len).min(self.len).div_ceil(page));
        self.file.advise_willneed(place(first), place(end.max(first)) - place(first));
    }

    fn as_any(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        Some(self)
    }
}
