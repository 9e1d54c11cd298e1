//! Which entries are evicted: what `quick_cache` asks while it holds the write lock of a shard.
//!
//! Its clock hand passes over entries that are *pinned*. An entry is pinned for this visit if it
//! was touched through a direct slot since the last visit, or has chances left (only
//! [`Priority::High`](crate::Priority) ones start with any); the visit uses up the touch or the
//! chance. Pins are refused, so that something is always evicted,
//! - for the rest of an eviction, after [`MAX_SPARED`] visits that spared: bounds the time a
//!   shard stays locked;
//! - while a shard is over its capacity at the start of an insertion: a hand that went full
//!   circle and spared everyone gives up, and the insertion that moved it goes one entry over;
//!   the next one must not.

use crate::Cached;
use crate::ghost::Ghosts;
use crate::key::Stored;
use quick_cache::{Lifecycle, Weighter};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How often the hand passes over a high-priority entry that nobody reads.
pub(crate) const HIGH_CHANCES: u8 = 2;
/// The most entries spared in one eviction.
pub(crate) const MAX_SPARED: u32 = 512;

/// The accounts of a shard. Written under its write lock, except that a removal is entered just
/// after; relaxed everywhere since nothing else is published through them.
#[repr(align(128))]
pub(crate) struct EvictionState {
    capacity: AtomicU64,
    used: AtomicU64,
    high_used: AtomicU64,
    inserts: AtomicU64,
    evictions: AtomicU64,
    /// Entries spared since the last eviction or the start of the insertion.
    spared: AtomicU32,
    no_pins: AtomicBool,
}

impl EvictionState {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity: AtomicU64::new(capacity as u64),
            used: AtomicU64::new(0),
            high_used: AtomicU64::new(0),
            inserts: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            spared: AtomicU32::new(0),
            no_pins: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes as u64, Relaxed);
    }

    /// Evictions until the next insertion spare, or do not spare, whom they otherwise would.
    pub(crate) fn set_no_pins(&self, no_pins: bool) {
        self.no_pins.store(no_pins, Relaxed);
        self.spared.store(0, Relaxed);
    }

    pub(crate) fn high_used(&self) -> u64 {
        self.high_used.load(Relaxed)
    }

    pub(crate) fn inserts(&self) -> u64 {
        self.inserts.load(Relaxed)
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    /// An insertion begins.
    #[cold]
    fn enter(&self, entry: &Stored) {
        entry.entered.store(true, Relaxed);
        self.inserts.fetch_add(1, Relaxed);
        let used = self.charge(entry);
        self.set_no_pins(used > self.capacity.load(Relaxed));
    }

    /// Charges an entry; what was charged before.
    pub(crate) fn charge(&self, entry: &Stored) -> u64 {
        let charge = u64::from(entry.charge);
        if entry.high {
            self.high_used.fetch_add(charge, Relaxed);
        }
        self.used.fetch_add(charge, Relaxed)
    }

    /// An entry that was entered, or charged, has left.
    pub(crate) fn leave(&self, entry: &Stored) {
        let charge = u64::from(entry.charge);
        self.used.fetch_sub(charge, Relaxed);
        if entry.high {
            self.high_used.fetch_sub(charge, Relaxed);
        }
    }

    /// Whether an entry may be spared now; counts it if so.
    fn may_spare(&self, entry: &Stored) -> bool {
        let fits = u64::from(entry.charge) <= self.capacity.load(Relaxed);
        fits && !self.no_pins.load(Relaxed) && self.spared.load(Relaxed) < MAX_SPARED
    }
}

/// Says what an entry weighs: its charge. The first question comes under the write lock as the
/// insertion begins, which is when the charge is entered in the state.
#[derive(Clone)]
pub(crate) struct Weigh {
    state: Arc<[EvictionState]>,
}

impl Weigh {
    pub(crate) fn new(state: Arc<[EvictionState]>) -> Self {
        Self { state }
    }
}

impl<V> Weighter<Stored, V> for Weigh {
    #[inline]
    fn weight(&self, entry: &Stored, _: &V) -> u64 {
        if !entry.entered.load(Relaxed) {
            self.state[usize::from(entry.shard)].enter(entry);
        }
        u64::from(entry.charge)
    }
}

/// Says which entries are spared, and collects those that were evicted.
pub(crate) struct Sweep<V> {
    state: Arc<[EvictionState]>,
    ghosts: Arc<Ghosts>,
    values: PhantomData<fn() -> V>,
}

impl<V> Sweep<V> {
    pub(crate) fn new(state: Arc<[EvictionState]>, ghosts: Arc<Ghosts>) -> Self {
        Self { state, ghosts, values: PhantomData }
    }

    #[inline]
    fn state_of(&self, entry: &Stored) -> &EvictionState {
        &self.state[usize::from(entry.shard)]
    }
}

impl<V> Clone for Sweep<V> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.state), Arc::clone(&self.ghosts))
    }
}

impl<V: Cached> Lifecycle<Stored, V> for Sweep<V> {
    type RequestState = Departed<V>;

    fn is_pinned(&self, entry: &Stored, value: &V) -> bool {
        let state = self.state_of(entry);
        if !state.may_spare(entry) {
            return false;
        }
        let chances = entry.chances.load(Relaxed);
        let left = if value.take_touched() {
            initial_chances(entry.high)
        } else if let Some(left) = chances.checked_sub(1) {
            left
        } else {
            return false;
        };
        entry.chances.store(left, Relaxed);
        state.spared.fetch_add(1, Relaxed);
        true
    }

    fn before_evict(&self, _: &mut Departed<V>, entry: &Stored, _: &mut V) {
        let state = self.state_of(entry);
        state.spared.store(0, Relaxed);
        state.evictions.fetch_add(1, Relaxed);
        self.ghosts.note_evicted(&entry.key, entry.charge);
    }

    fn on_evict(&self, departed: &mut Departed<V>, entry: Stored, value: V) {
        self.state_of(&entry).leave(&entry);
        departed.push(value);
    }
}

/// The chances of an entry that was just inserted or touched.
pub(crate) fn initial_chances(high: bool) -> u8 {
    if high { HIGH_CHANCES } else { 0 }
}

/// The values that left during one request; told so when this is dropped, which `quick_cache`
/// and [`crate::Cache`] do after the shard is unlocked.
pub(crate) struct Departed<V: Cached> {
    /// Most requests evict one at most: no allocation for that.
    first: Option<V>,
    others: Vec<V>,
}

impl<V: Cached> Default for Departed<V> {
    #[inline]
    fn default() -> Self {
        Self { first: None, others: Vec::new() }
    }
}

impl<V: Cached> Departed<V> {
    fn push(&mut self, value: V) {
        match self.first {
            None => self.first = Some(value),
            Some(_) => self.others.push(value),
        }
    }
}

impl<V: Cached> Drop for Departed<V> {
    fn drop(&mut self) {
        self.first.iter().chain(&self.others).for_each(Cached::on_evicted);
    }
}
