//! The arena: bump-allocated nodes in one contiguous region, never moved and never freed before the
//! whole region is.
//!
//! Positions count words of eight bytes. A node is named by the word of its lowest link; a tower
//! grows downwards from there and the entry upwards, so that the links a search ends on, the
//! lengths and the start of the key stand side by side:
//!
//! ```text
//! word    node-h+1 ..  node-1   node     node+1    node+2                     node+3 ..
//!       +------------+--------+--------+---------+--------------------------+------------------+
//!       | link h-1.. | link 1 | link 0 | trailer | key_len 32 | value_len 32 | key, value, pad |
//!       +------------+--------+--------+---------+--------------------------+------------------+
//!
//! link (u64): head of the successor 32 | epoch of that head 2 | node of the successor 30
//! ```
//!
//! A link compares as a number like its head does. [`Link::NULL`] is all ones. Node
//! [`Link::HEAD`] has the tallest tower and no entry; it stands before every key.
//!
//! Invariant on which every access rests: a non-null [`Link`] names a node of this arena whose entry
//! has been written, and whoever holds it obtained it from the writer or through an acquiring load
//! of a link word. Links are made in [`Arena::write`] and copied from there.
#![allow(unsafe_code)] // raw access to the region

use std::io;
use std::ptr::NonNull;

use crate::region::Region;
use crate::sync::{AtomicU64, Ordering};

/// Bytes of a word.
const WORD: usize = 8;
/// Words of an entry before its key: link 0's node word excluded, trailer and lengths.
const ENTRY_HEADER_WORDS: usize = 2;

/// The tallest tower.
#[cfg(not(loom))]
pub(crate) const MAX_HEIGHT: usize = 20;
/// The tallest tower; low, so that the model checker gets through.
#[cfg(loom)]
pub(crate) const MAX_HEIGHT: usize = 2;

/// A node survives from one level to the next with probability 2^-BRANCH_BITS. Half, where other
/// lists take a quarter: since the way down costs no access, what counts is steps to the right, and
/// of these a half takes 1 a level (19 for 2^19 entries), a quarter 3 (28), for 5 bytes an entry.
pub(crate) const BRANCH_BITS: u32 = 1;

const NODE_BITS: u32 = 30;
const NODE_MASK: u64 = (1 << NODE_BITS) - 1;
const EPOCH_MASK: u64 = 0b11 << NODE_BITS;

/// The largest arena: what the node bits of a link can address (8 GiB).
pub(crate) const MAX_ARENA_BYTES: usize = WORD << NODE_BITS;

/// A node and the head of its key. See the module for the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link(u64);

impl Link {
    /// No node: the end of a level.
    pub(crate) const NULL: Self = Self(u64::MAX);
    /// The node before the first.
    pub(crate) const HEAD: Self = Self(MAX_HEIGHT as u64 - 1);

    #[inline]
    pub(crate) fn is_null(self) -> bool {
        self == Self::NULL
    }

    #[inline]
    pub(crate) fn node(self) -> usize {
        (self.0 & NODE_MASK) as usize
    }

    #[inline]
    pub(crate) fn tag(self) -> Tag {
        Tag(self.0 & !NODE_MASK)
    }

    /// The same node under another tag, which must be of its key.
    #[inline]
    pub(crate) fn with_tag(self, tag: Tag) -> Self {
        Self(tag.0 | (self.0 & NODE_MASK))
    }
}

/// What a link says about a key: its head, and the epoch of the scheme that made it. Tags of the
/// same epoch compare like their keys; equal ones say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(u64);

impl Tag {
    #[inline]
    pub(crate) fn new(head: u32, epoch: u32) -> Self {
        Self(u64::from(head) << 32 | (u64::from(epoch) << NODE_BITS & EPOCH_MASK))
    }

    /// Another head of the same epoch.
    #[inline]
    pub(crate) fn with_head(self, head: u32) -> Self {
        Self(u64::from(head) << 32 | self.epoch())
    }

    /// The epoch, for comparison with other epochs only.
    #[inline]
    pub(crate) fn epoch(self) -> u64 {
        self.0 & EPOCH_MASK
    }
}

/// What [`Arena::allocate`] handed out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    node: usize,
    /// Levels of the tower.
    pub(crate) height: usize,
    /// Entries allocated up to and including this one.
    pub(crate) ordinal: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Arena {
    base: NonNull<u8>,
    capacity_words: u64,
    region: Region,
    #[cfg(loom)]
    tracked: tracked::Tracked,
    /// Entries in the upper, words in use in the lower half: one atomic step takes space and counts.
    used: Padded,
}

/// A cache line of its own: written by every insert, while what is beside it is only read.
#[repr(align(128))]
#[derive(Debug)]
struct Padded(AtomicU64);

