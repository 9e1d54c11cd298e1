//! Cuts overlapping range tombstones into fragments in one sweep over their bounds.
//!
//! Between two bounds the same tombstones are open. Each stripe keeps its open ones in a heap by
//! sequence number; one that has ended leaves its heap when it comes to the top. So a bound costs
//! O(log n) and the sweep never holds more than the input and one list of open stripes.

use super::{Fragment, RangeTombstoneRef, RangeTombstones};
use crate::number::SeqNo;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The open tombstones of one stripe: sequence number and index in the input.
type Open = BinaryHeap<(SeqNo, usize)>;

/// The sweep over an input sorted by start.
struct Sweep<'i, 'a, F> {
    input: &'i [RangeTombstoneRef<'a>],
    stripe_of: F,
    /// Newest stripe first.
    open: BTreeMap<Reverse<u64>, Open>,
}

impl<F: Fn(SeqNo) -> u64> Sweep<'_, '_, F> {
    /// Lets tombstone `index` begin or end at `key`.
    fn pass(&mut self, key: &[u8], index: usize, begins: bool) {
        let seqno = self.input[index].seqno;
        let stripe = Reverse((self.stripe_of)(seqno));
        let heap = self.open.entry(stripe).or_default();
        if begins {
            heap.push((seqno, index));
        }
        while heap.peek().is_some_and(|(_, top)| self.input[*top].end <= key) {
            heap.pop();
        }
        if heap.is_empty() {
            self.open.remove(&stripe);
        }
    }

    /// The newest open tombstone of every stripe, newest first.
    fn list_into(&self, seqnos: &mut Vec<SeqNo>) {
        seqnos.clear();
        seqnos.extend(self.open.values().filter_map(|heap| heap.peek().map(|top| top.0)));
    }
}

/// The fragments of `input`, which holds no empty range.
pub(super) fn collapse(
    mut input: Vec<RangeTombstoneRef<'_>>,
    stripe_of: impl Fn(SeqNo) -> u64,
) -> RangeTombstones {
    input.sort_unstable_by(|a, b| a.start.cmp(b.start));
    let mut ends: Vec<usize> = (0..input.len()).collect();
    ends.sort_unstable_by(|a, b| input[*a].end.cmp(input[*b].end));
    let mut set = RangeTombstones::default();
    let mut sweep = Sweep { input: &input, stripe_of, open: BTreeMap::new() };
    let (mut started, mut ended) = (0, 0);
    // What covers the keys from `since` on.
    let (mut since, mut seqnos): (&[u8], Vec<SeqNo>) = (&[], Vec::new());
    // Every tombstone starts before it ends, so the last bound is an end.
    while let Some(end) = ends.get(ended).map(|index| input[*index].end) {
        let key = input.get(started).map_or(end, |next| next.start.min(end));
        while input.get(started).is_some_and(|next| next.start == key) {
            sweep.pass(key, started, true);
            started += 1;
        }
        while let Some(index) = ends.get(ended).filter(|index| input[**index].end == key) {
            sweep.pass(key, *index, false);
            ended += 1;
        }
        if !seqnos.is_empty() {
            set.push(Fragment { start: since, end: key, seqnos: &seqnos });
        }
        since = key;
        sweep.list_into(&mut seqnos);
    }
    set.shrink_to_fit();
    set
}
