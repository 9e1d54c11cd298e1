//! The list: its interface, insertion, and the choice of how keys become heads.
//!
//! # Insertion
//!
//! 1. Ask the index (module `index`) for the key, unless it is likely new. If it is there, add a version
//!    to it (module `versions`), and that is all.
//! 2. Search for the gap of the new key on every level (from the hint if that is near).
//! 3. Take arena space, which decides the height of the tower, and write the entry there.
//! 4. Link bottom-up: on each level point the new node at the gap's right side, then swing the left
//!    side's link to the new node by compare-and-swap. If that fails, something was linked into the
//!    gap (or a head in the link was renewed): walk right from the left side, and again. Between
//!    level 0 and the others the key goes into the index.
//!
//! Many entries at once take steps 1 and 2 in groups (module `group`), then steps 3 and 4 one by one.
//!
//! Nothing is ever unlinked, so a node found to lie before the target stays a valid place to
//! continue from, and searches never wait or repeat. Inserts do not wait for each other either, but
//! for the few steps in which one notes a new key in the index. An entry is in the list for scans once
//! level 0 or a newer version links to it, and for lookups once its insert has returned; upper levels
//! are shortcuts.
//!
//! # Heads
//!
//! All heads of one epoch come from one scheme. At the key counts in [`LEARN_AT`] the inserting
//! thread looks at a sample of the keys, and if another scheme tells more of them apart, publishes
//! it as the next epoch. Links keep the head (and epoch) they have until a search passes.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::AtomicU64 as PlainAtomicU64;
use std::sync::{Arc, OnceLock};

use crate::Full;
use crate::arena::{Arena, BRANCH_BITS, MAX_ARENA_BYTES};
use crate::group::{Entry, GROUP, SMALL_GROUP};
use crate::head::Scheme;
use crate::hint::{Hint, NEAR};
use crate::index::{Index, Place};
use crate::iter::Iter;
use crate::link::{Link, Tag};
use crate::search::{Gap, Target};
use crate::sync::{AtomicU32, Ordering};
use terrace_base::checksum::hash_key;

/// Key counts at which the scheme for heads is reconsidered; as many as there are epochs after
/// the first. Early, since heads are useless before; then when what came first weighs little.
#[cfg(not(loom))]
const LEARN_AT: [usize; 3] = [32, 1024, 32 << 10];
#[cfg(loom)]
const LEARN_AT: [usize; 1] = [2];

/// About how many keys are looked at then, and for an estimate.
const LEARN_SAMPLE: usize = 512;

/// Names lists, so that a [`Hint`] is never followed into another list.
static NEXT_ID: PlainAtomicU64 = PlainAtomicU64::new(1);

/// An ordered map from `(user key, trailer)` to value in internal order: user key ascending, then
/// trailer descending.
///
/// Inserts are concurrent, reads never wait. An entry is there until the whole list is dropped, so what
/// is borrowed from it lives as long as the borrow of the list.
///
/// To look up a key and to write one again costs the same however many keys there are; a new key, and
/// the first step of a scan, cost a search.
#[derive(Debug)]
pub struct Skiplist {
    pub(crate) arena: Arena,
    pub(crate) index: Index,
    id: u64,
    /// Levels in use. Relaxed throughout: searching from a level too low or empty is only slower.
    height: AtomicU32,
    /// The epoch of the scheme in use: its place in `schemes`.
    epoch: AtomicU32,
    schemes: [OnceLock<Scheme>; LEARN_AT.len() + 1],
}

impl Skiplist {
    /// An empty list with an arena of `bytes` bytes, reserved now and committed as it fills.
    ///
    /// # Errors
    /// If the address space cannot be reserved, or `bytes` is over 8 GiB (`InvalidInput`).
    pub fn with_capacity(bytes: usize) -> io::Result<Arc<Self>> {
        let arena = Arena::reserve(bytes)?;
        Ok(Arc::new(Self {
            index: Index::reserve(arena.most_nodes())?,
            arena,
            id: NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            height: AtomicU32::new(1),
            epoch: AtomicU32::new(0),
            schemes: std::array::from_fn(|epoch| match epoch {
                0 => Scheme::raw().into(),
                _ => OnceLock::new(),
            }),
        }))
    }

