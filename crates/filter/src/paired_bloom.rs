//! Paired Bloom filter: blocks of one cache line each, every one paired with another so that all
//! pairs hold about the same number of keys; half of a key's probes lie in the block it hashes to,
//! half in that block's pair. (Speedb's paired block Bloom filter.)
//!
//! ```text
//! unit    = block[n], n even: batches of 128 blocks, the last one maybe of fewer
//! block   = bits 0..7     number of its pair within the batch
//!           bits 7..512   payload
//! seed    = probes of a key in each of the two blocks, 1 to 8
//!
//! hash    = as in blocks everywhere (block.rs). Of a pair, the block with the lower number takes
//!           all its keys' first set of probes, the other block the second set.
//! ```
//!
//! Built by counting the keys of each block, sorting the blocks of a batch by it, and pairing the
//! emptiest with the fullest, the second emptiest with the second fullest, and so on. A lookup of
//! an absent key mostly ends in the first block: one cache line.
//!
//! Batches of 128 rather than of 32, measured at 23.4 bits: for 16,000 keys 1 lookup in 61,000 is a
//! false positive rather than 1 in 58,100, for 4,096 keys 1 in 61,900 rather than 1 in 60,000; only
//! in filters that are one batch or little more, of 700 keys, 1 in 58,600 rather than 1 in 61,700.
//! Building and lookups take the same time.

use crate::block::{
    BLOCK_BYTES, Block, MULTIPLIERS, Multipliers, Probes, Scalar, block_number, blocks,
};
use crate::layout::{FilterKind, FilterShape};
use crate::model::array_fpr;
use crate::simd;
use crate::units::{self, Unit, append_units, blocks_of, shape_for};
use std::array;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// Bits that number the blocks of a batch.
const NUMBER_BITS: u32 = 7;
/// Blocks of a whole batch.
const BATCH: usize = 1 << NUMBER_BITS;
/// Bits of a block that probes may set.
const PAYLOAD_BITS: u32 = 512 - NUMBER_BITS;
/// The most probes of a key in one block: those of one set of multipliers.
const MAX_HALF: u8 = 8;
/// Loads above this are sorted as this: a load has 24 bits, above the 8 of the block's number.
const MAX_SORTED_LOAD: u32 = (1 << 24) - 1;

/// Memory for building, kept from filter to filter.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Keys per block.
    loads: Vec<u32>,
    /// The pair of each block.
    pairs: Vec<u32>,
}

