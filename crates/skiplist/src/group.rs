//! Groups: searches that take turns, so that they wait for memory together.
//!
//! A search is a chain of loads, each from an address that the one before gave. In a list that the
//! caches do not hold, it waits some twenty times, and there is nothing else in it to do meanwhile.
//! The waits of several searches overlap if each makes a step, asks for what its next step will
//! read, and leaves the turn to the next one: group prefetching (Chen, Ailamaki, Gibbons, Mowry:
//! Improving Hash Join Performance through Prefetching, ICDE 2004, section 4), with turns as small
//! as in Kocberber, Falsafi, Grot: Asynchronous Memory Access Chaining, PVLDB 9(4), 2015, which
//! also measures skiplists. Unlike there, the place of a search that has ended stays empty: the
//! group is linked in its order when all have ended, so that a full arena leaves out the last
//! entries and no others.
//!
//! What was searched for before the first of the group is linked holds after it: nothing is ever
//! unlinked, so left sides stay before their targets, and linking walks right over what came between.

use crate::hint::Hint;
use crate::list::Skiplist;
use crate::search::{Record, Search};

/// Entries whose searches go in lock-step: a core keeps 10 to 16 cache lines on their way.
#[cfg(not(loom))]
pub const GROUP: usize = 16;
/// Entries whose searches go in lock-step; few, so that the model checker gets through.
#[cfg(loom)]
pub const GROUP: usize = 2;

/// As many as that go together at the end of a batch, where there are too few for a [`GROUP`].
#[cfg(not(loom))]
pub const SMALL_GROUP: usize = 4;
/// None smaller.
#[cfg(loom)]
pub const SMALL_GROUP: usize = GROUP;

/// Entries from which on a list gains by groups. A smaller one is in the caches, and taking turns is
/// work too.
const GROUPED_FROM: usize = 40_000;

/// An entry to insert.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a, V> {
    /// The user key.
    pub user_key: &'a [u8],
    /// What orders versions of the key: the larger, the earlier.
    pub trailer: u64,
    /// Anything that holds the bytes of the value.
    pub value: V,
}

impl Skiplist {
    /// Whether the list gains by groups. In debug builds and for the model checker every one is taken
    /// to, so that tests meet groups.
    pub(crate) fn gains_by_groups(&self) -> bool {
        cfg!(any(debug_assertions, loom)) || self.entry_count() >= GROUPED_FROM
    }

    /// Adds entries whose searches form a group: how many, from the first on, found room.
    #[inline(never)] // its stack frame is no concern of entries that go alone
    pub(crate) fn insert_group<const N: usize, V: AsRef<[u8]>>(
        &self,
        entries: &[Entry<'_, V>; N],
        hint: &mut Hint,
    ) -> usize {
        self.arena.prefetch_free(N);
        let mut searches = entries.each_ref().map(|entry| {
            let target = self.target(entry.user_key, entry.trailer);
            let (from, level) = self.start(&target, hint);
            Search::new(target, from, level, hint.clone())
        });
        self.descend_together(&mut searches);
        let mut nearness = hint.nearness;
        let mut previous = None;
        let mut added = 0;
        for (Search { target, at, record, .. }, entry) in searches.iter_mut().zip(entries) {
            let place = at.gap().before.node();
            if let Some(previous) = previous.replace(place) {
                nearness.note(place == previous);
            }
            // What came between since the search, entries of this group too.
            record.gaps[0] = self.walk(target, record.gaps[0].before, 0);
            if self.add(target, entry.value.as_ref(), record).is_err() {
                break;
            }
            added += 1;
        }
        let last = &searches[added.max(1) - 1];
        *hint = Hint { nearness, ..last.record.clone() };
        added
    }

    /// Takes all searches to their gaps on level 0, a step of each at a time.
    fn descend_together<R: Record, const N: usize>(&self, searches: &mut [Search<'_, R>; N]) {
        // Those under way come first.
        let mut order: [usize; N] = std::array::from_fn(|n| n);
        let mut under_way = N;
        while under_way > 0 {
            let mut turn = 0;
            while turn < under_way {
                if self.step(&mut searches[order[turn]]) {
                    turn += 1;
                } else {
                    under_way -= 1;
                    order[turn] = order[under_way];
                }
            }
        }
    }
}
