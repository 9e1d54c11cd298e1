//! The one cache of a store: blocks and metadata partitions, charged by bytes, two priorities.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CacheKey {
    /// Unique per store and file: see [`Cache::next_file_id`].
    pub file: u64,
    /// Offset in that file.
    pub offset: u64,
}

/// How hard a value resists eviction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Priority {
    /// Data blocks.
    #[default]
    Normal,
    /// Metadata.
    High,
}

/// What the cache holds.
pub trait Cached: Clone + Send + Sync + 'static {
    /// Bytes the value holds on to; 0 counts as 1. Read once, at insertion.
    fn charge_bytes(&self) -> usize;
    /// How hard it resists eviction. Read once, at insertion.
    fn priority(&self) -> Priority;
    /// Whether it was read past the cache (through a direct slot) since the last call.
    fn take_touched(&self) -> bool;
    /// The value has left the cache; the owner of a direct slot clears it.
    fn on_evicted(&self);
}

/// A snapshot of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Lookups that found their value.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Values inserted.
    pub inserts: u64,
    /// Values that left, or were refused, for lack of room.
    pub evictions: u64,
    /// Bytes charged now.
    pub used_bytes: usize,
    /// The part of `used_bytes` of [`Priority::High`] values.
    pub high_used_bytes: usize,
    /// The bound on `used_bytes`.
    pub capacity_bytes: usize,
    /// Values held now.
    pub entries: usize,
}

/// The cache.
pub struct Cache<V: Cached> {
    map: Mutex<HashMap<CacheKey, V>>,
    capacity: AtomicUsize,
    files: AtomicU64,
}

impl<V: Cached> Cache<V> {
    /// A cache of `capacity_bytes`.
    pub fn new(capacity_bytes: usize) -> Self {
        Self {
            map: Mutex::default(),
            capacity: AtomicUsize::new(capacity_bytes),
            files: AtomicU64::new(1),
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<CacheKey, V>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of `key`.
    #[inline]
    pub fn get(&self, key: &CacheKey) -> Option<V> {
        self.map().get(key).cloned()
    }

    /// Caches `value`.
    pub fn insert(&self, key: CacheKey, value: V) {
        let gone = self.map().insert(key, value);
        gone.iter().for_each(Cached::on_evicted);
    }

    /// Forgets the value of `key`.
    pub fn remove(&self, key: &CacheKey) {
        let gone = self.map().remove(key);
        gone.iter().for_each(Cached::on_evicted);
    }

    /// Changes the capacity; evicts until it holds.
    pub fn set_capacity_bytes(&self, capacity_bytes: usize) {
        self.capacity.store(capacity_bytes, Relaxed);
    }

    /// The capacity.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity.load(Relaxed)
    }

    /// Bytes charged now.
    pub fn used_bytes(&self) -> usize {
        self.map().values().map(Cached::charge_bytes).sum()
    }

    /// The counters.
    pub fn stats(&self) -> CacheStats {
        CacheStats { used_bytes: self.used_bytes(), ..CacheStats::default() }
    }

    /// A number for [`CacheKey::file`] that nobody else got.
    pub fn next_file_id(&self) -> u64 {
        self.files.fetch_add(1, Relaxed)
    }
}
