//! Compressed content, of blocks and of separated values alike: which codecs there are, how their
//! output is stored, and how it is read back without trusting it.
//!
//! ```text
//! content   compression none   the payload
//!           LZ4, Zstandard     payload length u32le, then the payload compressed
//! ```
//! Which of them it is stands elsewhere: in a block's trailer, in a value's handle. A checksum has
//! been compared by the reader; even so, nothing is allocated for a declared length before it
//! has passed a limit.
//!
//! Each codec is a feature, `lz4` and `zstd`. What a build has no codec for is stored as it is, and content of that codec
//! is refused with [`Fault::NotBuiltIn`], not taken for damage.
//!
//! Floor 1: uses no other crate of the workspace.

#![forbid(unsafe_code)]

#[cfg(not(all(feature = "lz4", feature = "zstd")))]
mod absent;
#[cfg(feature = "lz4")]
mod lz4_codec;
#[cfg(feature = "zstd")]
mod zstd_codec;

#[cfg(not(feature = "lz4"))]
use absent as lz4_codec;
#[cfg(not(feature = "zstd"))]
use absent as zstd_codec;
use std::cell::RefCell;
use std::fmt;

/// Bytes of the payload length in front of compressed content.
const LENGTH_BYTES: usize = 4;

/// LZ4 cannot expand by more than this factor, so a larger declared length is a lie.
const MAX_LZ4_RATIO: usize = 256;

/// Nor Zstandard, whose blocks hold at most 128 KiB and take at least 4 bytes: a header, and a byte that is repeated.
const MAX_ZSTD_RATIO: usize = 32 << 10;

/// Room for output that is kept whatever comes next.
const KEEP_BYTES: usize = 1 << 20;

/// And by a thread for its compressor: a process may have hundreds that write. What needed more goes with all that its codec
/// took, which is little beside the time that it costs to compress as much.
const THREAD_KEEPS_BYTES: usize = 128 << 10;

/// How bytes are stored. The numbers are on disk and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// As they are.
    None = 0,
    /// LZ4 block format: several GB/s to decompress.
    Lz4 = 1,
    /// Zstandard: smaller, some five times slower to decompress than LZ4.
    Zstd = 2,
}

impl Default for Compression {
    /// LZ4, or none in a build without it.
    fn default() -> Self {
        if Self::Lz4.is_built_in() { Self::Lz4 } else { Self::None }
    }
}

impl Compression {
    /// Whether this build can compress so, and read what is.
    pub const fn is_built_in(self) -> bool {
        match self {
            Self::None => true,
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }

    /// The compression stored as `byte`, or `None` for a number this version does not know.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The name used in options and dumps.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Why content is no payload. The caller knows the place and makes a corruption error of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Compressed content ends before its payload length does.
    NoLength,
    /// The declared payload length is over the limit.
    TooLong {
        /// What the content declares, in bytes.
        declared: usize,
        /// What was allowed.
        most: usize,
    },
    /// This build has no such codec.
    NotBuiltIn(Compression),
    /// The codec refuses the bytes, or they give another length than declared.
    Undecodable(Compression),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLength => f.write_str("compressed content without a length"),
            Self::TooLong { declared, most } => {
                write!(f, "declared length {declared} is over the limit {most}")
            }
            Self::NotBuiltIn(compression) => {
                let name = compression.name();
                write!(f, "{name} content, and this build is without the feature `{name}`")
            }
            Self::Undecodable(compression) => {
                write!(f, "{} content does not decompress", compression.name())
            }
        }
    }
}

impl std::error::Error for Fault {}

/// Compresses payloads; keeps the codecs' memory and the room for their output between them, but not that of a large payload
/// for small ones.
#[derive(Default)]
pub struct Compressor {
    lz4: lz4_codec::Encoder,
    zstd: zstd_codec::Encoder,
    content: Vec<u8>,
}

