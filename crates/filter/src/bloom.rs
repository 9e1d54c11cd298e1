//! Bloom filter in the textbook's form: k = round(ln 2 * bits per key) probes over one array.
//!
//! ```text
//! unit   = m bits, m a multiple of 512; bit p is bit p % 8 of byte p / 8
//! probe  = upper 32 bits of state * m >> 32; state = hash, then state * STEP (mod 2^64) each time
//! seed   = k, 1 to 44
//! ```
//!
//! Probes are not an arithmetic progression (double hashing, enhanced or not), because two numbers
//! below m, which is what one then keeps of a key, are too few to tell the keys of a small
//! partition apart: about 1/(bits * m) of all lookups would hit a key with the same two, a tenth of
//! all false positives at 23.4 bits and 4 KiB. A product that keeps all 64 bits costs no more.

use crate::block::{BLOCK_BITS, Probes, Scalar};
use crate::layout::{FilterKind, FilterShape};
use crate::model::array_fpr;
use crate::simd;
use crate::units::{self, Unit, append_units, blocks_of, shape_for};

#[cfg(test)]
mod tests;

/// The most probes of a key, as many as 64 bits per key want.
const MAX_PROBES: f64 = 44.0;
/// 2^64 divided by the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Appends the filter of `hashes`; see [`crate::FilterBuilder::build`].
pub(crate) fn build(
    hashes: &[u64],
    bits_per_unit: f64,
    units: u8,
    out: &mut Vec<u8>,
) -> FilterShape {
    let mut shape = shape_for(FilterKind::Bloom, hashes.len(), bits_per_unit, units, 1);
    let bits_per_key = f64::from(shape.unit_bytes) * 8.0 / hashes.len().max(1) as f64;
    let probes = (std::f64::consts::LN_2 * bits_per_key).round().clamp(1.0, MAX_PROBES);
    shape.seed = probes as u8;
    append_units(&shape, out, |bytes, unit| {
        for hash in hashes {
            for position in positions(bytes.len(), units::unit_hash(*hash, unit), shape.seed) {
                bytes[position / 8] |= 1 << (position % 8);
            }
        }
    });
    shape
}

/// The bits of a key among those of `bytes` bytes.
#[inline]
fn positions(bytes: usize, hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    let bits = bytes as u64 * 8;
    let mut state = hash;
    (0..probes).map(move |_| {
        // Below 2^35: a unit's length has 32 bits.
        let position = (u128::from(state >> 32) * u128::from(bits)) >> 32;
        state = state.wrapping_mul(STEP);
        position as usize
    })
}

/// Whether a filter of this kind can look like that.
pub(crate) fn is_sound(shape: &FilterShape) -> bool {
    (1..=MAX_PROBES as u8).contains(&shape.seed) && units::lengths_are_sound(shape, 1)
}

/// See [`FilterShape::may_contain`].
#[inline]
pub(crate) fn may_contain(shape: &FilterShape, loaded: &[u8], units: u8, hash: u64) -> bool {
    units::first_may_contain::<Bits>(Scalar, shape, loaded, units, hash)
        .unwrap_or_else(|| units::others_may_contain::<Bits>(Scalar, shape, loaded, units, hash))
}

/// A unit's array.
struct Bits;

impl Unit for Bits {
    #[inline(always)]
    fn may_contain(_lanes: impl Probes, bytes: &[u8], seed: u8, hash: u64) -> bool {
        positions(bytes.len(), hash, seed).all(|position| {
            bytes.get(position / 8).is_none_or(|byte| byte >> (position % 8) & 1 == 1)
        })
    }
}

/// See [`FilterShape::prefetch`].
#[inline]
pub(crate) fn prefetch(shape: &FilterShape, loaded: &[u8], hash: u64) {
    for position in positions(shape.first_unit_bytes as usize, hash, 1) {
        simd::prefetch_read(loaded, position / 8);
    }
}

/// See [`FilterShape::expected_fpr`]: the textbook's `(1 - e^(-k / bits))^k` for each unit.
pub(crate) fn expected_fpr(shape: &FilterShape, units: u8, key_count: u64) -> f64 {
    let probes = u32::from(shape.seed);
    let size = blocks_of(shape) as f64 * BLOCK_BITS;
    array_fpr(size, key_count as f64 * f64::from(probes), probes).powi(i32::from(units))
}
