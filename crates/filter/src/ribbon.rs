//! Ribbon filter, stored by columns: a linear system over GF(2) with one equation per key, solved
//! once for each of 2 to 32 right-hand sides; each solution is a bit plane, and a filter of its
//! own that lets half of the absent keys through.
//!
//! ```text
//! filter  = unit 0, unit 1, ...; columns = units + 1; n granules of 128 slots per column
//! unit 0  = n × (granule of column 0, granule of column 1)
//! unit u  = n × granule of column u + 1
//! granule = 16 bytes; bit p is bit p % 8 of byte p / 8; slot s is bit s % 128 of granule s / 128
//!
//! key     = start slot, a row of 128 bits, a result bit per column   (equation.rs)
//! present   only if in each loaded column: parity(row AND slots start..start + 128) = result bit
//! ```
//!
//! The ribbon is a standard one with rows of 128 bits (Dillinger and Walzer, "Ribbon filter:
//! practically smaller than Bloom and Xor", 2021), not a homogeneous one, whose false positives no
//! further column removes: here those of each column are independent of those of all others.
//!
//! Building is three steps: `banding.rs` brings the keys in order, `pool.rs` the system into
//! triangular form, `solution.rs` substitutes back for all columns at once. `size.rs` says how
//! many slots it takes; a system without solution is tried again with another seed. Called by
//! [`crate::builder`] and [`crate::layout`].

mod banding;
mod equation;
mod pool;
mod simd;
mod size;
mod solution;

#[cfg(test)]
mod tests;

pub(crate) use banding::Banding;

use crate::layout::{FilterKind, FilterShape};
use crate::simd::prefetch_read;
use equation::{Equation, Layout, mix};

/// Slots of a granule, and bits of a row: a key's slots are in at most two granules.
const GRANULE_SLOTS: usize = 128;
/// Bytes of a granule.
const GRANULE_BYTES: usize = 16;
/// Bytes of a word, as lookups read them.
const WORD_BYTES: usize = 8;
/// Bits of a word.
const WORD_BITS: usize = 64;
/// Words of a granule.
const GRANULE_WORDS: usize = GRANULE_BYTES / WORD_BYTES;
/// Columns of the first unit, interleaved so that most lookups touch one or two cache lines.
const FIRST_UNIT_COLUMNS: usize = 2;
/// The most columns: bits of the results of a key.
const MAX_COLUMNS: usize = 32;

/// Appends the ribbon filter of `hashes`, of `columns` columns, to `out`. Repeated hashes are
/// redundant equations and do no harm. `None`, with `out` as before, if `columns` is not 2 to 32,
/// if a unit's length would not fit the shape, or if no seed gives a solution, which random hashes
/// do not bring about. About 60 ns per key, for 32 columns as for two; twice that on an x86_64
/// machine without AVX2.
pub(crate) fn build(
    hashes: &[u64],
    columns: u8,
    banding: &mut Banding,
    out: &mut Vec<u8>,
) -> Option<FilterShape> {
    let shape = (0..size::TRIES).find_map(|attempt| {
        let granules = size::granules(hashes.len(), attempt);
        build_with(hashes, columns, attempt, granules, banding, out)
    });
    banding.release();
    shape
}

/// The filter with this seed and this many granules per column, if it has a solution.
fn build_with(
    hashes: &[u64],
    columns: u8,
    seed: u8,
    granules: usize,
    banding: &mut Banding,
    out: &mut Vec<u8>,
) -> Option<FilterShape> {
    let columns = usize::from(columns);
    if !(FIRST_UNIT_COLUMNS..=MAX_COLUMNS).contains(&columns) {
        return None;
    }
    let unit_bytes = u32::try_from(granules.checked_mul(GRANULE_BYTES)?).ok()?;
    let first_unit_bytes = unit_bytes.checked_mul(FIRST_UNIT_COLUMNS as u32)?;
    if u32::try_from(hashes.len()).is_err() || !banding.band(hashes, columns, seed, granules) {
        return None;
    }
    let start = out.len();
    out.resize(start + granules * GRANULE_BYTES * columns, 0);
    banding.solve(columns, out[start..].as_chunks_mut().0);
    let unit_count = (columns - FIRST_UNIT_COLUMNS + 1) as u8;
    Some(FilterShape { kind: FilterKind::Ribbon, unit_count, seed, first_unit_bytes, unit_bytes })
}

/// Where a granule of a column lies, counted in granules from the beginning of the filter, whose
/// columns have `granules` each.
#[inline]
fn granule_index(granules: usize, column: usize, granule: usize) -> usize {
    if column < FIRST_UNIT_COLUMNS {
        granule * FIRST_UNIT_COLUMNS + column
    } else {
        granules * column + granule
    }
}

