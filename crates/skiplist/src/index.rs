//! Where the node of a key lies, by the hash of the key: to find one key takes no search.
//!
//! A hash table that grows a line of 64 bytes at a time, by linear hashing (Litwin: Linear Hashing: A
//! New Tool for File and Table Addressing, VLDB 1980): with `count` lines, a key whose line would lie
//! past the last one is in the line of half the table before. So no insert ever waits for a table to be
//! built anew, and the table is never much larger than its keys need.
//!
//! ```text
//! line: | slot 0 | .. | slot 6 | incomplete 1, next line + 1 32 |     next: for more keys than slots
//! slot (u64): hash 32 | node 32                                       0: free
//! ```
//!
//! Readers take no lock and wait for nobody. A key never moves within its line; when a line is split,
//! those that leave it are in the new line before `count` says so and leave the old one after. So who
//! misses a key and finds that its line is still the same has not missed it.
//!
//! A line of far too many keys (hashes that somebody chose) becomes incomplete instead of longer: a key
//! that is not found there must be searched for. Called by `list` and `group`.
#![allow(unsafe_code)] // words of mapped memory as atomics

use std::io;

use crate::arena::prefetch;
use crate::link::Link;
use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};

/// Slots of a line.
#[cfg(not(loom))]
const SLOTS: usize = 7;
/// Few, so that small programs fill lines.
#[cfg(loom)]
const SLOTS: usize = 2;

/// Words of a line.
const LINE_WORDS: usize = SLOTS + 1;
/// Bytes of a line.
const LINE_BYTES: usize = LINE_WORDS * size_of::<u64>();
/// Keys for each line, on average.
const KEYS_PER_LINE: usize = SLOTS.div_ceil(2);
/// Lines that one hash leads to, at most.
const MAX_LINES: usize = 4;

/// In the last word of a line: not all of its keys are there.
const INCOMPLETE: u64 = 1 << 32;

/// What the index knows of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its node.
    At(Link),
    /// It is not in the list, or is being added now.
    Absent,
    /// Nothing.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Index {
    /// Lines that hashes lead to, of which the first `count` are in use.
    direct: Lines,
    count: AtomicU32,
    /// Lines that others lead to, numbered after all of `direct`.
    extra: Lines,
    /// How many of them are in use. Written under the lock.
    extra_count: AtomicU32,
    /// Of those who write; how many keys there are.
    writer: Mutex<usize>,
}

impl Index {
    /// An empty index with room for `keys` keys; address space only until it is used.
    pub(crate) fn reserve(keys: usize) -> io::Result<Self> {
        let lines = keys.div_ceil(KEYS_PER_LINE).max(1);
        Ok(Self {
            direct: Lines::reserve(lines)?,
            count: AtomicU32::new(1),
            extra: Lines::reserve(lines.div_ceil(2))?,
            extra_count: AtomicU32::new(0),
            writer: Mutex::new(0),
        })
    }

