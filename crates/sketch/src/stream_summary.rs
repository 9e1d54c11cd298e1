//! The data structure of Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and
//! Top-k Elements in Data Streams", ICDT 2005, section 3.2): counters in buckets of equal counts.
//!
//! ```text
//! least -> bucket 3 <-> bucket 4 <-> bucket 9
//!            |            |            |
//!          a, b           c          d, e, f      counters of one bucket are a list, too
//! ```
//! Adding 1 takes a counter out of its bucket and into the next, which is the one after it or a new one between: O(1).
//! The counter with the least count is in the first bucket: O(1). Memory is fixed by the number of counters and the length of keys.

use crate::index::Index;

/// No counter, no bucket.
const NONE: u32 = u32::MAX;

/// A key and what was counted of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter {
    pub key: Box<[u8]>,
    pub hash: u64,
    /// Of the count, so much was estimated when the key came in.
    pub estimated: u32,
    /// Bytes of the operations that were counted here.
    pub bytes: u64,
    bucket: u32,
    before: u32,
    after: u32,
}

#[derive(Debug, Clone)]
struct Bucket {
    count: u32,
    /// Its first counter.
    first: u32,
    before: u32,
    after: u32,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct StreamSummary {
    counters: Vec<Counter>,
    /// As many as counters and one, at most; those in `free` are not in use.
    buckets: Vec<Bucket>,
    free: Vec<u32>,
    /// The bucket with the least count.
    least: u32,
    index: Index,
    most: usize,
}

impl StreamSummary {
    /// With at most `most` counters, at least 1.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, u32::MAX as usize / 4);
        Self {
            counters: Vec::new(),
            buckets: Vec::new(),
            free: Vec::new(),
            least: NONE,
            index: Index::new(most),
            most,
        }
    }

    pub fn is_full(&self) -> bool {
        self.counters.len() >= self.most
    }

    /// The least count; 0 if there is no counter.
    pub fn least_count(&self) -> u32 {
        self.buckets.get(self.least as usize).map_or(0, |bucket| bucket.count)
    }

