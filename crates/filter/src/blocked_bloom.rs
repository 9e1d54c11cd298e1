//! Blocked Bloom filter: all probes of a key fall into one 64-byte block, one cache line.
//!
//! ```text
//! unit    = block[n], n >= 1, nothing else
//! block   = bits 0..508    payload
//!           bits 508..512  number of probes - 1 (1 to 16), the same in every block
//! seed    = 0
//!
//! hash    = as in blocks everywhere (block.rs)
//! ```
//!
//! Each block carries the number of probes, so that its bytes alone are a filter; the four bits
//! cost 1-2 % in false positives. FPR is worse than that of a Bloom filter of the same size because
//! blocks fill unevenly: [`expected_fpr`].

use crate::block::{
    BLOCK_BITS, BLOCK_BYTES, Block, MULTIPLIERS, Probes, Scalar, block_number, blocks,
};
use crate::layout::{FilterKind, FilterShape};
use crate::model::power_of_fill;
use crate::simd;
use crate::units::{self, Unit, append_units, blocks_of, shape_for, unit_hash};

#[cfg(test)]
mod tests;

/// Bits of a block that probes may set.
const PAYLOAD_BITS: u32 = 508;
/// The most probes of a key, as many as there are [`MULTIPLIERS`].
const MAX_PROBES: u32 = 16;
/// Keys per block, more than [`build`] ever gives one, at which the mean is model enough, and past
/// which the probability of an empty block is no longer a normal number.
const LADEN: f64 = 600.0;
/// `PROBES_UP_TO[i]` is the most bits per key at which `i + 1` probes give the lowest
/// [`expected_fpr`]; beyond the last it is [`MAX_PROBES`].
const PROBES_UP_TO: [f64; MAX_PROBES as usize - 1] = [
    2.098, 3.613, 5.145, 6.728, 8.386, 10.143, 12.023, 14.055, 16.268, 18.698, 21.385, 24.373,
    27.716, 31.476, 35.723,
];

fn probes_for(bits_per_key: f64) -> u32 {
    1 + PROBES_UP_TO.partition_point(|bits| *bits < bits_per_key) as u32
}

/// Appends the filter of `hashes`; see [`crate::FilterBuilder::build`].
pub(crate) fn build(
    hashes: &[u64],
    bits_per_unit: f64,
    units: u8,
    out: &mut Vec<u8>,
) -> FilterShape {
    let shape = shape_for(FilterKind::BlockedBloom, hashes.len(), bits_per_unit, units, 1);
    let probes = probes_for(bits_per_key(&shape, hashes.len() as u64));
    append_units(&shape, out, |bytes, unit| {
        simd::with_avx2(|avx2| fill_unit(avx2, bytes, hashes, unit, probes))
            .unwrap_or_else(|| fill_unit(Scalar, bytes, hashes, unit, probes));
    });
    shape
}

#[inline(always)]
fn fill_unit(lanes: impl Probes, bytes: &mut [u8], hashes: &[u64], unit: u8, probes: u32) {
    let (blocks, _) = bytes.as_chunks_mut::<BLOCK_BYTES>();
    for hash in hashes {
        let hash = unit_hash(*hash, unit);
        let number = block_number(blocks.len(), hash);
        if let Some(block) = blocks.get_mut(number) {
            lanes.set::<0, PAYLOAD_BITS, 2>(block, hash as u32, &MULTIPLIERS, probes);
        }
    }
    for block in blocks {
        block[BLOCK_BYTES - 1] |= (probes as u8 - 1) << 4;
    }
}

/// Whether a filter of this kind can look like that.
pub(crate) fn is_sound(shape: &FilterShape) -> bool {
    shape.seed == 0 && units::lengths_are_sound(shape, 1)
}

/// See [`FilterShape::may_contain`].
#[inline]
pub(crate) fn may_contain(shape: &FilterShape, loaded: &[u8], units: u8, hash: u64) -> bool {
    simd::may_contain::<Blocks>(shape, loaded, units, hash)
}

/// A unit's blocks.
struct Blocks;

impl Unit for Blocks {
    #[inline(always)]
    fn may_contain(lanes: impl Probes, bytes: &[u8], _seed: u8, hash: u64) -> bool {
        let blocks = blocks(bytes);
        blocks.get(block_number(blocks.len(), hash)).is_none_or(|block| {
            let probes = probes_of(block);
            lanes.covers::<0, PAYLOAD_BITS, 2>(block, hash as u32, &MULTIPLIERS, probes)
        })
    }
}

/// See [`FilterShape::prefetch`].
#[inline]
pub(crate) fn prefetch(shape: &FilterShape, loaded: &[u8], hash: u64) {
    let blocks = shape.first_unit_bytes as usize / BLOCK_BYTES;
    simd::prefetch_read(loaded, block_number(blocks, hash) * BLOCK_BYTES);
}

#[inline]
fn probes_of(block: &Block) -> u32 {
    1 + u32::from(block[BLOCK_BYTES - 1] >> 4)
}

/// What a unit of this shape gives each of `key_count` keys.
fn bits_per_key(shape: &FilterShape, key_count: u64) -> f64 {
    blocks_of(shape) as f64 * BLOCK_BITS / key_count.max(1) as f64
}

/// See [`FilterShape::expected_fpr`]: the product over the units, which are alike and independent.
pub(crate) fn expected_fpr(shape: &FilterShape, units: u8, key_count: u64) -> f64 {
    let probes = probes_for(bits_per_key(shape, key_count));
    fpr_with(blocks_of(shape), key_count, probes).powi(i32::from(units))
}

/// The false positive rate of `blocks` blocks among which `key_count` keys were thrown: the mean
/// over the number of keys in a block (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient
/// Bloom Filters", 2009, section 3; with the binomial distribution, of which their Poisson
/// distribution is the limit, so that it also holds for few blocks). One to four microseconds.
fn fpr_with(blocks: u64, key_count: u64, probes: u32) -> f64 {
    let size = f64::from(PAYLOAD_BITS);
    let (blocks, keys) = (blocks as f64, key_count as f64);
    // The probabilities that a key leaves one given bit, and two given bits, 0.
    let spared = (f64::from(probes) * (-1.0 / size).ln_1p()).exp();
    let both_spared = (f64::from(probes) * (-2.0 / size).ln_1p()).exp();
    if blocks < 2.0 {
        return power_of_fill(size, spared.powf(keys), both_spared.powf(keys), probes);
    }
    let mean = keys / blocks;
    if mean > LADEN {
        return power_of_fill(size, spared.powf(mean), both_spared.powf(mean), probes);
    }
    // Farther up the distribution has no weight that counts, even times the rate of a full block.
    let most = (mean + 10.0 * mean.sqrt() + 30.0).min(keys) as u32;
    let mut weight = (keys * (-1.0 / blocks).ln_1p()).exp();
    let (mut one, mut two, mut sum) = (1.0, 1.0, 0.0);
    for in_block in 0..=most {
        sum += weight * power_of_fill(size, one, two, probes);
        weight *= (keys - f64::from(in_block)) / (f64::from(in_block + 1) * (blocks - 1.0));
        one *= spared;
        two *= both_spared;
    }
    sum.min(1.0)
}
