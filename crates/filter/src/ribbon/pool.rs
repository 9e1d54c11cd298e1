//! Gaussian elimination in one granule.
//!
//! Slots are taken from the last to the first. The equations whose rows end at or beyond the slot
//! and are not used up are in a pool; one that has the slot in its row becomes the slot's pivot,
//! and is added to all others that have it, which do not have it any more then. No row in the
//! pool has slots above the current one or more than 127 below it, so that rows can stay in place
//! in 128 bits (slot `s` at bit `s % 128`), and the additions are the same few vector
//! instructions for every row of the pool, without branches. The pool holds the equations that
//! are ahead of the slots: a few dozen.
//!
//! ```text
//! rows of the granule:  used up | in the pool, a few used up | end at lower slots
//!                               ^ base                       ^ tail
//! ```
//!
//! A pivot, added to itself, leaves an empty row. Pivots are taken from the front, so that the
//! gaps are few and `base` soon passes them; what remains is closed between granules.
//!
//! The paper (see `ribbon.rs`) adds row after row, each to be reduced by one pivot after another;
//! here the additions of a slot do not wait for one another. It also starts at slot 0, and has a
//! one at the front of each row: in this mirror image the solution, which goes in the other
//! direction, is from slot 0 on, which suits its tables.

use super::{GRANULE_SLOTS, WORD_BITS};
use std::array;

/// Rows of a block.
const LANES: usize = 8;
/// Masks of the first lanes: `SOME[LANES - n..]` begins with `n` ones.
const SOME: [u64; 2 * LANES] = {
    let mut masks = [0; 2 * LANES];
    let mut at = 0;
    while at < LANES {
        masks[at] = u64::MAX;
        at += 1;
    }
    masks
};

/// Equations side by side.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    /// Lower, then upper halves of the rows.
    words: [[u64; LANES]; 2],
    /// As wide as the words, so that one mask serves all three.
    results: [u64; LANES],
}

/// One equation, as [`Block`] holds it.
#[derive(Clone, Copy, Default)]
struct Row {
    words: [u64; 2],
    results: u64,
}

impl Block {
    #[inline(always)]
    fn lane(&self, lane: usize) -> Row {
        Row { words: [self.words[0][lane], self.words[1][lane]], results: self.results[lane] }
    }

    #[inline(always)]
    fn set_lane(&mut self, lane: usize, row: Row) {
        self.words[0][lane] = row.words[0];
        self.words[1][lane] = row.words[1];
        self.results[lane] = row.results;
    }

    /// A bit for each row that has bit `bit` of word `WORD`.
    #[inline(always)]
    fn having<const WORD: usize>(&self, bit: usize) -> u64 {
        let bits: [u64; LANES] = array::from_fn(|lane| (self.words[WORD][lane] >> bit & 1) << lane);
        bits.iter().fold(0, |all, bit| all | bit)
    }

    /// Adds `pivot` to the rows that have bit `bit` of word `WORD` and are `among` these.
    #[inline(always)]
    fn add<const WORD: usize>(&mut self, bit: usize, pivot: &Row, among: [u64; LANES]) {
        let masks: [u64; LANES] =
            array::from_fn(|lane| (self.words[WORD][lane] >> bit & 1).wrapping_neg() & among[lane]);
        let add_masked = |values: &mut [u64; LANES], added: u64| {
            for (value, mask) in values.iter_mut().zip(masks) {
                *value ^= added & mask;
            }
        };
        add_masked(&mut self.words[0], pivot.words[0]);
        add_masked(&mut self.words[1], pivot.words[1]);
        add_masked(&mut self.results, pivot.results);
    }
}

/// Where the rows that are not used up begin.
#[derive(Default)]
struct Front {
    /// A block before which there are none.
    base: usize,
    /// A bit for each row used up among the 64 from `base` on.
    used: u64,
}

impl Front {
    /// Row `at`, counted from `base`, is used up. One beyond the 64 is not remembered: `base`
    /// then stays where it is until the next granule.
    #[inline(always)]
    fn use_up(&mut self, at: usize) {
        self.used |= 1u64.checked_shl(at as u32).unwrap_or(0);
        let block_is_empty = self.used as u8 == u8::MAX;
        self.used >>= if block_is_empty { LANES } else { 0 };
        self.base += usize::from(block_is_empty);
    }
}

