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

use std::hint::select_unpredictable;

use crate::head::Scheme;
use crate::link::{Link, LinkWord, Tag};
use crate::list::Skiplist;
use crate::sync::Ordering;

/// A key to find the place of, with its tag under the scheme the search works with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) tag: Tag,
    pub(crate) scheme: &'a Scheme,
}

impl Target<'_> {
    /// Whether `link` lies before the target, if its tag tells.
    #[inline]
    fn tells(&self, link: Link) -> Option<bool> {
        let tag = link.tag();
        (tag.epoch() == self.tag.epoch() && tag != self.tag).then_some(tag < self.tag)
    }
}

/// Two neighbours on a level: the target lies after `before`, and at or before `after`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    pub(crate) before: Link,
    pub(crate) after: Link,
}

impl Gap {
    /// Whether this is no gap that a search has found, or that of an empty level: it does not tell
    /// where a search had best begin.
    #[inline]
    pub(crate) fn is_unknown(self) -> bool {
        self.after.is_null() && self.before.node() == Link::HEAD.node()
    }
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

/// A search that takes turns with others: the state of [`Skiplist::descend`] between two steps.
#[derive(Debug)]
pub(crate) struct Search<'a, R> {
    pub(crate) target: Target<'a>,
    pub(crate) at: Descent,
    known_after: Link,
    /// The node whose entry was asked for last.
    awaited: Link,
    pub(crate) record: R,
}

impl<'a, R> Search<'a, R> {
    /// To begin at the link of `from`, a node before the target, at `level`.
    pub(crate) fn new(target: Target<'a>, from: Link, level: usize, record: R) -> Self {
        let at = Descent::at(from, level);
        Self { target, at, known_after: Link::NULL, awaited: Link::NULL, record }
    }
}

/// Where a search stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descent {
    /// Of the link word to look at next.
    position: usize,
    level: usize,
    gap: Gap,
}

impl Descent {
    /// At the start: before the link of `node` at `level`.
    #[inline]
    fn at(node: Link, level: usize) -> Self {
        let gap = Gap { before: node, after: Link::NULL };
        Self { position: node.node() - level, level, gap }
    }

    /// The gap that was looked at last: where it ends, that of the target on level 0.
    #[inline]
    pub(crate) fn gap(&self) -> Gap {
        self.gap
    }

    /// Right over the successor, or down: false if there is no level further down.
    #[inline]
    fn go(&mut self, right: bool) -> bool {
        if !right && self.level == 0 {
            return false;
        }
        // Wrapping: at the end of a level the successor's position is computed and not taken.
        let over = self.gap.after.node().wrapping_sub(self.level);
        self.position = select_unpredictable(right, over, self.position + 1);
        self.gap.before = select_unpredictable(right, self.gap.after, self.gap.before);
        self.level -= usize::from(!right);
        true
    }
}

impl Skiplist {
    /// `key` as a target of searches under the current scheme.
    #[inline]
    pub(crate) fn target<'a>(&'a self, key: &'a [u8]) -> Target<'a> {
        let (epoch, scheme) = self.scheme();
        Target { key, tag: Tag::new(scheme.head(key), epoch), scheme }
    }

    /// The gap of `target` on level 0.
    #[inline]
    pub(crate) fn gap(&self, target: &Target<'_>) -> Gap {
        let height = self.height.load(Ordering::Relaxed) as usize;
        self.descend(target, Link::HEAD, height - 1, &mut ())
    }

    /// The gap of `target` on level 0. `from` is a node before the target, at least `level + 1`
    /// levels high; `record` gets the gaps of `level` and below.
    #[inline]
    pub(crate) fn descend(
        &self,
        target: &Target<'_>,
        from: Link,
        level: usize,
        record: &mut impl Record,
    ) -> Gap {
        let mut at = Descent::at(from, level);
        // The last node found at or after the target by its key: every level below leads to it.
        let mut known_after = Link::NULL;
        loop {
            let word = self.arena.link_at(at.position);
            at.gap.after = word.load();
            let right = match target.tells(at.gap.after) {
                Some(right) => right,
                None => self.lies_before(word, at.gap.after, target, &mut known_after),
            };
            record.note(at.level, at.gap);
            if !at.go(right) {
                return at.gap;
            }
        }
    }

    /// One step of a search that takes turns with others: false if it has ended. What the next step
    /// reads, a link or a key, is asked for, to be at hand at the next turn.
    #[inline]
    pub(crate) fn step<R: Record>(&self, search: &mut Search<'_, R>) -> bool {
        let Search { target, at, known_after, awaited, record } = search;
        let word = self.arena.link_at(at.position);
        at.gap.after = word.load();
        let right = match target.tells(at.gap.after) {
            Some(right) => right,
            None if at.gap.after.node() == awaited.node() || at.gap.after.is_null() => {
                self.lies_before(word, at.gap.after, target, known_after)
            }
            None => {
                *awaited = at.gap.after;
                self.arena.prefetch_entry(at.gap.after);
                return true;
            }
        };
        record.note(at.level, at.gap);
        let goes_on = at.go(right);
        self.arena.prefetch_at(at.position);
        goes_on
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
        if self.arena.key(link) < target.key {
            return true;
        }
        *known_after = link;
        false
    }

    /// Puts the head of the target's epoch into a link. If the link has changed meanwhile, the thread that
    /// comes next does it.
    fn renew(&self, word: LinkWord<'_>, link: Link, target: &Target<'_>) {
        let head = target.scheme.head(self.arena.key(link));
        word.replace(link, link.with_tag(target.tag.with_head(head)));
    }

    /// Whether `link`, any link, lies before the target.
    #[inline]
    pub(crate) fn is_before(&self, link: Link, target: &Target<'_>) -> bool {
        if let Some(before) = target.tells(link) {
            return before;
        }
        link.node() == Link::HEAD.node() || (!link.is_null() && self.arena.key(link) < target.key)
    }

    /// Whether `link`, any link but the head, is at the target.
    #[inline]
    pub(crate) fn is_at(&self, link: Link, target: &Target<'_>) -> bool {
        let tag = link.tag();
        let may_be = tag.epoch() != target.tag.epoch() || tag == target.tag;
        !link.is_null() && may_be && self.arena.key(link) == target.key
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
