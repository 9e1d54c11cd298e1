//! Up to eight digits at once, in the lanes of one `u64`: plain integer arithmetic, no more than a
//! few operations for all of them.
//!
//! A word has the first of its bytes in the lowest lane that it uses and the last in lane 7, so that
//! unused lanes, which are zero, are leading zeros of the number.

const ONES: u64 = 0x0101_0101_0101_0101;
const TOP_BITS: u64 = ONES << 7;
const EVEN_BYTES: u64 = 0x00ff_00ff_00ff_00ff;
const EVEN_PAIRS: u64 = 0x0000_ffff_0000_ffff;

/// The greatest radix whose digits are bytes.
pub(super) const MAX_RADIX: u64 = 256;

/// Digits in one word.
pub(super) const MAX_DIGITS: usize = 8;

/// Which lanes the last `count` bytes of a word use.
#[inline]
fn lanes(count: usize) -> u64 {
    u64::MAX << (8 * (MAX_DIGITS - count.clamp(1, MAX_DIGITS)))
}

/// The bytes `at..at + count` of `key`, with others below them. `None` if the key ends before, or
/// has fewer than eight bytes.
#[inline]
pub(super) fn load(key: &[u8], at: usize, count: usize) -> Option<u64> {
    let end = at + count;
    match key.get(..end)?.last_chunk() {
        Some(chunk) => Some(u64::from_le_bytes(*chunk)),
        None => Some(u64::from_le_bytes(*key.first_chunk()?) << (8 * (MAX_DIGITS - end))),
    }
}

/// Bytes less `low`, if all are in `low..=low + span`, plus `first`, the rank of `low`.
#[inline]
pub(super) fn dense(word: u64, count: usize, low: u8, span: u8, first: u8) -> Option<u64> {
    let (lanes, low) = (lanes(count), u64::from(low) * ONES);
    // Lane by lane, with the top bits kept from borrowing.
    let digits = ((word | TOP_BITS) - (low & !TOP_BITS)) ^ ((word ^ !low) & TOP_BITS);
    let digits = digits & lanes;
    let carried = (digits & !TOP_BITS) + u64::from(127 - (span & 127)) * ONES;
    let above = if span < 128 { digits | carried } else { digits & carried };
    (above & TOP_BITS == 0).then(|| digits + ((u64::from(first) * ONES) & lanes))
}

/// The ranks of bytes, from a table as in [`super::Step::Sparse`], if all are in the alphabet.
#[inline]
pub(super) fn sparse(word: u64, count: usize, low: u8, ranks: &[u16]) -> Option<u64> {
    let mut digits = 0;
    for (lane, byte) in word.to_le_bytes().iter().enumerate().skip(MAX_DIGITS - count) {
        let rank = *ranks.get(usize::from(byte.wrapping_sub(low)))?;
        if rank & 1 == 0 {
            return None;
        }
        digits |= u64::from(rank >> 1) << (8 * lane);
    }
    Some(digits)
}

/// The number whose digits to base `radix`, at most 256, stand in the lanes.
#[inline]
pub(super) fn number(digits: u64, radix: u64) -> u64 {
    let square = radix * radix;
    let pairs = (digits & EVEN_BYTES) * radix + (digits >> 8 & EVEN_BYTES);
    let fours = (pairs & EVEN_PAIRS) * square + (pairs >> 16 & EVEN_PAIRS);
    (fours & u64::from(u32::MAX)) * (square * square) + (fours >> 32)
}

/// Whether `key[at..]` starts with `literal`.
#[inline]
pub(super) fn matches(key: &[u8], at: usize, literal: &[u8]) -> bool {
    let Some(bytes) = key.get(at..at + literal.len()) else { return false };
    match (bytes.last_chunk::<8>(), literal.last_chunk::<8>()) {
        (Some(last), Some(wanted)) => {
            let chunks = bytes.as_chunks::<8>().0.iter().zip(literal.as_chunks::<8>().0);
            last == wanted && chunks.into_iter().all(|(bytes, wanted)| bytes == wanted)
        }
        _ => bytes.iter().zip(literal).all(|(byte, wanted)| byte == wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn words_are_their_digits(
            key in vec(any::<u8>(), 0..20), at in 0usize..12, count in 1usize..9,
            low: u8, span: u8, first in 0u8..2,
        ) {
            let span = span.min(255 - low).min(255 - first);
            let radix = u64::from(span) + 1 + u64::from(first);
            let bytes = key.get(at..at + count);
            let Some(word) = load(&key, at, count) else {
                prop_assert!(bytes.is_none() || key.len() < 8);
                return Ok(());
            };
            let bytes = bytes.unwrap();
            let inside = bytes.iter().all(|byte| (low..=low + span).contains(byte));
            let digits = dense(word, count, low, span, first);
            prop_assert_eq!(digits.is_some(), inside);
            if let Some(digits) = digits {
                let digit = |byte: &u8| u64::from(byte - low + first);
                let want = bytes.iter().fold(0, |sum, byte| sum * radix + digit(byte));
                prop_assert_eq!(number(digits, radix), want);
            }
        }

        #[test]
        fn all_bytes_of_a_narrow_alphabet(low: u8, span in 0u8..20, seed in vec(any::<u8>(), 8)) {
            let span = span.min(255 - low);
            let key: Vec<u8> = seed.iter().map(|byte| low + byte % (span + 1)).collect();
            let digits = dense(load(&key, 0, 8).unwrap(), 8, low, span, 0).unwrap();
            prop_assert_eq!(digits.to_le_bytes().to_vec(), key.iter().map(|byte| byte - low).collect::<Vec<_>>());
        }

        #[test]
        fn literals_match(
            key in vec(0u8..2, 0..40), at in 0usize..10, len in 1usize..30, flip: usize,
        ) {
            prop_assert_eq!(matches(&key, at, &[7]), false);
            let Some(bytes) = key.get(at..at + len) else {
                prop_assert!(!matches(&key, at, &vec![0; len]));
                return Ok(());
            };
            let mut literal = bytes.to_vec();
            prop_assert!(matches(&key, at, &literal));
            literal[flip % len] ^= 1;
            prop_assert!(!matches(&key, at, &literal));
        }
    }
}