    /// Adds an entry. `(user_key, trailer)` should be new: a repeat is ignored.
    ///
    /// `hint` remembers where; an insert near the previous one with the same hint is cheaper, one
    /// in ascending order costs the same however long the list is. Any hint will do.
    ///
    /// # Errors
    /// [`Full`] if the arena has too little room left; nothing was inserted or allocated.
    pub fn insert(
        &self,
        user_key: &[u8],
        trailer: u64,
        value: &[u8],
        hint: &mut Hint,
    ) -> Result<(), Full> {
        let hash = hash_key(user_key);
        self.index.prefetch(hash);
        self.arena.prefetch_free(1);
        let target = self.target(user_key);
        let (from, level) = self.start(&target, hint);
        // Near the last one a search is cheaper; and if keys are new, as the last ones were, the search
        // cannot be spared, and the index comes from memory meanwhile.
        let index_first = !hint.nearness.is_high() && !hint.novelty.is_high();
        if index_first && let Place::At(node) = self.indexed(user_key, hash) {
            hint.novelty.note(false);
            return self.add_version(node, trailer, value);
        }
        hint.nearness.note(level <= NEAR);
        self.descend(&target, from, level, hint);
        let is_new = self.add(&target, hash, (trailer, value), hint)?;
        hint.novelty.note(is_new);
        Ok(())
    }

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

    /// Adds a version, `(trailer, value)`, of the key of `target`, for which `start` and a search have
    /// filled the hint. Gives whether the key is new.
    pub(crate) fn add(
        &self,
        target: &Target<'_>,
        hash: u64,
        (trailer, value): (u64, &[u8]),
        hint: &mut Hint,
    ) -> Result<bool, Full> {
        let there = hint.gaps[0].after;
        if self.is_at(there, target) {
            return self.add_beside(there, hash, trailer, value).map(|()| false);
        }
        let space = self.arena.allocate(target.key.len(), value.len()).ok_or(Full)?;
        let node = self.arena.write(space, target.key, trailer, value, target.tag);
        if !self.link_on(0, node, target, &mut hint.gaps[0]) {
            self.arena.abandon();
            return self.add_beside(hint.gaps[0].after, hash, trailer, value).map(|()| false);
        }
        hint.gaps[0].before = node;
        let key_count = self.index.add(hash, node);
        for level in 1..space.height {
            self.link_on(level, node, target, &mut hint.gaps[level]);
            hint.gaps[level].before = node;
        }
        hint.height = hint.height.max(space.height);
        if self.height.load(Ordering::Relaxed) < space.height as u32 {
            self.height.fetch_max(space.height as u32, Ordering::Relaxed);
        }
        if let Some(count) = key_count
            && LEARN_AT.contains(&count)
        {
            self.learn(count);
        }
        Ok(true)
    }

    /// Adds a version to a node that a search has found. Whoever linked it may not have noted it in
    /// the index yet, and lookups must find what this insert has added.
    fn add_beside(&self, node: Link, hash: u64, trailer: u64, value: &[u8]) -> Result<(), Full> {
        self.index.add(hash, node);
        self.add_version(node, trailer, value)
    }

    /// Links `node`, which is at `target`, on `level`. The left side of `gap` must lie before the
    /// target; the right side may be out of date. False if level 0 has the target already.
    fn link_on(&self, level: usize, node: Link, target: &Target<'_>, gap: &mut Gap) -> bool {
        if self.is_before(gap.after, target) {
            *gap = self.walk(target, gap.before, level);
        }
        loop {
            self.arena.link(node, level).prepare(gap.after);
            if self.arena.link(gap.before, level).replace(gap.after, node) {
                return true;
            }
            *gap = self.walk(target, gap.before, level);
            if level == 0 && self.is_at(gap.after, target) {
                return false;
            }
        }
    }

    /// Where to search for the gaps of `target`: from a node before it, at a level of the hint, which
    /// starts over if it is of another list, or of one so much smaller that it is no help above.
    ///
    /// Once the search has recorded what it passed, the hint's gaps are as they stood during it on
    /// the levels searched; above, at least the left sides lie before the target.
    pub(crate) fn start(&self, target: &Target<'_>, hint: &mut Hint) -> (Link, usize) {
        let height = self.height.load(Ordering::Relaxed) as usize;
        if hint.list != self.id || hint.height < height {
            let Hint { nearness, novelty, .. } = *hint;
            *hint = Hint { list: self.id, height, nearness, novelty, ..Hint::default() };
        } else {
            for level in 0..height {
                let gap = hint.gaps[level];
                if !gap.is_unknown()
                    && self.is_before(gap.before, target)
                    && !self.is_before(gap.after, target)
                {
                    return (gap.before, level);
                }
            }
        }
        (Link::HEAD, hint.height - 1)
    }

