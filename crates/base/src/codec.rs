//! Varints, length-prefixed bytes, and a checked reader over bytes that may be damaged.

use crate::error::{Error, Result};
use std::path::Path;

/// The most bytes a `u64` varint takes.
pub const MAX_VARINT_BYTES: usize = 10;

/// Appends `value` as a LEB128 varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the length of `bytes` as a varint, then `bytes`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a varint at the start of `bytes`: the value and its length. `None` if it is cut off,
/// longer than ten bytes, or over 64 bits.
#[inline]
pub fn get_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().take(MAX_VARINT_BYTES).enumerate() {
        let part = u64::from(byte & 0x7f);
        if at == 9 && part > 1 {
            return None;
        }
        value |= part << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

/// Reads fields off the front of untrusted bytes; every method says `None` instead of panicking
/// or reading past the end.
#[derive(Debug, Clone, Copy)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Decoder<'a> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The next two bytes, little-endian.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes, little-endian.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes, little-endian.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next varint.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let (value, len) = get_varint(self.rest)?;
        self.rest = &self.rest[len..];
        Some(value)
    }

    /// The next length-prefixed bytes; the length is checked before anything is touched.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?;
        self.take(usize::try_from(len).ok()?)
    }
}

/// Turns a field that could not be decoded into a corruption error that names file and offset.
pub fn field<T>(value: Option<T>, path: &Path, offset: u64, what: &str) -> Result<T> {
    value.ok_or_else(|| Error::corruption(path, offset, format!("{what} is cut off or malformed")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlong_and_cut_varints_are_refused() {
        assert_eq!(get_varint(&[0x80; 12]), None);
        assert_eq!(get_varint(&[0x80, 0x80]), None);
        assert_eq!(get_varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(Decoder::new(&[5, 1, 2]).bytes(), None);
    }

    proptest! {
        #[test]
        fn varint_round_trips(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(get_varint(&out), Some((value, out.len())));
        }

        #[test]
        fn bytes_round_trip(a: Vec<u8>, b: Vec<u8>) {
            let mut out = Vec::new();
            put_bytes(&mut out, &a);
            put_bytes(&mut out, &b);
            let mut decoder = Decoder::new(&out);
            prop_assert_eq!(decoder.bytes(), Some(&a[..]));
            prop_assert_eq!(decoder.bytes(), Some(&b[..]));
            prop_assert!(decoder.is_empty());
        }
    }
}
