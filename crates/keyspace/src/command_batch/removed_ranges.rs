//! Ranges of elements of which nothing stored is left. Those that meet are one, so a read finds the one that it is in
//! by one search. What attempts added is taken back if they fail. Called by `command_batch.rs` and `elements.rs`.

use crate::pending_writes::clear_list;
use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};

/// A range: its start, which is in it, and its end, which is not.
type Range = (Vec<u8>, Vec<u8>);

/// A range that took the place of others.
struct Join {
    start: Vec<u8>,
    parts: Vec<Range>,
}

/// See the module.
#[derive(Default)]
pub(super) struct RemovedRanges {
    /// Ends by starts. No two ranges meet.
    ends: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What was added within attempts, in order.
    joins: Vec<Join>,
}

impl RemovedRanges {
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The range that a key is in.
    pub fn find(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let (start, end) = self.ends.range::<[u8], _>((Unbounded, Included(key))).next_back()?;
        (key < &end[..]).then_some((&start[..], &end[..]))
    }

    /// Adds `[start, end)`, which an attempt may take back if it is `in_attempt`.
    pub fn add(&mut self, mut start: Vec<u8>, mut end: Vec<u8>, in_attempt: bool) {
        let is_known = self.find(&start).is_some_and(|(_, until)| end[..] <= *until);
        if is_known || start >= end {
            return;
        }
        let mut parts: Vec<Range> = Vec::new();
        while let Some(from) = self.last_that_meets(&start, &end)
            && let Some(until) = self.ends.remove(&from)
        {
            if from < start {
                start.clone_from(&from);
            }
            if until > end {
                end.clone_from(&until);
            }
            parts.push((from, until));
        }
        if in_attempt {
            self.joins.push(Join { start: start.clone(), parts });
        }
        self.ends.insert(start, end);
    }

    /// The start of the last range that meets `[start, end)`.
    fn last_that_meets(&self, start: &[u8], end: &[u8]) -> Option<Vec<u8>> {
        let (from, until) = self.ends.range::<[u8], _>((Unbounded, Included(end))).next_back()?;
        (&until[..] >= start).then(|| from.clone())
    }

    /// An attempt begins, which may end with [`Self::take_back`] of what this gives.
    pub fn mark(&self) -> usize {
        self.joins.len()
    }

    /// An attempt has failed: what was added since its mark is not removed.
    pub fn take_back(&mut self, mark: usize) {
        while self.joins.len() > mark
            && let Some(Join { start, parts }) = self.joins.pop()
        {
            self.ends.remove(&start);
            self.ends.extend(parts);
        }
    }

    /// The outermost attempt is over.
    pub fn keep(&mut self) {
        clear_list(&mut self.joins);
    }

    pub fn clear(&mut self) {
        self.ends.clear();
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Op {
        Add(u8, u8),
        Begin,
        Keep,
        TakeBack,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            6 => (0_u8..40, 0_u8..40).prop_map(|(start, end)| Op::Add(start, end)),
            2 => Just(Op::Begin),
            1 => Just(Op::Keep),
            1 => Just(Op::TakeBack),
        ];
        prop::collection::vec(op, 0..60)
    }

    proptest! {
        #[test]
        fn what_is_in_a_range_is_found_in_it_and_ranges_do_not_meet(ops in ops()) {
            let (mut ranges, mut model) = (RemovedRanges::default(), [false; 40]);
            let mut attempts = Vec::new();
            for op in ops {
                match op {
                    Op::Add(start, end) => {
                        ranges.add(vec![start], vec![end], !attempts.is_empty());
                        (start..end).for_each(|at| model[usize::from(at)] = true);
                    }
                    Op::Begin => attempts.push((ranges.mark(), model)),
                    Op::Keep => {
                        attempts.pop();
                        if attempts.is_empty() {
                            ranges.keep();
                        }
                    }
                    Op::TakeBack => if let Some((mark, then)) = attempts.pop() {
                        ranges.take_back(mark);
                        model = then;
                    },
                }
                for at in 0..40_u8 {
                    let found = ranges.find(&[at]);
                    prop_assert_eq!(found.is_some(), model[usize::from(at)]);
                    if let Some((start, end)) = found {
                        let (start, end) = (usize::from(start[0]), usize::from(end[0]));
                        prop_assert!(model[start..end].iter().all(|is_in| *is_in));
                        // As far as it goes.
                        prop_assert!(start == 0 || !model[start - 1]);
                        prop_assert!(end == 40 || !model[end]);
                    }
                }
                let is_empty = !model.contains(&true);
                prop_assert_eq!(ranges.is_empty(), is_empty);
            }
        }
    }

    #[test]
    fn ranges_that_follow_each_other_are_one() {
        let mut ranges = RemovedRanges::default();
        for at in 0..1000_u16 {
            ranges.add(at.to_be_bytes().to_vec(), (at + 1).to_be_bytes().to_vec(), false);
        }
        assert_eq!(ranges.ends.len(), 1);
    }
}