    /// The first entry of `user_key` at or after `trailer` in internal order, which is the newest
    /// one visible there: its trailer and value.
    #[inline]
    pub fn get(&self, user_key: &[u8], trailer: u64) -> Option<(u64, &[u8])> {
        self.get_hashed(user_key, hash_key(user_key), trailer)
    }

    /// As [`Self::get`], with [`hash_key`] of the key at hand.
    #[inline]
    pub fn get_hashed(&self, user_key: &[u8], hash: u64, trailer: u64) -> Option<(u64, &[u8])> {
        let node = match self.indexed(user_key, hash) {
            Place::At(node) => node,
            Place::Absent => return None,
            Place::Unknown => self.searched(user_key)?,
        };
        let version = self.version_gap(node, trailer).at;
        (!version.is_none()).then(|| (self.arena.trailer(version), self.arena.value(version)))
    }

    /// What the index knows of a key.
    #[inline]
    pub(crate) fn indexed(&self, user_key: &[u8], hash: u64) -> Place {
        self.index.find(hash, |node| self.arena.key(node) == user_key)
    }

    /// The node of a key, without the index.
    #[cold]
    fn searched(&self, user_key: &[u8]) -> Option<Link> {
        let target = self.target(user_key);
        let node = self.gap(&target).after;
        self.is_at(node, &target).then_some(node)
    }

    /// A cursor over the entries, which keeps the list alive. Entries inserted while it stands may
    /// or may not be met.
    pub fn iter(self: &Arc<Self>) -> Iter {
        Iter::new(Arc::clone(self))
    }

    /// Arena bytes in use, by entries and by the list itself.
    pub fn allocated_bytes(&self) -> usize {
        self.arena.allocated_bytes()
    }

    /// Bytes of the index in use, some 16 a key; beside the arena, not in it.
    pub fn index_bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Memory committed for the arena: the allocated bytes in whole pages, huge ones once the
    /// first huge page is full.
    pub fn resident_bytes(&self) -> usize {
        self.arena.committed_bytes()
    }

    /// The size of the arena.
    pub fn capacity_bytes(&self) -> usize {
        self.arena.capacity_bytes()
    }

    /// Entries in the list; those being inserted may count already.
    pub fn entry_count(&self) -> usize {
        self.arena.entry_count()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entry_count() == 0
    }

    /// The largest capacity (8 GiB).
    pub const MAX_CAPACITY_BYTES: usize = MAX_ARENA_BYTES;

    /// The most arena bytes an entry with these lengths takes.
    pub const fn entry_upper_bound(key_len: usize, value_len: usize) -> usize {
        Arena::entry_upper_bound(key_len, value_len)
    }

    /// Whether every level is in order, heads agree with keys, each node of a level is on the one below,
    /// versions descend, and the index knows every key: what inserts keep. For tests, with no insert in
    /// progress; reads everything.
    pub fn is_ordered(&self) -> bool {
        let mut below: Option<HashSet<usize>> = None;
        for level in 0..self.height.load(Ordering::Relaxed) as usize {
            let mut nodes = HashSet::new();
            let mut node = self.arena.link(Link::HEAD, level).load();
            while !node.is_null() {
                let key = self.arena.key(node);
                let next = self.arena.link(node, level).load();
                if !next.is_null() && self.arena.key(next) <= key
                    || !self.has_own_tag(node)
                    || below.as_ref().is_some_and(|below| !below.contains(&node.node()))
                    || level == 0 && !(self.is_indexed(node) && self.versions_descend(node))
                {
                    return false;
                }
                nodes.insert(node.node());
                node = next;
            }
            below = Some(nodes);
        }
        true
    }

    fn is_indexed(&self, node: Link) -> bool {
        let key = self.arena.key(node);
        match self.indexed(key, hash_key(key)) {
            Place::At(found) => found.node() == node.node(),
            Place::Absent => false,
            Place::Unknown => true,
        }
    }

    fn versions_descend(&self, node: Link) -> bool {
        let mut version = self.arena.newest(node);
        loop {
            let (trailer, older) = (self.arena.trailer(version), self.arena.older(version));
            let jump = self.arena.jump(version).to;
            if older.is_none() {
                return jump.is_none() && version == self.oldest(node);
            }
            let descends = |to| trailer > self.arena.trailer(to);
            if !descends(older) || !jump.is_none() && !descends(jump) {
                return false;
            }
            version = older;
        }
    }

