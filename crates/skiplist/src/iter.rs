//! The cursor over a list.

use std::sync::Arc;

use terrace_base::{InternalIter, Result};

use crate::arena::Link;
use crate::list::Skiplist;

/// A cursor over a [`Skiplist`] in internal order, which keeps the list alive.
///
/// Never fails, and never waits for inserts. `prev` searches from the top, everything else moves
/// along links. Misuse (moving a cursor that is not valid) leaves it invalid.
#[derive(Debug, Clone)]
pub struct Iter {
    list: Arc<Skiplist>,
    /// The entry the cursor stands on, or null.
    at: Link,
}

impl Iter {
    pub(crate) fn new(list: Arc<Skiplist>) -> Self {
        Self { list, at: Link::NULL }
    }

    #[inline]
    fn stand_after(&mut self, node: Link) {
        self.at = self.list.arena.link(node, 0).load();
        self.list.arena.prefetch(self.at);
    }

    /// Stands on `node`, which may be the head: then nowhere.
    fn stand_on(&mut self, node: Link) {
        self.at = if node.node() == Link::HEAD.node() { Link::NULL } else { node };
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
        self.stand_on(self.list.last());
        Ok(())
    }

    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.at = self.list.gap(&self.list.target(user_key, trailer)).after;
        Ok(())
    }

    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        let before = self.list.gap(&self.list.target(user_key, trailer)).before;
        self.stand_on(before);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        if self.valid() {
            self.stand_after(self.at);
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid());
        if self.valid() {
            let arena = &self.list.arena;
            let target = self.list.target(arena.key(self.at), arena.trailer(self.at));
            let before = self.list.gap(&target).before;
            self.stand_on(before);
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
        if self.valid() { self.list.arena.trailer(self.at) } else { 0 }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        debug_assert!(self.valid());
        if self.valid() { self.list.arena.value(self.at) } else { &[] }
    }
}