    pub fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |slot| {
            let counter = &self.counters[slot as usize];
            counter.hash == hash && *counter.key == *key
        })
    }

    /// All counters, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&Counter, u32)> {
        self.counters.iter().map(|counter| (counter, self.buckets[counter.bucket as usize].count))
    }

    /// The key of a counter came once more, in an operation of `bytes` bytes.
    pub fn increment(&mut self, slot: u32, bytes: u64) {
        let from = self.counters[slot as usize].bucket;
        let count = self.buckets[from as usize].count.saturating_add(1);
        self.counters[slot as usize].bytes += bytes;
        if count == self.buckets[from as usize].count {
            return;
        }
        self.take_out(slot);
        let to = self.bucket_from(from, count);
        self.put_in(slot, to);
        self.drop_if_empty(from);
    }

    /// A counter for a key that has none; not if it is full.
    pub fn insert(&mut self, key: &[u8], hash: u64, count: u32, estimated: u32, bytes: u64) {
        let slot = self.counters.len() as u32;
        self.counters.push(Counter::default());
        self.fill(slot, key, hash, count, estimated, bytes);
    }

    /// As [`Self::insert`], in the place of a counter with the least count: gives that one's hash and what was
    /// counted of it beyond the estimate.
    pub fn replace_least(
        &mut self,
        key: &[u8],
        hash: u64,
        count: u32,
        estimated: u32,
        bytes: u64,
    ) -> Option<(u64, u32)> {
        let bucket = self.buckets.get(self.least as usize)?;
        let (slot, least, least_count) = (bucket.first, self.least, bucket.count);
        let gone = &self.counters[slot as usize];
        let told = (gone.hash, least_count.saturating_sub(gone.estimated));
        self.index.remove(gone.hash, slot, |slot| self.counters[slot as usize].hash);
        self.take_out(slot);
        self.fill(slot, key, hash, count, estimated, bytes);
        self.drop_if_empty(least);
        Some(told)
    }

    /// Halves all counts; those that become 0 are forgotten. O(counters).
    pub fn halve(&mut self) {
        let mut kept: Vec<_> =
            self.iter().map(|(counter, count)| (counter.clone(), count / 2)).collect();
        kept.retain(|(_, count)| *count > 0);
        // From the greatest on, so that each is put in front of all others.
        kept.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut halved = Self::new(self.most);
        for (mut counter, count) in kept {
            counter.estimated /= 2;
            counter.bytes /= 2;
            let slot = halved.counters.len() as u32;
            halved.index.insert(counter.hash, slot);
            halved.counters.push(counter);
            let bucket = halved.bucket_from(NONE, count);
            halved.put_in(slot, bucket);
        }
        *self = halved;
    }

    fn fill(&mut self, slot: u32, key: &[u8], hash: u64, count: u32, estimated: u32, bytes: u64) {
        let counter = &mut self.counters[slot as usize];
        (counter.key, counter.hash) = (key.into(), hash);
        (counter.estimated, counter.bytes) = (estimated, bytes);
        self.index.insert(hash, slot);
        let bucket = self.bucket_from(NONE, count);
        self.put_in(slot, bucket);
    }

    /// The bucket of `count`, which is behind `from` (`NONE`: anywhere), made if there is none.
    fn bucket_from(&mut self, from: u32, count: u32) -> u32 {
        let (mut before, mut at) = match from {
            NONE => (NONE, self.least),
            from => (from, self.buckets[from as usize].after),
        };
        // One step from a bucket to the next; a new key is hardly above the least.
        while at != NONE && self.buckets[at as usize].count < count {
            (before, at) = (at, self.buckets[at as usize].after);
        }
        if at != NONE && self.buckets[at as usize].count == count {
            return at;
        }
        let bucket = Bucket { count, first: NONE, before, after: at };
        let number = match self.free.pop() {
            Some(number) => {
                self.buckets[number as usize] = bucket;
                number
            }
            None => {
                self.buckets.push(bucket);
                (self.buckets.len() - 1) as u32
            }
        };
        self.link(before, number);
        self.link(number, at);
        number
    }

    /// Makes two buckets, or the end of the row, neighbours.
    fn link(&mut self, before: u32, after: u32) {
        match before {
            NONE => self.least = after,
            before => self.buckets[before as usize].after = after,
        }
        if after != NONE {
            self.buckets[after as usize].before = before;
        }
    }

    fn drop_if_empty(&mut self, number: u32) {
        let Bucket { first, before, after, .. } = self.buckets[number as usize];
        if first == NONE {
            self.link(before, after);
            self.free.push(number);
        }
    }

    fn take_out(&mut self, slot: u32) {
        let Counter { bucket, before, after, .. } = self.counters[slot as usize];
        match before {
            NONE => self.buckets[bucket as usize].first = after,
            before => self.counters[before as usize].after = after,
        }
        if after != NONE {
            self.counters[after as usize].before = before;
        }
    }

    fn put_in(&mut self, slot: u32, bucket: u32) {
        let after = std::mem::replace(&mut self.buckets[bucket as usize].first, slot);
        if after != NONE {
            self.counters[after as usize].before = slot;
        }
        let counter = &mut self.counters[slot as usize];
        (counter.bucket, counter.before, counter.after) = (bucket, NONE, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The lists hold every counter once, in buckets of rising counts, none of them empty.
    fn check(summary: &StreamSummary) {
        let (mut seen, mut at, mut before, mut count) = (0, summary.least, NONE, 0);
        while at != NONE {
            let bucket = &summary.buckets[at as usize];
            assert!(bucket.count > count && bucket.before == before && bucket.first != NONE);
            let (mut slot, mut previous) = (bucket.first, NONE);
            while slot != NONE {
                let counter = &summary.counters[slot as usize];
                assert_eq!((counter.bucket, counter.before), (at, previous));
                assert_eq!(summary.find(counter.hash, &counter.key), Some(slot));
                seen += 1;
                (previous, slot) = (slot, counter.after);
            }
            (before, count, at) = (at, bucket.count, bucket.after);
        }
        assert_eq!(seen, summary.counters.len());
        assert_eq!(summary.buckets.len() - summary.free.len(), {
            let counts: std::collections::BTreeSet<_> =
                summary.iter().map(|(_, count)| count).collect();
            counts.len()
        });
    }

    #[test]
    fn it_agrees_with_a_map_and_the_least_goes_first() {
        let mut summary = StreamSummary::new(8);
        let mut model: BTreeMap<u8, u32> = BTreeMap::new();
        let mut state = 1u32;
        for round in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (state >> 24).isqrt() as u8;
            // Hashes that collide.
            let hash = u64::from(key % 3);
            let least = model.values().min().copied().unwrap_or(0);
            match summary.find(hash, &[key]) {
                Some(slot) => {
                    summary.increment(slot, 10);
                    *model.get_mut(&key).unwrap() += 1;
                }
                None if !summary.is_full() => {
                    summary.insert(&[key], hash, 1, 0, 10);
                    model.insert(key, 1);
                }
                None => {
                    let gone = summary.replace_least(&[key], hash, least + 1, least, 10).unwrap();
                    let victim = model
                        .iter()
                        .find(|(key, count)| {
                            **count == least
                                && summary.find(u64::from(**key % 3), &[**key]).is_none()
                        })
                        .map(|(key, _)| *key)
                        .unwrap();
                    assert_eq!(gone.0, u64::from(victim % 3));
                    model.remove(&victim);
                    model.insert(key, least + 1);
                }
            }
            if round % 500 == 499 {
                summary.halve();
                model.values_mut().for_each(|count| *count /= 2);
                model.retain(|_, count| *count > 0);
            }
            assert_eq!(summary.least_count(), model.values().min().copied().unwrap_or(0));
            let now: BTreeMap<u8, u32> =
                summary.iter().map(|(counter, count)| (counter.key[0], count)).collect();
            assert_eq!(now, model);
            check(&summary);
        }
    }
}
