//! The one cache of a store: blocks and metadata partitions, charged by bytes, two priorities.
//!
//! [`Cache`] wraps `quick_cache` (sharded, CLOCK-Pro-like, scan resistant) and adds what the read
//! path needs: *direct slots* (a reader may keep a pointer to a cached value elsewhere, read past
//! the cache, and lets go when [`Cached::on_evicted`] is called), priorities, and counters that
//! threads do not fight over.
//!
//! Invariants:
//! - The charge of a shard never exceeds its part of the capacity by more than one entry.
//! - [`Cached::on_evicted`] is called once for every value handed to [`Cache::insert`], or to
//!   [`Cache::replace_each`] for one of these, when it leaves: evicted, replaced, removed, refused, or the cache
//!   dropped. No lock of the cache is held then.
//!
//! | module | |
//! |---|---|
//! | `ghost` | what left lately: what a larger cache would have kept |
//! | `key` | what a value is found by, and its hash |
//! | `sweep` | which entries are evicted: charges, second chances, the hand-over of those that left |
//! | `tally` | hits and misses, counted per thread |
#![forbid(unsafe_code)]

mod eviction;
mod ghost;
mod key;
mod tally;
#[cfg(test)]
mod tests;

pub use key::CacheKey;

use eviction::{Departed, EvictionState, Sweep, Weigh};
use ghost::Ghosts;
use key::{BuildKeyHasher, Stored};
use quick_cache::OptionsBuilder;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tally::Tally;
use terrace_base::sync::thread;

/// A shard has at least this much capacity when the cache is made: room for hundreds of blocks,
/// so that an uneven spread of keys over shards does not matter.
const MIN_SHARD_BYTES: usize = 2 << 20;
/// Shards per hardware thread, if the capacity allows.
const SHARDS_PER_THREAD: usize = 4;
/// The most shards.
const MAX_SHARDS: usize = 256;
/// The size of entry for which evicted keys are remembered (half as many as fit).
const TYPICAL_ENTRY_BYTES: usize = 4096;
/// Growth by less than one part in this many is put off until it adds up: each change rounds off
/// some of the memory for evicted keys, and a budget may move often.
const MIN_GROWTH_PART: usize = 64;

/// What the cache itself takes for a value, about, for [`Cached::charge_bytes`]: its place in the list (64 bytes) and in
/// the hash table, and its part of what is remembered of values that left.
pub const ENTRY_BYTES: usize = 96;

/// How hard a value resists eviction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Priority {
    /// Leaves when its turn comes, unless it was read since.
    #[default]
    Normal,
    /// Is passed over a few times first; for metadata, without which no data is found.
    High,
}

/// What a cache can hold: something cheap to clone, such as a reference-counted buffer.
pub trait Cached: Clone + Send + Sync + 'static {
    /// Bytes the value holds on to; 0 counts as 1. Read once, at insertion.
    fn charge_bytes(&self) -> usize;

    /// How hard it resists eviction. Read once, at insertion.
    fn priority(&self) -> Priority;

    /// Whether it was read past the cache (through a direct slot) since the last call: spares it
    /// for one more round. Called under a lock of the cache: must be quick and must not call back.
    fn take_touched(&self) -> bool;

    /// The value has left the cache: the owner of a direct slot clears it. The cache may be used
    /// here, but not resized.
    ///
    /// Called after the fact, on whichever thread caused it: by now another value may be cached
    /// under the same key, so the owner must clear the slot only if it still holds this one. A
    /// value may leave while [`Cache::insert`] is still running, so a slot is filled before.
    fn on_evicted(&self);
}

/// A snapshot of the counters of a [`Cache`], each read at a slightly different moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Calls of [`Cache::get`] that found their value.
    pub hits: u64,
    /// Calls of [`Cache::get`] that did not.
    pub misses: u64,
    /// Calls of [`Cache::insert`].
    pub inserts: u64,
    /// Values that left, or were refused, for lack of room.
    pub evictions: u64,
    /// Bytes charged now.
    pub used_bytes: usize,
    /// The part of `used_bytes` charged to [`Priority::High`] values.
    pub high_used_bytes: usize,
    /// [`Cache::capacity_bytes`].
    pub capacity_bytes: usize,
    /// Values held now.
    pub entries: usize,
    /// Insertions that a cache larger by `ghost_bytes` would have spared; an estimate from a
    /// sample.
    pub ghost_hits: u64,
    /// Bytes of the values that left last and whose keys are remembered: up to an eighth of the
    /// capacity.
    pub ghost_bytes: u64,
}

