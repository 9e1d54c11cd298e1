//! What a point lookup asks of a file, and what it is given.

use terrace_base::SeqNo;
use terrace_base::checksum::hash_key;
use terrace_base::key::seek_trailer;
use terrace_buf::Slice;
use terrace_learned::BlockGuess;

/// A point lookup: the key, its hash, and the newest version it may see.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    /// The key looked for.
    pub user_key: &'a [u8],
    /// [`hash_key`] of the key.
    pub hash: u64,
    /// The first trailer that is visible: [`seek_trailer`] of the read's sequence number.
    pub trailer: u64,
    /// Whether a data block that has to be read goes into the cache.
    pub fill_cache: bool,
    /// Read nothing: a lookup that needs a block or an index partition which is not in memory
    /// gives [`NotInMemory`](terrace_base::Error::NotInMemory); one that lacks a filter or a model goes on without.
    pub in_memory: bool,
}

impl<'a> Lookup<'a> {
    /// A lookup of the newest version of `user_key` at or below `seqno`, which fills the cache.
    #[inline]
    pub fn new(user_key: &'a [u8], seqno: SeqNo) -> Self {
        let (hash, trailer) = (hash_key(user_key), seek_trailer(seqno));
        Self { user_key, hash, trailer, fill_cache: true, in_memory: false }
    }
}

/// Which filter partition of a file covers a key ([`SstReader::prefetch_filter`](crate::SstReader::prefetch_filter)).
#[derive(Debug, Clone, Copy)]
pub struct FilterAt(pub(crate) usize);

/// Where the learned index of a file takes a key to be, if it was asked
/// ([`SstReader::prefetch_entry`](crate::SstReader::prefetch_entry)).
#[derive(Debug, Clone, Copy, Default)]
pub struct EntryAt {
    pub(crate) guess: Option<BlockGuess>,
    pub(crate) is_in_memory: bool,
}

impl EntryAt {
    /// Whether that block is in memory.
    #[inline]
    pub fn is_in_memory(self) -> bool {
        self.is_in_memory
    }
}

/// A version found by a lookup.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its sequence number and kind.
    pub trailer: u64,
    /// Its stored value (with the expiry in front for `PutTtl`), pinned to its block.
    pub value: Slice,
}

/// What a lookup in one data block says of a level whose files are disjoint. Which file and block
/// to look into was a guess.
#[derive(Debug, Clone)]
pub enum InLevel {
    /// The newest visible version in the level, which proves the guess.
    Found(Entry),
    /// The block has keys on both sides of the key, so it is nowhere else in the level.
    Absent,
    /// The file's filter denies the key. If the file's bounds enclose it, it is absent.
    Stopped,
    /// Nothing is proven: search the level.
    Unknown,
}

/// Where a model of the level takes a key to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// The data block of the file.
    pub ordinal: u32,
    /// How far into the block, in 1/256.
    pub within: u8,
    /// Whether most lookups find their key in this level.
    pub likely: bool,
}
