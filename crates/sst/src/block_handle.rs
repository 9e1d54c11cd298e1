//! Stored blocks: what every block and partition looks like in the file.
//!
//! ```text
//! ┌─────────────────┬──────────────────────────┬──────────┬──────────────┐
//! │ content         │ padding: 1, 0, 0, ...    │ type: u8 │ checksum: u32│
//! └─────────────────┴──────────────────────────┴──────────┴──────────────┘
//! ```
//! The type is the number of a [`Compression`] and says what the content is: the payload, or the
//! payload compressed as `terrace-compression` draws it. With [`PADDED`] added, there is padding after the
//! content, so that the block ends where a page does ([`crate::pages`]): a byte 1, then zeros.
//!
//! The checksum covers content, padding, type, file number and offset
//! ([`terrace_base::checksum::block_checksum`]), so a block that landed in another place or file
//! is as bad as one with a flipped bit. Called by the writer ([`Packer`]) and by whatever loads
//! ([`check`], [`unpack`]).

use crate::options::{MAX_BLOCK_BYTES, PAGE_BYTES};
use std::path::Path;
use terrace_base::checksum::block_checksum;
use terrace_base::{Error, FileNumber, Result};
use terrace_buf::{Buf, BufMut};
use terrace_compression::{self as codec, Compression, Compressor};

/// Bytes after the content of a stored block: type and checksum.
pub(crate) const TRAILER_BYTES: usize = 5;

/// The largest stored block a reader allocates for. Compressed content is smaller than the
/// payload by construction, padding shorter than a page.
pub(crate) const MAX_STORED_BYTES: usize = MAX_BLOCK_BYTES + PAGE_BYTES + TRAILER_BYTES;

/// Added to the type of a block that has padding.
pub(crate) const PADDED: u8 = 0x80;

/// The first byte of padding; the others are zero.
const PADDING_MARK: u8 = 1;

/// A structure decoded from a checked payload, or what is wrong with it; the caller, who knows the place,
/// makes a corruption error of that.
pub(crate) type Checked<T> = std::result::Result<T, &'static str>;

/// Where a stored block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockHandle {
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Its length, trailer included.
    pub stored_len: u32,
}

impl BlockHandle {
    /// Offset of the first byte after it; `None` if that is no file offset.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.stored_len))
    }
}

/// The file a block is read from, for checksums and error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub path: &'a Path,
    pub file_number: FileNumber,
    pub offset: u64,
}

impl Place<'_> {
    /// The error that the block at this place is damaged.
    #[cold]
    pub fn corrupt(&self, detail: impl Into<String>) -> Error {
        Error::corruption(self.path, self.offset, detail)
    }

    /// Content that is no payload: damage, unless it is only this build that cannot read it.
    #[cold]
    fn refuse(&self, fault: codec::Fault) -> Error {
        match fault {
            codec::Fault::NotBuiltIn(_) => {
                Error::Unsupported { path: self.path.to_path_buf(), detail: fault.to_string() }
            }
            _ => self.corrupt(fault.to_string()),
        }
    }
}

/// A block that is packed but for its padding and trailer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed {
    /// Where it will lie in the file.
    pub offset: u64,
    /// Length of the payload.
    pub payload_len: usize,
    /// Length as it will be stored without padding, trailer included.
    pub stored_len: usize,
}

/// Turns payloads into stored blocks.
pub(crate) struct Packer {
    file_number: FileNumber,
    compressor: Compressor,
}

impl Packer {
    pub fn new(file_number: FileNumber) -> Self {
        Self { file_number, compressor: Compressor::default() }
    }

    /// Makes the payload `out[start..]` a stored block that will lie at `offset` of the file, with as many
    /// bytes of padding as `padding` says. Returns its stored length.
    ///
    /// # Errors
    /// `InvalidArgument` for a payload that is longer than what readers take.
    pub fn pack(
        &mut self,
        out: &mut Vec<u8>,
        start: usize,
        offset: u64,
        compression: Compression,
        padding: impl FnOnce(Packed) -> usize,
    ) -> Result<u32> {
        let payload_len = out.len() - start;
        if payload_len > MAX_BLOCK_BYTES {
            let text =
                format!("a block of {payload_len} bytes is over the limit of {MAX_BLOCK_BYTES}");
            return Err(Error::InvalidArgument(text));
        }
        let mut stored_as = Compression::None;
        if let Some(content) = self.compressor.compress(&out[start..], compression) {
            out.truncate(start);
            out.extend_from_slice(content);
            stored_as = compression;
        }
        let mut kind = stored_as as u8;
        let stored_len = out.len() - start + TRAILER_BYTES;
        let padding = padding(Packed { offset, payload_len, stored_len });
        if padding > 0 {
            kind |= PADDED;
            out.push(PADDING_MARK);
            out.resize(out.len() + padding - 1, 0);
        }
        let checksum = block_checksum(&out[start..], kind, self.file_number, offset);
        out.push(kind);
        out.extend_from_slice(&checksum.to_le_bytes());
        u32::try_from(out.len() - start)
            .map_err(|_| Error::InvalidArgument("a block would pass 4 GiB".into()))
    }
}

