//! Checksums and the key hash: crc32c for log records (hardware on every machine of today), xxh3
//! for blocks and keys.

use crate::number::FileNumber;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The 64-bit hash of a user key from which every filter derives its probes. Stored on disk
/// through the filters: changing it is a format change.
#[inline]
pub fn hash_key(user_key: &[u8]) -> u64 {
    xxh3_64(user_key)
}

/// crc32c over the concatenation of `parts`.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// The 4-byte checksum of a block: content, compression type, and the place where it belongs, so
/// that a block read from another offset or another file is detected.
pub fn block_checksum(bytes: &[u8], kind: u8, file_number: FileNumber, offset: u64) -> u32 {
    let place = file_number
        .get()
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(offset.rotate_left(17))
        .wrapping_add(u64::from(kind) << 56);
    let hash = xxh3_64_with_seed(bytes, place);
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_bound_to_its_place() {
        let (three, four) = (FileNumber::new(3), FileNumber::new(4));
        let sum = block_checksum(b"block", 0, three, 4096);
        assert_eq!(sum, block_checksum(b"block", 0, three, 4096));
        assert_ne!(sum, block_checksum(b"block", 1, three, 4096));
        assert_ne!(sum, block_checksum(b"block", 0, four, 4096));
        assert_ne!(sum, block_checksum(b"block", 0, three, 8192));
        assert_ne!(sum, block_checksum(b"blocK", 0, three, 4096));
    }

    #[test]
    fn crc_of_parts_is_crc_of_the_whole() {
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }
}
