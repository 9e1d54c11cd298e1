//! Appending to a file that grows: each append is sealed by itself.

use super::format::{BLOCK_BYTES, FRAME_BYTES, nonce};
use ring::aead::{Aad, LessSafeKey};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use terrace_base::{Error, Result};
use terrace_vfs::{AppendFile, CUTTABLE_APPENDS, SyncHandle};

/// Bytes that are sealed before they are handed over, and so the memory that an append takes.
const BYTES_AT_ONCE: usize = 1 << 20;

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

    fn sync_handle(&self) -> Option<Arc<dyn SyncHandle>> {
        self.file.sync_handle()
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
