//! Heads: 32-bit order-preserving digests of keys, kept in every link so that most comparisons of
//! a search need no access to the successor.
//!
//! A [`Scheme`] reads a key from its start. First comes a prefix, which is skipped. Then one
//! [`Step`] a byte: the byte's distance from the start of a block of 2^bits values goes into the
//! head, `bits` bits of it; no bits for a byte that is always the same.
//!
//! For every scheme `a <= b` implies `head(a) <= head(b)`, because a key leaves the scheme only in
//! the direction in which it differs: below the prefix, or with a byte below the block, or at its
//! end, the rest of the head is zeros; above, it is ones. Equal heads say nothing, and the caller
//! compares the keys. So a scheme that fits the keys badly costs time, never order.
//!
//! What this buys. Four raw bytes of sixteen-digit decimals are all zeros; four bytes after the
//! prefix tell 10^4 keys apart, while a full memtable holds 5 * 10^5; eight digits of four bits tell
//! 10^8 apart. `t03/item/0012345` spends bits on the nine digits that vary, none on `/item/`. Random
//! binary keys get their first four bytes, which is all they need.
//!
//! Why not from the first key alone: it does not say which of its bytes vary. A sample does, and in
//! a sorted one the prefix shared by all is the one shared by the first and the last. Bits left
//! when the keys end go to the bytes before, so that decimals counting up from 0 get their last
//! eight digits and not the two that have varied so far. Early keys may mislead all the same (a
//! load that starts with one tenant), so the list learns again as it grows.

use terrace_base::key::common_prefix;

/// What one byte of the key adds to the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    /// The lowest byte of the block.
    start: u8,
    /// The block has 2^bits bytes: at most 8.
    bits: u32,
}

impl Step {
    const DIGIT: Self = Self { start: b'0', bits: 4 };
    const BYTE: Self = Self { start: 0, bits: 8 };

    /// From the narrowest: digits, upper-case hexadecimal, upper-case letters, lower-case letters,
    /// lower-case hexadecimal, upper-case text, any byte.
    const BLOCKS: [Self; 7] = [
        Self::DIGIT,
        Self { start: b'0', bits: 5 },
        Self { start: b'@', bits: 5 },
        Self { start: b'`', bits: 5 },
        Self { start: b'0', bits: 6 },
        Self { start: b' ', bits: 6 },
        Self::BYTE,
    ];

    /// The step for bytes between `low` and `high`.
    fn covering(low: u8, high: u8) -> Self {
        if low == high {
            return Self { start: low, bits: 0 };
        }
        let covers = |block: &&Self| block.contains(low) && block.contains(high);
        *Self::BLOCKS.iter().find(covers).unwrap_or(&Self::BYTE)
    }

    fn contains(self, byte: u8) -> bool {
        byte >= self.start && u32::from(byte - self.start) < 1 << self.bits
    }
}

/// How keys become heads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scheme {
    prefix: Box<[u8]>,
    steps: Box<[Step]>,
    shape: Shape,
}

/// What the steps come to, for those that can be taken at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Four times [`Step::BYTE`].
    FourBytes,
    /// Eight times [`Step::DIGIT`].
    EightDigits,
    Mixed,
}

/// The most steps of a scheme: a bound on the work for a head.
const MAX_STEPS: usize = 32;

impl Scheme {
    /// The first four bytes: what a list starts with.
    pub(crate) fn raw() -> Self {
        Self::new(&[], &[Step::BYTE; 4])
    }

    fn new(prefix: &[u8], steps: &[Step]) -> Self {
        let shape = if steps == [Step::BYTE; 4] {
            Shape::FourBytes
        } else if steps == [Step::DIGIT; 8] {
            Shape::EightDigits
        } else {
            Shape::Mixed
        };
        Self { prefix: prefix.into(), steps: steps.into(), shape }
    }

