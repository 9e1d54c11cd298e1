//! What a batch wrote under user keys, to be found by its later reads before it is committed.
//!
//! Entries lie in a row, each knows the one before it of the same hash, and what an attempt wrote is taken back by
//! cutting the rows where it began. What is written again since then takes the place of the entry that is there, so that
//! no more is held than the last value of each key, and what it was when each attempt began. Nothing is allocated per
//! entry. Who walks over keys has them put into order, which then is kept: only what is new takes its place in it.
//! Called by `command_batch.rs`, for strings and for what is known of collections, and by `key_scan.rs`.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Memory up to this many bytes is kept for the next batch.
pub(crate) const KEPT_BYTES: usize = 1 << 20;

/// Empties a list of a batch; of its memory as much is kept as [`KEPT_BYTES`] allow.
pub(crate) fn clear_list<T>(list: &mut Vec<T>) {
    list.clear();
    list.shrink_to(KEPT_BYTES / size_of::<T>());
}

/// Less garbage than this many bytes is left where it is.
const MIN_GARBAGE_BYTES: usize = 64 << 10;

/// Up to this many new keys take their places in the order one by one; more are sorted together with the others.
const FEW_NEW: usize = 64;

/// No entry.
const NONE: u32 = u32::MAX;

struct Entry<V> {
    hash: u64,
    /// Where the key lies in `bytes`; the tail lies behind it.
    at: usize,
    key_len: usize,
    tail_len: usize,
    /// The entry before this one of the same hash.
    older: u32,
    value: V,
}

/// Values under keys, each with a tail of bytes, in the order of their writing.
pub(crate) struct PendingWrites<V> {
    seed: u64,
    bytes: Vec<u8>,
    entries: Vec<Entry<V>>,
    /// The newest entry of each hash.
    newest: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
    /// Bytes that belong to no entry any more.
    garbage_bytes: usize,
    /// What was there when the innermost attempt began, which stays as it is.
    floor: Floor,
    /// `None` until somebody asks for it.
    order: Option<KeyOrder>,
}

/// The keys in order.
#[derive(Debug, Default)]
struct KeyOrder {
    /// Of each key the oldest entry.
    entries: Vec<u32>,
    /// Entries from this one on may be of keys that are not in it.
    seen: usize,
}

/// How much there was at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Floor {
    entries: usize,
    bytes: usize,
    garbage_bytes: usize,
}

impl<V> PendingWrites<V> {
    /// `seed` is not known to who chooses keys: equal hashes are searched one by one.
    pub fn new(seed: u64) -> Self {
        let (bytes, entries) = (Vec::new(), Vec::new());
        let (newest, floor) = (HashMap::default(), Floor::default());
        Self { seed, bytes, entries, newest, garbage_bytes: 0, floor, order: None }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of keys and tails.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() - self.garbage_bytes
    }

