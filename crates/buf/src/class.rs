//! Size classes of slots: 64-byte steps up to 512 bytes, 512-byte steps up to 8 KiB, then eight
//! steps per doubling up to 512 KiB. At most 1/8 of a slot of over 4 KiB is waste. Between these stand the
//! *page classes*: a header and 1, 2, 4, 8 or 16 pages of data, so that a block that fills its pages in the
//! file fills its slot in memory.

use crate::HEADER_BYTES;
use crate::map::PAGE_BYTES;

const FINE_STEP: usize = 64;
const FINE_LIMIT: usize = 512;
const STEP: usize = 512;
const STEP_LIMIT: usize = 8 << 10;
/// The largest slot; what needs more gets a mapping of its own.
pub(super) const MAX_SLOT_BYTES: usize = 512 << 10;

/// No slot is smaller: the header and as much data.
const MIN_SLOT_BYTES: usize = 128;
/// Classes before the 512-byte steps, and before the doublings.
const FINE_CLASSES: usize = FINE_LIMIT / FINE_STEP - 1;
const LINEAR_CLASSES: usize = FINE_CLASSES + STEP_LIMIT / STEP - 1;
const DOUBLINGS: usize = (MAX_SLOT_BYTES / STEP_LIMIT).ilog2() as usize;
/// Classes before the page classes.
const STEP_CLASSES: usize = LINEAR_CLASSES + 8 * DOUBLINGS;
const PAGE_CLASSES: usize = 5;
pub(super) const CLASS_COUNT: usize = STEP_CLASSES + PAGE_CLASSES;

/// The page class whose slots hold `bytes`, if they hold little more.
fn page_class_of(bytes: usize) -> Option<usize> {
    let data_bytes = 1 << bytes.checked_sub(1)?.checked_ilog2()?;
    let doublings = usize::checked_ilog2(data_bytes / PAGE_BYTES)? as usize;
    let fits = doublings < PAGE_CLASSES && bytes <= data_bytes + HEADER_BYTES;
    fits.then_some(STEP_CLASSES + doublings)
}

/// The class whose slots hold `bytes`, or `None` above [`MAX_SLOT_BYTES`].
pub(super) fn class_of(bytes: usize) -> Option<usize> {
    if let Some(class) = page_class_of(bytes) {
        Some(class)
    } else if bytes <= MIN_SLOT_BYTES {
        Some(0)
    } else if bytes <= FINE_LIMIT {
        Some(bytes.div_ceil(FINE_STEP) - 2)
    } else if bytes <= STEP_LIMIT {
        Some(FINE_CLASSES + bytes.div_ceil(STEP) - 2)
    } else if bytes <= MAX_SLOT_BYTES {
        let floor = 1 << (bytes - 1).ilog2();
        let doubling = (floor / STEP_LIMIT).ilog2() as usize;
        Some(LINEAR_CLASSES + 8 * doubling + (bytes - floor).div_ceil(floor / 8) - 1)
    } else {
        None
    }
}

/// Bytes of the slots of a class.
pub(super) const fn slot_bytes(class: usize) -> usize {
    if class < FINE_CLASSES {
        (class + 2) * FINE_STEP
    } else if class < LINEAR_CLASSES {
        (class - FINE_CLASSES + 2) * STEP
    } else if class >= STEP_CLASSES {
        (PAGE_BYTES << (class - STEP_CLASSES)) + HEADER_BYTES
    } else {
        let above = class - LINEAR_CLASSES;
        let floor = STEP_LIMIT << (above / 8);
        floor + (above % 8 + 1) * (floor / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_dense_tight_and_aligned() {
        let mut slots: Vec<usize> = (0..CLASS_COUNT).map(slot_bytes).collect();
        slots.sort_unstable();
        for (at, bytes) in slots.iter().enumerate() {
            assert_eq!(bytes % 64, 0);
            assert_eq!(class_of(*bytes).map(slot_bytes), Some(*bytes));
            let next = slots.get(at + 1).copied();
            let larger = class_of(bytes + 1).map(slot_bytes);
            assert_eq!(larger, next, "one byte more needs the next larger class");
        }
        assert_eq!(slots.last(), Some(&MAX_SLOT_BYTES));
        assert_eq!(class_of(0), Some(0));
    }

    #[test]
    fn pages_of_data_fill_their_slots() {
        for pages in [1, 2, 4, 8, 16] {
            let bytes = pages * PAGE_BYTES + HEADER_BYTES;
            assert_eq!(class_of(bytes).map(slot_bytes), Some(bytes));
        }
    }
}
