//! Finding one key: by the index over hashes, or by a search where the index cannot tell.

use crate::index::Place;
use crate::link::Link;
use crate::list::Skiplist;
use terrace_base::checksum::hash_key;

impl Skiplist {
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

    /// Asks for what [`Self::get_hashed`] reads first for a key of this hash: a line of the index.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Asks for what it reads next: the node, if there is one under this hash. Reads the line of the index.
    #[inline]
    pub fn prefetch_node(&self, hash: u64) {
        if let Some(node) = self.index.guess(hash) {
            self.arena.prefetch_entry(node);
        }
    }

    /// What the index knows of a key.
    #[inline]
    pub(crate) fn indexed(&self, user_key: &[u8], hash: u64) -> Place {
        self.index.find(hash, |node| self.arena.key(node) == user_key)
    }

    /// The node of a key, without the index.
    #[cold]
    pub(crate) fn searched(&self, user_key: &[u8]) -> Option<Link> {
        let target = self.target(user_key);
        let node = self.gap(&target).after;
        self.is_at(node, &target).then_some(node)
    }
}