/// Checks a stored block's checksum; returns what it covers: content with padding, and type.
pub(crate) fn check_sum<'a>(stored: &'a [u8], place: &Place<'_>) -> Result<(&'a [u8], u8)> {
    let Some((content, [kind, sum @ ..])) = stored.split_last_chunk::<TRAILER_BYTES>() else {
        return Err(place.corrupt("the block is shorter than its trailer"));
    };
    let expected = u32::from_le_bytes(*sum);
    let found = block_checksum(content, *kind, place.file_number, place.offset);
    if expected != found {
        let detail = format!("block checksum is {found:08x}, stored is {expected:08x}");
        return Err(place.corrupt(detail));
    }
    Ok((content, *kind))
}

/// Checks a stored block's checksum, type and padding; returns its content and how to read it.
pub(crate) fn check<'a>(stored: &'a [u8], place: &Place<'_>) -> Result<(&'a [u8], Compression)> {
    let (padded, kind) = check_sum(stored, place)?;
    let Some(compression) = Compression::from_byte(kind & !PADDED) else {
        return Err(place.corrupt(format!("unknown compression type {kind}")));
    };
    if kind & PADDED == 0 {
        return Ok((padded, compression));
    }
    let content = without_padding(padded).ok_or_else(|| place.corrupt("malformed padding"))?;
    Ok((content, compression))
}

/// What stands before the padding; `None` if there is none.
fn without_padding(padded: &[u8]) -> Option<&[u8]> {
    let mark_at = padded.iter().rposition(|byte| *byte != 0)?;
    (padded[mark_at] == PADDING_MARK).then(|| &padded[..mark_at])
}

/// Bytes of padding in a stored block that [`check`] has found sound.
pub(crate) fn padding_bytes(stored: &[u8]) -> usize {
    match stored.split_last_chunk::<TRAILER_BYTES>() {
        Some((padded, [kind, ..])) if kind & PADDED != 0 => {
            padded.len() - without_padding(padded).map_or(0, <[u8]>::len)
        }
        _ => 0,
    }
}

/// The payload length that compressed content declares, checked against the limits.
pub(crate) fn declared_len(
    content: &[u8],
    compression: Compression,
    place: &Place<'_>,
) -> Result<usize> {
    codec::payload_len(content, compression, MAX_BLOCK_BYTES).map_err(|fault| place.refuse(fault))
}

/// Decompresses `content` into `out`, which has exactly the declared length.
pub(crate) fn decompress_into(
    content: &[u8],
    compression: Compression,
    out: &mut [u8],
    place: &Place<'_>,
) -> Result<()> {
    codec::decompress_into(content, compression, out).map_err(|fault| place.refuse(fault))
}

