//! Up to eight digits at once, in the lanes of one `u64`: plain integer arithmetic, no more than a
//! few operations for all of them.
//!
//! A word has the first of its bytes in the lowest lane that it uses and the last in lane 7, so
//! that unused lanes, which are zero, are leading zeros of the number.

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

/// Which lanes of `word` hold more than `limit`: their top bits.
#[inline]
fn above(word: u64, limit: u8) -> u64 {
    let carried = (word & !TOP_BITS) + u64::from(127 - (limit & 127)) * ONES;
    (if limit < 128 { word | carried } else { word & carried }) & TOP_BITS
}

/// The bytes from `low` to `low + span`, but for `gap` of them after the first `before_gap + 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ranges {
    pub low: u8,
    pub span: u8,
    pub before_gap: u8,
    /// 0 if all bytes belong.
    pub gap: u8,
}

impl Ranges {
    /// The ranges `(first, last)` in `ranges`, if they are one or two.
    pub fn of(ranges: &[(u8, u8)]) -> Option<Self> {
        match *ranges {
            [(low, high)] => Some(Self { low, span: high - low, before_gap: 0, gap: 0 }),
            [(low, end), (start, high)] => {
                let (before_gap, gap) = (end - low, start - end - 1);
                Some(Self { low, span: high - low, before_gap, gap })
            }
            _ => None,
        }
    }

    /// How many bytes belong.
    #[inline]
    pub fn len(&self) -> u64 {
        u64::from(self.span) + 1 - u64::from(self.gap)
    }
}

/// The ranks of bytes, if all belong to `ranges`; the lowest has the rank `first`.
#[inline]
pub(super) fn ranked(word: u64, count: usize, ranges: Ranges, first: u8) -> Option<u64> {
    let Ranges { low, span, before_gap, gap } = ranges;
    let (lanes, low) = (lanes(count), u64::from(low) * ONES);
    // Lane by lane, with the top bits kept from borrowing.
    let ranks = ((word | TOP_BITS) - (low & !TOP_BITS)) ^ ((word ^ !low) & TOP_BITS);
    let mut ranks = ranks & lanes;
    if above(ranks, span) != 0 {
        return None;
    }
    if gap > 0 {
        let past = above(ranks, before_gap + gap);
        if above(ranks, before_gap) != past {
            return None;
        }
        ranks -= (past >> 7) * u64::from(gap);
    }
    Some(ranks + ((u64::from(first) * ONES) & lanes))
}

/// The ranks of bytes, from a table as in [`super::Step::Sparse`], if all are in the alphabet.
#[inline]
pub(super) fn sparse(word: u64, count: usize, low: u8, ranks: &[u16]) -> Option<u64> {
    let (mut digits, mut present) = (0, 1);
    let mut bytes = word >> (8 * (MAX_DIGITS - count.clamp(1, MAX_DIGITS)));
    for lane in MAX_DIGITS - count..MAX_DIGITS {
        let rank = *ranks.get(usize::from((bytes as u8).wrapping_sub(low)))?;
        present &= rank;
        digits |= u64::from(rank >> 1) << (8 * lane);
        bytes >>= 8;
    }
    if present & 1 == 0 {
        return None;
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
            bounds in vec(any::<u8>(), 4), two: bool, first in 0u8..2, narrow: bool,
        ) {
            let mut bounds = bounds;
            bounds.sort_unstable();
            let [low, end, start, high] = bounds[..] else { unreachable!() };
            let two = two && start > end.saturating_add(1);
            let list = if two { vec![(low, end), (start, high)] } else { vec![(low, high)] };
            let ranges = Ranges::of(&list).unwrap();
            let members: Vec<u8> =
                list.iter().flat_map(|(low, high)| *low..=*high).collect();
            prop_assert_eq!(ranges.len(), members.len() as u64);
            let radix = ranges.len() + u64::from(first);
            prop_assume!(radix <= MAX_RADIX);
            let key: Vec<u8> = match narrow {
                true => key.iter().map(|byte| members[usize::from(*byte) % members.len()]).collect(),
                false => key,
            };
            let bytes = key.get(at..at + count);
            let Some(word) = load(&key, at, count) else {
                prop_assert!(bytes.is_none() || key.len() < 8);
                return Ok(());
            };
            let bytes = bytes.unwrap();
            let digit = |byte: &u8| members.binary_search(byte).ok().map(|at| at as u64 + u64::from(first));
            let digits: Option<Vec<u64>> = bytes.iter().map(digit).collect();
            let want = digits.map(|digits| digits.iter().fold(0, |sum, digit| sum * radix + digit));
            let ranks = ranked(word, count, ranges, first);
            prop_assert_eq!(ranks.map(|ranks| number(ranks, radix)), want);
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
