//! Keys in order, as far as a projection can use them, without what they share with the key before.
//!
//! ```text
//! per key: varint bytes shared with the key before, varint rest length << 2 | flags, rest
//! ```
//! Flag 1: the position is one above that of the key before. Flag 2: the key starts a data block.

use terrace_base::Decoder;
use terrace_base::codec::put_varint;
use terrace_base::key::common_prefix;

const ADVANCES: u64 = 1;
const STARTS_BLOCK: u64 = 2;

/// Collects keys. A few bytes each; nothing is shared with the caller.
#[derive(Debug, Default)]
pub(crate) struct KeyBuffer {
    bytes: Vec<u8>,
    /// The last key, as far as it was kept.
    last: Vec<u8>,
}

impl KeyBuffer {
    /// How many bytes `key` has in common with the last one; `None` if it sorts below it.
    #[inline]
    pub fn shared(&self, key: &[u8]) -> Option<usize> {
        let shared = shared(&self.last, key);
        match (self.last.get(shared), key.get(shared)) {
            (Some(_), None) => None,
            (Some(last), Some(byte)) if byte < last => None,
            _ => Some(shared),
        }
    }

    /// Adds a key that has its first `shared` bytes in common with the last one.
    #[inline]
    pub fn push(&mut self, key: &[u8], shared: usize, advances: bool, starts_block: bool) {
        let shared = shared.min(key.len());
        let rest = &key[shared..];
        let flags = (u64::from(advances) * ADVANCES) | (u64::from(starts_block) * STARTS_BLOCK);
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, (rest.len() as u64) << 2 | flags);
        self.bytes.extend_from_slice(rest);
        self.last.truncate(shared);
        self.last.extend_from_slice(rest);
    }

    /// Memory held by what was pushed.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.last.capacity()
    }

    /// The keys from the first.
    pub fn iter(&self) -> Keys<'_> {
        Keys { decoder: Decoder::new(&self.bytes), key: Vec::new() }
    }
}

/// A key read back.
#[derive(Debug)]
pub(crate) struct BufferedKey<'a> {
    pub key: &'a [u8],
    pub advances: bool,
    pub starts_block: bool,
}

/// Walks over a [`KeyBuffer`].
#[derive(Debug)]
pub(crate) struct Keys<'a> {
    decoder: Decoder<'a>,
    key: Vec<u8>,
}

impl Keys<'_> {
    /// The next key.
    #[inline]
    pub fn next(&mut self) -> Option<BufferedKey<'_>> {
        let shared = self.decoder.varint()? as usize;
        let len_and_flags = self.decoder.varint()?;
        let rest = self.decoder.take((len_and_flags >> 2) as usize)?;
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        let advances = len_and_flags & ADVANCES != 0;
        Some(BufferedKey {
            key: &self.key,
            advances,
            starts_block: len_and_flags & STARTS_BLOCK != 0,
        })
    }
}

/// The length of the common prefix, eight bytes at a time.
#[inline]
fn shared(a: &[u8], b: &[u8]) -> usize {
    let chunks = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let mut len = 0;
    for (a, b) in chunks {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return len + (differing.trailing_zeros() / u8::BITS) as usize;
        }
        len += 8;
    }
    len + common_prefix(&a[len..], &b[len..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_come_back_as_far_as_they_were_kept(
            mut keys in vec(vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..25), 0..40),
            kept in 0usize..25,
        ) {
            keys.sort();
            let mut buffer = KeyBuffer::default();
            for (at, key) in keys.iter().enumerate() {
                let shared = buffer.shared(key).unwrap();
                prop_assert_eq!(shared, common_prefix(&buffer.last, key));
                buffer.push(&key[..key.len().min(kept)], shared, at % 2 == 0, at % 3 == 0);
            }
            let mut back = buffer.iter();
            for (at, key) in keys.iter().enumerate() {
                let read = back.next().unwrap();
                prop_assert_eq!(read.key, &key[..key.len().min(kept)]);
                prop_assert_eq!((read.advances, read.starts_block), (at % 2 == 0, at % 3 == 0));
            }
            prop_assert!(back.next().is_none());
        }

        #[test]
        fn descending_keys_are_noticed(a: Vec<u8>, b: Vec<u8>) {
            let mut buffer = KeyBuffer::default();
            buffer.push(&a, 0, false, false);
            prop_assert_eq!(buffer.shared(&b).is_some(), a <= b);
        }
    }
}
