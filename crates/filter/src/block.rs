//! Blocks of 64 bytes, one cache line each, and the bits of a key in one: what blocked and paired
//! Bloom filters are made of.
//!
//! ```text
//! block    = 64 bytes; bit p is bit p % 8 of byte p / 8
//! payload  = the BITS bits from bit FIRST on; the others are the kind's own
//!
//! hash     = upper 32 bits: block number = upper * blocks >> 32
//!            lower 32 bits: probe i at bit FIRST + ((lower * multiplier[i] >> 16) * BITS >> 16)
//! ```

use std::array;

/// Bytes of a block: a cache line.
pub(crate) const BLOCK_BYTES: usize = 64;
/// Bits of a block.
pub(crate) const BLOCK_BITS: f64 = 512.0;

/// A cache line of bits.
pub(crate) type Block = [u8; BLOCK_BYTES];
/// What one set of up to eight probes multiplies the lower half of a hash with.
pub(crate) type Multipliers = [u32; 8];

/// Random odd numbers, one per probe: the upper bits of the products with one seed are as good
/// as independent. Part of the format.
pub(crate) const MULTIPLIERS: [Multipliers; 2] = [
    [
        0x47b6_137b,
        0x4497_4d91,
        0x8824_ad5b,
        0xa2b7_289d,
        0x7054_95c7,
        0x2df1_424b,
        0x9efc_4947,
        0x5c6b_fb31,
    ],
    [
        0x9e37_79b9,
        0x85eb_ca6b,
        0xc2b2_ae35,
        0x27d4_eb2f,
        0x1656_67b1,
        0xd3a2_646d,
        0xb542_97a3,
        0x6a09_e667,
    ],
];

/// Below `blocks`, unless that is 0; a number over 2^32, which no filter has, wraps to some other.
#[inline]
pub(crate) fn block_number(blocks: usize, hash: u64) -> usize {
    ((hash >> 32).wrapping_mul(blocks as u64) >> 32) as usize
}

/// The blocks of a unit.
#[inline(always)]
pub(crate) fn blocks(bytes: &[u8]) -> &[Block] {
    bytes.as_chunks::<BLOCK_BYTES>().0
}

/// How the bits of a key are found: [`Scalar`] everywhere, `simd::Avx2` where there is that.
/// The answers are the same.
pub(crate) trait Probes: Copy {
    /// Sets the first `probes` bits of a key.
    fn set<const FIRST: u32, const BITS: u32, const SETS: usize>(
        self,
        block: &mut Block,
        seed: u32,
        sets: &[Multipliers; SETS],
        probes: u32,
    );

    /// Whether the first `probes` bits of a key are all set.
    fn covers<const FIRST: u32, const BITS: u32, const SETS: usize>(
        self,
        block: &Block,
        seed: u32,
        sets: &[Multipliers; SETS],
        probes: u32,
    ) -> bool;

    /// Whether the first `probes` bits of a key are all set, with the first set of multipliers in
    /// the first block and with the second in the second; with one branch for all. For answers so
    /// hard to foretell that a wrong guess costs more than the second block.
    fn both_cover<const FIRST: u32, const BITS: u32>(
        self,
        blocks: [&Block; 2],
        seed: u32,
        sets: [&Multipliers; 2],
        probes: u32,
    ) -> bool;
}

/// One probe after another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar;

impl Probes for Scalar {
    #[inline]
    fn set<const FIRST: u32, const BITS: u32, const SETS: usize>(
        self,
        block: &mut Block,
        seed: u32,
        sets: &[Multipliers; SETS],
        probes: u32,
    ) {
        for position in positions::<FIRST, BITS>(seed, sets, probes) {
            block[position / 8] |= 1 << (position % 8);
        }
    }

    #[inline]
    fn covers<const FIRST: u32, const BITS: u32, const SETS: usize>(
        self,
        block: &Block,
        seed: u32,
        sets: &[Multipliers; SETS],
        probes: u32,
    ) -> bool {
        positions::<FIRST, BITS>(seed, sets, probes)
            .all(|position| block[position / 8] >> (position % 8) & 1 == 1)
    }