    /// Asks for the line of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let count = self.count.load(Ordering::Relaxed);
        prefetch(self.direct.line(line_of(tag(hash), count)).cast());
    }

    #[inline]
    fn word(&self, line: usize, slot: usize) -> &AtomicU64 {
        match line.checked_sub(self.direct.len) {
            None => self.direct.word(line, slot),
            Some(line) => self.extra.word(line, slot),
        }
    }

    /// Where the key of this hash lies, which `is_it` tells from others.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(Link) -> bool) -> Place {
        let tag = tag(hash);
        loop {
            // Acquire: pairs with the release in `split`, so the line is filled.
            let first = line_of(tag, self.count.load(Ordering::Acquire));
            let (mut line, mut is_complete) = (first, true);
            loop {
                for slot in 0..SLOTS {
                    // Acquire: pairs with the releases of `add` and `split`.
                    let word = self.word(line, slot).load(Ordering::Acquire);
                    if (word >> 32) as u32 == tag && word as u32 != 0 {
                        let node = Link::untagged(word as u32);
                        if is_it(node) {
                            return Place::At(node);
                        }
                    }
                }
                let last = self.word(line, SLOTS).load(Ordering::Acquire);
                is_complete &= last & INCOMPLETE == 0;
                match last as u32 {
                    0 => break,
                    next => line = next as usize - 1,
                }
            }
            if !is_complete {
                return Place::Unknown;
            }
            if line_of(tag, self.count.load(Ordering::Acquire)) == first {
                return Place::Absent;
            }
        }
    }

    /// Some node under this hash, if there is one: likely that of the key.
    #[inline]
    pub(crate) fn guess(&self, hash: u64) -> Option<Link> {
        match self.find(hash, |_| true) {
            Place::At(node) => Some(node),
            Place::Absent | Place::Unknown => None,
        }
    }

    /// Notes where a key lies. Gives how many keys are noted now, if it was not known and there was
    /// room.
    pub(crate) fn add(&self, hash: u64, node: Link) -> Option<usize> {
        let mut keys = lock(&self.writer);
        let count = self.count.load(Ordering::Relaxed);
        let word = u64::from(tag(hash)) << 32 | node.node() as u64;
        if !self.put(line_of(tag(hash), count), word) {
            return None;
        }
        *keys += 1;
        if *keys > count as usize * KEYS_PER_LINE && (count as usize) < self.direct.len {
            self.split(count);
        }
        Some(*keys)
    }

    /// How many keys are noted.
    pub(crate) fn key_count(&self) -> usize {
        *lock(&self.writer)
    }

    /// The memory of the lines that hashes lead to, and how much of it is in use.
    #[inline]
    pub(crate) fn direct(&self) -> (&Region, usize) {
        let count = self.count.load(Ordering::Relaxed) as usize;
        (&self.direct.region, count * LINE_BYTES)
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        let counts = [&self.count, &self.extra_count].map(|count| count.load(Ordering::Relaxed));
        counts.map(|count| count as usize * LINE_BYTES).iter().sum()
    }

    /// Puts a slot into the line `first` or one that follows; false if it is there, or if there is no
    /// room, and then the line is incomplete.
    fn put(&self, first: usize, word: u64) -> bool {
        let mut free = None;
        let (mut line, mut lines) = (first, 1);
        loop {
            for slot in 0..SLOTS {
                match self.word(line, slot).load(Ordering::Relaxed) {
                    0 => free = free.or(Some((line, slot))),
                    there if there == word => return false,
                    _ => {}
                }
            }
            match self.word(line, SLOTS).load(Ordering::Relaxed) as u32 {
                0 => break,
                next => (line, lines) = (next as usize - 1, lines + 1),
            }
        }
        if let Some((line, slot)) = free {
            // Release: who loads the slot finds the node written.
            self.word(line, slot).store(word, Ordering::Release);
            return true;
        }
        let flags = |line| self.word(line, SLOTS).load(Ordering::Relaxed) & INCOMPLETE;
        let fresh = if lines < MAX_LINES { self.take_line() } else { None };
        match fresh {
            Some(fresh) => {
                self.word(fresh, 0).store(word, Ordering::Relaxed);
                // Release: who follows it finds the slot filled.
                let next = flags(line) | (fresh as u64 + 1);
                self.word(line, SLOTS).store(next, Ordering::Release);
                true
            }
            None => {
                self.set_incomplete(first);
                false
            }
        }
    }

    fn set_incomplete(&self, line: usize) {
        let last = self.word(line, SLOTS);
        last.store(last.load(Ordering::Relaxed) | INCOMPLETE, Ordering::Release);
    }

    /// An empty line beside those that hashes lead to, if there is one.
    fn take_line(&self) -> Option<usize> {
        let taken = self.extra_count.load(Ordering::Relaxed);
        ((taken as usize) < self.extra.len).then(|| {
            self.extra_count.store(taken + 1, Ordering::Relaxed);
            self.direct.len + taken as usize
        })
    }

    /// Adds line `count`, and takes over what belongs there from the line that had it so far.
    fn split(&self, count: u32) {
        let fresh = count as usize;
        let half = 1 << count.ilog2();
        let from = (count - half) as usize;
        let moves = |word: u64| (word >> 32) as u32 & half != 0 && word as u32 != 0;
        self.each_word(from, |word| {
            let now = word.load(Ordering::Relaxed);
            if moves(now) {
                self.put(fresh, now);
            }
        });
        if self.word(from, SLOTS).load(Ordering::Relaxed) & INCOMPLETE != 0 {
            self.set_incomplete(fresh);
        }
        // Release: who finds the new line finds it filled.
        self.count.store(count + 1, Ordering::Release);
        self.each_word(from, |word| {
            if moves(word.load(Ordering::Relaxed)) {
                // Release: who finds a slot empty that was not finds `count` changed.
                word.store(0, Ordering::Release);
            }
        });
    }

    /// The slots of a line and of those that follow it.
    fn each_word(&self, mut line: usize, mut visit: impl FnMut(&AtomicU64)) {
        loop {
            (0..SLOTS).for_each(|slot| visit(self.word(line, slot)));
            match self.word(line, SLOTS).load(Ordering::Relaxed) as u32 {
                0 => return,
                next => line = next as usize - 1,
            }
        }
    }
}

