//! Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k Elements
//! in Data Streams", ICDT 2005): the keys with the largest weights of a stream, in memory for so
//! many keys. When a key comes that has no counter, it takes over the smallest one.
//!
//! With N the sum of all weights and k counters, and until [`TopKeys::age`] with it:
//! - `count - error <= true weight <= count` for every listed key,
//! - a key that is not listed has at most the floor, the largest count that was ever taken over,
//!   and `floor <= N / k`: every key with more than N / k is listed.
//!
//! The smallest counter is the root of a binary heap instead of the paper's list of buckets: a step
//! costs O(log k) for any weight, not only for 1.

#[cfg(test)]
mod tests;

use crate::index::Index;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// Counters below this are dropped when they age: what was counted once is forgotten after ten
/// halvings.
const FORGOTTEN: f64 = 1.0 / 1024.0;

/// A key that is asked for often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hot {
    /// The key, or the beginning of one that is longer than what is kept.
    pub key: Vec<u8>,
    /// Length of the whole key.
    pub key_bytes: usize,
    /// At most so much was observed of it.
    pub count: u64,
    /// At most so much of [`Self::count`] was not of it.
    pub error: u64,
}

/// One counter. Weights are `f64` so that halving loses nothing; they are exact up to 2^53.
#[derive(Debug, Clone)]
struct Counter {
    key: Vec<u8>,
    key_bytes: usize,
    hash: u64,
    /// Tells long keys apart, of which only the beginning is kept; 0 for others.
    digest: u128,
    count: f64,
    error: f64,
    /// Where it is in the heap.
    place: usize,
}

/// The keys that were observed most.
#[derive(Debug, Clone)]
pub struct TopKeys {
    /// At most `most`.
    counters: Vec<Counter>,
    index: Index,
    /// Slots; each has at most the count of its two children.
    heap: Vec<u32>,
    most: usize,
    key_bytes: usize,
    floor: f64,
    seed: u64,
}

impl TopKeys {
    /// With counters for `keys` keys (at least 1), of each of which at most `key_bytes` are kept.
    /// Memory: at most keys × (key_bytes + 120) bytes, and never more, whatever is observed. Keys
    /// that are longer than `key_bytes` are distinguished by their length and 128 bits of hash. `seed`
    /// is that of the hashes: with one that others do not know, nobody can choose keys that are slow
    /// to find.
    pub fn new(keys: usize, key_bytes: usize, seed: u64) -> Self {
        let most = keys.clamp(1, u32::MAX as usize / 4);
        Self {
            counters: Vec::new(),
            index: Index::new(most),
            heap: Vec::new(),
            most,
            key_bytes,
            floor: 0.0,
            seed,
        }
    }

    /// `key` was asked for, with this weight. Cost: one hash and O(log keys).
    pub fn observe(&mut self, key: &[u8], weight: u64) {
        let kept = &key[..key.len().min(self.key_bytes)];
        let digest = match kept.len() < key.len() {
            true => xxh3_128_with_seed(key, self.seed),
            false => 0,
        };
        self.add(kept, key.len(), digest, weight);
    }

    /// Adds to the counter of a key; if it has none, to the smallest or a free one.
    fn add(&mut self, kept: &[u8], key_bytes: usize, digest: u128, weight: u64) {
        if weight == 0 {
            return;
        }
        let hash = xxh3_64_with_seed(kept, self.seed ^ digest as u64);
        let slot = self.index.find(hash, |slot| {
            let counter = &self.counters[slot as usize];
            counter.hash == hash
                && counter.digest == digest
                && counter.key_bytes == key_bytes
                && counter.key == kept
        });
        let slot = match slot {
            Some(slot) => slot,
            None => self.take_counter(kept, key_bytes, digest, hash),
        };
        let counter = &mut self.counters[slot as usize];
        counter.count += weight as f64;
        let place = counter.place;
        self.sink(place);
    }