    /// What was written last under `key`, and its tail.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<(&V, &[u8])> {
        if self.entries.is_empty() {
            return None;
        }
        let entry = &self.entries[self.find(self.hash(key), key)?];
        Some((&entry.value, self.tail(entry)))
    }

    /// Writes `value` and `tail` under `key`.
    pub fn put(&mut self, key: &[u8], tail: &[u8], value: V) {
        let hash = self.hash(key);
        if let Some(at) = self.find(hash, key)
            && at >= self.floor.entries
        {
            self.entries[at].value = value;
            return self.replace_tail(at, tail);
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(tail);
        let number = self.entries.len() as u32;
        let older = self.newest.insert(hash, number).unwrap_or(NONE);
        let (key_len, tail_len) = (key.len(), tail.len());
        self.entries.push(Entry { hash, at, key_len, tail_len, older, value });
    }

    /// Gives an entry another tail: where the old one is if it fits or is the last one, else at the end.
    fn replace_tail(&mut self, number: usize, tail: &[u8]) {
        let entry = &mut self.entries[number];
        let tail_at = entry.at + entry.key_len;
        // A shorter one could end below where an empty entry lies.
        let is_last = tail_at + entry.tail_len == self.bytes.len() && tail.len() >= entry.tail_len;
        let old_len = std::mem::replace(&mut entry.tail_len, tail.len());
        if is_last {
            self.bytes.truncate(tail_at);
            self.bytes.extend_from_slice(tail);
            return;
        }
        if old_len >= tail.len() {
            self.bytes[tail_at..tail_at + tail.len()].copy_from_slice(tail);
            self.garbage_bytes += old_len - tail.len();
        } else {
            let key = entry.at..tail_at;
            entry.at = self.bytes.len();
            self.garbage_bytes += key.len() + old_len;
            self.bytes.extend_from_within(key);
            self.bytes.extend_from_slice(tail);
        }
        self.limit_garbage();
    }

    fn limit_garbage(&mut self) {
        let since_floor = self.garbage_bytes - self.floor.garbage_bytes;
        if since_floor > MIN_GARBAGE_BYTES.max((self.bytes.len() - self.floor.bytes) / 2) {
            self.collect_garbage();
        }
    }

    /// Moves together what was written since the floor.
    fn collect_garbage(&mut self) {
        let mut order: Vec<usize> = (self.floor.entries..self.entries.len()).collect();
        order.sort_unstable_by_key(|number| self.entries[*number].at);
        let mut end = self.floor.bytes;
        for number in order {
            let entry = &mut self.entries[number];
            let len = entry.key_len + entry.tail_len;
            self.bytes.copy_within(entry.at..entry.at + len, end);
            entry.at = end;
            end += len;
        }
        self.bytes.truncate(end);
        self.bytes.shrink_to(2 * end.max(KEPT_BYTES));
        self.garbage_bytes = self.floor.garbage_bytes;
    }

    /// An attempt begins, which ends with [`Self::keep`] or [`Self::take_back`] of what this gives.
    pub fn begin_attempt(&mut self) -> Floor {
        let (entries, bytes) = (self.entries.len(), self.bytes.len());
        let floor = Floor { entries, bytes, garbage_bytes: self.garbage_bytes };
        std::mem::replace(&mut self.floor, floor)
    }

    /// The attempt has succeeded; `outer` is that which it began in.
    pub fn keep(&mut self, outer: Floor) {
        let inner = std::mem::replace(&mut self.floor, outer);
        for number in inner.entries..self.entries.len() {
            // What it replaced is not asked for any more, unless the outer one may be taken back.
            let entry = &self.entries[number];
            let older = self.find_from(entry.older, self.key(entry));
            if let Some(older) = older.filter(|older| *older >= outer.entries) {
                self.garbage_bytes += std::mem::take(&mut self.entries[older].tail_len);
            }
        }
        self.limit_garbage();
    }

    /// The attempt has failed: everything is as it was when it began.
    pub fn take_back(&mut self, outer: Floor) {
        let Floor { entries, bytes, garbage_bytes } = std::mem::replace(&mut self.floor, outer);
        while self.entries.len() > entries
            && let Some(entry) = self.entries.pop()
        {
            match entry.older {
                NONE => self.newest.remove(&entry.hash),
                older => self.newest.insert(entry.hash, older),
            };
        }
        self.bytes.truncate(bytes);
        self.garbage_bytes = garbage_bytes;
        if let Some(order) = self.order.as_mut().filter(|order| order.seen > entries) {
            order.entries.retain(|number| (*number as usize) < entries);
            order.seen = entries;
        }
    }

    /// Forgets everything; no attempt is under way.
    pub fn clear(&mut self) {
        self.floor = Floor::default();
        self.order = None;
        if self.entries.is_empty() {
            return;
        }
        self.garbage_bytes = 0;
        clear_list(&mut self.entries);
        clear_list(&mut self.bytes);
        self.newest.clear();
        self.newest.shrink_to(KEPT_BYTES / size_of::<(u64, u32)>());
    }

    /// The keys, each once, with what was written last and its tail, in no order.
    pub fn latest(&self) -> impl Iterator<Item = (&[u8], &V, &[u8])> {
        self.entries.iter().enumerate().filter_map(|(number, entry)| {
            let key = self.key(entry);
            let is_newest = self.find(entry.hash, key) == Some(number);
            is_newest.then(|| (key, &entry.value, self.tail(entry)))
        })
    }

    /// Puts the keys into order, for [`Self::position`] and [`Self::row`] until something is written.
    pub fn sort(&mut self) {
        let mut order = self.order.take().unwrap_or_default();
        let new = order.seen..self.entries.len();
        let is_first = |number: &usize| {
            let entry = &self.entries[*number];
            self.find_from(entry.older, self.key(entry)).is_none()
        };
        let new: Vec<u32> = new.filter(is_first).map(|number| number as u32).collect();
        if new.len() > FEW_NEW {
            order.entries.extend(new);
            // Stable, since that takes what is in order already for a run.
            order.entries.sort_by(|a, b| self.key_of(*a).cmp(self.key_of(*b)));
        } else {
            for number in new {
                let key = self.key_of(number);
                let at = order.entries.partition_point(|other| self.key_of(*other) < key);
                order.entries.insert(at, number);
            }
        }
        order.seen = self.entries.len();
        self.order = Some(order);
    }

    /// The place in order of the first key that is not below this one.
    pub fn position(&self, key: &[u8]) -> usize {
        let order = self.order.as_ref().map_or(&[][..], |order| &order.entries[..]);
        order.partition_point(|other| self.key_of(*other) < key)
    }

    /// The key at a place in order, with what was written last and its tail.
    pub fn row(&self, place: usize) -> Option<(&[u8], &V, &[u8])> {
        let key = self.key_of(*self.order.as_ref()?.entries.get(place)?);
        let (value, tail) = self.get(key)?;
        Some((key, value, tail))
    }

    fn key_of(&self, number: u32) -> &[u8] {
        self.key(&self.entries[number as usize])
    }

    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.find_from(*self.newest.get(&hash)?, key)
    }

    /// The newest entry of a key that is not newer than this one.
    fn find_from(&self, mut at: u32, key: &[u8]) -> Option<usize> {
        while at != NONE {
            let entry = &self.entries[at as usize];
            if self.key(entry) == key {
                return Some(at as usize);
            }
            at = entry.older;
        }
        None
    }

    fn key(&self, entry: &Entry<V>) -> &[u8] {
        &self.bytes[entry.at..entry.at + entry.key_len]
    }

    fn tail(&self, entry: &Entry<V>) -> &[u8] {
        let at = entry.at + entry.key_len;
        &self.bytes[at..at + entry.tail_len]
    }
}

