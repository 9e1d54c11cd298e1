//! The memtable core: an arena skiplist of internal keys with concurrent inserts and lock-free
//! reads, which frees nothing before the whole list drops.
//!
//! Files, each using only those above it: `region` (mapped memory), `link` (what names nodes and
//! versions), `arena` (nodes and versions in memory), `index` (nodes by the hash of their key), `head` (digests of keys kept in links), `search`,
//! `versions` (of one key), `hint`, `group` (searches in lock-step), `iter`, `list` (the interface), `ahead` (memory that is
//! touched before it is needed).
//! Called by the engine's memtables, and through [`Iter`] by reads and flushes.

mod ahead;
mod arena;
mod check;
mod group;
mod head;
mod hint;
mod index;
mod insert;
mod iter;
mod link;
mod list;
mod lookup;
mod region;
mod search;
mod sync;
mod versions;

pub use ahead::MemoryAhead;
pub use group::{Entry, GROUP, SMALL_GROUP};
pub use hint::Hint;
pub use iter::Iter;
pub use list::Skiplist;

/// The arena has no room: nothing was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the memtable arena has no room for the entry")
    }
}

impl std::error::Error for Full {}
