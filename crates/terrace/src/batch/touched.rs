//! The families that a batch writes to, in the order in which they came. Most batches have one or two; of ten thousand each
//! operation finds its own all the same.

use std::collections::BTreeMap;

/// Up to this many, besides the first, to look through all takes less than to keep a map of them.
const FEW: usize = 16;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Touched {
    first: Option<u32>,
    more: Vec<u32>,
    /// The place of each family in the order, or nothing while there are few.
    places: BTreeMap<u32, usize>,
}

impl Touched {
    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.first.iter().chain(&self.more).copied()
    }

    /// The place of `family` in the order.
    #[inline]
    pub fn place_of(&self, family: u32) -> Option<usize> {
        if self.first == Some(family) {
            return Some(0);
        }
        match self.places.is_empty() {
            true => self.more.iter().position(|other| *other == family).map(|at| at + 1),
            false => self.places.get(&family).copied(),
        }
    }

    /// Adds `family`, unless it is there.
    #[inline]
    pub fn note(&mut self, family: u32) {
        if self.place_of(family).is_some() {
            return;
        }
        if self.first.is_none() {
            self.first = Some(family);
            return;
        }
        self.more.push(family);
        match self.places.is_empty() {
            true if self.more.len() > FEW => self.places = self.iter().zip(0..).collect(),
            true => {}
            false => _ = self.places.insert(family, self.more.len()),
        }
    }

    /// Takes back all but the first `count`.
    pub fn cut(&mut self, count: usize) {
        let Some(more) = count.checked_sub(1) else {
            self.first = None;
            self.more.clear();
            self.places.clear();
            return;
        };
        for family in self.more.drain(more.min(self.more.len())..) {
            self.places.remove(&family);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Note(u32),
        Cut(usize),
    }

    proptest! {
        #[test]
        fn families_are_found_at_their_places_however_many_there_are(
            steps in proptest::collection::vec(
                prop_oneof![
                    9 => (0..40_u32).prop_map(Step::Note),
                    1 => (0..40_usize).prop_map(Step::Cut),
                ],
                0..100),
        ) {
            let (mut touched, mut model) = (Touched::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Note(family) => {
                        touched.note(family);
                        if !model.contains(&family) {
                            model.push(family);
                        }
                    }
                    Step::Cut(count) => {
                        touched.cut(count);
                        model.truncate(count);
                    }
                }
                prop_assert_eq!(touched.iter().collect::<Vec<_>>(), model.clone());
                prop_assert_eq!(touched.len(), model.len());
                for family in 0..40 {
                    let place = model.iter().position(|other| *other == family);
                    prop_assert_eq!(touched.place_of(family), place);
                }
            }
        }
    }

    #[test]
    fn of_many_families_none_is_looked_for_among_all() {
        let mut touched = Touched::default();
        (0..=FEW as u32).for_each(|family| touched.note(family));
        assert!(touched.places.is_empty());
        touched.note(100);
        assert_eq!(touched.places.len(), FEW + 2);
        touched.cut(3);
        assert_eq!((touched.places.len(), touched.len()), (3, 3));
        touched.cut(0);
        assert!(touched.places.is_empty() && touched.len() == 0);
    }
}
