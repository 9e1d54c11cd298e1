//! Where the value of an entry lies that is not inline: in which segment of the value log.
//!
//! ```text
//! handle   0  segment          4   file number
//!          4  offset           5   of the first stored byte in the file
//!          9  length           4   bits 0..30 stored bytes, bits 30..32 compression
//! ```
//! Little-endian. An entry of kind `PutHandle` stores a handle as its value; one of kind
//! `PutTtlHandle` stores its expiry and then a handle. Used by `terrace-log`, which resolves
//! handles, by `terrace-sst`, which counts them, and by the engine.

use crate::key::{EXPIRY_BYTES, ValueKind};
use crate::number::SegmentNumber;

/// Bytes of an encoded handle.
pub const HANDLE_BYTES: usize = 13;

/// The longest stored value that a handle can name (1 GiB - 1).
pub const MAX_STORED_VALUE_BYTES: usize = (1 << 30) - 1;

/// The first offset that a handle cannot name (1 TiB).
pub const MAX_SEGMENT_BYTES: u64 = 1 << 40;

/// Bytes of the checksum that follows each separated value in its segment.
pub const VALUE_CHECKSUM_BYTES: usize = 4;

const LEN_BITS: u32 = 30;

/// The place of a separated value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueHandle {
    /// The segment, at most [`MAX_VALUE_SEGMENT`](crate::MAX_VALUE_SEGMENT).
    pub segment: SegmentNumber,
    /// File offset of the first stored byte, below [`MAX_SEGMENT_BYTES`].
    pub offset: u64,
    /// Stored bytes, at most [`MAX_STORED_VALUE_BYTES`].
    pub len: u32,
    /// How the stored bytes are compressed: the number that a block trailer would have, 0 to 3.
    pub compression: u8,
}

impl ValueHandle {
    /// The bytes of the handle. Fields out of range are cut.
    #[inline]
    pub fn encode(&self) -> [u8; HANDLE_BYTES] {
        debug_assert!(
            self.segment.fits_handles()
                && self.offset < MAX_SEGMENT_BYTES
                && self.len as usize <= MAX_STORED_VALUE_BYTES
        );
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..4].copy_from_slice(&self.segment.get().to_le_bytes()[..4]);
        bytes[4..9].copy_from_slice(&self.offset.to_le_bytes()[..5]);
        let len = self.len & ((1 << LEN_BITS) - 1) | u32::from(self.compression) << LEN_BITS;
        bytes[9..].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    /// Reads a handle; any bytes are one.
    #[inline]
    pub fn decode(bytes: &[u8; HANDLE_BYTES]) -> Self {
        let [s0, s1, s2, s3, o0, o1, o2, o3, o4, l0, l1, l2, l3] = *bytes;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        Self {
            segment: SegmentNumber::new(u32::from_le_bytes([s0, s1, s2, s3]).into()),
            offset: u64::from_le_bytes([o0, o1, o2, o3, o4, 0, 0, 0]),
            len: len & ((1 << LEN_BITS) - 1),
            compression: (len >> LEN_BITS) as u8,
        }
    }

    /// The handle of an entry of `kind` with this stored value; `None` if its value is inline, or
    /// if the stored value has another length than its kind asks for.
    #[inline]
    pub fn of_entry(kind: ValueKind, stored: &[u8]) -> Option<Self> {
        let handle = match kind {
            ValueKind::PutHandle => stored,
            ValueKind::PutTtlHandle => stored.get(EXPIRY_BYTES..)?,
            _ => return None,
        };
        handle.try_into().ok().map(Self::decode)
    }

    /// What the value counts for in its segment's statistics, with a key of `key_len` bytes: the bytes
    /// that are of use only to it.
    #[inline]
    pub fn weight_bytes(&self, key_len: usize) -> u64 {
        (key_len + VALUE_CHECKSUM_BYTES) as u64 + u64::from(self.len)
    }

    /// Where the value and its checksum end.
    #[inline]
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len) + VALUE_CHECKSUM_BYTES as u64
    }
}

/// How much of one value segment an SST refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ValueRef {
    /// The segment.
    pub segment: SegmentNumber,
    /// Sum of [`ValueHandle::weight_bytes`] of the entries that refer to it.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn handles_round_trip(
            segment: u32,
            offset in 0..MAX_SEGMENT_BYTES,
            len in 0..=MAX_STORED_VALUE_BYTES as u32,
            compression in 0u8..4,
        ) {
            let segment = SegmentNumber::new(segment.into());
            let handle = ValueHandle { segment, offset, len, compression };
            let bytes = handle.encode();
            prop_assert_eq!(ValueHandle::decode(&bytes), handle);
            prop_assert_eq!(ValueHandle::of_entry(ValueKind::PutHandle, &bytes), Some(handle));
            let expiring = [&7u64.to_le_bytes()[..], &bytes].concat();
            prop_assert_eq!(ValueHandle::of_entry(ValueKind::PutTtlHandle, &expiring), Some(handle));
            prop_assert_eq!(ValueHandle::of_entry(ValueKind::PutTtlHandle, &bytes), None);
            prop_assert_eq!(ValueHandle::of_entry(ValueKind::Put, &bytes), None);
        }
    }
}
