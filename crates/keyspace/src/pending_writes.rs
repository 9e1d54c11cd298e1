//! What a batch wrote under user keys, to be found by its later reads before it is committed.
//!
//! Append-only: every write is an entry, each knows the one before it of the same hash, so taking
//! back the newest ones is cutting the rows. Nothing is allocated per entry. Called by `command_batch.rs`
//! alone, for strings and for what is known of collections.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Memory up to this many bytes is kept for the next batch.
const KEPT_BYTES: usize = 1 << 20;

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
}

impl<V> PendingWrites<V> {
    /// `seed` is not known to who chooses keys: equal hashes are searched one by one.
    pub fn new(seed: u64) -> Self {
        let (bytes, entries) = (Vec::new(), Vec::new());
        Self { seed, bytes, entries, newest: HashMap::default() }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
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

    /// Writes `value` and `tail` under `key`. With `keep_older` false the entry that is there may
    /// be overwritten: no mark is older than this.
    pub fn put(&mut self, key: &[u8], tail: &[u8], value: V, keep_older: bool) {
        let hash = self.hash(key);
        if !keep_older
            && let Some(at) = self.find(hash, key)
            && self.entries[at].tail_len >= tail.len()
        {
            let entry = &mut self.entries[at];
            entry.value = value;
            entry.tail_len = tail.len();
            let tail_at = entry.at + entry.key_len;
            self.bytes[tail_at..tail_at + tail.len()].copy_from_slice(tail);
            return;
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(tail);
        let number = self.entries.len() as u32;
        let older = self.newest.insert(hash, number).unwrap_or(NONE);
        let (key_len, tail_len) = (key.len(), tail.len());
        self.entries.push(Entry { hash, at, key_len, tail_len, older, value });
    }

    /// Takes back all entries but the first `mark`.
    pub fn cut(&mut self, mark: usize) {
        while self.entries.len() > mark
            && let Some(entry) = self.entries.pop()
        {
            self.bytes.truncate(entry.at);
            match entry.older {
                NONE => self.newest.remove(&entry.hash),
                older => self.newest.insert(entry.hash, older),
            };
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        self.entries.clear();
        self.newest.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.entries.shrink_to(KEPT_BYTES / size_of::<Entry<V>>());
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

    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let mut at = *self.newest.get(&hash)?;
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
        Put(u8, Vec<u8>, u32, bool),
        Mark,
        Cut,
        Clear,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let put = (0_u8..6, prop::collection::vec(any::<u8>(), 0..9), any::<u32>(), any::<bool>());
        let op = prop_oneof![
            12 => put.prop_map(|(key, tail, value, keep)| Op::Put(key, tail, value, keep)),
            2 => Just(Op::Mark),
            2 => Just(Op::Cut),
            1 => Just(Op::Clear),
        ];
        prop::collection::vec(op, 0..60)
    }

    proptest! {
        #[test]
        fn what_was_written_last_is_found_and_marks_bring_back_what_was(ops in ops()) {
            let mut written = PendingWrites::new(7);
            let mut model: BTreeMap<Vec<u8>, (u32, Vec<u8>)> = BTreeMap::new();
            let mut marks = Vec::new();
            for op in ops {
                match op {
                    Op::Put(key, tail, value, keep) => {
                        let key = vec![key; usize::from(key)];
                        written.put(&key, &tail, value, keep || !marks.is_empty());
                        model.insert(key, (value, tail));
                    }
                    Op::Mark => marks.push((written.len(), model.clone())),
                    Op::Cut => if let Some((mark, then)) = marks.pop() {
                        written.cut(mark);
                        model = then;
                    },
                    Op::Clear => {
                        written.clear();
                        model.clear();
                        marks.clear();
                    }
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
        written.cut(1);
        assert_eq!(written.find(5, b"aa"), Some(0));
        assert_eq!(written.find(5, b"bbb"), None);
    }
}
