//! Segments by number, in a map that is changed by making another one: what stays as it is both share. There may be a
//! hundred thousand segments, and one is begun while writers wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_base::SegmentNumber;

/// Segments whose numbers differ only in this many low bits are copied together when one of them comes or goes.
const PART_BITS: u32 = 10;

type Part<S> = BTreeMap<SegmentNumber, Arc<S>>;

/// See the module.
pub(crate) struct Segments<S> {
    /// None of them is empty.
    parts: BTreeMap<u64, Arc<Part<S>>>,
}

impl<S> Default for Segments<S> {
    fn default() -> Self {
        Self { parts: BTreeMap::new() }
    }
}

impl<S> Clone for Segments<S> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone() }
    }
}

/// The part with `number`.
fn part_of(number: SegmentNumber) -> u64 {
    number.get() >> PART_BITS
}

impl<S> Segments<S> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The segment `number`.
    pub fn get(&self, number: &SegmentNumber) -> Option<&Arc<S>> {
        self.parts.get(&part_of(*number))?.get(number)
    }

    /// Whether there is the segment `number`.
    pub fn contains_key(&self, number: &SegmentNumber) -> bool {
        self.get(number).is_some()
    }

    /// All numbers, in order.
    pub fn keys(&self) -> impl Iterator<Item = &SegmentNumber> {
        self.parts.values().flat_map(|part| part.keys())
    }

    /// All segments, in the order of their numbers.
    pub fn values(&self) -> impl Iterator<Item = &Arc<S>> {
        self.parts.values().flat_map(|part| part.values())
    }

    /// The segment `number`, which `make` gives if there is none.
    pub fn get_or_insert_with(
        &mut self,
        number: SegmentNumber,
        make: impl FnOnce() -> Arc<S>,
    ) -> &Arc<S> {
        let part = self.parts.entry(part_of(number)).or_default();
        Arc::make_mut(part).entry(number).or_insert_with(make)
    }

    /// Takes the segment `number` out.
    pub fn remove(&mut self, number: &SegmentNumber) -> Option<Arc<S>> {
        let part = self.parts.get_mut(&part_of(*number))?;
        if !part.contains_key(number) {
            return None;
        }
        let gone = Arc::make_mut(part).remove(number);
        if part.is_empty() {
            self.parts.remove(&part_of(*number));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_copies_one_part_and_no_other_map_sees_it() {
        let number = SegmentNumber::new;
        let mut map = Segments::default();
        for n in (0..100_000).rev() {
            map.get_or_insert_with(number(n), || Arc::new(n));
        }
        let before = map.clone();
        assert_eq!(**map.get_or_insert_with(number(100_000), || Arc::new(7)), 7);
        assert_eq!(**map.get_or_insert_with(number(5), || Arc::new(8)), 5);
        assert_eq!(map.remove(&number(200_000)), None);
        assert_eq!(map.remove(&number(4)).as_deref(), Some(&4));
        let copied = map.parts.iter().filter(|&(at, part)| {
            before.parts.get(at).is_none_or(|other| !Arc::ptr_eq(part, other))
        });
        // The first, for two of these, and the last.
        assert_eq!(copied.count(), 2);
        assert!(before.contains_key(&number(4)) && !before.contains_key(&number(100_000)));
        assert!(!map.contains_key(&number(4)) && map.contains_key(&number(100_000)));
        assert!(map.keys().is_sorted());
        assert_eq!((map.keys().count(), map.values().count()), (100_000, 100_000));
        let all: Vec<SegmentNumber> = map.keys().copied().collect();
        all.iter().for_each(|number| drop(map.remove(number)));
        assert!(map.is_empty() && !before.is_empty());
    }
}