    fn has_own_tag(&self, node: Link) -> bool {
        let mut epochs = (0..).zip(&self.schemes);
        epochs.any(|(epoch, scheme)| {
            let head = scheme.get().map(|scheme| scheme.head(self.arena.key(node)));
            head.is_some_and(|head| Tag::new(head, epoch) == node.tag())
        })
    }

    /// `key` as a target of searches under the current scheme.
    #[inline]
    pub(crate) fn target<'a>(&'a self, key: &'a [u8]) -> Target<'a> {
        let (epoch, scheme) = self.scheme();
        Target { key, tag: Tag::new(scheme.head(key), epoch), scheme }
    }

    /// The scheme in use, and its epoch.
    #[inline]
    fn scheme(&self) -> (u32, &Scheme) {
        // Acquire: the scheme was set before its epoch was stored.
        let epoch = self.epoch.load(Ordering::Acquire);
        (epoch, self.schemes[epoch as usize & 3].get_or_init(Scheme::raw))
    }

    /// The gap of `target` on level 0.
    #[inline]
    pub(crate) fn gap(&self, target: &Target<'_>) -> Gap {
        let height = self.height.load(Ordering::Relaxed) as usize;
        self.descend(target, Link::HEAD, height - 1, &mut ())
    }

    /// The last node, or the head.
    pub(crate) fn last(&self) -> Link {
        let mut node = Link::HEAD;
        for level in (0..self.height.load(Ordering::Relaxed) as usize).rev() {
            loop {
                let next = self.arena.link(node, level).load();
                if next.is_null() {
                    break;
                }
                node = next;
            }
        }
        node
    }

    /// About which part of the keys lies below `user_key`, within some hundredths: looks at about as
    /// many keys as a sample has.
    pub fn part_below(&self, user_key: &[u8]) -> f64 {
        let level = self.sampled_level(self.index.key_count());
        let (mut below, mut all) = (0_u32, 0_u32);
        let mut node = self.arena.link(Link::HEAD, level).load();
        while !node.is_null() {
            below += u32::from(self.arena.key(node) < user_key);
            all += 1;
            node = self.arena.link(node, level).load();
        }
        f64::from(below) / f64::from(all.max(1))
    }

    /// A level that holds about as many nodes as a sample should, of a list of `count` keys.
    fn sampled_level(&self, count: usize) -> usize {
        let height = self.height.load(Ordering::Relaxed);
        ((count / LEARN_SAMPLE).max(1).ilog2() / BRANCH_BITS).min(height - 1) as usize
    }

    /// Reconsiders the scheme for heads, with `count` keys in the list.
    fn learn(&self, count: usize) {
        let (epoch, current) = self.scheme();
        let Some(next) = self.schemes.get(epoch as usize + 1) else { return };
        let first = self.arena.link(Link::HEAD, 0).load();
        let last = self.last();
        if first.is_null() || last == Link::HEAD {
            return;
        }
        let mut keys = vec![self.arena.key(first)];
        let level = self.sampled_level(count);
        let mut node = self.arena.link(Link::HEAD, level).load();
        while !node.is_null() && keys.len() < 4 * LEARN_SAMPLE {
            let key = self.arena.key(node);
            // Inserted since `first` was read, if smaller.
            if key >= keys[0] {
                keys.push(key);
            }
            node = self.arena.link(node, level).load();
        }
        let last = self.arena.key(last);
        if keys.last().is_some_and(|key| *key < last) {
            keys.push(last);
        }
        let scheme = Scheme::fitting(&keys);
        let told_apart = current.distinct(&keys);
        // An eighth more: every link has to be renewed. Of two threads that get here together the
        // first sets the scheme.
        if scheme.distinct(&keys) > told_apart + told_apart / 8 && next.set(scheme).is_ok() {
            // Release: whoever loads the epoch finds its scheme.
            self.epoch.store(epoch + 1, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Searches that begin before any of them has ended, as those of a group do.
    #[test]
    fn no_search_of_a_hint_that_knows_nothing_begins_at_the_bottom() {
        let list = Skiplist::with_capacity(1 << 20).unwrap();
        for key in 0..2_000_u32 {
            let mut hint = Hint::default();
            list.insert(&key.to_be_bytes(), 1, b"", &mut hint).unwrap();
        }
        let height = list.height.load(Ordering::Relaxed) as usize;
        assert!(height > 2);
        let mut hint = Hint::default();
        for key in [1_500_u32, 3, 1_999, 700] {
            let bytes = key.to_be_bytes();
            let (from, level) = list.start(&list.target(&bytes), &mut hint);
            assert_eq!((from, level), (Link::HEAD, height - 1), "{key}");
        }
    }
}
