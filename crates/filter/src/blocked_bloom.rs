//! Blocked Bloom filter: all probes of a key fall into one 64-byte block, one cache line.
//!
//! ```text
//! filter  = block[n], n >= 1, nothing else
//! block   = 64 bytes; bit p is bit p % 8 of byte p / 8
//!           bits 0..508    payload
//!           bits 508..512  number of probes - 1 (1 to 16), the same in every block
//!
//! hash    = upper 32 bits: block number  = upper * n >> 32
//!           lower 32 bits: probe i at bit (lower * MULTIPLIERS[i] >> 16) * 508 >> 16
//! ```
//!
//! Each block carries the number of probes, so that a lookup touches no other line; the four
//! bits cost 1-2 % in false positives, less than a header line would. FPR is worse than that of
//! a Bloom filter of the same size because blocks fill unevenly: [`theoretical_fpr`].

use crate::machine;

#[cfg(test)]
mod tests;

/// Bytes of a block: a cache line.
const BLOCK_BYTES: usize = 64;
/// Bits of a block.
const BLOCK_BITS: f64 = 512.0;
/// Bits of a block that probes may set.
pub(crate) const PAYLOAD_BITS: u32 = 508;
/// The most probes of a key, as many as [`MULTIPLIERS`].
const MAX_PROBES: u32 = 16;
/// Beyond this, [`MAX_PROBES`] probes would leave the blocks emptier than is useful.
const MAX_BITS_PER_KEY: f64 = 64.0;
/// Hashes between asking for a block and setting bits in it while building.
const BUILD_LOOKAHEAD: usize = 16;

/// Random odd numbers, one per probe: the upper bits of the products with one seed are as good
/// as independent. Part of the format.
pub(crate) const MULTIPLIERS: [u32; MAX_PROBES as usize] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
    0x9e37_79b9,
    0x85eb_ca6b,
    0xc2b2_ae35,
    0x27d4_eb2f,
    0x1656_67b1,
    0xd3a2_646d,
    0xb542_97a3,
    0x6a09_e667,
];

/// `PROBES_UP_TO[i]` is the most bits per key at which `i + 1` probes give the lowest
/// [`theoretical_fpr`]; beyond the last it is [`MAX_PROBES`].
const PROBES_UP_TO: [f64; MAX_PROBES as usize - 1] = [
    2.098, 3.613, 5.145, 6.728, 8.386, 10.143, 12.023, 14.055, 16.268, 18.698, 21.385, 24.373,
    27.716, 31.476, 35.723,
];

/// A number of bits per key that makes sense: NaN and all below 1 become 1.
fn sane_bits(bits_per_key: f64) -> f64 {
    if bits_per_key >= 1.0 { bits_per_key.min(MAX_BITS_PER_KEY) } else { 1.0 }
}

fn probes_for(bits_per_key: f64) -> u32 {
    1 + PROBES_UP_TO.partition_point(|bits| *bits < bits_per_key) as u32
}

/// Appends the filter of `hashes`; see [`crate::build`].
pub(crate) fn build(hashes: &[u64], bits_per_key: f64, out: &mut Vec<u8>) {
    let bits_per_key = sane_bits(bits_per_key);
    let probes = probes_for(bits_per_key);
    let blocks = (hashes.len() as f64 * bits_per_key / BLOCK_BITS).ceil();
    let blocks = blocks.clamp(1.0, f64::from(u32::MAX)) as usize;
    let start = out.len();
    out.resize(start + blocks * BLOCK_BYTES, 0);
    let bytes = &mut out[start..];
    for (at, hash) in hashes.iter().enumerate() {
        if let Some(ahead) = hashes.get(at + BUILD_LOOKAHEAD) {
            prefetch(bytes, *ahead);
        }
        let (chunks, _) = bytes.as_chunks_mut::<BLOCK_BYTES>();
        if let Some(block) = chunks.get_mut(block_number(blocks, *hash)) {
            set(block, *hash as u32, probes);
        }
    }
    let (chunks, _) = bytes.as_chunks_mut::<BLOCK_BYTES>();
    for block in chunks {
        block[BLOCK_BYTES - 1] |= (probes as u8 - 1) << 4;
    }
}

