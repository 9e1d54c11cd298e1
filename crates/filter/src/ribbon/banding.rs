//! The system of equations of one filter: sorted, brought into triangular form, solved; and the
//! memory it needs, which serves one partition after another.

use super::equation::{Equation, Layout, mix};
use super::pool::Pool;
use super::simd;
use super::{GRANULE_BYTES, GRANULE_SLOTS, solution};
use std::array;

/// A larger partition's memory is given back after it was built; 2 MiB are kept.
const KEPT_KEYS: usize = 1 << 16;

/// The triangular system of one filter, and the memory to compute it: 32 bytes per key.
#[derive(Debug, Default)]
pub(crate) struct Banding {
    /// The keys' mixed hashes, by start.
    sorted: Vec<u64>,
    /// Where in `sorted` the keys of a start begin.
    firsts: Vec<u32>,
    /// The pivot of each slot, its bits in place; 0 if it has none.
    rows: Vec<u128>,
    /// The results of each pivot.
    results: Vec<u32>,
    pool: Pool,
}

impl Banding {
    /// Brings the equations of `hashes` into triangular form. `false` if they contradict each
    /// other.
    pub(super) fn band(
        &mut self,
        hashes: &[u64],
        columns: usize,
        seed: u8,
        granules: usize,
    ) -> bool {
        let layout = Layout::of(granules);
        let slots = granules * GRANULE_SLOTS;
        self.sort(hashes, seed, &layout, slots);
        self.rows.resize(slots, 0);
        self.results.resize(slots, 0);
        self.eliminate(columns, &layout)
    }

    /// Writes the solution of the system that [`Banding::band`] left to a filter's granules.
    pub(super) fn solve(&self, columns: usize, granules: &mut [[u8; GRANULE_BYTES]]) {
        solution::solve(&self.rows, &self.results, columns, granules);
    }

    /// Forgets the system, and gives memory back if the partition was unusually large.
    pub(super) fn release(&mut self) {
        self.sorted.clear();
        self.sorted.shrink_to(KEPT_KEYS);
        self.firsts.clear();
        self.firsts.shrink_to(KEPT_KEYS);
        self.rows.truncate(KEPT_KEYS);
        self.rows.shrink_to(KEPT_KEYS);
        self.results.truncate(KEPT_KEYS);
        self.results.shrink_to(KEPT_KEYS);
        self.pool.release(KEPT_KEYS);
    }

    /// Counting sort by start.
    fn sort(&mut self, hashes: &[u64], seed: u8, layout: &Layout, slots: usize) {
        self.firsts.clear();
        self.firsts.resize(slots, 0);
        for hash in hashes {
            self.firsts[layout.start(mix(*hash, seed))] += 1;
        }
        let mut end = 0;
        for first in &mut self.firsts {
            end += *first;
            *first = end;
        }
        self.sorted.resize(hashes.len(), 0);
        for hash in hashes {
            let mixed = mix(*hash, seed);
            let end = &mut self.firsts[layout.start(mixed)];
            *end -= 1;
            self.sorted[*end as usize] = mixed;
        }
    }

    /// Gaussian elimination, granule by granule from the last one.
    fn eliminate(&mut self, columns: usize, layout: &Layout) -> bool {
        let wanted = u32::MAX >> (u32::BITS as usize - columns);
        self.pool.clear();
        let (rows, _) = self.rows.as_chunks_mut::<GRANULE_SLOTS>();
        let (results, _) = self.results.as_chunks_mut::<GRANULE_SLOTS>();
        let mut unread = self.sorted.len();
        for (granule, (rows, results)) in rows.iter_mut().zip(results).enumerate().rev() {
            if !self.pool.compact() {
                return false;
            }
            // A row that starts at `slot - 127` ends at `slot`.
            let first_of = |at: usize| {
                let slot = granule * GRANULE_SLOTS + at;
                self.firsts[slot.saturating_sub(GRANULE_SLOTS - 1)] as usize
            };
            let first = first_of(0);
            let carried = self.pool.len();
            for mixed in self.sorted[first..unread].iter().rev() {
                let equation = Equation::of_mixed(*mixed, layout);
                self.pool.push(equation.row_in_place(), equation.results & wanted);
            }
            let tails = array::from_fn(|at| carried + unread - first_of(at));
            simd::triangulate(&mut self.pool, &tails, rows, results);
            unread = first;
        }
        self.pool.compact() && self.pool.len() == 0
    }
}

#[cfg(test)]
impl Banding {
    /// Bytes allocated, without the pool.
    pub(super) fn held_bytes(&self) -> usize {
        self.sorted.capacity() * size_of::<u64>()
            + self.firsts.capacity() * size_of::<u32>()
            + self.rows.capacity() * size_of::<u128>()
            + self.results.capacity() * size_of::<u32>()
    }
}
