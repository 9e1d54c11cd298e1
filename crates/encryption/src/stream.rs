//! Files that are read while they grow: each byte is encrypted where it stands.
//!
//! ```text
//! header (128) │ content, xor the stream of AES-256-CTR with the counter at 0 for its first byte
//! ```
//! A file has a key of its own, grows at its end, and takes nothing more once an append has failed, so that no two bytes
//! are ever encrypted by the same byte of the stream. Nothing here notices a change: the formats above have checksums
//! against damage, which those who change the file on purpose can make fit.

use crate::header::HEADER_BYTES;
use aes::Aes256;
use aes::cipher::{InnerIvInit, KeyInit, StreamCipher, StreamCipherSeek};
use ctr::{Ctr128BE, CtrCore};
use std::io;
use std::path::Path;
use std::sync::Arc;
use terrace_base::{Error, Result};
use terrace_vfs::{AppendFile, RandomFile};

/// Bytes that are encrypted before they are handed over, and so the memory that an append takes.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Which stands at the start of the content.
fn stream(cipher: &Aes256) -> Ctr128BE<Aes256> {
    Ctr128BE::from_core(CtrCore::inner_iv_init(cipher.clone(), &[0; 16].into()))
}

/// Appends to a file that is read while it grows.
pub(crate) struct StreamWriter {
    file: Box<dyn AppendFile>,
    /// Stands at the end of the content.
    stream: Ctr128BE<Aes256>,
    encrypted: Vec<u8>,
    /// An append failed: some of its bytes may be in the file.
    has_failed: bool,
}

impl StreamWriter {
    /// For a file that has its header and nothing else.
    pub fn new(file: Box<dyn AppendFile>, key: &[u8; 32]) -> Self {
        Self {
            file,
            stream: stream(&Aes256::new(key.into())),
            encrypted: Vec::new(),
            has_failed: false,
        }
    }
}

impl AppendFile for StreamWriter {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        if self.has_failed {
            let why = "an earlier append to this encrypted file failed";
            return Err(Error::io("append", self.file.path(), io::Error::other(why)));
        }
        for piece in data.chunks(BYTES_AT_ONCE) {
            self.encrypted.clear();
            self.encrypted.extend_from_slice(piece);
            self.stream.apply_keystream(&mut self.encrypted);
            let appended = self.file.append(&self.encrypted);
            self.has_failed |= appended.is_err();
            appended?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }

    fn len(&self) -> u64 {
        self.file.len().saturating_sub(HEADER_BYTES as u64)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn finish(&mut self) -> Result<()> {
        self.file.finish()
    }
}

/// Reads a file that may be growing.
pub(crate) struct StreamFile {
    file: Arc<dyn RandomFile>,
    cipher: Aes256,
}

impl StreamFile {
    pub fn new(file: Arc<dyn RandomFile>, key: &[u8; 32]) -> Self {
        Self { file, cipher: Aes256::new(key.into()) }
    }

    /// The file below.
    pub fn below(&self) -> &dyn RandomFile {
        &*self.file
    }

    /// Where the content's byte `offset` stands in the file below.
    pub fn place(offset: u64) -> u64 {
        offset.saturating_add(HEADER_BYTES as u64)
    }

    /// Decrypts what was read from `offset` on.
    pub fn decrypt(&self, offset: u64, buf: &mut [u8]) {
        let mut stream = stream(&self.cipher);
        stream.seek(offset);
        stream.apply_keystream(buf);
    }
}

impl RandomFile for StreamFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_at(Self::place(offset), buf)?;
        self.decrypt(offset, buf);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.file.len().saturating_sub(HEADER_BYTES as u64)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn advise_willneed(&self, offset: u64, len: u64) {
        self.file.advise_willneed(Self::place(offset), len);
    }

    fn as_any(&self) -> Option<&(dyn std::any::Any + Send + Sync)> {
        Some(self)
    }
}