/// The part of a hash that is kept. The filters of files begin with the other end of it.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The line of a hash in a table of `count` lines.
#[inline]
fn line_of(tag: u32, count: u32) -> usize {
    let mask = count.next_power_of_two() - 1;
    let line = tag & mask;
    (if line < count { line } else { line & (mask >> 1) }) as usize
}

/// Zeroed lines that never move.
#[derive(Debug)]
struct Lines {
    len: usize,
    region: Region,
    #[cfg(loom)]
    words: Box<[AtomicU64]>,
}

impl Lines {
    /// As many lines, or as many as a half of 32 bits can number.
    fn reserve(len: usize) -> io::Result<Self> {
        let len = len.min(u32::MAX as usize / 4);
        Ok(Self {
            len,
            region: Region::reserve(len * LINE_BYTES)?,
            #[cfg(loom)]
            words: (0..len * LINE_WORDS).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Where a line begins. Any number will do.
    #[inline]
    fn line(&self, line: usize) -> *mut u64 {
        let base = self.region.base().as_ptr().cast::<u64>();
        base.wrapping_add(line * LINE_WORDS)
    }

    #[inline]
    fn word(&self, line: usize, slot: usize) -> &AtomicU64 {
        debug_assert!(line < self.len && slot < LINE_WORDS);
        #[cfg(loom)]
        return &self.words[line * LINE_WORDS + slot];
        // SAFETY: lines are numbered by this module: from `line_of` below `count`, which never passes
        // `len`, or by `take_line`. The word lies in the region, zeroed at first, is aligned, and is
        // only accessed as an atomic.
        #[cfg(not(loom))]
        unsafe {
            AtomicU64::from_ptr(self.line(line).add(slot))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn node(number: u32) -> Link {
        Link::untagged(number + 100)
    }

    fn find(index: &Index, hash: u64, number: u32) -> Place {
        index.find(hash, |found| found == node(number))
    }

    #[test]
    fn every_count_of_lines_has_a_line_for_every_hash() {
        assert_eq!(line_of(u32::MAX, 1), 0);
        for count in 1..200 {
            for tag in 0..1_000 {
                let line = line_of(tag, count);
                assert!(line < count as usize);
                // A split moves keys of one line only, and only to the new one.
                let after = line_of(tag, count + 1);
                let half = 1 << count.ilog2();
                assert!(after == line || (line as u32 == count - half && after == count as usize));
            }
        }
        assert_eq!(line_of(u32::MAX, 1 << 30), (1 << 30) - 1);
    }

    #[test]
    fn keys_are_found_at_every_size_and_others_are_not() {
        let index = Index::reserve(50_000).unwrap();
        let hash = |n: u32| u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for n in 0..50_000 {
            assert_eq!(find(&index, hash(n), n), Place::Absent);
            assert_eq!(index.add(hash(n), node(n)), Some(n as usize + 1));
            assert_eq!(index.add(hash(n), node(n)), None, "it is there");
            for known in [n, n / 2, n / 3] {
                assert_eq!(find(&index, hash(known), known), Place::At(node(known)));
            }
        }
        for n in 0..50_000 {
            assert_eq!(find(&index, hash(n), n), Place::At(node(n)));
            assert_eq!(find(&index, hash(n), n + 1), Place::Absent);
        }
    }

    /// As many hashes that are equal as would make a line long.
    #[test]
    fn a_line_of_too_many_keys_says_that_it_does_not_know() {
        let index = Index::reserve(10_000).unwrap();
        let equal = 7 << 32;
        let room = (SLOTS * MAX_LINES) as u32;
        for n in 0..room + 50 {
            let added = index.add(equal, node(n));
            assert_eq!(added.is_some(), n < room);
            let found = find(&index, equal, n);
            assert_eq!(found, if n < room { Place::At(node(n)) } else { Place::Unknown });
        }
        // Splits hand down what is not known to both sides.
        for n in 1..5_000_u64 {
            index.add((n + 8) << 32, node(n as u32 + 1_000));
        }
        assert!(index.count.load(Ordering::Relaxed) > 1_000);
        assert_eq!(find(&index, equal, room + 1), Place::Unknown);
        assert_eq!(find(&index, equal, 0), Place::At(node(0)));
    }

    #[test]
    fn without_room_for_more_lines_it_says_that_it_does_not_know() {
        let index = Index::reserve(8).unwrap();
        let hash = |n: u32| u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut noted = 0;
        for n in 0..1_000 {
            noted += usize::from(index.add(hash(n), node(n)).is_some());
            for known in 0..n {
                assert_ne!(find(&index, hash(known), known), Place::Absent);
            }
        }
        assert!((8..100).contains(&noted));
    }
}
