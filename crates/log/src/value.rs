//! Separated values: large values that stand in a segment once, while memtable and SST hold a
//! [`ValueHandle`].
//!
//! ```text
//! in a batch (type 1 record)            as a record of its own (type 3)
//!   … the operation's fields              0  key              bytes, length-prefixed
//!     length and compression   varint        length and compression   varint
//!     stored bytes             <- handle     stored bytes             <- handle
//!     checksum                 4             checksum                 4
//! ```
//! *Length and compression* is the count of stored bytes shifted left by two, and the number of a
//! [`Compression`] in the two lowest bits. The checksum is [`checksum`] of key and stored bytes,
//! xor [`place_mask`] of where the stored bytes begin: a value is read with one read of the stored
//! bytes and the four behind them, and is known to be that key's value at that place.
//!
//! Batches are the engine's; it uses the checksums from here. Records of type 3 are what garbage
//! collection writes ([`ValueWriter`]); [`read_value`] and [`read_values`] read both.

mod read;
mod scan;
mod writer;

#[cfg(test)]
mod tests;

pub use read::{
    JOINED_GAP_BYTES, JOINED_READ_BYTES, ValueRead, read_value, read_value_len, read_values,
    read_values_within,
};
pub(crate) use scan::value_of;
pub use scan::{ValueScan, ValueStep};
pub use writer::{VALUE_WRITE_BYTES, ValueWriter};

use crc32c::{crc32c, crc32c_append};
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::value_handle::{MAX_STORED_VALUE_BYTES, VALUE_CHECKSUM_BYTES};
use terrace_base::{Decoder, SegmentNumber, ValueHandle};
use terrace_compression::Compression;

/// Bits of the compression in *length and compression*.
const COMPRESSION_BITS: u32 = 2;

/// The checksum of a value's bytes: crc32c over the key's length (u32le), the key, and the stored
/// bytes.
#[inline]
pub fn checksum(key: &[u8], stored: &[u8]) -> u32 {
    let sum = crc32c(&(key.len() as u32).to_le_bytes());
    crc32c_append(crc32c_append(sum, key), stored)
}

/// What the place of a value adds to its checksum, by xor: crc32c over the segment (u32le) and the
/// file offset of the first stored byte (u64le).
#[inline]
pub fn place_mask(segment: SegmentNumber, offset: u64) -> u32 {
    let mut place = [0; 12];
    place[..4].copy_from_slice(&segment.get().to_le_bytes()[..4]);
    place[4..].copy_from_slice(&offset.to_le_bytes());
    crc32c(&place)
}

/// *Length and compression* of a value.
#[inline]
pub fn pack_length(len: u32, compression: u8) -> u64 {
    u64::from(len) << COMPRESSION_BITS | u64::from(compression & 3)
}

/// The stored length and the compression in a *length and compression*; `None` if the length is
/// over [`MAX_STORED_VALUE_BYTES`].
#[inline]
pub fn unpack_length(packed: u64) -> Option<(u32, u8)> {
    let len = packed >> COMPRESSION_BITS;
    (len <= MAX_STORED_VALUE_BYTES as u64).then_some((len as u32, packed as u8 & 3))
}

/// One separated value as it stands in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredValue<'a> {
    /// The user key that it was written for.
    pub key: &'a [u8],
    /// Where it lies.
    pub handle: ValueHandle,
    /// Its bytes as they are stored.
    pub stored: &'a [u8],
    /// The checksum behind them.
    pub checksum: u32,
}

impl<'a> StoredValue<'a> {
    /// Reads *length and compression*, stored bytes and checksum, which a batch and a record of
    /// type 3 have in common. `payload_offset` is the file offset of where `decoder` began.
    pub fn decode_tail(
        decoder: &mut Decoder<'a>,
        key: &'a [u8],
        segment: SegmentNumber,
        payload_offset: u64,
    ) -> Option<Self> {
        let (len, compression) = unpack_length(decoder.varint()?)?;
        let offset = payload_offset.checked_add(decoder.position() as u64)?;
        let stored = decoder.take(len as usize)?;
        let checksum = decoder.u32()?;
        Some(Self {
            key,
            handle: ValueHandle { segment, offset, len, compression },
            stored,
            checksum,
        })
    }

    /// Reads the payload of a record of type 3 that stands at `payload_offset` of `segment`;
    /// `None` if it is none.
    pub fn decode(payload: &'a [u8], segment: SegmentNumber, payload_offset: u64) -> Option<Self> {
        let mut decoder = Decoder::new(payload);
        let key = decoder.bytes()?;
        let value = Self::decode_tail(&mut decoder, key, segment, payload_offset)?;
        decoder.is_empty().then_some(value)
    }

    /// The checksum that its bytes and its place give.
    pub fn computed_checksum(&self) -> u32 {
        checksum(self.key, self.stored) ^ place_mask(self.handle.segment, self.handle.offset)
    }

    /// Whether the checksum is that of its bytes at its place, and the compression is known.
    pub fn is_sound(&self) -> bool {
        self.checksum == self.computed_checksum()
            && Compression::from_byte(self.handle.compression).is_some()
    }
}

/// Appends what stands before the stored bytes in the payload of a record of type 3.
fn put_head(out: &mut Vec<u8>, key: &[u8], len: u32, compression: u8) {
    put_bytes(out, key);
    put_varint(out, pack_length(len, compression));
}

const _: () = assert!(VALUE_CHECKSUM_BYTES == size_of::<u32>());
