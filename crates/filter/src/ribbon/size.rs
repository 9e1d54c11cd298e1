//! How many slots a number of keys needs.
//!
//! More slots than keys, as the queue of equations that are ahead of the slots (`pool.rs`) must
//! not outgrow a row: up to 2,000 keys a handful is enough, because the queue may be anywhere
//! between 0 and 128 at the end; beyond, it wanders further the more slots there are.
//!
//! Measured with `EDGE` = 40, so that about six of seven seeds give a solution, which weighs the
//! memory (0.3 % less for twice as many failures) against building time:
//!
//! | slots | 128 to 2,048 | 4,096 | 8,192 | 16,384 | 32,768 | 65,536 | 131,072 | 524,288 |
//! |---|---|---|---|---|---|---|---|---|
//! | more than keys | 3 to 4 | 0.75 % | 1.2 % | 1.7 % | 2.1 % | 2.6 % | 3.1 % | 3.5 % |

use super::GRANULE_SLOTS;

/// Seeds tried before a system is given up; the last ones with 6 % more slots.
pub(super) const TRIES: u8 = 24;
/// Seeds tried with one number of slots.
const TRIES_PER_SIZE: u8 = 3;
/// Slots added for the next seeds, as a part of all: one in this many.
const GROWTH: usize = 128;

/// The fewest slots beyond the number of keys: a square of random bits is singular more often
/// than not, one with four more columns than rows once in 16 times.
const SPARE_SLOTS: f64 = 4.0;
/// Additional slots per key at 2^12 keys.
const SPARE_AT_12: f64 = 0.0077;
/// More for each doubling up to 2^16 keys.
const SPARE_PER_DOUBLING: f64 = 0.0047;
/// More for each doubling from there on.
const SPARE_PER_LATER_DOUBLING: f64 = 0.0037;

/// Granules per column for `keys` keys at the `attempt`-th try, counted from 0.
pub(super) fn granules(keys: usize, attempt: u8) -> usize {
    let count = keys as f64;
    let doublings = count.max(1.0).log2();
    let spare = SPARE_AT_12
        + (doublings.min(16.0) - 12.0) * SPARE_PER_DOUBLING
        + (doublings - 16.0).max(0.0) * SPARE_PER_LATER_DOUBLING;
    let slots = count + (count * spare).max(SPARE_SLOTS);
    let granules = (slots / GRANULE_SLOTS as f64).ceil() as usize;
    granules + usize::from(attempt / TRIES_PER_SIZE) * granules.div_ceil(GROWTH)
}