    /// The head of `key`.
    #[inline]
    pub(crate) fn head(&self, key: &[u8]) -> u32 {
        match (key.strip_prefix(&*self.prefix), self.shape) {
            (Some(rest), Shape::FourBytes) => first_four_bytes(rest),
            (Some(rest), Shape::EightDigits) => match first_eight_digits(rest) {
                Some(head) => head,
                None => self.steps_head(rest),
            },
            (Some(rest), Shape::Mixed) => self.steps_head(rest),
            (None, _) if key < &*self.prefix => 0,
            (None, _) => u32::MAX,
        }
    }

    /// The head of a key that continues as `rest` after the prefix.
    fn steps_head(&self, rest: &[u8]) -> u32 {
        let mut head = 0;
        let mut free_bits = u32::BITS;
        for (byte, step) in rest.iter().zip(&self.steps) {
            if *byte < step.start {
                break;
            }
            let distance = u32::from(byte - step.start);
            if distance >= 1 << step.bits {
                return head | u32::MAX.checked_shr(u32::BITS - free_bits).unwrap_or(0);
            }
            if step.bits == 0 {
                continue;
            }
            if step.bits >= free_bits {
                return head | distance >> (step.bits - free_bits);
            }
            free_bits -= step.bits;
            head |= distance << free_bits;
        }
        head
    }

    /// The scheme that suits `keys`, which are sorted.
    pub(crate) fn fitting(keys: &[&[u8]]) -> Self {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Self::raw();
        };
        let mut start = common_prefix(first, last);
        let mut steps = Vec::new();
        let mut free_bits = u32::BITS;
        while free_bits > 0 && steps.len() < MAX_STEPS {
            let bytes = || keys.iter().filter_map(|key| key.get(start + steps.len()));
            let (Some(low), Some(high)) = (bytes().min(), bytes().max()) else { break };
            let step = Step::covering(*low, *high);
            free_bits = free_bits.saturating_sub(step.bits);
            steps.push(step);
        }
        // Where a number may grow: left of the last byte that varies, as long as bytes are alike.
        if let Some(last) = steps.iter().rposition(|step| step.bits > 0) {
            let block = steps[last];
            let mut at = last;
            while free_bits >= block.bits {
                if at > 0 {
                    at -= 1;
                    if steps[at].bits > 0 {
                        continue;
                    }
                    if !block.contains(steps[at].start) {
                        break;
                    }
                    steps[at] = block;
                } else {
                    if start == 0 || !block.contains(first[start - 1]) {
                        break;
                    }
                    start -= 1;
                    steps.insert(0, block);
                }
                free_bits -= block.bits;
            }
        }
        Self::new(&first[..start], &steps)
    }

    /// How many of `keys`, which are sorted, have another head than the one before.
    pub(crate) fn distinct(&self, keys: &[&[u8]]) -> usize {
        keys.windows(2).filter(|pair| self.head(pair[0]) != self.head(pair[1])).count()
    }
}

fn first_four_bytes(rest: &[u8]) -> u32 {
    match rest.first_chunk::<4>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 4];
            bytes[..rest.len()].copy_from_slice(rest);
            u32::from_be_bytes(bytes)
        }
    }
}