/// The equations of a granule that are not used up.
#[derive(Debug, Default)]
pub(super) struct Pool {
    blocks: Vec<Block>,
    len: usize,
}

impl Pool {
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Number of equations, those included that [`Pool::compact`] will find empty.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Gives the memory of more than `kept` equations back.
    pub(super) fn release(&mut self, kept: usize) {
        self.len = 0;
        self.blocks.truncate(kept / LANES);
        self.blocks.shrink_to(kept / LANES);
    }

    /// Adds an equation, its row in place.
    #[inline(always)]
    pub(super) fn push(&mut self, row: u128, results: u32) {
        if self.len == self.blocks.len() * LANES {
            self.blocks.push(Block::default());
        }
        let words = [row as u64, (row >> 64) as u64];
        let row = Row { words, results: u64::from(results) };
        self.blocks[self.len / LANES].set_lane(self.len % LANES, row);
        self.len += 1;
    }

    /// Writes the pivots of a granule's slots, with their results, to `rows`; 0 where there is
    /// none. The first `tails[s]` equations of the pool end at or beyond slot `s`, as long as this
    /// is the first call since [`Pool::compact`]. Callers go through `simd.rs`.
    #[inline(always)]
    pub(super) fn triangulate(
        &mut self,
        tails: &[usize; GRANULE_SLOTS],
        rows: &mut [u128; GRANULE_SLOTS],
        results: &mut [u32; GRANULE_SLOTS],
    ) {
        let mut front = Front::default();
        for slot in (WORD_BITS..GRANULE_SLOTS).rev() {
            (rows[slot], results[slot]) = self.take::<1>(slot % WORD_BITS, tails[slot], &mut front);
        }
        for slot in (0..WORD_BITS).rev() {
            (rows[slot], results[slot]) = self.take::<0>(slot, tails[slot], &mut front);
        }
    }

    /// Takes the equation of the first of the rows up to `tail` that has bit `bit` of word `WORD`
    /// out of the pool, and that bit out of all others.
    #[inline(always)]
    fn take<const WORD: usize>(
        &mut self,
        bit: usize,
        tail: usize,
        front: &mut Front,
    ) -> (u128, u32) {
        let blocks = &mut self.blocks[front.base..tail.div_ceil(LANES)];
        let tail = tail - front.base * LANES;
        let mut found = None;
        for (at, block) in blocks.iter().enumerate() {
            let having = block.having::<WORD>(bit);
            if having != 0 {
                found = Some((at, having.trailing_zeros() as usize));
                break;
            }
        }
        let Some((at, lane)) = found.filter(|(at, lane)| at * LANES + lane < tail) else {
            return (0, 0);
        };
        let pivot = blocks[at].lane(lane);
        front.use_up(at * LANES + lane);

        let partial = tail % LANES;
        let whole = blocks.len() - usize::from(partial != 0);
        for block in &mut blocks[at.min(whole)..whole] {
            block.add::<WORD>(bit, &pivot, [u64::MAX; LANES]);
        }
        if let Some(last) = blocks.get_mut(whole) {
            let among = array::from_fn(|lane| SOME[LANES - partial + lane]);
            last.add::<WORD>(bit, &pivot, among);
        }
        let [low, high] = pivot.words;
        (u128::from(low) | u128::from(high) << 64, pivot.results as u32)
    }

    /// Closes gaps and forgets equations whose rows have become empty: they follow from others.
    /// `false` if one contradicts others.
    pub(super) fn compact(&mut self) -> bool {
        let mut kept = 0;
        for at in 0..self.len {
            let row = self.blocks[at / LANES].lane(at % LANES);
            if row.words != [0, 0] {
                self.blocks[kept / LANES].set_lane(kept % LANES, row);
                kept += 1;
            } else if row.results != 0 {
                return false;
            }
        }
        self.len = kept;
        true
    }
}