/// See [`FilterShape::may_contain`].
#[inline]
pub(crate) fn may_contain(shape: &FilterShape, loaded: &[u8], units: u8, hash: u64) -> bool {
    let units = usize::from(units.min(shape.unit_count));
    let granules = shape.unit_bytes as usize / GRANULE_BYTES;
    let plane_bytes = granules * GRANULE_BYTES;
    // A shape that is not sound has a rounded or empty plane, or units of another length.
    let fits = loaded.len() == plane_bytes.saturating_mul(units + 1);
    if units == 0 || granules == 0 || !fits {
        return true;
    }
    let (words, _) = loaded.as_chunks::<WORD_BYTES>();
    let plane_words = granules * GRANULE_WORDS;
    let equation = Equation::of(hash, shape.seed, &Layout::of(granules));
    let probe = Probe::of(&equation);

    if !probe.passes_first(words, &equation) {
        return false;
    }
    probe.prefetch_planes(loaded, plane_bytes);
    // Two planes at a time: one branch to foresee, and one wait for memory instead of two.
    let mut results = equation.results >> FIRST_UNIT_COLUMNS;
    let mut plane = FIRST_UNIT_COLUMNS * plane_words;
    while plane < words.len() {
        let next = plane + plane_words;
        let first = probe.parity(words, probe.in_plane(plane));
        let second = probe.parity(words, probe.in_plane(next));
        let asked = if next < words.len() { 3 } else { 1 };
        if ((first | second << 1) ^ results) & asked != 0 {
            return false;
        }
        results >>= 2;
        plane = next + plane_words;
    }
    true
}

/// The row of a key where it meets the words of a plane.
struct Probe {
    words: [usize; 3],
    /// The third is 0, and its word may be none of the plane's, if the row ends with the second.
    rows: [u64; 3],
}

impl Probe {
    #[inline]
    fn of(equation: &Equation) -> Self {
        let first = equation.start / WORD_BITS;
        let shift = equation.start % WORD_BITS;
        let (low, high) = (equation.row as u64, (equation.row >> WORD_BITS) as u64);
        let carried = |word: u64| word >> 1 >> (WORD_BITS - 1 - shift);
        Self {
            words: [first, first + 1, first + 2],
            rows: [low << shift, high << shift | carried(low), carried(high)],
        }
    }

    /// Where the words are in the plane that begins with word `plane`.
    #[inline]
    fn in_plane(&self, plane: usize) -> [usize; 3] {
        let [first, second, third] = self.words;
        [plane + first, plane + second, plane + third]
    }

    /// Whether the columns of the first unit let the key pass.
    #[inline]
    fn passes_first(&self, words: &[[u8; WORD_BYTES]], equation: &Equation) -> bool {
        let place = |word: usize| word + (word & !(GRANULE_WORDS - 1));
        let [first, second, third] =
            [place(self.words[0]), place(self.words[1]), place(self.words[2])];
        let own = self.parity(words, [first, second, third]);
        let [first, second, third] =
            [first + GRANULE_WORDS, second + GRANULE_WORDS, third + GRANULE_WORDS];
        let other = self.parity(words, [first, second, third]);
        (own | other << 1) == equation.results & 3
    }

    /// Asks for the lines of the columns after those of the first unit.
    #[inline]
    fn prefetch_planes(&self, loaded: &[u8], plane_bytes: usize) {
        let first = self.words[0] * WORD_BYTES;
        let last = first + 3 * WORD_BYTES - 1;
        for plane in (FIRST_UNIT_COLUMNS * plane_bytes..loaded.len()).step_by(plane_bytes) {
            prefetch_read(loaded, plane + first);
            prefetch_read(loaded, plane + last);
        }
    }

    /// What the column whose words for the key are `at` these places says about it, 0 or 1; a
    /// word that is not there counts as 0.
    #[inline]
    fn parity(&self, words: &[[u8; WORD_BYTES]], at: [usize; 3]) -> u32 {
        let met = |part: usize| {
            u64::from_le_bytes(words.get(at[part]).copied().unwrap_or_default()) & self.rows[part]
        };
        (met(0) ^ met(1) ^ met(2)).count_ones() & 1
    }
}

/// See [`FilterShape::prefetch`].
#[inline]
pub(crate) fn prefetch(shape: &FilterShape, loaded: &[u8], hash: u64) {
    let granules = shape.unit_bytes as usize / GRANULE_BYTES;
    if granules == 0 {
        return;
    }
    let start = Layout::of(granules).start(mix(hash, shape.seed));
    let granule_bytes = GRANULE_BYTES * FIRST_UNIT_COLUMNS;
    let offset = start / GRANULE_SLOTS * granule_bytes;
    prefetch_read(loaded, offset);
    // The second granule may end in the next cache line.
    prefetch_read(loaded, offset + 2 * granule_bytes - 1);
}

/// See [`FilterShape::prefetch_rest`].
#[inline]
pub(crate) fn prefetch_rest(shape: &FilterShape, loaded: &[u8], hash: u64) {
    let granules = shape.unit_bytes as usize / GRANULE_BYTES;
    if granules == 0 {
        return;
    }
    let equation = Equation::of(hash, shape.seed, &Layout::of(granules));
    let probe = Probe::of(&equation);
    if probe.passes_first(loaded.as_chunks().0, &equation) {
        probe.prefetch_planes(loaded, granules * GRANULE_BYTES);
    }
}

/// `2^-columns` exactly, whatever the keys and however many; 1 without units.
pub(crate) fn expected_fpr(units: u8) -> f64 {
    if units == 0 { 1.0 } else { 0.5f64.powi(i32::from(units) + 1) }
}

/// Whether [`build`] may have made this shape.
pub(crate) fn is_sound(shape: &FilterShape) -> bool {
    let most_units = (MAX_COLUMNS - FIRST_UNIT_COLUMNS + 1) as u8;
    shape.kind == FilterKind::Ribbon
        && (1..=most_units).contains(&shape.unit_count)
        && shape.unit_bytes > 0
        && (shape.unit_bytes as usize).is_multiple_of(GRANULE_BYTES)
        && shape.unit_bytes.checked_mul(FIRST_UNIT_COLUMNS as u32) == Some(shape.first_unit_bytes)
}
