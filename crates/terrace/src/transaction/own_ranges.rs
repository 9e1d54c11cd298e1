//! Which range delete of a transaction covers a key last, found by one search however many there are; can be cut back.

use std::collections::BTreeMap;
use std::ops::Bound;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OwnRanges {
    /// From each key on, up to the next one here, the same range delete is the last to cover what lies there, if one does:
    /// its number.
    bounds: BTreeMap<Box<[u8]>, Option<usize>>,
}

/// What a range delete has changed.
#[derive(Debug, Default)]
pub(super) struct Overlaid {
    /// The two bounds that it made; `None` if it covers nothing.
    made: Option<[Box<[u8]>; 2]>,
    /// What lay from the first to the second.
    before: Vec<(Box<[u8]>, Option<usize>)>,
}

impl OwnRanges {
    /// The number of the last range delete that covers `key`.
    pub fn last_over(&self, key: &[u8]) -> Option<usize> {
        let up_to_key = (Bound::<&[u8]>::Unbounded, Bound::Included(key));
        let (_, last) = self.bounds.range::<[u8], _>(up_to_key).next_back()?;
        *last
    }

    /// Range delete `at`, which comes after all others, covers `[start, end)`. Costs a step for each bound that it hides, and
    /// a bound is hidden once.
    pub fn overlay(&mut self, start: &[u8], end: &[u8], at: usize) -> Overlaid {
        if start >= end {
            return Overlaid::default();
        }
        let behind = self.last_over(end);
        let within = (Bound::Included(start), Bound::Included(end));
        let hidden = self.bounds.range::<[u8], _>(within);
        let before: Vec<_> = hidden.map(|(key, last)| (key.clone(), *last)).collect();
        before.iter().for_each(|(key, _)| _ = self.bounds.remove(key));
        let made: [Box<[u8]>; 2] = [start.into(), end.into()];
        let [first, second] = made.clone();
        self.bounds.insert(first, Some(at));
        self.bounds.insert(second, behind);
        Overlaid { made: Some(made), before }
    }

    /// Takes back the last range delete that is left.
    pub fn take_back(&mut self, Overlaid { made, before }: Overlaid) {
        for bound in made.into_iter().flatten() {
            self.bounds.remove(&bound);
        }
        self.bounds.extend(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::rng::{Rng, SplitMix64};

    #[test]
    fn the_last_range_over_a_key_is_found_and_taken_back() {
        let mut rng = SplitMix64::new(1);
        let (mut ranges, mut model) = (OwnRanges::default(), Vec::<[u8; 2]>::new());
        let (mut undo, mut count) = (Vec::new(), 0);
        for step in 0..5000 {
            match rng.below(3) {
                0 if !model.is_empty() => {
                    model.pop();
                    ranges.take_back(undo.pop().unwrap());
                }
                // Some of them are empty, or end before they start.
                _ => {
                    let [start, end] = [(); 2].map(|()| rng.below(20) as u8);
                    undo.push(ranges.overlay(&[start], &[end], model.len()));
                    model.push([start, end]);
                    count += 1;
                }
            }
            for key in 0..20 {
                let over = |[start, end]: &[u8; 2]| (*start..*end).contains(&key);
                assert_eq!(ranges.last_over(&[key]), model.iter().rposition(over), "step {step}");
            }
        }
        assert!(count > 3000);
        undo.into_iter().rev().for_each(|overlaid| ranges.take_back(overlaid));
        assert!(ranges.bounds.is_empty());
    }

    #[test]
    fn what_is_hidden_takes_no_further_time() {
        let mut ranges = OwnRanges::default();
        for at in 0..1000_usize {
            let key = |n: usize| (n as u16).to_be_bytes();
            ranges.overlay(&key(at), &key(at + 1), at);
        }
        assert_eq!(ranges.bounds.len(), 1001);
        let hides = ranges.overlay(&[0], &[255], 1000);
        assert_eq!((hides.before.len(), ranges.bounds.len()), (1001, 2));
        assert_eq!(ranges.overlay(&[0], &[255], 1001).before.len(), 2);
    }
}