/// See [`crate::may_contain`].
#[inline]
pub(crate) fn may_contain(bytes: &[u8], hash: u64) -> bool {
    let Some(block) = block_of(bytes, hash) else { return true };
    let (seed, probes) = (hash as u32, probes_of(block));
    machine::covers(block, seed, probes).unwrap_or_else(|| covers_scalar(block, seed, probes))
}

/// See [`crate::prefetch`].
#[inline]
pub(crate) fn prefetch(bytes: &[u8], hash: u64) {
    machine::prefetch_read(bytes, block_number(bytes.len() / BLOCK_BYTES, hash) * BLOCK_BYTES);
}

/// Below `blocks`, unless that is 0; a number over 2^32, which no filter has, wraps to some other.
#[inline]
fn block_number(blocks: usize, hash: u64) -> usize {
    ((hash >> 32).wrapping_mul(blocks as u64) >> 32) as usize
}

/// The block of a key, or `None` if `bytes` is not a filter.
#[inline]
fn block_of(bytes: &[u8], hash: u64) -> Option<&[u8; BLOCK_BYTES]> {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    if !rest.is_empty() {
        return None;
    }
    blocks.get(block_number(blocks.len(), hash))
}

#[inline]
fn probes_of(block: &[u8; BLOCK_BYTES]) -> u32 {
    1 + u32::from(block[BLOCK_BYTES - 1] >> 4)
}

/// The bits of a key, in the order of its probes; all below [`PAYLOAD_BITS`].
#[inline]
fn positions(seed: u32, probes: u32) -> impl Iterator<Item = usize> {
    MULTIPLIERS
        .iter()
        .take(probes as usize)
        .map(move |m| (((seed.wrapping_mul(*m) >> 16) * PAYLOAD_BITS) >> 16) as usize)
}

#[inline]
fn set(block: &mut [u8; BLOCK_BYTES], seed: u32, probes: u32) {
    for position in positions(seed, probes) {
        block[position / 8] |= 1 << (position % 8);
    }
}

/// Whether all bits of a key are set in `block`.
#[inline]
pub(crate) fn covers_scalar(block: &[u8; BLOCK_BYTES], seed: u32, probes: u32) -> bool {
    positions(seed, probes).all(|position| block[position / 8] >> (position % 8) & 1 == 1)
}

/// The false positive rate of blocks that hold a Poisson-distributed number of keys (Putze,
/// Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2009, section 3), with
/// the variance of a block's fill taken into account. Microseconds.
pub(crate) fn theoretical_fpr(bits_per_key: f64) -> f64 {
    let bits_per_key = sane_bits(bits_per_key);
    fpr_with(bits_per_key, probes_for(bits_per_key))
}

fn fpr_with(bits_per_key: f64, probes: u32) -> f64 {
    let mean = BLOCK_BITS / bits_per_key;
    // Past this the Poisson distribution has no weight that a double would notice.
    let most = (mean + 14.0 * mean.sqrt() + 40.0) as u32;
    let mut weight = (-mean).exp();
    let mut sum = 0.0;
    for keys in 0..=most {
        sum += weight * block_fpr(keys * probes, probes);
        weight *= mean / f64::from(keys + 1);
    }
    sum
}

/// The expected `fill^probes` of a block after `bits_thrown` bits were set at random, to second
/// order around the mean fill.
fn block_fpr(bits_thrown: u32, probes: u32) -> f64 {
    let size = f64::from(PAYLOAD_BITS);
    let (thrown, k) = (f64::from(bits_thrown), f64::from(probes));
    let one_stays_empty = (1.0 - 1.0 / size).powf(thrown);
    let two_stay_empty = (1.0 - 2.0 / size).powf(thrown);
    let fill = 1.0 - one_stays_empty;
    let variance = (1.0 - 1.0 / size) * two_stay_empty + one_stays_empty / size
        - one_stays_empty * one_stays_empty;
    let curvature = if probes < 2 { 0.0 } else { k * (k - 1.0) / 2.0 * fill.powf(k - 2.0) };
    (fill.powf(k) + curvature * variance.max(0.0)).min(1.0)
}