/// Appends the filter of `hashes`; see [`crate::FilterBuilder::build`].
pub(crate) fn build(
    hashes: &[u64],
    bits_per_unit: f64,
    units: u8,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> FilterShape {
    let mut shape = shape_for(FilterKind::PairedBloom, hashes.len(), bits_per_unit, units, 2);
    shape.seed = best_half(blocks_of(&shape), hashes.len() as u64);
    append_units(&shape, out, |bytes, unit| {
        let (blocks, _) = bytes.as_chunks_mut::<BLOCK_BYTES>();
        scratch.pair_up(blocks.len(), hashes.iter().map(|hash| units::unit_hash(*hash, unit)));
        scratch.number(blocks);
        let (pairs, half) = (&scratch.pairs, u32::from(shape.seed));
        simd::with_avx2(|avx2| fill_unit(avx2, blocks, pairs, hashes, unit, half))
            .unwrap_or_else(|| fill_unit(Scalar, blocks, pairs, hashes, unit, half));
    });
    shape
}

/// Sets the bits of all keys, `half` in either of two blocks; `pairs` has one for each block.
#[inline(always)]
fn fill_unit(
    lanes: impl Probes,
    blocks: &mut [Block],
    pairs: &[u32],
    hashes: &[u64],
    unit: u8,
    half: u32,
) {
    for hash in hashes {
        let hash = units::unit_hash(*hash, unit);
        let own = block_number(blocks.len(), hash);
        let pair = pairs[own] as usize;
        let (own_set, pair_set) = sets(own, pair);
        lanes.set::<NUMBER_BITS, PAYLOAD_BITS, 1>(&mut blocks[own], hash as u32, own_set, half);
        lanes.set::<NUMBER_BITS, PAYLOAD_BITS, 1>(&mut blocks[pair], hash as u32, pair_set, half);
    }
}

impl Scratch {
    /// Finds every block's pair.
    fn pair_up(&mut self, blocks: usize, hashes: impl Iterator<Item = u64>) {
        self.loads.clear();
        self.loads.resize(blocks, 0);
        for hash in hashes {
            self.loads[block_number(blocks, hash)] += 1;
        }
        self.pairs.clear();
        self.pairs.resize(blocks, 0);
        for start in (0..blocks).step_by(BATCH) {
            self.pair_batch(start..blocks.min(start + BATCH));
        }
    }

    fn pair_batch(&mut self, batch: Range<usize>) {
        let mut order = [0; BATCH];
        let order = &mut order[..batch.len()];
        for (number, (place, load)) in (0..).zip(order.iter_mut().zip(&self.loads[batch.clone()])) {
            *place = (*load).min(MAX_SORTED_LOAD) << 8 | number;
        }
        order.sort_unstable();
        for (low, high) in order.iter().zip(order.iter().rev()) {
            let (low, high) = (low & 0xff, high & 0xff);
            self.pairs[batch.start + low as usize] = batch.start as u32 + high;
        }
    }

    /// Writes into every block the number of its pair.
    fn number(&self, blocks: &mut [Block]) {
        for (at, (block, pair)) in blocks.iter_mut().zip(&self.pairs).enumerate() {
            block[0] = (*pair as usize - batch_start(at)) as u8;
        }
    }
}

/// The first block of the batch in which block `at` is.
#[inline(always)]
fn batch_start(at: usize) -> usize {
    at - at % BATCH
}

/// Which set of probes a block takes, and which its pair.
#[inline(always)]
fn sets(own: usize, pair: usize) -> (&'static [Multipliers; 1], &'static [Multipliers; 1]) {
    let own_is_second = usize::from(own > pair);
    let set = |number: usize| array::from_ref(&MULTIPLIERS[number]);
    (set(own_is_second), set(own_is_second ^ 1))
}

/// Whether a filter of this kind can look like that.
pub(crate) fn is_sound(shape: &FilterShape) -> bool {
    (1..=MAX_HALF).contains(&shape.seed) && units::lengths_are_sound(shape, 2)
}

/// See [`FilterShape::may_contain`].
#[inline]
pub(crate) fn may_contain(shape: &FilterShape, loaded: &[u8], units: u8, hash: u64) -> bool {
    simd::may_contain::<Pairs>(shape, loaded, units, hash)
}

/// A unit's blocks.
struct Pairs;

impl Unit for Pairs {
    #[inline(always)]
    fn may_contain(lanes: impl Probes, bytes: &[u8], seed: u8, hash: u64) -> bool {
        let blocks = blocks(bytes);
        let own = block_number(blocks.len(), hash);
        let Some(block) = blocks.get(own) else { return true };
        let pair = batch_start(own) + usize::from(block[0]) % BATCH;
        let (own_set, pair_set) = sets(own, pair);
        let half = u32::from(seed);
        // Four in ten absent keys get past a single probe.
        if half == 1 {
            let pair = blocks.get(pair).unwrap_or(block);
            let (both, sets) = ([block, pair], [&own_set[0], &pair_set[0]]);
            return lanes.both_cover::<NUMBER_BITS, PAYLOAD_BITS>(both, hash as u32, sets, half);
        }
        let covers = |block: &Block, set: &[Multipliers; 1]| {
            lanes.covers::<NUMBER_BITS, PAYLOAD_BITS, 1>(block, hash as u32, set, half)
        };
        covers(block, own_set) && blocks.get(pair).is_none_or(|pair| covers(pair, pair_set))
    }
}

/// See [`FilterShape::prefetch`]: the key's own block; its pair is wanted rarely.
#[inline]
pub(crate) fn prefetch(shape: &FilterShape, loaded: &[u8], hash: u64) {
    let blocks = shape.first_unit_bytes as usize / BLOCK_BYTES;
    simd::prefetch_read(loaded, block_number(blocks, hash) * BLOCK_BYTES);
}

/// See [`FilterShape::expected_fpr`]: the product over the units, which are alike and independent.
pub(crate) fn expected_fpr(shape: &FilterShape, units: u8, key_count: u64) -> f64 {
    unit_fpr(blocks_of(shape), key_count, shape.seed).powi(i32::from(units))
}

/// The number of probes in each block that gives the fewest false positives.
fn best_half(blocks: u64, key_count: u64) -> u8 {
    let rates = (1..=MAX_HALF).map(|half| (half, unit_fpr(blocks, key_count, half)));
    rates.min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(MAX_HALF, |(half, _)| half)
}

/// The false positive rate of a unit: the mean over its batches. About a microsecond.
fn unit_fpr(blocks: u64, key_count: u64, half: u8) -> f64 {
    let last = blocks % BATCH as u64;
    let share = |(blocks_so, size): (u64, u64)| match blocks_so {
        0 => 0.0,
        _ => blocks_so as f64 * batch_fpr(size as f64, blocks as f64, key_count as f64, half),
    };
    (share((blocks - last, BATCH as u64)) + share((last, last))) / blocks as f64
}

/// The false positive rate in a batch of `size` of `blocks` blocks: that of two blocks with half
/// of the probes each, both filled by all keys of the pair, averaged over a pair's keys. These are
/// distributed about normally, with the variance that the keys of the whole batch have (binomial)
/// and that pairing leaves within it.
fn batch_fpr(size: f64, blocks: f64, key_count: f64, half: u8) -> f64 {
    /// Nodes and weights of the Gauss-Hermite quadrature of five points, for the normal
    /// distribution.
    const NODES: [(f64, f64); 5] = [
        (-2.856_970_013_872_806, 0.011_257_411_327_720_69),
        (-1.355_626_179_974_266, 0.222_075_922_005_612_6),
        (0.0, 0.533_333_333_333_333_3),
        (1.355_626_179_974_266, 0.222_075_922_005_612_6),
        (2.856_970_013_872_806, 0.011_257_411_327_720_69),
    ];
    let mean = key_count / blocks;
    let of_batch = 4.0 * mean * (1.0 / size - 1.0 / blocks).max(0.0);
    let deviation = (of_batch + variance_left_by_pairing(size, mean)).sqrt();
    let half = u32::from(half);
    let rate = |(node, weight): (f64, f64)| {
        let keys = (2.0 * mean + node * deviation).max(0.0);
        let in_one = array_fpr(f64::from(PAYLOAD_BITS), keys * f64::from(half), half);
        weight * in_one * in_one
    };
    NODES.into_iter().map(rate).sum()
}

/// The variance of a pair's keys around the mean of its batch of `size` blocks with `mean` keys
/// each. For a normal distribution it is a multiple of `mean` that depends on `size` alone, found
/// by simulation; that counts are whole and skewed adds a little.
fn variance_left_by_pairing(size: f64, mean: f64) -> f64 {
    const OF_SIZE: [(f64, f64); 7] = [
        (2.0, 0.0),
        (4.0, 0.194),
        (8.0, 0.175),
        (16.0, 0.119),
        (32.0, 0.0722),
        (64.0, 0.0414),
        (128.0, 0.0232),
    ];
    const OF_COUNTS: f64 = 0.36;
    let at = OF_SIZE.partition_point(|(known, _)| *known < size).clamp(1, OF_SIZE.len() - 1);
    let ((below, low), (above, high)) = (OF_SIZE[at - 1], OF_SIZE[at]);
    let factor = low + (high - low) * (size / below).log2() / (above / below).log2();
    factor * mean + if size > 2.0 { OF_COUNTS } else { 0.0 }
}
