//! Search: from a node known to lie before the target, right while the successor does too, down
//! otherwise.
//!
//! The loop is written without a branch on the outcome of a comparison, which is close to random:
//! both next positions are at hand (right: the successor's tower, down: the next word), so one is
//! selected. Branches remain for what is rare or predictable: equal heads, a head of another epoch
//! than the search's, and the end.
//!
//! A link whose head is of an older epoch is compared by key and its head renewed in passing, by
//! readers and writers alike.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use crate::arena::{Link, LinkWord, MAX_HEIGHT, Tag};
use crate::head::Scheme;
use crate::list::Skiplist;

/// A place in the order, with its tag under the scheme the search works with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) trailer: u64,
    pub(crate) tag: Tag,
    pub(crate) scheme: &'a Scheme,
}

/// Two neighbours on a level: the target lies after `before`, and at or before `after`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    pub(crate) before: Link,
    pub(crate) after: Link,
}

impl Default for Gap {
    fn default() -> Self {
        Self { before: Link::HEAD, after: Link::NULL }
    }
}

/// Where a search leaves the gaps it passes.
pub(crate) trait Record {
    /// Called at every step; the last call for a level holds its gap.
    fn note(&mut self, level: usize, gap: Gap);
}

/// For searches that need level 0 only.
impl Record for () {
    #[inline]
    fn note(&mut self, _level: usize, _gap: Gap) {}
}

impl Record for [Gap; MAX_HEIGHT] {
    #[inline]
    fn note(&mut self, level: usize, gap: Gap) {
        self[level] = gap;
    }
}

impl Skiplist {
    /// The gap of `target` on level 0. `from` is a node before the target, at least `level + 1`
    /// levels high; `record` gets the gaps of `level` and below.
    #[inline]
    pub(crate) fn descend(
        &self,
        target: &Target<'_>,
        from: Link,
        mut level: usize,
        record: &mut impl Record,
    ) -> Gap {
        let mut gap = Gap { before: from, after: Link::NULL };
        let mut position = from.node() - level;
        // The last node found at or after the target by its key: every level below leads to it.
        let mut known_after = Link::NULL;
        loop {
            let word = self.arena.link_at(position);
            gap.after = word.load();
            let tag = gap.after.tag();
            let right = if tag.epoch() == target.tag.epoch() && tag != target.tag {
                tag < target.tag
            } else {
                self.lies_before(word, gap.after, target, &mut known_after)
            };
            record.note(level, gap);
            if !right && level == 0 {
                return gap;
            }
            // Wrapping: at the end of a level the successor's position is computed and not taken.
            let over = gap.after.node().wrapping_sub(level);
            position = select_unpredictable(right, over, position + 1);
            gap.before = select_unpredictable(right, gap.after, gap.before);
            level -= usize::from(!right);
        }
    }

    /// Whether `link`, read from `word`, lies before the target, where tags do not tell.
    #[inline(never)]
    fn lies_before(
        &self,
        word: LinkWord<'_>,
        link: Link,
        target: &Target<'_>,
        known_after: &mut Link,
    ) -> bool {
        if link.is_null() || link.node() == known_after.node() {
            return false;
        }
        if link.tag().epoch() < target.tag.epoch() {
            self.renew(word, link, target);
        }
        if self.compare(link, target) == Ordering::Less {
            return true;
        }
        *known_after = link;
        false
    }

    /// Puts the head of the target's epoch into a link. If the link has changed meanwhile, whoever
    /// comes next does it.
    fn renew(&self, word: LinkWord<'_>, link: Link, target: &Target<'_>) {
        let head = target.scheme.head(self.arena.key(link));
        word.replace(link, link.with_tag(target.tag.with_head(head)));
    }

    /// Where `link`, a node with an entry, lies relative to the target.
    #[inline]
    pub(crate) fn compare(&self, link: Link, target: &Target<'_>) -> Ordering {
        let key = self.arena.key(link);
        match key.cmp(target.key) {
            Ordering::Equal => target.trailer.cmp(&self.arena.trailer(link)),
            unequal => unequal,
        }
    }

    /// Whether `link`, any link, lies before the target.
    #[inline]
    pub(crate) fn is_before(&self, link: Link, target: &Target<'_>) -> bool {
        let tag = link.tag();
        if tag.epoch() == target.tag.epoch() && tag != target.tag {
            return tag < target.tag;
        }
        link.node() == Link::HEAD.node()
            || (!link.is_null() && self.compare(link, target) == Ordering::Less)
    }

    /// Whether `link`, any link but the head, is at the target exactly.
    #[inline]
    pub(crate) fn is_at(&self, link: Link, target: &Target<'_>) -> bool {
        self.may_have_key(link, target) && self.compare(link, target) == Ordering::Equal
    }

    /// False if `link`, any link but the head, certainly has another key than the target.
    #[inline]
    pub(crate) fn may_have_key(&self, link: Link, target: &Target<'_>) -> bool {
        let tag = link.tag();
        !link.is_null() && (tag.epoch() != target.tag.epoch() || tag == target.tag)
    }

    /// The gap of `target` on `level`, walking right from `from`, a node before the target.
    pub(crate) fn walk(&self, target: &Target<'_>, from: Link, level: usize) -> Gap {
        let mut gap = Gap { before: from, after: self.arena.link(from, level).load() };
        while self.is_before(gap.after, target) {
            gap.before = gap.after;
            gap.after = self.arena.link(gap.before, level).load();
        }
        gap
    }
}
