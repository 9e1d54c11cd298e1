//! The cursor over a list.

use std::sync::Arc;

use terrace_base::{InternalIter, Result};

use crate::link::{Link, Version};
use crate::list::Skiplist;
use crate::versions::VersionGap;

/// A cursor over a [`Skiplist`] in internal order, which keeps the list alive.
///
/// Never fails, and never waits for inserts. `prev` searches from the top, or from the newest version
/// of the key; everything else moves along links. Misuse (moving a cursor that is not valid) leaves it
/// invalid.
#[derive(Debug, Clone)]
pub struct Iter {
    list: Arc<Skiplist>,
    /// The key the cursor stands on, or null.
    at: Link,
    /// The version of the key; none only with a null key.
    version: Version,
}

impl Skiplist {
    /// A cursor over the entries, which keeps the list alive. Entries inserted while it stands may
    /// or may not be met.
    pub fn iter(self: &Arc<Self>) -> Iter {
        Iter::new(Arc::clone(self))
    }
}

impl Iter {
    pub(crate) fn new(list: Arc<Skiplist>) -> Self {
        Self { list, at: Link::NULL, version: Version::NONE }
    }

    /// Stands on the newest version of the key after `node`.
    #[inline]
    fn stand_after(&mut self, node: Link) {
        self.stand_on_newest(self.list.arena.link(node, 0).load());
    }

    /// Stands on the newest version of `node`, which may be null.
    #[inline]
    fn stand_on_newest(&mut self, node: Link) {
        let arena = &self.list.arena;
        self.at = node;
        self.version = Version::NONE;
        if !node.is_null() {
            self.version = arena.newest(node);
            arena.prefetch(arena.link(node, 0).load());
        }
    }

    /// Stands on the oldest version of `node`, which may be the head: then nowhere.
    fn stand_on_oldest(&mut self, node: Link) {
        let is_head = node.node() == Link::HEAD.node();
        self.at = if is_head { Link::NULL } else { node };
        self.version = if is_head { Version::NONE } else { self.list.oldest(node) };
    }

    fn stand_on(&mut self, node: Link, version: Version) {
        self.at = node;
        self.version = version;
    }
}

impl InternalIter for Iter {
    #[inline]
    fn valid(&self) -> bool {
        !self.at.is_null()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.stand_after(Link::HEAD);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.stand_on_oldest(self.list.last());
        Ok(())
    }

    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        let target = self.list.target(user_key);
        let node = self.list.gap(&target).after;
        if !self.list.is_at(node, &target) {
            self.stand_on_newest(node);
            return Ok(());
        }
        match self.list.version_gap(node, trailer).at {
            Version::NONE => self.stand_after(node),
            version => self.stand_on(node, version),
        }
        Ok(())
    }

    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        let target = self.list.target(user_key);
        let gap = self.list.gap(&target);
        if self.list.is_at(gap.after, &target) {
            let VersionGap { above, .. } = self.list.version_gap(gap.after, trailer);
            if !above.is_none() {
                self.stand_on(gap.after, above);
                return Ok(());
            }
        }
        self.stand_on_oldest(gap.before);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        if self.valid() {
            match self.list.arena.older(self.version) {
                Version::NONE => self.stand_after(self.at),
                older => self.version = older,
            }
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        if self.valid() {
            let arena = &self.list.arena;
            let above = self.list.version_gap(self.at, arena.trailer(self.version)).above;
            if above.is_none() {
                let target = self.list.target(arena.key(self.at));
                let before = self.list.gap(&target).before;
                self.stand_on_oldest(before);
            } else {
                self.version = above;
            }
        }
        Ok(())
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        debug_assert!(self.valid());
        if self.valid() { self.list.arena.key(self.at) } else { &[] }
    }

    #[inline]
    fn trailer(&self) -> u64 {
        debug_assert!(self.valid());
        if self.valid() { self.list.arena.trailer(self.version) } else { 0 }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        debug_assert!(self.valid());
        if self.valid() { self.list.arena.value(self.version) } else { &[] }
    }
}