/// Checks a stored block and returns its payload.
pub(crate) fn unpack(mut stored: BufMut, place: &Place<'_>) -> Result<Buf> {
    let (content, compression) = check(&stored, place)?;
    if compression == Compression::None {
        let len = content.len();
        stored.truncate(len);
        return Ok(stored.freeze());
    }
    let mut payload = BufMut::for_overwrite(declared_len(content, compression, place)?);
    decompress_into(content, compression, &mut payload, place)?;
    Ok(payload.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(offset: u64) -> Place<'static> {
        Place { path: Path::new("000007.sst"), file_number: FileNumber::new(7), offset }
    }

    fn stored(payload: &[u8], compression: Compression) -> Vec<u8> {
        padded(payload, compression, 0)
    }

    fn padded(payload: &[u8], compression: Compression, padding: usize) -> Vec<u8> {
        let mut out = b"before".to_vec();
        let start = out.len();
        let pack = |out: &mut Vec<u8>, payload_len, padding| {
            Packer::new(FileNumber::new(7))
                .pack(out, start, 4096, compression, |packed: Packed| {
                    assert_eq!((packed.offset, packed.payload_len), (4096, payload_len));
                    padding
                })
                .unwrap()
        };
        assert_eq!(pack(&mut out, 0, 0) as usize, TRAILER_BYTES);
        out.truncate(start);
        out.extend_from_slice(payload);
        let len = pack(&mut out, payload.len(), padding);
        assert_eq!(len as usize, out.len() - start);
        out.split_off(start)
    }

    /// As [`stored`], of these very bytes before the trailer.
    fn sealed(content: &[u8], kind: u8) -> Vec<u8> {
        let sum = block_checksum(content, kind, FileNumber::new(7), 4096);
        [content, &[kind], &sum.to_le_bytes()].concat()
    }

    fn unpacked(bytes: &[u8], offset: u64) -> Result<Buf> {
        let mut buf = BufMut::for_overwrite(bytes.len());
        buf.copy_from_slice(bytes);
        unpack(buf, &place(offset))
    }

    #[test]
    fn what_does_not_compress_is_stored_as_it_is() {
        let mut rng = terrace_base::SplitMix64::new(1);
        let noise: Vec<u8> =
            (0..2000).map(|_| terrace_base::Rng::next_u64(&mut rng) as u8).collect();
        assert_eq!(stored(&noise, Compression::Lz4).len(), noise.len() + TRAILER_BYTES);
        assert!(stored(&[7; 2000], Compression::Lz4).len() < 100);
    }

    #[test]
    fn a_block_that_no_reader_takes_is_not_made() {
        // Zeros that nobody touches take no memory.
        let mut payload = vec![0; MAX_BLOCK_BYTES + 1];
        let packed =
            Packer::new(FileNumber::new(7)).pack(&mut payload, 0, 0, Compression::None, |_| 0);
        assert!(matches!(packed, Err(Error::InvalidArgument(_))), "{packed:?}");
    }

    #[test]
    fn a_declared_length_over_the_limit_is_refused_before_allocation() {
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut content = u32::MAX.to_le_bytes().to_vec();
            content.extend_from_slice(&[0; 100]);
            assert!(declared_len(&content, compression, &place(0)).is_err());
            let mut bytes = content.clone();
            bytes.push(compression as u8);
            let sum = block_checksum(&content, compression as u8, FileNumber::new(7), 0);
            bytes.extend_from_slice(&sum.to_le_bytes());
            assert!(unpacked(&bytes, 0).unwrap_err().is_corruption());
        }
    }

    #[test]
    fn padding_other_than_a_mark_and_zeros_is_refused() {
        let sound = sealed(b"payload\x01\0\0\0", PADDED);
        assert_eq!(&unpacked(&sound, 4096).unwrap()[..], b"payload");
        assert_eq!(padding_bytes(&sound), 4);
        for content in [&b"payload\x01\0\x02\0"[..], b"payload\x02\0", b"payload", b"\0\0\0", b""] {
            let error = unpacked(&sealed(content, PADDED), 4096).unwrap_err();
            assert!(error.is_corruption(), "{content:?}");
        }
        // Without the flag all of it is the payload.
        assert_eq!(unpacked(&sealed(b"payload\x01\0", 0), 4096).unwrap().len(), 9);
    }

    proptest! {
        #[test]
        fn payloads_round_trip_and_damage_is_seen(
            part: Vec<u8>, repeat in 1usize..40, kind in 0u8..3, at: usize, flip in 1u8..,
            padding in prop_oneof![Just(0usize), 1usize..200],
        ) {
            let payload = part.repeat(repeat);
            let bytes = padded(&payload, Compression::from_byte(kind).unwrap(), padding);
            prop_assert_eq!(padding_bytes(&bytes), padding);
            prop_assert_eq!(&unpacked(&bytes, 4096).unwrap()[..], &payload[..]);
            prop_assert!(unpacked(&bytes, 4097).unwrap_err().is_corruption());
            let mut damaged = bytes.clone();
            damaged[at % bytes.len()] ^= flip;
            prop_assert!(unpacked(&damaged, 4096).unwrap_err().is_corruption());
        }

        #[test]
        fn arbitrary_bytes_never_panic(content: Vec<u8>, kind in 0u8..4, padded: bool) {
            let kind = if padded { kind | PADDED } else { kind };
            let mut bytes = content.clone();
            bytes.push(kind);
            bytes.extend_from_slice(&block_checksum(&content, kind, FileNumber::new(7), 0).to_le_bytes());
            let _ = unpacked(&bytes, 0);
        }
    }
}