/// The low halves of the first eight bytes, if all of them lie in the block of [`Step::DIGIT`].
fn first_eight_digits(rest: &[u8]) -> Option<u32> {
    let bytes = u64::from_be_bytes(*rest.first_chunk::<8>()?);
    if (bytes ^ 0x3030_3030_3030_3030) & 0xf0f0_f0f0_f0f0_f0f0 != 0 {
        return None;
    }
    let nibbles = bytes & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some((quads | quads >> 16) as u32)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fitting<T: AsRef<[u8]>>(keys: impl IntoIterator<Item = T>) -> Scheme {
        let owned: Vec<T> = keys.into_iter().collect();
        let mut keys: Vec<&[u8]> = owned.iter().map(AsRef::as_ref).collect();
        keys.sort_unstable();
        Scheme::fitting(&keys)
    }

    #[test]
    fn counting_decimals_get_their_last_eight_digits() {
        let scheme = fitting((0..32).map(|n| format!("{n:016}")));
        assert_eq!(scheme, Scheme::new(b"00000000", &[Step::DIGIT; 8]));
        assert_eq!(scheme.head(b"0000000012345678"), 0x1234_5678);
        assert_eq!(scheme.head(b"0000000100000000"), u32::MAX);
        assert_eq!(scheme.head(b"0000"), 0);
    }

    #[test]
    fn counting_binary_numbers_get_their_last_four_bytes() {
        let scheme = fitting((0..32u64).map(u64::to_be_bytes));
        assert_eq!(scheme, Scheme::new(&[0; 4], &[Step::BYTE; 4]));
        assert_eq!(scheme.head(&0xffu64.to_be_bytes()), 0xff);
    }

    #[test]
    fn a_shared_word_takes_no_bits() {
        let scheme = fitting((100..999).map(|n| format!("user{n}")));
        assert_eq!(scheme, Scheme::new(b"user", &[Step::DIGIT; 3]));
        assert_eq!(scheme.head(b"user123"), 0x1230_0000);
        assert_eq!(scheme.head(b"user12x"), 0x12ff_ffff);
        assert_eq!(scheme.head(b"user12 9"), 0x1200_0000);
        let scheme = fitting((0..999).map(|n| format!("t{:02}/item/{:07}", n % 40, n * 9973)));
        assert_eq!(scheme.head(b"t98/item/7654321"), 0x9876_5432);
        assert_eq!(scheme.head(b"t98/jtem/7654321"), 0x98ff_ffff);
        assert_eq!(scheme.head(b"t98/"), 0x9800_0000);
        let scheme = fitting((0..32).map(|n| format!("t{:02}/item/{n:07}", n % 20)));
        assert_eq!(scheme.head(b"t19/item/0123456"), 0x1912_3456);
    }

    #[test]
    fn a_byte_that_varies_gets_the_narrowest_block() {
        let bits = |of: &str| fitting(of.split(' ')).steps.iter().map(|s| s.bits).max();
        assert_eq!(bits("0 9 5"), Some(4));
        assert_eq!(bits("0 F"), Some(5));
        assert_eq!(bits("A Z"), Some(5));
        assert_eq!(bits("a z"), Some(5));
        assert_eq!(bits("0 f"), Some(6));
        assert_eq!(bits("- Z"), Some(6));
        assert_eq!(bits("- z"), Some(8));
    }

    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![4 => b'0'..=b'9', 1 => b'a'..=b'h', 1 => b'N'..=b'Q', 1 => any::<u8>()]
    }

    fn keys(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<u8>>> {
        proptest::collection::vec(proptest::collection::vec(byte(), 0..12), count)
    }

    proptest! {
        #[test]
        fn heads_keep_order(
            prefix in proptest::collection::vec(byte(), 0..3),
            sample in keys(0..6),
            mut keys in keys(2..20),
            prefixed in 0usize..20,
        ) {
            let with_prefix = |key: &Vec<u8>| [&prefix[..], key].concat();
            let scheme = fitting(sample.iter().map(with_prefix));
            for key in keys.iter_mut().take(prefixed) {
                *key = with_prefix(key);
            }
            keys.extend(sample.iter().map(with_prefix));
            keys.sort();
            for pair in keys.windows(2) {
                prop_assert!(scheme.head(&pair[0]) <= scheme.head(&pair[1]), "{:?}", scheme);
            }
        }

        #[test]
        fn digits_at_once_are_digits_one_by_one(rest in proptest::collection::vec(byte(), 0..12)) {
            let scheme = Scheme::new(&[], &[Step::DIGIT; 8]);
            if let Some(head) = first_eight_digits(&rest) {
                prop_assert_eq!(head, scheme.steps_head(&rest));
            }
            let scheme = Scheme::raw();
            prop_assert_eq!(first_four_bytes(&rest), scheme.steps_head(&rest));
        }
    }
}