    /// A counter for a key that has none, at what it may have missed so far.
    fn take_counter(&mut self, kept: &[u8], key_bytes: usize, digest: u128, hash: u64) -> u32 {
        let slot = match self.counters.len() < self.most {
            true => {
                let (slot, place) = (self.counters.len() as u32, self.heap.len());
                self.heap.push(slot);
                self.counters.push(Counter {
                    key: Vec::new(),
                    key_bytes: 0,
                    hash: 0,
                    digest: 0,
                    count: 0.0,
                    error: 0.0,
                    place,
                });
                slot
            }
            false => {
                let slot = self.heap[0];
                let smallest = &self.counters[slot as usize];
                self.floor = self.floor.max(smallest.count);
                let hash = smallest.hash;
                self.index.remove(hash, slot, |slot| self.counters[slot as usize].hash);
                slot
            }
        };
        let floor = self.floor;
        let counter = &mut self.counters[slot as usize];
        counter.key.clear();
        counter.key.reserve_exact(kept.len());
        counter.key.extend_from_slice(kept);
        (counter.key_bytes, counter.hash, counter.digest) = (key_bytes, hash, digest);
        (counter.count, counter.error) = (floor, floor);
        let place = counter.place;
        self.index.insert(hash, slot);
        self.rise(place);
        slot
    }

    /// The `n` keys with the largest counts, largest first; of equal ones those that are more
    /// certain, then in order of keys. Cost: O(k log k).
    pub fn top(&self, n: usize) -> Vec<Hot> {
        let mut order: Vec<&Counter> = self.counters.iter().collect();
        order.sort_unstable_by(|a, b| {
            let counts = b.count.total_cmp(&a.count).then(a.error.total_cmp(&b.error));
            counts.then_with(|| a.key.cmp(&b.key))
        });
        order.into_iter().take(n).map(Counter::hot).collect()
    }

    /// Halves everything, so that what was hot long ago fades: call it in equal intervals, and the
    /// counts are exponential averages with that half-life. All guarantees hold for halved weights.
    /// Cost: O(k).
    pub fn age(&mut self) {
        self.floor /= 2.0;
        for counter in &mut self.counters {
            counter.count /= 2.0;
            counter.error /= 2.0;
        }
        let forgotten = self.counters.iter().filter(|counter| counter.count < FORGOTTEN);
        let largest =
            forgotten.map(|counter| counter.count).fold(None, |most: Option<f64>, count| {
                Some(most.map_or(count, |most| most.max(count)))
            });
        if let Some(largest) = largest {
            self.floor = self.floor.max(largest);
            self.counters.retain(|counter| counter.count >= FORGOTTEN);
            self.rebuild();
        }
        if self.floor < FORGOTTEN && self.counters.len() < self.most {
            // Less than a thousandth of an observation: nobody waits for that.
            self.floor = 0.0;
        }
    }

    /// Index and heap from the counters.
    fn rebuild(&mut self) {
        self.index.clear();
        self.heap = (0..self.counters.len() as u32).collect();
        self.heap.sort_unstable_by(|a, b| {
            self.counters[*a as usize].count.total_cmp(&self.counters[*b as usize].count)
        });
        for (place, slot) in self.heap.iter().enumerate() {
            let counter = &mut self.counters[*slot as usize];
            counter.place = place;
            counter.hash = xxh3_64_with_seed(&counter.key, self.seed ^ counter.digest as u64);
            self.index.insert(counter.hash, *slot);
        }
    }

    fn count_at(&self, place: usize) -> f64 {
        self.counters[self.heap[place] as usize].count
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            self.counters[self.heap[place] as usize].place = place;
        }
    }

    /// Moves a counter that has grown away from the root.
    fn sink(&mut self, mut place: usize) {
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let smaller = children.min_by(|a, b| self.count_at(*a).total_cmp(&self.count_at(*b)));
            match smaller {
                Some(child) if self.count_at(child) < self.count_at(place) => {
                    self.swap(child, place);
                    place = child;
                }
                _ => return,
            }
        }
    }

    /// Moves a counter that is small towards the root.
    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.count_at(place) < self.count_at((place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }
}

impl Counter {
    /// Rounded so that the true weight stays within.
    fn hot(&self) -> Hot {
        let count = self.count.ceil() as u64;
        let least = (self.count - self.error).max(0.0).floor() as u64;
        Hot { key: self.key.clone(), key_bytes: self.key_bytes, count, error: count - least }
    }
}
