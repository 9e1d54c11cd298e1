//! Redis Cluster's 16,384 slots: CRC-16/XMODEM of the key, or of its hash tag.
//!
//! Source: the Redis Cluster specification, "Key distribution model" and "Hash tags".

use std::fmt;

/// How many slots there are.
pub const SLOT_COUNT: u16 = 16_384;

/// A slot: below [`SLOT_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// The slot with this number; `None` if there is none.
    pub fn new(number: u16) -> Option<Self> {
        (number < SLOT_COUNT).then_some(Self(number))
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The slot of a key.
pub fn slot_of(key: &[u8]) -> Slot {
    Slot(crc16(hash_tag(key)) % SLOT_COUNT)
}

/// What of a key is hashed: the bytes between the first `{` and the first `}` after it, if there is at
/// least one; else the whole key.
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

/// CRC-16/XMODEM: polynomial 0x1021, initial value 0, nothing reflected.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| crc << 8 ^ TABLE[usize::from(crc >> 8 ^ u16::from(byte))])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn slots_are_those_of_redis() {
        for (key, slot) in [("foo", 12_182), ("bar", 5_061), ("hello", 866), ("", 0)] {
            assert_eq!(slot_of(key.as_bytes()).number(), slot, "{key}");
        }
    }

    #[test]
    fn only_the_tag_is_hashed() {
        let whole = |key: &'static [u8]| assert_eq!(hash_tag(key), key);
        assert_eq!(hash_tag(b"{user1000}.following"), b"user1000");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar");
        for key in [b"foo{}{bar}".as_slice(), b"{", b"}", b"}{", b"a{b", b""] {
            whole(key);
        }
    }
}
