//! Ids from a stretch of bounded length, a bit each.

const WORD_BITS: u64 = u64::BITS as u64;

/// A set of ids from `start` on, below `end`.
pub struct IdSet {
    start: u64,
    words: Vec<u64>,
}

impl IdSet {
    /// None of the ids from `start` on, of which there is room for about `count`.
    pub fn new(start: u64, count: u64) -> Self {
        Self { start, words: vec![0; count.div_ceil(WORD_BITS).max(1) as usize] }
    }

    /// The first id that is past the stretch.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.words.len() as u64 * WORD_BITS)
    }

    /// The word and the bit of an id; None if it is not of the stretch.
    fn place(&self, id: u64) -> Option<(usize, u64)> {
        let at = id.checked_sub(self.start)?;
        let word = usize::try_from(at / WORD_BITS).ok()?;
        (word < self.words.len()).then_some((word, 1 << (at % WORD_BITS)))
    }

    /// Adds an id; false if it is not of the stretch.
    pub fn insert(&mut self, id: u64) -> bool {
        match self.place(id) {
            Some((word, bit)) => {
                self.words[word] |= bit;
                true
            }
            None => false,
        }
    }

    /// Removes an id; false if it was not there.
    pub fn remove(&mut self, id: u64) -> bool {
        let was_there = self.has(id);
        if let Some((word, bit)) = self.place(id) {
            self.words[word] &= !bit;
        }
        was_there
    }

    pub fn has(&self, id: u64) -> bool {
        self.place(id).is_some_and(|(word, bit)| self.words[word] & bit != 0)
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The ids, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            let first = self.start + at as u64 * WORD_BITS;
            (0..WORD_BITS).filter(move |bit| (word >> bit) & 1 != 0).map(move |bit| first + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_ids_of_its_stretch() {
        let mut set = IdSet::new(1000, 100);
        assert!(set.is_empty() && set.end() == 1128);
        for id in [1000, 1063, 1064, 1127] {
            assert!(!set.has(id) && set.insert(id) && set.has(id));
        }
        for id in [0, 999, 1128, u64::MAX] {
            assert!(!set.insert(id) && !set.has(id) && !set.remove(id));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [1000, 1063, 1064, 1127]);
        assert!(set.remove(1063) && !set.remove(1063));
        assert_eq!(set.iter().collect::<Vec<_>>(), [1000, 1064, 1127]);
        assert!([1000, 1064, 1127].iter().all(|id| set.remove(*id)));
        assert!(set.is_empty());
        assert_eq!(IdSet::new(u64::MAX - 3, 64).end(), u64::MAX);
    }
}