// SAFETY: `base` points into `region`, which is `Send`; access follows the protocol of the module.
unsafe impl Send for Arena {}
// SAFETY: shared mutable words are atomics; all else is written before it is published.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of `bytes` bytes, or as few as the head node takes if that is more.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
        if bytes > MAX_ARENA_BYTES {
            let why = "a memtable arena is limited to 8 GiB";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let capacity_words = (bytes / WORD).max(MAX_HEIGHT);
        let region = Region::reserve(capacity_words * WORD)?;
        let arena = Self {
            base: region.base(),
            capacity_words: capacity_words as u64,
            region,
            #[cfg(loom)]
            tracked: tracked::Tracked::new(capacity_words),
            used: Padded(AtomicU64::new(MAX_HEIGHT as u64)),
        };
        for level in 0..MAX_HEIGHT {
            arena.link(Link::HEAD, level).prepare(Link::NULL);
        }
        Ok(arena)
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.capacity_words as usize * WORD
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.used.0.load(Ordering::Relaxed) as u32 as usize * WORD
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.region.committed_bytes(self.allocated_bytes())
    }

    pub(crate) fn entry_count(&self) -> usize {
        (self.used.0.load(Ordering::Relaxed) >> 32) as usize
    }

    /// The most bytes an entry takes.
    pub(crate) const fn entry_upper_bound(key_len: usize, value_len: usize) -> usize {
        let payload = key_len.saturating_add(value_len).div_ceil(WORD).saturating_mul(WORD);
        payload.saturating_add((MAX_HEIGHT + ENTRY_HEADER_WORDS) * WORD)
    }

    /// Takes room for an entry; `None` if there is too little, and then nothing has changed.
    pub(crate) fn allocate(&self, key_len: usize, value_len: usize) -> Option<Space> {
        if u32::try_from(key_len).is_err() || u32::try_from(value_len).is_err() {
            return None;
        }
        let entry_words = ((key_len + value_len).div_ceil(WORD) + ENTRY_HEADER_WORDS) as u64;
        let mut used = self.used.0.load(Ordering::Relaxed);
        loop {
            let words = used & u64::from(u32::MAX);
            let height = height_at(words);
            let taken = height as u64 + entry_words;
            if words + taken > self.capacity_words {
                return None;
            }
            // Relaxed: the words taken are nobody else's, and links publish what is put there.
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.used.0.compare_exchange_weak(
                used,
                used + (1 << 32) + taken,
                success,
                failure,
            ) {
                Ok(_) => {
                    let node = words as usize + height - 1;
                    return Some(Space { node, height, ordinal: (used >> 32) as usize + 1 });
                }
                Err(now) => used = now,
            }
        }
    }

    /// Uncounts an entry that was allocated and will not be linked; its space stays taken.
    pub(crate) fn abandon(&self) {
        self.used.0.fetch_sub(1 << 32, Ordering::Relaxed);
    }

    /// Fills `space`, which was allocated for these lengths, and makes its link under `tag`.
    pub(crate) fn write(
        &self,
        space: Space,
        key: &[u8],
        trailer: u64,
        value: &[u8],
        tag: Tag,
    ) -> Link {
        let first = (space.node + 1) * WORD;
        let end = first + ENTRY_HEADER_WORDS * WORD + key.len() + value.len();
        debug_assert!(end <= self.capacity_bytes());
        #[cfg(loom)]
        self.tracked.note_write(space.node);
        // SAFETY: first..end lies in what `allocate` gave this caller alone, and nobody else has a
        // link to it yet. Words are aligned to eight bytes.
        unsafe {
            let at = self.base.as_ptr().add(first);
            at.cast::<u64>().write(trailer);
            at.cast::<u32>().add(2).write(key.len() as u32);
            at.cast::<u32>().add(3).write(value.len() as u32);
            let at = at.add(ENTRY_HEADER_WORDS * WORD);
            std::ptr::copy_nonoverlapping(key.as_ptr(), at, key.len());
            std::ptr::copy_nonoverlapping(value.as_ptr(), at.add(key.len()), value.len());
        }
        Link(space.node as u64).with_tag(tag)
    }

    /// The word that holds `node`'s link at `level`, which is below the height of its tower.
    #[inline]
    pub(crate) fn link(&self, node: Link, level: usize) -> LinkWord<'_> {
        self.link_at(node.node() - level)
    }

    /// The link word at `position`: that of a node of the arena minus a level below its height.
    #[inline]
    pub(crate) fn link_at(&self, position: usize) -> LinkWord<'_> {
        debug_assert!((position as u64) < self.capacity_words);
        #[cfg(loom)]
        return LinkWord(self.tracked.word(position));
        // SAFETY: the position lies in the region, is aligned, and (module invariant) belongs to a
        // tower, whose words are accessed only as atomics.
        #[cfg(not(loom))]
        LinkWord(unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(position * WORD).cast()) })
    }

    #[inline]
    fn entry(&self, link: Link) -> *const u8 {
        debug_assert!(!link.is_null() && link.node() != Link::HEAD.node());
        #[cfg(loom)]
        self.tracked.note_read(link.node());
        // SAFETY: a link names a node inside the region, and its entry follows it.
        unsafe { self.base.as_ptr().add((link.node() + 1) * WORD) }
    }

    /// The key of the node.
    #[inline]
    pub(crate) fn key(&self, link: Link) -> &[u8] {
        let entry = self.entry(link);
        // SAFETY: the entry has been written (module invariant) and never changes again.
        unsafe {
            let len = entry.cast::<u32>().add(2).read() as usize;
            std::slice::from_raw_parts(entry.add(ENTRY_HEADER_WORDS * WORD), len)
        }
    }

    /// The trailer of the node.
    #[inline]
    pub(crate) fn trailer(&self, link: Link) -> u64 {
        // SAFETY: as for `key`.
        unsafe { self.entry(link).cast::<u64>().read() }
    }

    /// The value of the node.
    #[inline]
    pub(crate) fn value(&self, link: Link) -> &[u8] {
        let entry = self.entry(link);
        // SAFETY: as for `key`.
        unsafe {
            let key_len = entry.cast::<u32>().add(2).read() as usize;
            let len = entry.cast::<u32>().add(3).read() as usize;
            std::slice::from_raw_parts(entry.add(ENTRY_HEADER_WORDS * WORD + key_len), len)
        }
    }

    /// Asks for the cache lines that the next calls of `allocate` will hand out to `entries` entries
    /// of about a line.
    #[inline]
    pub(crate) fn prefetch_free(&self, entries: usize) {
        let at = self.allocated_bytes();
        for line in 0..=entries {
            prefetch(self.base.as_ptr().wrapping_add(at + line * 64));
        }
    }

    /// Asks for the cache line of a link word. Any position will do.
    #[inline]
    pub(crate) fn prefetch_at(&self, position: usize) {
        prefetch(self.base.as_ptr().wrapping_add(position.wrapping_mul(WORD)));
    }

    /// Asks for the cache lines that hold trailer, lengths and the first 16 bytes of the key of a
    /// node. Any link will do.
    #[inline]
    pub(crate) fn prefetch_entry(&self, link: Link) {
        self.prefetch_at(link.node() + 1);
        self.prefetch_at(link.node() + ENTRY_HEADER_WORDS + 2);
    }

    /// Asks for the cache line of a node. Any link will do.
    #[inline]
    pub(crate) fn prefetch(&self, link: Link) {
        self.prefetch_at(link.node());
    }
}

