//! What left for lack of room lately: keys without values, by which one can tell what a larger
//! cache would have kept.
//!
//! A key that is inserted again while it is remembered here is a miss that a cache larger by
//! [`Ghosts::bytes`] would have spared, if it evicted in the same order. One key in [`SAMPLE`] is
//! watched, chosen by its hash, so that the others cost nothing (Waldspurger et al., "Efficient MRC
//! Construction with SHARDS", FAST 2015); counts are scaled up. Only evictions and insertions come
//! here, no lookup that finds its value.

use crate::CacheKey;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// One key in this many is watched.
const SAMPLE: u64 = 8;
/// Keys of one part in this many of the capacity are remembered.
const CAPACITY_PART: u64 = 8;
/// But never fewer bytes of watched keys than these: of a cache of few blocks an eighth would be none.
const MIN_WATCHED_BYTES: u64 = 64 << 10;

/// The keys that left last.
#[derive(Default)]
pub(crate) struct Ghosts {
    held: Mutex<Held>,
    /// Watched keys that were inserted again in time.
    hits: AtomicU64,
    /// Of the cache.
    capacity_bytes: AtomicU64,
}

#[derive(Default)]
struct Held {
    /// In the order in which they left, with a number each; those that came back are still there.
    order: VecDeque<(CacheKey, u64)>,
    /// Charge and number.
    keys: HashMap<CacheKey, (u32, u64)>,
    bytes: u64,
    next: u64,
}

/// Whether `key` is one of those watched.
#[inline]
fn is_watched(key: &CacheKey) -> bool {
    // Two odd multipliers; the upper bits are as good as random.
    let mixed = key.file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key.offset;
    mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32 & (SAMPLE - 1) == 0
}

impl Ghosts {
    pub(crate) fn set_capacity_bytes(&self, bytes: usize) {
        self.capacity_bytes.store(bytes as u64, Relaxed);
    }

    /// `key` has left for lack of room.
    #[inline]
    pub(crate) fn note_evicted(&self, key: &CacheKey, charge: u32) {
        if is_watched(key) {
            self.remember(key, charge);
        }
    }

    /// `key` is about to be inserted.
    #[inline]
    pub(crate) fn note_inserted(&self, key: &CacheKey) {
        if is_watched(key) && self.lock().take(key) {
            self.hits.fetch_add(1, Relaxed);
        }
    }

    #[cold]
    fn remember(&self, key: &CacheKey, charge: u32) {
        let capacity = self.capacity_bytes.load(Relaxed);
        let most = (capacity / CAPACITY_PART / SAMPLE).max(MIN_WATCHED_BYTES);
        let mut held = self.lock();
        held.take(key);
        let number = held.next;
        held.next += 1;
        held.keys.insert(*key, (charge, number));
        held.order.push_back((*key, number));
        held.bytes += u64::from(charge);
        while held.bytes > most && held.forget_oldest() {}
    }

    /// Insertions that a cache larger by [`Ghosts::bytes`] would have spared, about.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed) * SAMPLE
    }

    /// Bytes that the remembered keys charged, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes * SAMPLE
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Forgets `key`; whether it was here.
    fn take(&mut self, key: &CacheKey) -> bool {
        let Some((charge, _)) = self.keys.remove(key) else { return false };
        self.bytes -= u64::from(charge);
        // Its place in the order goes when it comes to the front.
        if self.order.len() > 2 * self.keys.len() + 16 {
            let keys = &self.keys;
            self.order.retain(|(key, number)| keys.get(key).is_some_and(|(_, n)| n == number));
        }
        true
    }

    fn forget_oldest(&mut self) -> bool {
        let Some((key, number)) = self.order.pop_front() else { return false };
        if self.keys.get(&key).is_some_and(|(_, n)| *n == number) {
            self.take(&key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(count: usize) -> Vec<CacheKey> {
        let keys = (0..).map(|n| CacheKey { file: 3, offset: n * 4096 });
        keys.filter(is_watched).take(count).collect()
    }

    #[test]
    fn one_key_in_some_is_watched() {
        let count = |file| {
            (0..80_000u64).filter(|n| is_watched(&CacheKey { file, offset: n * 4096 })).count()
        };
        for file in [1, 2, 77] {
            assert!((9_000..11_000).contains(&count(file)), "{}", count(file));
        }
    }

    #[test]
    fn what_left_lately_is_remembered_and_what_left_long_ago_is_not() {
        let ghosts = Ghosts::default();
        // Room for 100 keys of 4 KiB among those watched.
        ghosts.set_capacity_bytes(100 * 4096 * (CAPACITY_PART * SAMPLE) as usize);
        let keys = watched(300);
        keys.iter().for_each(|key| ghosts.note_evicted(key, 4096));
        assert_eq!(ghosts.bytes(), 100 * 4096 * SAMPLE);
        keys.iter().for_each(|key| ghosts.note_inserted(key));
        assert_eq!(ghosts.hits(), 100 * SAMPLE);
        assert_eq!(ghosts.bytes(), 0);
        // A hit counts once.
        keys.iter().for_each(|key| ghosts.note_inserted(key));
        assert_eq!(ghosts.hits(), 100 * SAMPLE);
        assert!(ghosts.lock().order.len() <= 16);
    }

    #[test]
    fn a_cache_of_few_blocks_has_ghosts_too() {
        let ghosts = Ghosts::default();
        ghosts.set_capacity_bytes(32 << 10);
        watched(40).iter().for_each(|key| ghosts.note_evicted(key, 4096));
        assert_eq!(ghosts.bytes(), MIN_WATCHED_BYTES * SAMPLE);
    }

    #[test]
    fn one_that_leaves_again_is_remembered_once() {
        let ghosts = Ghosts::default();
        ghosts.set_capacity_bytes(10 * 4096 * (CAPACITY_PART * SAMPLE) as usize);
        let key = watched(1)[0];
        for _ in 0..1000 {
            ghosts.note_evicted(&key, 4096);
        }
        assert_eq!(ghosts.bytes(), 4096 * SAMPLE);
        assert!(ghosts.lock().order.len() < 32);
    }
}
