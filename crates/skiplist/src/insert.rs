//! Adding one entry: a version to a key that is there, or a node for a new one.
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

use crate::Full;
use crate::hint::{Hint, NEAR};
use crate::index::Place;
use crate::link::Link;
use crate::list::{LEARN_AT, Skiplist};
use crate::search::{Gap, Target};
use crate::sync::Ordering;
use terrace_base::checksum::hash_key;

impl Skiplist {
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

    /// Adds a version to a node that a search has found. The thread that linked it may not have noted it in
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