/// A concurrent cache bounded by the bytes its values charge.
pub struct Cache<V: Cached> {
    inner: quick_cache::sync::Cache<Stored, V, Weigh, BuildKeyHasher, Sweep<V>>,
    state: Arc<[EvictionState]>,
    ghosts: Arc<Ghosts>,
    tally: Tally,
    /// As asked for; the shards may have less for a while.
    capacity_bytes: AtomicUsize,
    /// The capacity of a shard; locked while it changes, so that resizes do not interleave.
    shard_bytes: Mutex<usize>,
    next_file: AtomicU64,
}

impl<V: Cached> Cache<V> {
    /// A cache that holds values of up to `capacity_bytes` together. A single value must fit one
    /// of the [`shard_count`](Self::shard_count) equal parts.
    pub fn new(capacity_bytes: usize) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self::with_shards(capacity_bytes, shards_for(capacity_bytes, threads))
    }

    /// `shards` is a power of two; each must have room for 32 typical entries if there is more
    /// than one, else `quick_cache` makes fewer.
    fn with_shards(capacity_bytes: usize, shards: usize) -> Self {
        let shard_bytes = capacity_bytes / shards;
        let state: Arc<[EvictionState]> =
            (0..shards).map(|_| EvictionState::new(shard_bytes)).collect();
        let ghosts = Arc::new(Ghosts::default());
        ghosts.set_capacity_bytes(capacity_bytes);
        let mut options = OptionsBuilder::new();
        options
            .shards(shards)
            .weight_capacity((shard_bytes * shards) as u64)
            .estimated_items_capacity(capacity_bytes / TYPICAL_ENTRY_BYTES);
        let Ok(options) = options.build() else { unreachable!("both required options are set") };
        let inner = quick_cache::sync::Cache::with_options(
            options,
            Weigh::new(Arc::clone(&state)),
            BuildKeyHasher,
            Sweep::new(Arc::clone(&state), Arc::clone(&ghosts)),
        );
        debug_assert_eq!(inner.num_shards(), shards);
        Self {
            inner,
            state,
            ghosts,
            tally: Tally::default(),
            capacity_bytes: AtomicUsize::new(capacity_bytes),
            shard_bytes: Mutex::new(shard_bytes),
            next_file: AtomicU64::new(1),
        }
    }

    /// A clone of the value of `key`. Costs the lookup in `quick_cache`: a shared lock on one
    /// shard, no write to memory other threads' lookups of other values write.
    #[inline]
    pub fn get(&self, key: &CacheKey) -> Option<V> {
        let found = self.inner.get(key);
        self.tally.count(found.is_some());
        found
    }

    /// As [`Cache::get`], for who does not use the value: it counts neither as read nor as a hit.
    pub fn peek(&self, key: &CacheKey) -> Option<V> {
        self.inner.peek(key)
    }

    /// Caches `value`, replaces what was there, evicts what no longer fits. A value that fits no
    /// shard is not kept: [`Cached::on_evicted`] is called on it at once.
    pub fn insert(&self, key: CacheKey, value: V) {
        let high = value.priority() == Priority::High;
        let entry = Stored {
            key,
            // Saturating is safe: a shard with room for that is refused below.
            charge: u32::try_from(value.charge_bytes().max(1)).unwrap_or(u32::MAX),
            shard: self.inner.shard_index(&key) as u16,
            high,
            entered: AtomicBool::new(false),
            chances: AtomicU8::new(eviction::initial_chances(high)),
        };
        if entry.charge == u32::MAX {
            self.remove(&key);
            value.on_evicted();
            return;
        }
        self.ghosts.note_inserted(&key);
        let mut departed = Departed::default();
        self.inner.insert_with_lifecycle(entry, value, &mut departed);
        if high {
            // Counts as read, so that the sweep moves it to the long-lived part when it meets it.
            self.inner.get(&key);
        }
    }

    /// Puts what `other` gives for a value in its place, for each value for which it gives something: one that charges as
    /// much, and is evicted when the value would have been. Each that is in its place is passed to `placed`, which may
    /// fill its direct slot. Locks a shard for a moment for each value; costs about 100 ns for one that stays.
    pub fn replace_each(&self, other: impl Fn(&V) -> Option<V>, placed: impl Fn(&V)) {
        for (entry, value) in self.inner.iter() {
            let Some(replacement) = other(&value) else { continue };
            if self.replace(entry, replacement.clone()) {
                placed(&replacement);
            }
        }
    }

    /// Puts `value` in the place of what `entry`, a copy, says, if that is still there.
    fn replace(&self, entry: Stored, value: V) -> bool {
        // Charged already, so that it counts as no insertion; what it replaces leaves and gives its charge back.
        self.state[usize::from(entry.shard)].charge(&entry);
        let mut departed = Departed::default();
        match self.inner.replace_with_lifecycle(entry, value, true, &mut departed) {
            Ok(()) => true,
            Err((entry, value)) => {
                self.state[usize::from(entry.shard)].leave(&entry);
                value.on_evicted();
                false
            }
        }
    }

    /// Forgets the value of `key`.
    pub fn remove(&self, key: &CacheKey) {
        if let Some((entry, value)) = self.inner.remove(key) {
            self.state[usize::from(entry.shard)].leave(&entry);
            value.on_evicted();
        }
    }

    /// Changes the capacity and evicts until it holds. Shrinking takes effect at once; growth by
    /// less than a sixty-fourth waits for more.
    pub fn set_capacity_bytes(&self, capacity_bytes: usize) {
        let mut shard_bytes = self.shard_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        self.capacity_bytes.store(capacity_bytes, Relaxed);
        self.ghosts.set_capacity_bytes(capacity_bytes);
        let wanted = capacity_bytes / self.state.len();
        let growth = wanted.saturating_sub(*shard_bytes);
        if growth == 0 || growth >= *shard_bytes / MIN_GROWTH_PART {
            *shard_bytes = wanted;
            self.state.iter().for_each(|state| state.set_capacity(wanted));
        }
        // The second pass takes from shards in which the first spared everyone.
        for no_pins in [false, true] {
            self.state.iter().for_each(|state| state.set_no_pins(no_pins));
            self.inner.set_capacity((*shard_bytes * self.state.len()) as u64);
        }
    }

    /// The capacity last asked for.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes.load(Relaxed)
    }

    /// Bytes charged now: at most the capacity and one entry for each shard. Locks each shard
    /// for a moment.
    pub fn used_bytes(&self) -> usize {
        self.inner.weight() as usize
    }

    /// The parts the capacity is divided into, equally.
    pub fn shard_count(&self) -> usize {
        self.state.len()
    }

    /// The counters. Locks each shard for a moment.
    pub fn stats(&self) -> CacheStats {
        let sum = |of: fn(&EvictionState) -> u64| self.state.iter().map(of).sum::<u64>();
        let (hits, misses) = self.tally.totals();
        CacheStats {
            hits,
            misses,
            inserts: sum(EvictionState::inserts),
            evictions: sum(EvictionState::evictions),
            used_bytes: self.used_bytes(),
            high_used_bytes: sum(EvictionState::high_used) as usize,
            capacity_bytes: self.capacity_bytes(),
            entries: self.inner.len(),
            ghost_hits: self.ghosts.hits(),
            ghost_bytes: self.ghosts.bytes(),
        }
    }

    /// A number for [`CacheKey::file`] that was not handed out before.
    pub fn next_file_id(&self) -> u64 {
        self.next_file.fetch_add(1, Relaxed)
    }
}

impl<V: Cached> Drop for Cache<V> {
    fn drop(&mut self) {
        self.inner.drain().for_each(|(_, value)| value.on_evicted());
    }
}

fn shards_for(capacity_bytes: usize, threads: usize) -> usize {
    let wanted = (threads * SHARDS_PER_THREAD).next_power_of_two().min(MAX_SHARDS);
    let most = (capacity_bytes / MIN_SHARD_BYTES).max(1);
    // The largest power of two that is not above `most`.
    wanted.min(1 << most.ilog2())
}
