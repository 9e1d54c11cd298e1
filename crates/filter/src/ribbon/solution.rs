//! Back-substitution for all columns at once, and from there to bit planes.
//!
//! The solution of a slot is a word with a bit per column: the results of its pivot, plus the
//! solutions of the other slots in the pivot's row. These are looked up eight slots at a time in
//! tables of all their sums (the "method of four Russians"); the table of the eight slots under
//! work grows with them, over that of the slots 128 before, which share its place:
//!
//! ```text
//! while bit b of a byte is solved:   sums[0 .. 2^b]         of this byte's slots 0 .. b
//!                                    sums[multiples of 2^(b+1)]  of the slots b+1 .. 8 before
//! ```
//!
//! 128 words of 32 columns then become 32 granules by a transposition.

use super::{GRANULE_BYTES, GRANULE_SLOTS, granule_index};
use std::array;

/// Lanes of a transposition: 32-bit words of a granule.
const LANES: usize = 4;
/// Slots of a lane, and the most columns.
const LANE_SLOTS: usize = 32;
/// Slots of a table.
const BYTE_SLOTS: usize = 8;

/// A word for each slot of a granule, or for each 32 slots of each column.
type Square = [[u32; LANES]; LANE_SLOTS];

/// All sums of the solutions of eight slots: `sums[bits]` is that of the slots in `bits`.
type Sums = [u32; 1 << BYTE_SLOTS];

/// Solves the triangular system `rows`, in place, with a bit of `results` per column, and writes
/// the first `columns` columns to `out`, all granules of a filter. A slot without a pivot is 0 in
/// all columns. About 15 ns per slot, whatever the number of columns.
pub(super) fn solve(
    rows: &[u128],
    results: &[u32],
    columns: usize,
    out: &mut [[u8; GRANULE_BYTES]],
) {
    let mut tables = [[0; 1 << BYTE_SLOTS]; GRANULE_BYTES];
    let (rows, _) = rows.as_chunks::<GRANULE_SLOTS>();
    let (results, _) = results.as_chunks::<GRANULE_SLOTS>();
    for (granule, (its_rows, its_results)) in rows.iter().zip(results).enumerate() {
        let mut square = solve_granule(&mut tables, its_rows, its_results);
        transpose(&mut square);
        for (column, words) in square.iter().enumerate().take(columns) {
            let [a, b, c, d] = words.map(u128::from);
            let bits = a | b << 32 | c << 64 | d << 96;
            out[granule_index(rows.len(), column, granule)] = bits.to_le_bytes();
        }
    }
}

/// The solutions of 128 slots: slot `s` at `[s % 32][s / 32]`. `tables` has one for each byte of
/// a row.
fn solve_granule(
    tables: &mut [Sums; GRANULE_BYTES],
    rows: &[u128; GRANULE_SLOTS],
    results: &[u32; GRANULE_SLOTS],
) -> Square {
    let mut square = [[0; LANES]; LANE_SLOTS];
    for byte in 0..GRANULE_BYTES {
        for bit in 0..BYTE_SLOTS {
            let slot = byte * BYTE_SLOTS + bit;
            let row = rows[slot];
            let own = (row >> (byte * BYTE_SLOTS)) as usize & ((1 << bit) - 1);
            let mut solution = results[slot] ^ tables[byte][own];
            let own_and_pivot = ((2u128 << bit) - 1) << (byte * BYTE_SLOTS);
            let others = (row & !own_and_pivot).to_le_bytes();
            for (sums, bits) in tables.iter().zip(others) {
                solution ^= sums[usize::from(bits)];
            }
            let (known, fresh) = tables[byte].split_at_mut(1 << bit);
            for (fresh, known) in fresh.iter_mut().zip(known) {
                *fresh = *known ^ solution;
            }
            square[slot % LANE_SLOTS][slot / LANE_SLOTS] = solution;
        }
    }
    square
}

/// Transposes four 32-by-32 bit matrices side by side (Warren, "Hacker's Delight", section 7-3):
/// bit `i` of word `j` changes places with bit `j` of word `i`.
fn transpose(square: &mut Square) {
    let mut mask = u32::MAX;
    for level in (0..5).rev() {
        let width = 1 << level;
        mask ^= mask << width;
        for at in (0..LANE_SLOTS).filter(|at| at & width == 0) {
            let (front, back) = (square[at], square[at + width]);
            let swap: [u32; LANES] =
                array::from_fn(|lane| ((front[lane] >> width) ^ back[lane]) & mask);
            square[at] = array::from_fn(|lane| front[lane] ^ swap[lane] << width);
            square[at + width] = array::from_fn(|lane| back[lane] ^ swap[lane]);
        }
    }
}
