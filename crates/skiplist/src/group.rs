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
use crate::index::Place;
use crate::link::Link;
use crate::list::Skiplist;
use crate::search::Search;
use terrace_base::checksum::hash_key;

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
    /// Adds entries in their order, as [`Self::insert`] does one after the other, and gives how many
    /// are in the list now: all, or those before the first that found too little room.
    ///
    /// In a list too large for the caches, where entries lie far from the one before, the searches of
    /// up to [`GROUP`] go in lock-step and wait for memory together, which halves the cost of an
    /// insert (group prefetching: Chen, Ailamaki, Gibbons, Mowry, ICDE 2004, section 4; the module
    /// `group` says more). Elsewhere it costs what single inserts do. Any order will do; sorted
    /// entries cost least.
    #[must_use = "entries may have found no room"]
    pub fn insert_all<V: AsRef<[u8]>>(&self, entries: &[Entry<'_, V>], hint: &mut Hint) -> usize {
        let mut left = entries;
        while let Some(first) = left.first() {
            let together = self.gains_by_groups() && !hint.nearness.is_high();
            let (tried, added) = if together && let Some(group) = left.first_chunk::<GROUP>() {
                (GROUP, self.insert_group(group, hint))
            } else if together && let Some(group) = left.first_chunk::<SMALL_GROUP>() {
                (SMALL_GROUP, self.insert_group(group, hint))
            } else {
                let value = first.value.as_ref();
                let added = self.insert(first.user_key, first.trailer, value, hint);
                (1, usize::from(added.is_ok()))
            };
            left = &left[added..];
            if added < tried {
                break;
            }
        }
        entries.len() - left.len()
    }

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
        let hashes = entries.each_ref().map(|entry| hash_key(entry.user_key));
        let mut ways = self.ways(entries, &hashes, hint);
        self.descend_together(&mut ways);
        let mut nearness = hint.nearness;
        let mut previous = None;
        let (mut added, mut last) = (0, None);
        for ((way, entry), hash) in ways.iter_mut().zip(entries).zip(hashes) {
            let value = entry.value.as_ref();
            let has_room = match way {
                Way::There(node) => self.add_version(*node, entry.trailer, value).is_ok(),
                Way::Search(Search { target, at, record, .. }) => {
                    let place = at.gap().before.node();
                    if let Some(previous) = previous.replace(place) {
                        nearness.note(place == previous);
                    }
                    // What came between since the search, entries of this group too.
                    record.gaps[0] = self.walk(target, record.gaps[0].before, 0);
                    let added = self.add(target, hash, (entry.trailer, value), record);
                    last = Some(record);
                    added.is_ok()
                }
            };
            if !has_room {
                break;
            }
            added += 1;
        }
        if let Some(record) = last {
            *hint = Hint { nearness, ..record.clone() };
        }
        added
    }

    /// How each entry gets to its place: keys that the index knows need no search.
    #[inline]
    fn ways<'a, const N: usize, V>(
        &'a self,
        entries: &[Entry<'a, V>; N],
        hashes: &[u64; N],
        hint: &mut Hint,
    ) -> [Way<'a>; N] {
        hashes.iter().for_each(|hash| self.index.prefetch(*hash));
        for node in hashes.iter().filter_map(|hash| self.index.guess(*hash)) {
            self.arena.prefetch_entry(node);
        }
        std::array::from_fn(|n| {
            let user_key = entries[n].user_key;
            if let Place::At(node) = self.indexed(user_key, hashes[n]) {
                self.arena.prefetch_newest(node);
                return Way::There(node);
            }
            let target = self.target(user_key);
            let (from, level) = self.start(&target, hint);
            Way::Search(Search::new(target, from, level, hint.clone()))
        })
    }

    /// Takes all searches to their gaps on level 0, a step of each at a time.
    fn descend_together<const N: usize>(&self, ways: &mut [Way<'_>; N]) {
        // Those under way come first.
        let mut order: [usize; N] = std::array::from_fn(|n| n);
        let mut under_way = N;
        while under_way > 0 {
            let mut turn = 0;
            while turn < under_way {
                let goes_on = match &mut ways[order[turn]] {
                    Way::There(_) => false,
                    Way::Search(search) => self.step(search),
                };
                if goes_on {
                    turn += 1;
                } else {
                    under_way -= 1;
                    order[turn] = order[under_way];
                }
            }
        }
    }
}

/// How an entry of a group gets to its place.
#[allow(clippy::large_enum_variant)] // a group lies on the stack, and most searches are long
enum Way<'a> {
    /// Its key is there.
    There(Link),
    Search(Search<'a, Hint>),
}
