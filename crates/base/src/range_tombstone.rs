//! Range tombstones: deletions of half-open key ranges, and the fragmented set that answers
//! "which tombstone covers this key".
//!
//! Overlapping tombstones are cut at each other's bounds into fragments that do not overlap; each
//! fragment lists the sequence numbers of the tombstones that cover it, newest first. A lookup is
//! then one binary search (Pebble and RocksDB fragment in the same way).

use crate::key::SeqNo;

/// Every version older than `seqno` of every key in `[start, end)` is deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// First key covered.
    pub start: Vec<u8>,
    /// First key after `start` that is not covered.
    pub end: Vec<u8>,
    /// The write's sequence number.
    pub seqno: SeqNo,
}

/// A key range without inner bounds, and who covers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// First key.
    pub start: Vec<u8>,
    /// First key past the fragment.
    pub end: Vec<u8>,
    /// Sequence numbers of the covering tombstones, descending, without repeats.
    pub seqnos: Vec<SeqNo>,
}

/// An immutable, fragmented set of range tombstones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    fragments: Vec<Fragment>,
}

impl RangeTombstones {
    /// Fragments `tombstones`; empty ranges are ignored. O(n log n + fragments x depth).
    pub fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> Self {
        let mut input: Vec<RangeTombstone> =
            tombstones.into_iter().filter(|t| t.start < t.end).collect();
        input.sort();
        let mut bounds: Vec<&[u8]> =
            input.iter().flat_map(|t| [t.start.as_slice(), t.end.as_slice()]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut fragments: Vec<Fragment> = Vec::new();
        let mut open: Vec<&RangeTombstone> = Vec::new();
        let mut upcoming = input.iter().peekable();
        for pair in bounds.windows(2) {
            let [start, end] = pair else { continue };
            open.retain(|t| t.end.as_slice() > *start);
            while let Some(next) = upcoming.next_if(|t| t.start.as_slice() <= *start) {
                open.push(next);
            }
            if open.is_empty() {
                continue;
            }
            let mut seqnos: Vec<SeqNo> = open.iter().map(|t| t.seqno).collect();
            seqnos.sort_unstable_by(|a, b| b.cmp(a));
            seqnos.dedup();
            fragments.push(Fragment { start: start.to_vec(), end: end.to_vec(), seqnos });
        }
        Self { fragments }
    }

    /// Whether nothing is covered.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The fragments in key order.
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// The fragments as single tombstones, in key order, newest first within a fragment.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.fragments.iter().flat_map(|f| {
            f.seqnos.iter().map(|seqno| RangeTombstone {
                start: f.start.clone(),
                end: f.end.clone(),
                seqno: *seqno,
            })
        })
    }

    /// The fragment that contains `key`.
    pub fn fragment_at(&self, key: &[u8]) -> Option<&Fragment> {
        let after = self.fragments.partition_point(|f| f.start.as_slice() <= key);
        let fragment = self.fragments.get(after.checked_sub(1)?)?;
        (key < fragment.end.as_slice()).then_some(fragment)
    }

    /// The newest tombstone at or below `read_seqno` that covers `key`; versions of the key with
    /// a smaller sequence number are deleted. One binary search.
    pub fn covering_seqno(&self, key: &[u8], read_seqno: SeqNo) -> Option<SeqNo> {
        let fragment = self.fragment_at(key)?;
        fragment.seqnos.iter().copied().find(|seqno| *seqno <= read_seqno)
    }

    /// The part of the set inside `[start, end)`; `None` leaves that side open.
    pub fn clip(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let inside = |f: &Fragment| {
            let mut f = f.clone();
            if let Some(start) = start
                && f.start.as_slice() < start
            {
                f.start = start.to_vec();
            }
            if let Some(end) = end
                && f.end.as_slice() > end
            {
                f.end = end.to_vec();
            }
            (f.start < f.end).then_some(f)
        };
        Self { fragments: self.fragments.iter().filter_map(inside).collect() }
    }

    /// About the bytes of memory the set takes.
    pub fn memory_bytes(&self) -> usize {
        let fragment = |f: &Fragment| {
            size_of::<Fragment>()
                + f.start.len()
                + f.end.len()
                + f.seqnos.len() * size_of::<SeqNo>()
        };
        self.fragments.iter().map(fragment).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn covering_agrees_with_a_walk_over_all(
            list in proptest::collection::vec((0u8..20, 0u8..20, 1u64..30), 0..12),
            key in 0u8..20,
            read_seqno in 0u64..32,
            clip in (0u8..20, 0u8..20),
        ) {
            let tombstones: Vec<_> = list
                .iter()
                .map(|(a, b, s)| RangeTombstone { start: vec![*a], end: vec![*b], seqno: *s })
                .collect();
            let set = RangeTombstones::new(tombstones.clone());
            let covers = |t: &&RangeTombstone| {
                t.start.as_slice() <= [key].as_slice()
                    && [key].as_slice() < t.end.as_slice()
                    && t.seqno <= read_seqno
            };
            let want = tombstones.iter().filter(covers).map(|t| t.seqno).max();
            prop_assert_eq!(set.covering_seqno(&[key], read_seqno), want);
            let clipped = set.clip(Some(&[clip.0]), Some(&[clip.1]));
            let inside = clip.0 <= key && key < clip.1;
            prop_assert_eq!(
                clipped.covering_seqno(&[key], read_seqno),
                want.filter(|_| inside)
            );
            prop_assert_eq!(RangeTombstones::new(set.iter()), set.clone());
            for pair in set.fragments().windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
            }
        }
    }
}
