//! From the hash of a key to its equation: where its row starts, the row, and the results of all
//! columns. Everything here is part of the format.
//!
//! ```text
//! mixed   = a permutation of the hash, one per seed
//! start   = mixed * (slots - 127 + 2 E) >> 64, less E, kept within 0..=slots - 128;  E = EDGE
//! row     = two folded products of mixed; bit i belongs to slot start + i; bit 127 is set
//! results = the upper 32 bits of a third product; bit c is the result of column c
//! ```
//!
//! `mixed` decides the start by its upper bits, so that keys in the order of `mixed` are in the
//! order of their starts.

use super::GRANULE_SLOTS;

/// Positions beyond either end whose keys start at the end: the outermost slots are in reach of
/// few starts and would otherwise stay empty. The number that lets the most keys in, by
/// measurement.
const EDGE: u64 = 40;

/// Odd numbers with about as many ones as zeros: the fractional parts of square roots.
const SEED_FACTOR: u64 = 0x6a09_e667_f3bc_c909;
const MIX_FACTOR: u64 = 0x9b05_688c_2b3e_6c1f;
const LOW_ROW_FACTOR: u64 = 0xbb67_ae85_84ca_a73b;
const HIGH_ROW_FACTOR: u64 = 0xa54f_f53a_5f1d_36f1;
const RESULT_FACTOR: u64 = 0x510e_527f_ade6_82d1;

/// What the number of slots says about starts.
pub(super) struct Layout {
    /// Number of different values before the ends are folded in.
    positions: u64,
    /// The last slot where a row may start.
    last_start: u64,
}

impl Layout {
    /// That of a filter whose columns have `granules` granules, at least one.
    #[inline]
    pub(super) fn of(granules: usize) -> Self {
        let last_start = (granules as u64 - 1) * GRANULE_SLOTS as u64;
        Self { positions: last_start + 1 + 2 * EDGE, last_start }
    }

    /// Where the row of a key starts; not descending in `mixed`.
    #[inline]
    pub(super) fn start(&self, mixed: u64) -> usize {
        let position = ((u128::from(mixed) * u128::from(self.positions)) >> 64) as u64;
        position.saturating_sub(EDGE).min(self.last_start) as usize
    }
}

/// The equation of one key.
pub(super) struct Equation {
    /// First slot of the row.
    pub start: usize,
    /// Bit `i` says whether slot `start + i` takes part.
    pub row: u128,
    /// Bit `c` is the parity to be found in column `c`.
    pub results: u32,
}

impl Equation {
    /// That of the key with this hash.
    #[inline]
    pub(super) fn of(hash: u64, seed: u8, layout: &Layout) -> Self {
        Self::of_mixed(mix(hash, seed), layout)
    }

    /// That of a key whose hash was already passed through [`mix`].
    #[inline]
    pub(super) fn of_mixed(mixed: u64, layout: &Layout) -> Self {
        let low = folded_product(mixed, LOW_ROW_FACTOR);
        let high = folded_product(mixed, HIGH_ROW_FACTOR) | 1 << 63;
        let results = mixed.wrapping_mul(RESULT_FACTOR) >> 32;
        Self {
            start: layout.start(mixed),
            row: u128::from(low) | u128::from(high) << 64,
            results: results as u32,
        }
    }

    /// The row with each bit at its slot's place in a granule: what belongs to the second granule
    /// comes below what belongs to the first.
    #[inline]
    pub(super) fn row_in_place(&self) -> u128 {
        self.row.rotate_left((self.start % GRANULE_SLOTS) as u32)
    }
}

/// A permutation of all hashes, another for each seed. Hashes that are alike in most bits need
/// not stay so: the first shift brings the upper bits down to where the product spreads them, the
/// second lets the upper half into the lower.
#[inline]
pub(super) fn mix(hash: u64, seed: u8) -> u64 {
    let mixed = hash ^ (u64::from(seed) + 1).wrapping_mul(SEED_FACTOR);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(MIX_FACTOR);
    mixed ^ mixed >> 32
}

#[inline]
fn folded_product(mixed: u64, factor: u64) -> u64 {
    let product = u128::from(mixed) * u128::from(factor);
    (product >> 64) as u64 ^ product as u64
}
