//! What reads of a transaction have made of its operands, so that the next read of the key goes over later ones only: what the store
//! has is of one moment, and what is in the batch stays until it is rolled back.

use crate::read::get::Found;
use std::collections::BTreeMap;

/// They may take this much, and as much again as the batch: where that is too little for the keys that are read by turns, values are so
/// long, or operands so few, that going over these costs no more than giving a value.
const LEAST_BYTES: usize = 1 << 20;

/// What one takes besides its bytes.
const ENTRY_BYTES: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Folded {
    /// By the place in the batch of the last operand that is in the value.
    values: BTreeMap<usize, Found>,
    /// Those of which later values were made, behind a save point: after a roll-back to it they are the last ones. The first that are
    /// forgotten.
    before_points: BTreeMap<usize, Found>,
    /// Of both.
    bytes: usize,
    /// The lengths of the batch at its save points, ascending.
    points: Vec<usize>,
}

impl Folded {
    /// The value of a key after the operand at `place`, and when what the store has below it expires; nothing if it has.
    pub fn get(&self, place: usize, now_ms: impl FnOnce() -> u64) -> Option<Found> {
        let found = self.values.get(&place).or_else(|| self.before_points.get(&place))?;
        found.expires_at_ms.is_none_or(|at| now_ms() < at).then(|| found.clone())
    }

    /// Keeps the `value` of a key after the operand at `place` of a batch of `batch_bytes`, instead of the one at `before`
    /// that it was made of, unless a save point lies between them.
    pub fn put(&mut self, place: usize, value: Found, before: Option<usize>, batch_bytes: usize) {
        let more = cost_of(&value);
        let limit = LEAST_BYTES + batch_bytes;
        if more > limit {
            return;
        }
        if let Some(before) = before {
            self.supersede(before, place);
        }
        if self.bytes + more > limit {
            let forgotten = std::mem::take(&mut self.before_points);
            self.bytes -= forgotten.values().map(cost_of).sum::<usize>();
        }
        if self.bytes + more > limit {
            self.values.clear();
            self.bytes = 0;
        }
        self.bytes += more;
        if let Some(same) = self.values.insert(place, value) {
            self.bytes -= cost_of(&same);
        }
    }

    /// A value after the operand at `place` takes the place of the one at `before`.
    fn supersede(&mut self, before: usize, place: usize) {
        let next = self.points.partition_point(|point| *point <= before);
        let has_point = self.points.get(next).is_some_and(|point| *point <= place);
        let from = self.values.remove(&before);
        match from {
            Some(value) if has_point => {
                // Of one that expired another was made.
                let expired = self.before_points.insert(before, value);
                self.bytes -= expired.as_ref().map_or(0, cost_of);
            }
            Some(value) => self.bytes -= cost_of(&value),
            None if has_point => {}
            None => {
                let gone = self.before_points.remove(&before);
                self.bytes -= gone.as_ref().map_or(0, cost_of);
            }
        }
    }

    /// The batch of `batch_bytes` has a save point.
    pub fn note_point(&mut self, batch_bytes: usize) {
        if self.points.last().is_none_or(|last| *last < batch_bytes) {
            self.points.push(batch_bytes);
        }
    }

    /// The batch has been cut to `batch_bytes`.
    pub fn cut(&mut self, batch_bytes: usize) {
        for values in [&mut self.values, &mut self.before_points] {
            let gone = values.split_off(&batch_bytes);
            self.bytes -= gone.values().map(cost_of).sum::<usize>();
        }
        let left = self.points.partition_point(|point| *point <= batch_bytes);
        self.points.truncate(left);
    }
}

fn cost_of(found: &Found) -> usize {
    found.value.len() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_no_more_than_they_may() {
        let mut folded = Folded::default();
        let value = |bytes: usize| Found { value: vec![7_u8; bytes].into(), expires_at_ms: None };
        let has = |folded: &Folded, place| folded.get(place, || 0).is_some();
        for place in 0..10_000 {
            folded.put(place, value(1000), None, 0);
            assert!(folded.bytes <= LEAST_BYTES);
            assert_eq!(folded.bytes, folded.values.values().map(cost_of).sum::<usize>());
        }
        assert!(folded.values.len() > 100, "they are not forgotten one by one");
        folded.put(10_000, value(LEAST_BYTES), None, 0);
        assert!(!has(&folded, 10_000), "it is longer than all may be");
        folded.put(10_000, value(LEAST_BYTES), None, ENTRY_BYTES);
        folded.put(10_001, value(10), Some(10_000), 0);
        assert_eq!((folded.values.len(), folded.bytes), (1, 10 + ENTRY_BYTES));
        folded.put(10_001, value(20), Some(10_001), 0);
        folded.put(10_002, value(30), None, 0);
        folded.cut(10_002);
        assert!(!has(&folded, 10_002) && has(&folded, 10_001));
        assert_eq!(folded.bytes, 20 + ENTRY_BYTES);
    }

    #[test]
    fn a_value_below_a_save_point_stays_while_there_is_room() {
        let mut folded = Folded::default();
        let value = |bytes: usize| Found { value: vec![7_u8; bytes].into(), expires_at_ms: None };
        let places = |folded: &Folded| {
            let places = (0..100).filter(|place| folded.get(*place, || 0).is_some());
            places.collect::<Vec<usize>>()
        };
        folded.put(10, value(1), None, 0);
        folded.note_point(20);
        folded.put(20, value(2), Some(10), 0);
        folded.put(30, value(3), Some(20), 0);
        assert_eq!(places(&folded), [10, 30], "no save point lies between 20 and 30");
        folded.cut(20);
        assert_eq!(places(&folded), [10]);
        // The point holds for another roll-back.
        folded.put(25, value(4), Some(10), 0);
        assert_eq!((places(&folded), folded.bytes), (vec![10, 25], 5 + 2 * ENTRY_BYTES));
        folded.cut(15);
        folded.put(15, value(5), Some(10), 0);
        assert_eq!((places(&folded), folded.bytes), (vec![15], 5 + ENTRY_BYTES), "20 is gone");
        folded.note_point(20);
        folded.put(20, value(6), Some(15), 0);
        folded.put(30, value(LEAST_BYTES - 2 * ENTRY_BYTES - 6), None, 0);
        assert_eq!((places(&folded), folded.bytes), (vec![20, 30], LEAST_BYTES));
    }

    #[test]
    fn a_value_below_a_save_point_that_expired_and_is_made_anew_counts_once() {
        let mut folded = Folded::default();
        let value = |at| Found { value: vec![7_u8; 10].into(), expires_at_ms: at };
        folded.put(10, value(Some(5)), None, 0);
        folded.note_point(20);
        folded.put(20, value(None), Some(10), 0);
        assert!(folded.get(10, || 5).is_none(), "it has expired");
        folded.put(10, value(None), None, 0);
        folded.put(20, value(None), Some(10), 0);
        assert_eq!(folded.bytes, 2 * (10 + ENTRY_BYTES));
    }
}