/// One link of one node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkWord<'a>(&'a AtomicU64);

impl LinkWord<'_> {
    /// The link. Acquire: pairs with the release in `replace`, so the node it names is written.
    #[inline]
    pub(crate) fn load(self) -> Link {
        Link(self.0.load(Ordering::Acquire))
    }

    /// Sets a link of a node that is not reachable at this level yet. Relaxed: the link that makes
    /// it reachable is released after it.
    #[inline]
    pub(crate) fn prepare(self, link: Link) {
        self.0.store(link.0, Ordering::Relaxed);
    }

    /// Replaces `old` by `new` if it still stands. Release: whoever loads `new` sees the node it
    /// names with its links prepared.
    #[inline]
    pub(crate) fn replace(self, old: Link, new: Link) -> bool {
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        self.0.compare_exchange(old.0, new.0, success, failure).is_ok()
    }
}

/// The height of a tower that starts at `word`: geometric with parameter 2^-BRANCH_BITS.
///
/// A function of the place, so that it costs no state, no two nodes share it, and the same inserts
/// give the same list.
#[cfg(not(loom))]
fn height_at(word: u64) -> usize {
    // The finisher of SplitMix64: every input bit reaches every output bit.
    let mut z = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    ((z.trailing_zeros() / BRANCH_BITS) as usize + 1).min(MAX_HEIGHT)
}

/// Three tall towers, then a low one, and so on.
#[cfg(loom)]
fn height_at(word: u64) -> usize {
    if word % 20 < 15 { MAX_HEIGHT } else { 1 }
}

/// A hint to load a cache line; no effect but on time, whatever the address.
#[inline]
fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction does not access memory architecturally.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// What loom sees of the arena: link words as its atomics, and per node a cell that stands for the
/// entry, so that reading one that was not published to the reader is reported as a race.
#[cfg(loom)]
mod tracked {
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::AtomicU64;

    #[derive(Debug)]
    pub(super) struct Tracked {
        words: Box<[AtomicU64]>,
        entries: Box<[UnsafeCell<()>]>,
    }

    impl Tracked {
        pub(super) fn new(words: usize) -> Self {
            Self {
                words: (0..words).map(|_| AtomicU64::new(0)).collect(),
                entries: (0..words).map(|_| UnsafeCell::new(())).collect(),
            }
        }

        pub(super) fn word(&self, position: usize) -> &AtomicU64 {
            &self.words[position]
        }

        pub(super) fn note_write(&self, node: usize) {
            self.entries[node].with_mut(|_| ());
        }

        pub(super) fn note_read(&self, node: usize) {
            self.entries[node].with(|_| ());
        }
    }
}
