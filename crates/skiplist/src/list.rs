//! The list: its memory, and the choice of how keys become heads.
//!
//! # Heads
//!
//! All heads of one epoch come from one scheme. At the key counts in [`LEARN_AT`] the inserting
//! thread looks at a sample of the keys, and if another scheme tells more of them apart, publishes
//! it as the next epoch. Links keep the head (and epoch) they have until a search passes.

use std::io;
use std::sync::atomic::AtomicU64 as PlainAtomicU64;
use std::sync::{Arc, OnceLock};

use crate::arena::{Arena, BRANCH_BITS, MAX_ARENA_BYTES};
use crate::head::Scheme;
use crate::index::Index;
use crate::link::Link;
use crate::sync::{AtomicU32, Ordering};

/// Key counts at which the scheme for heads is reconsidered; as many as there are epochs after
/// the first. Early, since heads are useless before; then when what came first weighs little.
#[cfg(not(loom))]
pub(crate) const LEARN_AT: [usize; 3] = [32, 1024, 32 << 10];
#[cfg(loom)]
pub(crate) const LEARN_AT: [usize; 1] = [2];

/// About how many keys are looked at then, and for an estimate.
const LEARN_SAMPLE: usize = 512;

/// Names lists, so that a [`Hint`] is never followed into another list.
static NEXT_ID: PlainAtomicU64 = PlainAtomicU64::new(1);

/// An ordered map from `(user key, trailer)` to value in internal order: user key ascending, then
/// trailer descending.
///
/// Inserts are concurrent, reads never wait. An entry is there until the whole list is dropped, so what
/// is borrowed from it lives as long as the borrow of the list.
///
/// To look up a key and to write one again costs the same however many keys there are; a new key, and
/// the first step of a scan, cost a search.
#[derive(Debug)]
pub struct Skiplist {
    pub(crate) arena: Arena,
    pub(crate) index: Index,
    pub(crate) id: u64,
    /// Levels in use. Relaxed throughout: searching from a level too low or empty is only slower.
    pub(crate) height: AtomicU32,
    /// The epoch of the scheme in use: its place in `schemes`.
    epoch: AtomicU32,
    pub(crate) schemes: [OnceLock<Scheme>; LEARN_AT.len() + 1],
}

impl Skiplist {
    /// An empty list with an arena of `bytes` bytes, reserved now and committed as it fills.
    ///
    /// # Errors
    /// If the address space cannot be reserved, or `bytes` is over 8 GiB (`InvalidInput`).
    pub fn with_capacity(bytes: usize) -> io::Result<Arc<Self>> {
        let arena = Arena::reserve(bytes)?;
        Ok(Arc::new(Self {
            index: Index::reserve(arena.most_nodes())?,
            arena,
            id: NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            height: AtomicU32::new(1),
            epoch: AtomicU32::new(0),
            schemes: std::array::from_fn(|epoch| match epoch {
                0 => Scheme::raw().into(),
                _ => OnceLock::new(),
            }),
        }))
    }

    /// Arena bytes in use, by entries and by the list itself.
    pub fn allocated_bytes(&self) -> usize {
        self.arena.allocated_bytes()
    }

    /// Bytes of the index in use, some 16 a key; beside the arena, not in it.
    pub fn index_bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Memory committed for the arena: the allocated bytes in whole pages, huge ones once the
    /// first huge page is full.
    pub fn resident_bytes(&self) -> usize {
        self.arena.committed_bytes()
    }

    /// The size of the arena.
    pub fn capacity_bytes(&self) -> usize {
        self.arena.capacity_bytes()
    }

    /// Entries in the list; those being inserted may count already.
    pub fn entry_count(&self) -> usize {
        self.arena.entry_count()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entry_count() == 0
    }

    /// The largest capacity (8 GiB).
    pub const MAX_CAPACITY_BYTES: usize = MAX_ARENA_BYTES;

    /// The most arena bytes an entry with these lengths takes.
    pub const fn entry_upper_bound(key_len: usize, value_len: usize) -> usize {
        Arena::entry_upper_bound(key_len, value_len)
    }

    /// The scheme in use, and its epoch.
    #[inline]
    pub(crate) fn scheme(&self) -> (u32, &Scheme) {
        // Acquire: the scheme was set before its epoch was stored.
        let epoch = self.epoch.load(Ordering::Acquire);
        (epoch, self.schemes[epoch as usize & 3].get_or_init(Scheme::raw))
    }

    /// The last node, or the head.
    pub(crate) fn last(&self) -> Link {
        let mut node = Link::HEAD;
        for level in (0..self.height.load(Ordering::Relaxed) as usize).rev() {
            loop {
                let next = self.arena.link(node, level).load();
                if next.is_null() {
                    break;
                }
                node = next;
            }
        }
        node
    }

    /// Keys in the list; those being inserted may count already.
    pub fn key_count(&self) -> usize {
        self.index.key_count()
    }

    /// Calls `each` with the keys of a sample, in order: all of a short list, some hundreds of a long one.
    pub fn for_each_sampled(&self, mut each: impl FnMut(&[u8])) {
        let level = self.sampled_level(self.index.key_count());
        let mut node = self.arena.link(Link::HEAD, level).load();
        while !node.is_null() {
            each(self.arena.key(node));
            node = self.arena.link(node, level).load();
        }
    }

    /// About which part of the keys lies below `user_key`, within some hundredths: looks at about as
    /// many keys as a sample has.
    pub fn part_below(&self, user_key: &[u8]) -> f64 {
        let level = self.sampled_level(self.index.key_count());
        let (mut below, mut all) = (0_u32, 0_u32);
        let mut node = self.arena.link(Link::HEAD, level).load();
        while !node.is_null() {
            below += u32::from(self.arena.key(node) < user_key);
            all += 1;
            node = self.arena.link(node, level).load();
        }
        f64::from(below) / f64::from(all.max(1))
    }

    /// A level that holds about as many nodes as a sample should, of a list of `count` keys.
    fn sampled_level(&self, count: usize) -> usize {
        let height = self.height.load(Ordering::Relaxed);
        ((count / LEARN_SAMPLE).max(1).ilog2() / BRANCH_BITS).min(height - 1) as usize
    }

    /// Reconsiders the scheme for heads, with `count` keys in the list.
    pub(crate) fn learn(&self, count: usize) {
        let (epoch, current) = self.scheme();
        let Some(next) = self.schemes.get(epoch as usize + 1) else { return };
        let first = self.arena.link(Link::HEAD, 0).load();
        let last = self.last();
        if first.is_null() || last == Link::HEAD {
            return;
        }
        let mut keys = vec![self.arena.key(first)];
        let level = self.sampled_level(count);
        let mut node = self.arena.link(Link::HEAD, level).load();
        while !node.is_null() && keys.len() < 4 * LEARN_SAMPLE {
            let key = self.arena.key(node);
            // Inserted since `first` was read, if smaller.
            if key >= keys[0] {
                keys.push(key);
            }
            node = self.arena.link(node, level).load();
        }
        let last = self.arena.key(last);
        if keys.last().is_some_and(|key| *key < last) {
            keys.push(last);
        }
        let scheme = Scheme::fitting(&keys);
        let told_apart = current.distinct(&keys);
        // An eighth more: every link has to be renewed. Of two threads that get here together the
        // first sets the scheme.
        if scheme.distinct(&keys) > told_apart + told_apart / 8 && next.set(scheme).is_ok() {
            // Release: a thread that loads the epoch finds its scheme.
            self.epoch.store(epoch + 1, Ordering::Release);
        }
    }
}
