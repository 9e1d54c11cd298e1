//! Whether a list is what it should be: for tests, while nobody writes.

use crate::index::Place;
use crate::link::{Link, Tag};
use crate::list::Skiplist;
use crate::sync::Ordering;
use std::collections::HashSet;
use terrace_base::checksum::hash_key;

impl Skiplist {
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
}