/// For keys of a map that are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Op {
        Put(u8, Vec<u8>, u32),
        Begin,
        Keep,
        TakeBack,
        Clear,
        Collect,
        Sort,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let put = (0_u8..6, prop::collection::vec(any::<u8>(), 0..9), any::<u32>());
        let op = prop_oneof![
            12 => put.prop_map(|(key, tail, value)| Op::Put(key, tail, value)),
            3 => Just(Op::Begin),
            2 => Just(Op::Keep),
            2 => Just(Op::TakeBack),
            1 => Just(Op::Clear),
            2 => Just(Op::Collect),
            3 => Just(Op::Sort),
        ];
        prop::collection::vec(op, 0..60)
    }

    proptest! {
        #[test]
        fn what_was_written_last_is_found_and_attempts_are_taken_back(ops in ops()) {
            let mut written = PendingWrites::new(7);
            let mut model: BTreeMap<Vec<u8>, (u32, Vec<u8>)> = BTreeMap::new();
            let mut attempts = Vec::new();
            for op in ops {
                match op {
                    Op::Put(key, tail, value) => {
                        let key = vec![key; usize::from(key)];
                        written.put(&key, &tail, value);
                        model.insert(key, (value, tail));
                    }
                    Op::Begin => attempts.push((written.begin_attempt(), model.clone())),
                    Op::Keep => if let Some((outer, _)) = attempts.pop() {
                        written.keep(outer);
                    },
                    Op::TakeBack => if let Some((outer, then)) = attempts.pop() {
                        written.take_back(outer);
                        model = then;
                    },
                    Op::Clear => {
                        written.clear();
                        model.clear();
                        attempts.clear();
                    }
                    Op::Collect => written.collect_garbage(),
                    Op::Sort => {
                        written.sort();
                        let rows = (0..).map_while(|place| written.row(place));
                        let rows: Vec<_> = rows
                            .map(|(key, value, tail)| (key.to_vec(), (*value, tail.to_vec())))
                            .collect();
                        let wanted: Vec<_> = model.clone().into_iter().collect();
                        prop_assert_eq!(rows, wanted);
                        for (place, key) in model.keys().enumerate() {
                            prop_assert_eq!(written.position(key), place);
                            let behind = [&key[..], &[0]].concat();
                            prop_assert_eq!(written.position(&behind), place + 1);
                        }
                    }
                }
                if attempts.is_empty() {
                    let live = model.iter().map(|(key, (_, tail))| key.len() + tail.len());
                    prop_assert!(written.entries.len() >= model.len());
                    prop_assert!(written.size_bytes() >= live.sum::<usize>());
                }
                prop_assert_eq!(written.is_empty(), model.is_empty());
                for key in 0_u8..6 {
                    let key = vec![key; usize::from(key)];
                    let found = written.get(&key).map(|(value, tail)| (*value, tail.to_vec()));
                    prop_assert_eq!(found, model.get(&key).cloned());
                }
                let latest: BTreeMap<_, _> =
                    written.latest().map(|(key, value, tail)| (key.to_vec(), (*value, tail.to_vec()))).collect();
                prop_assert_eq!(&latest, &model);
            }
        }
    }

    /// Inside an attempt and outside, growing and not: a value is held once, and at most once more as it was before.
    #[test]
    fn a_value_that_is_written_again_and_again_is_held_once() {
        const LEN: usize = 100_000;
        let mut written = PendingWrites::new(3);
        written.put(b"k", &[1; LEN], 0);
        for round in 0..1000 {
            let outer = written.begin_attempt();
            written.put(b"k", &[1; LEN], round);
            written.keep(outer);
            assert!(written.bytes.len() < 5 * LEN, "{} in attempt {round}", written.bytes.len());
        }
        let outer = written.begin_attempt();
        written.put(b"other", b"", 0);
        for round in 1..1000 {
            written.put(b"k", &vec![2; LEN + round], round);
            written.put(b"other", &vec![3; round], round);
            assert!(written.bytes.len() < 5 * LEN, "{} in round {round}", written.bytes.len());
        }
        assert_eq!(written.get(b"k"), Some((&999, &vec![2; LEN + 999][..])));
        written.take_back(outer);
        assert_eq!(written.get(b"k"), Some((&999, &[1; LEN][..])));
        assert_eq!(written.get(b"other"), None);
        for round in 1..1000 {
            written.put(b"other", &vec![3; round], round);
            written.put(b"k", &vec![2; LEN + round], round);
        }
        assert!(written.bytes.len() < 4 * LEN, "{}", written.bytes.len());
        assert_eq!(written.get(b"other"), Some((&999, &[3; 999][..])));
    }

    /// A walk after each of many writes does not sort all of them.
    #[test]
    fn what_is_new_takes_its_place_in_the_order_that_is_there() {
        let mut written = PendingWrites::new(3);
        let outer = written.begin_attempt();
        for at in 0..2000_u32 {
            let key = at.wrapping_mul(0x9E37_79B9).to_be_bytes();
            written.put(&key, b"", at);
            // Again, as by a command with an attempt of its own.
            let inner = written.begin_attempt();
            written.put(&key, b"again", at);
            written.keep(inner);
            // Many are new at first, and once more.
            if at % 3 == 0 && at >= 100 && !(1000..1200).contains(&at) {
                written.sort();
                assert!(written.row(at as usize).is_some());
                assert!(written.row(at as usize + 1).is_none());
            }
        }
        written.sort();
        let keys: Vec<&[u8]> = (0..2000).map(|place| written.row(place).unwrap().0).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert!((0..2000).all(|place| written.row(place).unwrap().2 == b"again"));
        written.take_back(outer);
        written.sort();
        assert!(written.row(0).is_none());
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let mut written = PendingWrites::new(0);
        let entry =
            |at, key_len, older| Entry { hash: 5, at, key_len, tail_len: 0, older, value: at };
        written.bytes = b"aabbb".to_vec();
        written.entries = vec![entry(0, 2, NONE), entry(2, 3, 0)];
        written.newest.insert(5, 1);
        assert_eq!(written.find(5, b"aa"), Some(0));
        assert_eq!(written.find(5, b"bbb"), Some(1));
        assert_eq!(written.find(5, b"cc"), None);
        written.floor = Floor { entries: 1, bytes: 2, garbage_bytes: 0 };
        written.take_back(Floor::default());
        assert_eq!(written.find(5, b"aa"), Some(0));
        assert_eq!(written.find(5, b"bbb"), None);
    }
}
