//! Units of the Bloom kinds: filters of one length side by side, each with hashes of its own, so
//! that n of them with b/n bits per key are together as good as one with b bits.
//!
//! ```text
//! filter = unit[unit_count], each of a multiple of 64 bytes
//! ```

use crate::block::{BLOCK_BYTES, Probes};
use crate::layout::{FilterKind, FilterShape, MAX_UNITS};

/// Beyond this, the number of probes is no longer what more bits are good for.
const MAX_BITS_PER_KEY: f64 = 64.0;
/// The most blocks of a unit, so that 32 bits can say its length; even.
const MAX_BLOCKS: f64 = ((u32::MAX >> 6) - 1) as f64;

/// The hash that unit `unit` takes for the key with `hash`. The first unit takes it as it is; those
/// of two units tell nothing of each other (the output function of SplitMix64: Steele, Lea, Flood,
/// "Fast Splittable Pseudorandom Number Generators", 2014, figure 16).
#[inline]
pub(crate) fn unit_hash(hash: u64, unit: u8) -> u64 {
    if unit == 0 {
        return hash;
    }
    let z = hash.wrapping_add(u64::from(unit).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The shape of `units` units with at least `bits_per_unit` bits for each of `keys` keys, their
/// number of blocks a multiple of `multiple`; the seed is left 0. Numbers that make no sense,
/// NaN among them, become the nearest that do.
pub(crate) fn shape_for(
    kind: FilterKind,
    keys: usize,
    bits_per_unit: f64,
    units: u8,
    multiple: u32,
) -> FilterShape {
    let bits = if bits_per_unit >= 1.0 { bits_per_unit.min(MAX_BITS_PER_KEY) } else { 1.0 };
    let blocks = (keys as f64 * bits / (BLOCK_BYTES * 8) as f64).ceil().min(MAX_BLOCKS);
    let unit_bytes = (blocks as u32).max(1).next_multiple_of(multiple) * BLOCK_BYTES as u32;
    FilterShape {
        kind,
        unit_count: units.clamp(1, MAX_UNITS),
        seed: 0,
        first_unit_bytes: unit_bytes,
        unit_bytes,
    }
}

/// Appends the zeros of a filter of this shape to `out`, and gives `fill` each unit of it.
pub(crate) fn append_units(
    shape: &FilterShape,
    out: &mut Vec<u8>,
    mut fill: impl FnMut(&mut [u8], u8),
) {
    let start = out.len();
    out.resize(start + shape.prefix_bytes(shape.unit_count), 0);
    let units = out[start..].chunks_exact_mut(shape.unit_bytes as usize);
    for (unit, bytes) in (0..).zip(units) {
        fill(bytes, unit);
    }
}

/// Whether units of these lengths can hold whole groups of `multiple` blocks.
pub(crate) fn lengths_are_sound(shape: &FilterShape, multiple: u32) -> bool {
    shape.unit_bytes == shape.first_unit_bytes
        && shape.unit_bytes > 0
        && shape.unit_bytes.is_multiple_of(multiple * BLOCK_BYTES as u32)
}

/// Blocks of one unit; at least 1, so that it can be divided by.
pub(crate) fn blocks_of(shape: &FilterShape) -> u64 {
    (u64::from(shape.unit_bytes) / BLOCK_BYTES as u64).max(1)
}

/// What the Bloom kinds differ in when they look a key up.
pub(crate) trait Unit {
    /// Whether the key that has `hash` in this unit may be in it; `seed` is [`FilterShape::seed`].
    /// To be inlined always, so that it is compiled with its instructions.
    fn may_contain(lanes: impl Probes, bytes: &[u8], seed: u8, hash: u64) -> bool;
}

/// [`FilterShape::may_contain`] if the first unit decides it; `None` if the answer is that of
/// [`others_may_contain`].
#[inline(always)]
pub(crate) fn first_may_contain<K: Unit>(
    lanes: impl Probes,
    shape: &FilterShape,
    loaded: &[u8],
    units: u8,
    hash: u64,
) -> Option<bool> {
    if units == 0 || loaded.len() != shape.prefix_bytes(units) {
        return Some(true);
    }
    let Some(bytes) = loaded.get(..shape.first_unit_bytes as usize) else { return Some(true) };
    if !K::may_contain(lanes, bytes, shape.seed, hash) {
        return Some(false);
    }
    if units == 1 { Some(true) } else { None }
}

/// Whether all units after the first, of the first `units`, say "perhaps", asked one after another
/// until one does not.
#[inline(always)]
pub(crate) fn others_may_contain<K: Unit>(
    lanes: impl Probes,
    shape: &FilterShape,
    loaded: &[u8],
    units: u8,
    hash: u64,
) -> bool {
    let others = loaded.get(shape.first_unit_bytes as usize..).unwrap_or_default();
    let others = others.chunks_exact(shape.unit_bytes.max(1) as usize);
    (1..units)
        .zip(others)
        .all(|(unit, bytes)| K::may_contain(lanes, bytes, shape.seed, unit_hash(hash, unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_make_no_sense_become_the_nearest_that_do() {
        let bytes = |keys, bits| shape_for(FilterKind::Bloom, keys, bits, 1, 2).unit_bytes;
        assert_eq!(bytes(0, 10.0), 128);
        assert_eq!(bytes(5120, f64::NAN), 640);
        assert_eq!(bytes(5120, 1e9), bytes(5120, 64.0));
        assert_eq!(bytes(1 << 40, 10.0), u32::MAX - 127);
        assert_eq!(shape_for(FilterKind::Bloom, 9, 9.0, 0, 1).unit_count, 1);
        assert_eq!(shape_for(FilterKind::Bloom, 9, 9.0, 200, 1).unit_count, MAX_UNITS);
    }
}
