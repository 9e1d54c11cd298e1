//! The arena: bump-allocated nodes and versions in one contiguous region, never moved and never freed
//! before the whole region is.
//!
//! Positions count words of eight bytes. A node, one key, is named by the word of its lowest link; a
//! tower grows downwards from there and the entry upwards, so that the links a search ends on, the
//! length and the start of the key stand side by side. Behind the key lies the version that came with
//! it. Versions are named by the word of their trailer:
//!
//! ```text
//! word    node-h+1 ..  node-1   node     node+1                  node+2 ..
//!       +------------+--------+--------+-----------------------+----------+---------------+
//!       | link h-1.. | link 1 | link 0 | newest 32 | key_len 32 | key, pad | first version |
//!       +------------+--------+--------+-----------------------+----------+---------------+
//!
//! word    version-1 (later ones)  version   version+1                 version+2 ..
//!       +-----------------------+---------+-------------------------+------------+
//!       | jump 32 | depth 32    | trailer | older 32 | value_len 32 | value, pad |
//!       +-----------------------+---------+-------------------------+------------+
//!
//! link (u64): head of the successor 32 | epoch of that head 2 | node of the successor 30
//! ```
//!
//! A link compares as a number like its head does. [`Link::NULL`] is all ones. Node
//! [`Link::HEAD`] has the tallest tower and no entry; it stands before every key. Version 0 is none.
//!
//! Version words name a version in their first four bytes and hold a length in the others.
//!
//! Invariant on which every access rests: a non-null [`Link`] names a node of this arena whose entry
//! has been written, a [`Version`] other than none a version that has been, and a holder of one
//! obtained it from the writer or through an acquiring load of the word that names it. They are made
//! in [`Arena::write`] and [`Arena::write_version`] and copied from there.
#![allow(unsafe_code)] // raw access to the region

use std::io;
use std::ptr::NonNull;

use crate::link::{Jump, Link, LinkWord, MAX_HEIGHT, NODE_BITS, Tag, Version, VersionWord};
use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a word.
const WORD: usize = 8;
/// Words of a node between its lowest link and its key.
const NODE_HEADER_WORDS: usize = 1;
/// Words of a version before its value; a jump lies before them.
const VERSION_HEADER_WORDS: usize = 2;
/// The fewest words of a node: one link, and an empty key and value.
const MIN_NODE_WORDS: usize = 1 + NODE_HEADER_WORDS + VERSION_HEADER_WORDS;

/// A node survives from one level to the next with probability 2^-BRANCH_BITS. Half, where other
/// lists take a quarter: since the way down costs no access, what counts is steps to the right, and
/// of these a half takes 1 a level (19 for 2^19 entries), a quarter 3 (28), for 5 bytes an entry.
pub(crate) const BRANCH_BITS: u32 = 1;

/// The largest arena: what the node bits of a link can address (8 GiB).
pub(crate) const MAX_ARENA_BYTES: usize = WORD << NODE_BITS;

