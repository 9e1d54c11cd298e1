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
    // Looks at a word at a time: most keys have no tag.
    if !key.contains(&b'{') {
        return key;
    }
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

/// CRC-16/XMODEM: polynomial 0x1021, initial value 0, nothing reflected. Four bytes at a time, so that four
/// table look-ups do not wait for each other.
///
/// Source: Kounavis and Berry, "A Systematic Approach to Building High Performance Software-Based CRC Generators",
/// 2005, section 3 (slicing).
fn crc16(bytes: &[u8]) -> u16 {
    let look_up = |table: usize, byte: u16| TABLES[table][usize::from(byte & 0xff)];
    let (fours, rest) = bytes.as_chunks::<4>();
    let crc = fours.iter().fold(0, |crc: u16, &[a, b, c, d]| {
        look_up(3, crc >> 8 ^ u16::from(a))
            ^ look_up(2, crc ^ u16::from(b))
            ^ look_up(1, u16::from(c))
            ^ look_up(0, u16::from(d))
    });
    rest.iter().fold(crc, |crc, &byte| crc << 8 ^ look_up(0, crc >> 8 ^ u16::from(byte)))
}

/// The checksums of a byte with 0, 1, 2 and 3 zeros behind it.
static TABLES: [[u16; 256]; 4] = {
    let mut tables = [[0; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut table = 0;
        while table < 4 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
                bit += 1;
            }
            tables[table][byte] = crc;
            table += 1;
        }
        byte += 1;
    }
    tables
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
    fn the_checksum_is_that_of_bit_by_bit_division_at_every_length() {
        let bytes: Vec<u8> = (0..67_u32).map(|at| (at * 151 + 13) as u8).collect();
        for length in 0..bytes.len() {
            let expected = bytes[..length].iter().fold(0_u16, |crc, &byte| {
                (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
                    let next = crc << 1;
                    if crc & 0x8000 != 0 { next ^ 0x1021 } else { next }
                })
            });
            assert_eq!(crc16(&bytes[..length]), expected, "{length} bytes");
        }
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