impl Compressor {
    /// `payload` as compressed content, valid until the next call. `None` if it is to be stored as
    /// it is: because `compression` says so or is not built in, because less than an eighth would be saved, or
    /// because its length does not fit the length field.
    pub fn compress(&mut self, payload: &[u8], compression: Compression) -> Option<&[u8]> {
        let room = match compression {
            Compression::None => return None,
            _ if !compression.is_built_in() => return None,
            Compression::Lz4 => lz4_codec::room(payload.len()),
            Compression::Zstd => zstd_codec::room(payload.len()),
        };
        let len = u32::try_from(payload.len()).ok()?;
        if self.content.len() > KEEP_BYTES && LENGTH_BYTES + room <= KEEP_BYTES {
            self.content = Vec::new();
        }
        if self.content.len() < LENGTH_BYTES + room {
            self.content.resize(LENGTH_BYTES + room, 0);
        }
        let (head, packed) = self.content.split_at_mut(LENGTH_BYTES);
        head.copy_from_slice(&len.to_le_bytes());
        let written = match compression {
            Compression::Zstd => self.zstd.compress(payload, packed)?,
            _ => self.lz4.compress(payload, packed)?,
        };
        let most = payload.len() - payload.len() / 8;
        let content = self.content.get(..LENGTH_BYTES + written)?;
        (content.len() <= most).then_some(content)
    }
}

thread_local! {
    static COMPRESSOR: RefCell<Compressor> = RefCell::default();
}

/// Appends the content of `payload` to `out`, by the calling thread's own compressor; returns how
/// it is stored, which is [`Compression::None`] where `compression` would not pay (see
/// [`Compressor::compress`]).
pub fn compress(payload: &[u8], compression: Compression, out: &mut Vec<u8>) -> Compression {
    COMPRESSOR.with_borrow_mut(|compressor| {
        let content = compressor.compress(payload, compression);
        let stored_as = if content.is_some() { compression } else { Compression::None };
        out.extend_from_slice(content.unwrap_or(payload));
        if compressor.content.len() > THREAD_KEEPS_BYTES {
            *compressor = Compressor::default();
        }
        stored_as
    })
}

/// The payload length of `content`, which is at most `most` bytes.
pub fn payload_len(content: &[u8], compression: Compression, most: usize) -> Result<usize, Fault> {
    let (declared, most) = match compression {
        Compression::None => (content.len(), most),
        _ if !compression.is_built_in() => return Err(Fault::NotBuiltIn(compression)),
        _ => {
            let (len, packed) =
                content.split_first_chunk::<LENGTH_BYTES>().ok_or(Fault::NoLength)?;
            let ratio = match compression {
                Compression::Lz4 => MAX_LZ4_RATIO,
                _ => MAX_ZSTD_RATIO,
            };
            let most = packed.len().saturating_mul(ratio).min(most);
            (u32::from_le_bytes(*len) as usize, most)
        }
    };
    if declared > most { Err(Fault::TooLong { declared, most }) } else { Ok(declared) }
}

/// Decompresses `content` into `out`, which has exactly the length that [`payload_len`] returned.
pub fn decompress_into(
    content: &[u8],
    compression: Compression,
    out: &mut [u8],
) -> Result<(), Fault> {
    let packed = content.get(LENGTH_BYTES..).unwrap_or_default();
    let written = match compression {
        Compression::None if content.len() == out.len() => {
            out.copy_from_slice(content);
            Some(out.len())
        }
        Compression::None => None,
        _ if !compression.is_built_in() => return Err(Fault::NotBuiltIn(compression)),
        Compression::Lz4 => lz4_codec::decompress(packed, out),
        Compression::Zstd => zstd_codec::decompress(packed, out),
    };
    if written == Some(out.len()) { Ok(()) } else { Err(Fault::Undecodable(compression)) }
}

/// The payload of `content`, at most `most` bytes of it.
pub fn decompress(content: &[u8], compression: Compression, most: usize) -> Result<Vec<u8>, Fault> {
    let mut payload = vec![0; payload_len(content, compression, most)?];
    decompress_into(content, compression, &mut payload)?;
    Ok(payload)
}

#[cfg(test)]
mod tests;
