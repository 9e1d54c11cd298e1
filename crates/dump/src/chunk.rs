//! The bytes of a dump: a header, then chunks.
//!
//! ```text
//! header      magic        8   TERRDUMP
//!             major        2   1; 2 if a column family has a merge operator, 3 if one has options that are not the
//!                              default; another one is not read
//!             minor        2   any is read
//!             checksum     4   crc32c of the 12 bytes before
//! chunk       is last      1   0 or 1
//!             compression  1   as in SST blocks: 0 none, 1 LZ4, 2 Zstandard
//!             length       4   of the content
//!             checksum     4   crc32c of the number of the chunk (8), the 6 bytes before, the content
//!             content          a piece of the stream of records, compressed
//! ```
//! Integers are little-endian. Chunks are numbered from 0. Behind the last one there is nothing.

use crate::error::{Error, Result};
use terrace_base::checksum::crc32c;

/// The first bytes of every dump.
pub const MAGIC: &[u8; 8] = b"TERRDUMP";

/// The major version of a dump without merge operators.
pub(crate) const MAJOR: u16 = 1;

/// The major version of a dump that names merge operators: builds that read only [`MAJOR`] would lose them.
pub(crate) const MAJOR_WITH_OPERATORS: u16 = 2;

/// The major version of a dump with options of column families: other builds would make stores without them.
pub(crate) const MAJOR_WITH_OPTIONS: u16 = 3;

const MINOR: u16 = 0;

/// The most bytes of the stream of records in one chunk.
pub const MAX_CHUNK_BYTES: usize = 1 << 20;

/// Compressed content is not longer than what it was made of.
pub(crate) const MAX_CONTENT_BYTES: usize = MAX_CHUNK_BYTES;

pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const CHUNK_HEADER_BYTES: usize = 10;
/// Where the checksum of a header stands, of both kinds.
const HEADER_CHECKSUM_AT: usize = 12;
const CHUNK_CHECKSUM_AT: usize = 6;

/// The header of a version.
pub(crate) fn header(major: u16) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&major.to_le_bytes());
    bytes[10..12].copy_from_slice(&MINOR.to_le_bytes());
    let sum = crc32c(&[&bytes[..HEADER_CHECKSUM_AT]]);
    bytes[HEADER_CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The major version in a header.
///
/// # Errors
/// This build does not read it.
pub(crate) fn check_header(bytes: &[u8; HEADER_BYTES]) -> Result<u16> {
    let (magic, rest) = bytes.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(Error::NoDump);
    }
    let sum = crc32c(&[&bytes[..HEADER_CHECKSUM_AT]]);
    if bytes[HEADER_CHECKSUM_AT..] != sum.to_le_bytes() {
        return Err(Error::Damaged { offset: 0, what: "the header fails its checksum".into() });
    }
    let major = u16::from_le_bytes([rest[0], rest[1]]);
    if !(MAJOR..=MAJOR_WITH_OPTIONS).contains(&major) {
        let what = format!(
            "the dump has version {major}, and this build reads versions {MAJOR} to {MAJOR_WITH_OPTIONS}"
        );
        return Err(Error::Unsupported(what));
    }
    Ok(major)
}

/// What stands in front of the content of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub is_last: bool,
    pub compression: u8,
    pub length: usize,
    checksum: u32,
}

impl ChunkHeader {
    /// That of the chunk `number` with this content, which is at most [`MAX_CONTENT_BYTES`] long.
    pub fn encode(number: u64, is_last: bool, compression: u8, content: &[u8]) -> [u8; 10] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[0] = u8::from(is_last);
        bytes[1] = compression;
        bytes[2..CHUNK_CHECKSUM_AT].copy_from_slice(&(content.len() as u32).to_le_bytes());
        let sum = crc32c(&[&number.to_le_bytes(), &bytes[..CHUNK_CHECKSUM_AT], content]);
        bytes[CHUNK_CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header; its length is within the limit.
    pub fn decode(bytes: &[u8; CHUNK_HEADER_BYTES]) -> std::result::Result<Self, String> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        let length = word(2) as usize;
        if length > MAX_CONTENT_BYTES {
            return Err(format!("a chunk of {length} bytes, and {MAX_CONTENT_BYTES} is the most"));
        }
        let is_last = match bytes[0] {
            0 => false,
            1 => true,
            other => return Err(format!("a chunk of kind {other}")),
        };
        Ok(Self { is_last, compression: bytes[1], length, checksum: word(CHUNK_CHECKSUM_AT) })
    }

    /// Whether this is the content that the header was made for.
    pub fn fits(&self, number: u64, content: &[u8]) -> bool {
        let mut fields = [u8::from(self.is_last), self.compression, 0, 0, 0, 0];
        fields[2..].copy_from_slice(&(content.len() as u32).to_le_bytes());
        crc32c(&[&number.to_le_bytes(), &fields, content]) == self.checksum
    }
}