    #[inline]
    fn both_cover<const FIRST: u32, const BITS: u32>(
        self,
        blocks: [&Block; 2],
        seed: u32,
        sets: [&Multipliers; 2],
        probes: u32,
    ) -> bool {
        let covers = |number: usize| {
            let set = array::from_ref(sets[number]);
            self.covers::<FIRST, BITS, 1>(blocks[number], seed, set, probes)
        };
        covers(0) & covers(1)
    }
}

/// The bits of a key, in the order of its probes; all in the payload.
#[inline]
fn positions<const FIRST: u32, const BITS: u32>(
    seed: u32,
    sets: &[Multipliers],
    probes: u32,
) -> impl Iterator<Item = usize> {
    const { assert!(FIRST + BITS <= 512) };
    let used = sets.as_flattened().iter().take(probes as usize);
    used.map(move |m| (FIRST + (((seed.wrapping_mul(*m) >> 16) * BITS) >> 16)) as usize)
}

#[cfg(test)]
mod tests {
    use super::array::from_ref;
    use super::*;
    use crate::simd;
    use proptest::prelude::*;
    use terrace_base::{Rng, SplitMix64};

    /// A block of random bits, in which half of the keys are set but for one bit somewhere.
    fn block_of<const FIRST: u32, const BITS: u32>(
        seed: u64,
        density: u32,
        keys: &[u32],
        probes: u32,
    ) -> Block {
        let mut rng = SplitMix64::new(seed);
        let mut block = [0; BLOCK_BYTES];
        for at in 0..512 {
            block[at / 8] |= u8::from(rng.below(100) < u64::from(density)) << (at % 8);
        }
        for key in keys.iter().step_by(2) {
            Scalar.set::<FIRST, BITS, 2>(&mut block, *key, &MULTIPLIERS, probes);
            block[rng.below(64) as usize] &= !(1 << rng.below(8));
        }
        block
    }

    fn check<const FIRST: u32, const BITS: u32>(
        lanes: impl Probes,
        block: &Block,
        keys: &[u32],
        probes: u32,
    ) {
        for key in keys {
            let scalar = Scalar.covers::<FIRST, BITS, 2>(block, *key, &MULTIPLIERS, probes);
            assert_eq!(lanes.covers::<FIRST, BITS, 2>(block, *key, &MULTIPLIERS, probes), scalar);
            let [first, second] = &MULTIPLIERS;
            let both = |one: &Block, sets| {
                lanes.both_cover::<FIRST, BITS>([one, block], *key, sets, probes)
            };
            let half_covers = |set| Scalar.covers::<FIRST, BITS, 1>(block, *key, set, probes);
            let (one, other) = (half_covers(from_ref(first)), half_covers(from_ref(second)));
            assert_eq!(both(block, [first, second]), one && other);
            assert_eq!(both(&[0xff; BLOCK_BYTES], [first, second]), other);
            let (mut fast, mut slow) = (*block, *block);
            lanes.set::<FIRST, BITS, 2>(&mut fast, *key, &MULTIPLIERS, probes);
            Scalar.set::<FIRST, BITS, 2>(&mut slow, *key, &MULTIPLIERS, probes);
            assert_eq!(fast, slow);
        }
    }

    proptest! {
        #[test]
        fn simd_does_as_scalar_on_any_block(
            seed: u64,
            density in 0u32..=100,
            probes in 0..=20u32,
            keys in proptest::collection::vec(any::<u32>(), 64),
        ) {
            simd::with_avx2(|avx2| {
                let block = block_of::<0, 508>(seed, density, &keys, probes);
                check::<0, 508>(avx2, &block, &keys, probes);
                let block = block_of::<7, 505>(seed, density, &keys, probes);
                check::<7, 505>(avx2, &block, &keys, probes);
            });
        }
    }

    #[test]
    fn bits_of_the_kind_itself_are_never_set() {
        let mut block = [0; BLOCK_BYTES];
        for key in 0..100_000u32 {
            let seed = key.wrapping_mul(0x9e37_79b9);
            Scalar.set::<7, 501, 2>(&mut block, seed, &MULTIPLIERS, 16);
        }
        assert_eq!((block[0], block[63]), (0x80, 0x0f));
        assert!(block[1..63].iter().all(|byte| *byte == 0xff));
    }
}
