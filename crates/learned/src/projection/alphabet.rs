//! The symbols that keys have at one position: bytes, and the end of a key, which ranks below
//! every byte. Gathered by [`super::ProjectionBuilder`], stored by [`super::codec`].

/// A set of symbols; `None` stands for the end of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Alphabet {
    bytes: [u64; 4],
    has_end: bool,
}

impl Alphabet {
    /// The alphabet of one symbol.
    pub fn of(symbol: Option<u8>) -> Self {
        let mut alphabet = Self::default();
        alphabet.insert(symbol);
        alphabet
    }

    /// The alphabet of the bytes in `bitmap` (byte `b` is bit `b % 8` of `bitmap[b / 8]`).
    pub fn from_bitmap(bitmap: [u8; 32], has_end: bool) -> Self {
        let (words, _) = bitmap.as_chunks::<8>();
        let mut bytes = [0; 4];
        for (word, chunk) in bytes.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*chunk);
        }
        Self { bytes, has_end }
    }

    /// As read by [`Self::from_bitmap`].
    pub fn bitmap(&self) -> [u8; 32] {
        let mut bitmap = [0; 32];
        for (chunk, word) in bitmap.as_chunks_mut::<8>().0.iter_mut().zip(self.bytes) {
            *chunk = word.to_le_bytes();
        }
        bitmap
    }

    /// Adds a symbol; whether it was missing.
    #[inline]
    pub fn insert(&mut self, symbol: Option<u8>) -> bool {
        let Some(byte) = symbol else { return !std::mem::replace(&mut self.has_end, true) };
        let word = &mut self.bytes[usize::from(byte >> 6)];
        let before = *word;
        *word |= 1 << (byte & 63);
        *word != before
    }

    /// Adds the bytes `low..=high`.
    pub fn insert_range(&mut self, low: u8, high: u8) {
        for byte in low..=high {
            self.insert(Some(byte));
        }
    }

    pub fn contains(&self, byte: u8) -> bool {
        self.bytes[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    pub fn has_end(&self) -> bool {
        self.has_end
    }

    fn byte_count(&self) -> u32 {
        self.bytes.iter().map(|word| word.count_ones()).sum()
    }

    /// How many symbols there are: at most 257.
    pub fn radix(&self) -> u64 {
        u64::from(self.byte_count()) + u64::from(self.has_end)
    }

    /// The byte, if it is the only symbol.
    pub fn literal(&self) -> Option<u8> {
        match *self.ranges() {
            [(low, high)] if low == high && !self.has_end => Some(low),
            _ => None,
        }
    }

    /// The bytes as maximal ranges `(first, last)`, ascending.
    pub fn ranges(&self) -> Vec<(u8, u8)> {
        let mut ranges: Vec<(u8, u8)> = Vec::new();
        for byte in (0..=u8::MAX).filter(|byte| self.contains(*byte)) {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(byte) => *last = byte,
                _ => ranges.push((byte, byte)),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_end_is_a_symbol_and_no_literal() {
        assert_eq!(Alphabet::of(None).radix(), 1);
        assert_eq!(Alphabet::of(None).literal(), None);
        assert_eq!(Alphabet::of(Some(255)).literal(), Some(255));
        let mut all = Alphabet::of(None);
        all.insert_range(0, 255);
        assert_eq!((all.radix(), all.ranges()), (257, vec![(0, 255)]));
        assert!(!all.insert(None) && !all.insert(Some(7)));
    }

    proptest! {
        #[test]
        fn ranges_and_bitmaps_hold_the_same_bytes(bytes: Vec<u8>, has_end: bool) {
            let mut alphabet = Alphabet::default();
            for byte in &bytes {
                let missing = !alphabet.contains(*byte);
                prop_assert_eq!(alphabet.insert(Some(*byte)), missing);
            }
            if has_end { alphabet.insert(None); }
            let mut back = if has_end { Alphabet::of(None) } else { Alphabet::default() };
            let ranges = alphabet.ranges();
            for pair in ranges.windows(2) { prop_assert!(pair[0].1 + 1 < pair[1].0); }
            for (low, high) in ranges { back.insert_range(low, high); }
            prop_assert_eq!(back, alphabet);
            prop_assert_eq!(Alphabet::from_bitmap(alphabet.bitmap(), has_end), alphabet);
            let mut sorted = bytes;
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(alphabet.radix(), sorted.len() as u64 + u64::from(has_end));
        }
    }
}
