//! Which keys exist: numbers to key bytes, a random order without repeats, and keys that are
//! in range but absent.
//!
//! A key is made as RocksDB's db_bench makes it: the number in big-endian, in up to 8 bytes,
//! then `'0'` up to the key size. Item `i` of a store has the number `2 i`; the odd numbers
//! between are the absent keys, so a miss has the length and the neighbourhood of a hit.

use anyhow::{Result, ensure};
use terrace_base::{Rng, SplitMix64};

/// Bytes of a key that carry its number, at most.
const NUMBER_BYTES: usize = 8;

/// The keys of one store.
#[derive(Debug, Clone, Copy)]
pub struct KeySpace {
    key_size: usize,
}

impl KeySpace {
    /// Keys of `key_size` bytes for `items` items and as many that are inserted later.
    pub fn new(key_size: usize, items: u64) -> Result<Self> {
        let room_bits = 8 * key_size.min(NUMBER_BYTES) as u32;
        let most = if room_bits == 64 { u64::MAX } else { (1 << room_bits) - 1 };
        ensure!(
            key_size >= 1 && items <= most / 4,
            "--key-size {key_size} cannot tell {items} keys (and as many absent ones) apart; \
             use at least {} bytes",
            (64 - items.saturating_mul(4).leading_zeros()).div_ceil(8)
        );
        ensure!(key_size <= 65536, "--key-size {key_size} is over the limit of 65536 bytes");
        Ok(Self { key_size })
    }

    /// Writes the key of item `index` over `key`.
    pub fn present(self, index: u64, key: &mut Vec<u8>) {
        self.write(2 * index, key);
    }

    /// Whether `key` is that of item `index`.
    #[inline]
    pub fn is_present(self, index: u64, key: &[u8]) -> bool {
        let width = self.key_size.min(NUMBER_BYTES);
        let number = (2 * index).to_be_bytes();
        // A whole number is one word, and no call.
        let is_number = match key.first_chunk::<NUMBER_BYTES>() {
            Some(front) if width == NUMBER_BYTES => *front == number,
            _ => key.starts_with(&number[NUMBER_BYTES - width..]),
        };
        is_number && key.len() == self.key_size && key.iter().skip(width).all(|byte| *byte == b'0')
    }

    /// Writes a key over `key` that no item has, right after that of item `index`.
    pub fn absent(self, index: u64, key: &mut Vec<u8>) {
        self.write(2 * index + 1, key);
    }

    fn write(self, number: u64, key: &mut Vec<u8>) {
        let width = self.key_size.min(NUMBER_BYTES);
        key.clear();
        key.extend_from_slice(&number.to_be_bytes()[NUMBER_BYTES - width..]);
        key.resize(self.key_size, b'0');
    }
}

/// A random bijection of `0..count`: four Feistel rounds over the smallest even number of bits
/// that holds `count`, walked until the result is inside (Black and Rogaway, "Ciphers with
/// arbitrary finite domains", 2002). No table, so it costs no memory next to the store's.
#[derive(Debug, Clone)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    round_keys: [u64; 4],
}

impl Permutation {
    /// A bijection of `0..count` that is a function of `seed`.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        let mut rng = SplitMix64::new(seed);
        Self {
            count,
            half_bits: bits.div_ceil(2).max(1),
            round_keys: std::array::from_fn(|_| rng.next_u64()),
        }
    }

    /// The image of `index`, which must be below the count.
    pub fn apply(&self, index: u64) -> u64 {
        debug_assert!(index < self.count);
        let mut value = index;
        loop {
            value = self.encrypt(value);
            if value < self.count {
                return value;
            }
        }
    }

    fn encrypt(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.round_keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

/// Spreads every input bit over all output bits (the finaliser of MurmurHash3).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    z = (z ^ (z >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    z ^ (z >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn permutation_is_a_bijection(count in 1u64..5000, seed in any::<u64>()) {
            let permutation = Permutation::new(count, seed);
            let mut seen = vec![false; count as usize];
            for index in 0..count {
                let image = permutation.apply(index) as usize;
                prop_assert!(!seen[image], "{} is hit twice", image);
                seen[image] = true;
            }
        }

        #[test]
        fn keys_sort_as_their_numbers(a in 0u64..1 << 40, b in 0u64..1 << 40, size in 6usize..40) {
            let keys = KeySpace::new(size, 1 << 40).unwrap();
            let (mut first, mut second) = (Vec::new(), Vec::new());
            keys.present(a, &mut first);
            keys.present(b, &mut second);
            prop_assert_eq!(first.len(), size);
            prop_assert_eq!(a.cmp(&b), first.cmp(&second));
        }
    }

    #[test]
    fn permutation_looks_random() {
        let permutation = Permutation::new(100_000, 7);
        let rising = (1..100_000).filter(|i| permutation.apply(*i) > permutation.apply(i - 1));
        let share = rising.count() as f64 / 1e5;
        assert!((0.49..0.51).contains(&share), "{share} of the neighbours rise");
    }

    #[test]
    fn absent_keys_are_never_present_and_lie_in_range() {
        let keys = KeySpace::new(3, 1000).unwrap();
        let mut key = Vec::new();
        let present: HashSet<Vec<u8>> = (0..1001)
            .map(|i| {
                keys.present(i, &mut key);
                key.clone()
            })
            .collect();
        assert_eq!(present.len(), 1001);
        let last = present.iter().max().unwrap();
        for i in 0..1000 {
            keys.absent(i, &mut key);
            assert!(!present.contains(&key) && key < *last);
        }
    }

    #[test]
    fn a_key_is_known_by_its_item() {
        for size in [3, 8, 16] {
            let keys = KeySpace::new(size, 1000).unwrap();
            let mut key = Vec::new();
            for item in [0, 7, 999] {
                keys.present(item, &mut key);
                assert!(keys.is_present(item, &key) && !keys.is_present(item + 1, &key));
                assert!(!keys.is_present(item, &key[..size - 1]));
                keys.absent(item, &mut key);
                assert!(!keys.is_present(item, &key));
            }
        }
        let keys = KeySpace::new(16, 1000).unwrap();
        let mut key = Vec::new();
        keys.present(5, &mut key);
        key[12] = b'1';
        assert!(!keys.is_present(5, &key));
    }

    #[test]
    fn too_short_keys_are_refused_with_the_size_that_works() {
        let text = KeySpace::new(2, 1_000_000).unwrap_err().to_string();
        assert!(text.contains("at least 3 bytes"), "{text}");
        assert!(KeySpace::new(3, 1_000_000).is_ok());
        assert!(KeySpace::new(0, 1).is_err());
    }
}
