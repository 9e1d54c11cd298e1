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
    bytes: usize,
}

impl Folded {
    /// The value of a key after the operand at `place`, and when what the store has below it expires; nothing if it has.
    pub fn get(&self, place: usize, now_ms: impl FnOnce() -> u64) -> Option<Found> {
        let found = self.values.get(&place)?;
        found.expires_at_ms.is_none_or(|at| now_ms() < at).then(|| found.clone())
    }

    /// Keeps the `value` of a key after the operand at `place` of a batch of `batch_bytes`, instead of the one at `before`
    /// that it was made of.
    pub fn put(&mut self, place: usize, value: Found, before: Option<usize>, batch_bytes: usize) {
        let more = cost_of(&value);
        let limit = LEAST_BYTES + batch_bytes;
        if more > limit {
            return;
        }
        if let Some(before) = before.and_then(|before| self.values.remove(&before)) {
            self.bytes -= cost_of(&before);
        }
        if self.bytes + more > limit {
            *self = Self::default();
        }
        self.bytes += more;
        if let Some(same) = self.values.insert(place, value) {
            self.bytes -= cost_of(&same);
        }
    }

    /// The batch has been cut to `batch_bytes`.
    pub fn cut(&mut self, batch_bytes: usize) {
        let gone = self.values.split_off(&batch_bytes);
        self.bytes -= gone.values().map(cost_of).sum::<usize>();
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
}