/// What [`Arena::allocate`] handed out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    node: usize,
    /// Levels of the tower.
    pub(crate) height: usize,
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

    /// The memory, and how much of it is in use.
    #[inline]
    pub(crate) fn memory(&self) -> (&Region, usize) {
        (&self.region, self.allocated_bytes())
    }

    pub(crate) fn committed_bytes(&self) -> usize {
        self.region.committed_bytes(self.allocated_bytes())
    }

    pub(crate) fn entry_count(&self) -> usize {
        (self.used.0.load(Ordering::Relaxed) >> 32) as usize
    }

    /// The most bytes an entry takes.
    pub(crate) const fn entry_upper_bound(key_len: usize, value_len: usize) -> usize {
        let words = key_len.div_ceil(WORD).saturating_add(value_len.div_ceil(WORD));
        let most = MAX_HEIGHT + NODE_HEADER_WORDS + VERSION_HEADER_WORDS;
        words.saturating_add(most).saturating_mul(WORD)
    }

    /// The most nodes that there is room for.
    pub(crate) fn most_nodes(&self) -> usize {
        self.capacity_words as usize / MIN_NODE_WORDS
    }

    /// Takes room for a node and its first version; `None` if there is too little, and then nothing
    /// has changed.
    pub(crate) fn allocate(&self, key_len: usize, value_len: usize) -> Option<Space> {
        u32::try_from(key_len.max(value_len)).ok()?;
        let entry_words = NODE_HEADER_WORDS
            + key_len.div_ceil(WORD)
            + VERSION_HEADER_WORDS
            + value_len.div_ceil(WORD);
        let start = self.take(|start| (height_at(start) + entry_words) as u64)?;
        let height = height_at(start);
        Some(Space { node: start as usize + height - 1, height })
    }

    /// Takes room for a version beside the first of its key; `None` if there is too little, and then
    /// nothing has changed.
    pub(crate) fn allocate_version(&self, value_len: usize) -> Option<Version> {
        u32::try_from(value_len).ok()?;
        let words = 1 + VERSION_HEADER_WORDS + value_len.div_ceil(WORD);
        // Below 2^30, as all places.
        self.take(|_| words as u64).map(|start| Version::new(start as u32 + 1, true))
    }

    /// Takes as many words as `words` says of the place where they begin, which it gives, and counts
    /// an entry.
    fn take(&self, words: impl Fn(u64) -> u64) -> Option<u64> {
        let mut used = self.used.0.load(Ordering::Relaxed);
        loop {
            let start = used & u64::from(u32::MAX);
            let taken = words(start);
            if start + taken > self.capacity_words {
                return None;
            }
            // Relaxed: the words taken are nobody else's, and links publish what is put there.
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            let after = used + (1 << 32) + taken;
            match self.used.0.compare_exchange_weak(used, after, success, failure) {
                Ok(_) => return Some(start),
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
        #[cfg(loom)]
        self.tracked.note_write(space.node);
        let key_at = space.node + 1 + NODE_HEADER_WORDS;
        let first = Version::new((key_at + key.len().div_ceil(WORD)) as u32, false);
        self.write_length(space.node + 1, key.len());
        self.write_bytes(key_at * WORD, key);
        self.write_version(first, trailer, value);
        let link = Link::untagged(space.node as u32).with_tag(tag);
        self.newest_word(link).prepare(first);
        link
    }

    /// Fills `version`, which was allocated for this length and is not reachable yet; it has no older
    /// one and no jump.
    pub(crate) fn write_version(&self, version: Version, trailer: u64, value: &[u8]) {
        #[cfg(loom)]
        self.tracked.note_write(version.at());
        self.write_bytes(version.at() * WORD, &trailer.to_ne_bytes());
        self.write_length(version.at() + 1, value.len());
        self.write_bytes((version.at() + VERSION_HEADER_WORDS) * WORD, value);
        self.older_word(version).prepare(Version::NONE);
    }

    /// Says what comes after `version`, which [`Self::allocate_version`] gave and which is not reachable
    /// yet.
    pub(crate) fn prepare_version(&self, version: Version, older: Version, jump: Jump) {
        #[cfg(loom)]
        self.tracked.note_write(version.at());
        let at = (version.at() - 1) * WORD;
        self.write_bytes(at, &jump.to.bits().to_ne_bytes());
        self.write_bytes(at + WORD / 2, &jump.depth.to_ne_bytes());
        self.older_word(version).prepare(older);
    }

    /// Puts a length beside what will name a version.
    fn write_length(&self, word: usize, len: usize) {
        self.write_bytes(word * WORD + WORD / 2, &(len as u32).to_ne_bytes());
    }

    /// Copies `bytes` to the byte `at`: to space that was allocated for them and that nobody else can
    /// reach.
    fn write_bytes(&self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.capacity_bytes());
        // SAFETY: what is written lies in what `allocate` or `allocate_version` gave this caller alone,
        // and nobody else has a link to it yet.
        unsafe {
            let at = self.base.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
        }
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

    /// What names the newest version of the node's key.
    #[inline]
    pub(crate) fn newest_word(&self, link: Link) -> VersionWord<'_> {
        debug_assert!(!link.is_null() && link.node() != Link::HEAD.node());
        self.version_at(link.node() + 1)
    }

    /// What names the next older version of the same key.
    #[inline]
    pub(crate) fn older_word(&self, version: Version) -> VersionWord<'_> {
        debug_assert!(!version.is_none());
        self.version_at(version.at() + 1)
    }

    #[inline]
    fn version_at(&self, position: usize) -> VersionWord<'_> {
        debug_assert!((position as u64) < self.capacity_words);
        #[cfg(loom)]
        return VersionWord(self.tracked.half(position));
        // SAFETY: the position lies in the region, is aligned, and (module invariant) belongs to the
        // header of a node or a version, the first half of which is accessed only as an atomic.
        #[cfg(not(loom))]
        VersionWord(unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(position * WORD).cast()) })
    }

    /// A number at the byte `at`: of an entry that has been written, and that never changes again.
    #[inline]
    fn number<T: Copy>(&self, at: usize) -> T {
        debug_assert!(at + size_of::<T>() <= self.capacity_bytes());
        // SAFETY: module invariant; it lies inside the region. Callers read integers, at multiples of
        // their size.
        unsafe { self.base.as_ptr().add(at).cast::<T>().read() }
    }

    /// The bytes behind the length in the second half of `word`, which begin at `start`.
    #[inline]
    fn bytes(&self, word: usize, start: usize) -> &[u8] {
        let len: u32 = self.number(word * WORD + WORD / 2);
        // SAFETY: module invariant; they have been written and never change again.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(start * WORD), len as usize) }
    }

    /// The key of the node.
    #[inline]
    pub(crate) fn key(&self, link: Link) -> &[u8] {
        debug_assert!(!link.is_null() && link.node() != Link::HEAD.node());
        #[cfg(loom)]
        self.tracked.note_read(link.node());
        self.bytes(link.node() + 1, link.node() + 1 + NODE_HEADER_WORDS)
    }

    /// The newest version of the node's key.
    #[inline]
    pub(crate) fn newest(&self, link: Link) -> Version {
        self.newest_word(link).load()
    }

    /// The next older version of the same key.
    #[inline]
    pub(crate) fn older(&self, version: Version) -> Version {
        self.older_word(version).load()
    }

    /// What a version has to jump over others; the first of a key has nothing.
    #[inline]
    pub(crate) fn jump(&self, version: Version) -> Jump {
        if !version.has_jump() {
            return Jump { to: Version::NONE, depth: 0 };
        }
        #[cfg(loom)]
        self.tracked.note_read(version.at());
        let at = (version.at() - 1) * WORD;
        Jump { to: Version::from_bits(self.number(at)), depth: self.number(at + WORD / 2) }
    }

    /// The trailer of a version.
    #[inline]
    pub(crate) fn trailer(&self, version: Version) -> u64 {
        #[cfg(loom)]
        self.tracked.note_read(version.at());
        self.number(version.at() * WORD)
    }

    /// The value of a version.
    #[inline]
    pub(crate) fn value(&self, version: Version) -> &[u8] {
        #[cfg(loom)]
        self.tracked.note_read(version.at());
        self.bytes(version.at() + 1, version.at() + VERSION_HEADER_WORDS)
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

    /// Asks for the cache lines that hold the length and the first 16 bytes of the key of a node. Any
    /// link will do.
    #[inline]
    pub(crate) fn prefetch_entry(&self, link: Link) {
        self.prefetch_at(link.node() + 1);
        self.prefetch_at(link.node() + NODE_HEADER_WORDS + 2);
    }

    /// Asks for the newest version of a node.
    #[inline]
    pub(crate) fn prefetch_newest(&self, link: Link) {
        self.prefetch_at(self.newest(link).at());
    }

    /// Asks for the cache line of a node. Any link will do.
    #[inline]
    pub(crate) fn prefetch(&self, link: Link) {
        self.prefetch_at(link.node());
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
pub(crate) fn prefetch(at: *const u8) {
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
    use loom::sync::atomic::{AtomicU32, AtomicU64};

    #[derive(Debug)]
    pub(super) struct Tracked {
        words: Box<[AtomicU64]>,
        halves: Box<[AtomicU32]>,
        entries: Box<[UnsafeCell<()>]>,
    }

    impl Tracked {
        pub(super) fn new(words: usize) -> Self {
            Self {
                words: (0..words).map(|_| AtomicU64::new(0)).collect(),
                halves: (0..words).map(|_| AtomicU32::new(0)).collect(),
                entries: (0..words).map(|_| UnsafeCell::new(())).collect(),
            }
        }

        pub(super) fn word(&self, position: usize) -> &AtomicU64 {
            &self.words[position]
        }

        pub(super) fn half(&self, position: usize) -> &AtomicU32 {
            &self.halves[position]
        }

        pub(super) fn note_write(&self, node: usize) {
            self.entries[node].with_mut(|_| ());
        }

        pub(super) fn note_read(&self, node: usize) {
            self.entries[node].with(|_| ());
        }
    }
}
