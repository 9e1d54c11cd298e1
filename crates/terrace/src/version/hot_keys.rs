//! Which keys of a family are written so often that they are worth a place in the hot table.

use crate::memtable::MemTable;
use crate::version::hot_table::{HotTable, live_limit_bytes};
use crate::version::read_state::ReadState;
use std::collections::HashMap;
use terrace_base::checksum::hash_key;
use terrace_base::key::{trailer_kind, trailer_seqno};
use terrace_base::sync::Mutex;
use terrace_base::{SeqNo, ValueKind};
use terrace_skiplist::Skiplist;

/// Keys that are hot at most: swapping them takes some milliseconds.
const MAX_HOT_KEYS: usize = 16 << 10;

/// Keys are followed for one in this many bytes of live entries.
const BYTES_PER_FOLLOWED_KEY: usize = 64;

/// Keys that are known at most in the life of a memtable, before it is known which are followed.
const MAX_NOTED_KEYS: usize = 8 * MAX_HOT_KEYS;

/// Keys of a memtable that are noted together, unless they have this many bytes before that: what is known is locked meanwhile,
/// and a leader needs it for each rotation.
const NOTED_TOGETHER: usize = 1024;
const NOTED_BYTES: usize = 64 << 10;

/// A key becomes hot at this many writes in the life of a memtable.
const ADMIT_AT: f32 = 1.5;

/// A key stays hot down to this many.
const KEEP_AT: f32 = 0.5;

/// A key is no longer followed below this many.
const FORGET_AT: f32 = 0.25;

/// Hot keys change when those that come or go make up one part in this many of all.
const CHANGE_SHARE: f32 = 16.0;

/// What is known of a key that is written often.
struct Heat {
    key: Box<[u8]>,
    /// Writes per life of a memtable, those of the last lives counting more.
    writes: f32,
    /// Writes in this life.
    count: u32,
    /// Bytes of its newest version in memory.
    bytes: u32,
    is_hot: bool,
}

/// What is to be hot from the next rotation on.
#[derive(Default)]
pub(crate) struct HotPlan {
    /// Keys that become hot.
    pub admit: Vec<Box<[u8]>>,
    /// Hashes of keys that are hot no longer.
    pub cool: Vec<u64>,
}

/// Follows the keys of a family that are written often, and says which are to be hot. Advisory.
///
/// A key that is written `w` times in the life of a memtable costs one entry in L0 per life, and
/// `w` entries of a memtable; in the hot table it costs its own size once. Of keys with `w` above 1
/// those gain the most per byte that are written most: they come first.
#[derive(Default)]
pub(crate) struct HotKeys {
    by_hash: HashMap<u64, Heat>,
    plan: Option<HotPlan>,
    /// Keys that are new in this life and were written less often are not followed: there are too many.
    least_count: u32,
    /// Writes of hot keys up to here are counted.
    counted_to: SeqNo,
}

impl HotKeys {
    /// Writes of hot keys up to here are counted.
    pub fn counted_to(&self) -> SeqNo {
        self.counted_to
    }

    /// Writes of hot keys up to `seqno` are counted now.
    pub fn set_counted_to(&mut self, seqno: SeqNo) {
        self.counted_to = self.counted_to.max(seqno);
    }

    /// A key was written `count` times, `bytes` is the size of its newest version in memory, or 0 if
    /// it is the same as before. A key that was written once is not worth to begin with, nor are those with the fewest
    /// writes of more than are ever followed.
    pub fn note(&mut self, hash: u64, key: &[u8], count: u32, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.by_hash.get_mut(&hash) {
            Some(heat) => {
                heat.count = heat.count.saturating_add(count);
                if bytes > 0 {
                    heat.bytes = bytes;
                }
            }
            None if count > 1 && count >= self.least_count => {
                let heat = Heat { key: key.into(), writes: 0.0, count, bytes, is_hot: false };
                self.by_hash.insert(hash, heat);
                self.forget_seldom();
            }
            None => {}
        }
    }

    /// Sees to it that at most [`MAX_NOTED_KEYS`] are known, hot ones aside.
    fn forget_seldom(&mut self) {
        while self.by_hash.len() >= MAX_NOTED_KEYS {
            let least = self.least_count.max(2).saturating_mul(2);
            self.by_hash.retain(|_, heat| heat.is_hot || heat.writes > 0.0 || heat.count >= least);
            let is_all = self.least_count == least;
            self.least_count = least;
            if is_all {
                return;
            }
        }
    }

    /// The keys of the table that takes the place of the one before.
    pub fn swapped(&mut self, is_hot: impl Fn(u64) -> bool) {
        self.by_hash.iter_mut().for_each(|(hash, heat)| heat.is_hot = is_hot(*hash));
    }

    /// Notes what was written to a hot table since the last time.
    fn note_hot(&mut self, hot: &HotTable) {
        let counted_to = self.counted_to.max(hot.base.seqno);
        let mut newest = counted_to;
        hot.table.for_each_key(|key, trailers| {
            let fresh = trailers.iter().filter(|t| trailer_seqno(**t) > counted_to).count();
            newest = newest.max(trailers.first().map_or(SeqNo::ZERO, |t| trailer_seqno(*t)));
            self.note(hash_key(key), key, fresh as u32, 0);
        });
        self.set_counted_to(newest);
    }

    /// The life of a memtable has ended: plans what is to be hot in the next.
    fn life_ended(&mut self, memtable_bytes: usize) {
        let limit = live_limit_bytes(memtable_bytes);
        self.least_count = 0;
        for heat in self.by_hash.values_mut() {
            let count = std::mem::take(&mut heat.count) as f32;
            // A key that is seen for the first time is believed half.
            heat.writes = (heat.writes + count) / 2.0;
        }
        self.by_hash.retain(|_, heat| heat.is_hot || heat.writes >= FORGET_AT);
        let mut ranked: Vec<(u64, &Heat)> =
            self.by_hash.iter().map(|(h, heat)| (*h, heat)).collect();
        let gain = |heat: &Heat| heat.writes / heat.bytes.max(1) as f32;
        ranked.sort_by(|(a_hash, a), (b_hash, b)| {
            gain(b).total_cmp(&gain(a)).then(a_hash.cmp(b_hash))
        });
        let (mut bytes, mut hot, mut changed, mut total) = (0, 0, 0.0, 0.0);
        let mut plan = HotPlan::default();
        for (hash, heat) in &ranked {
            let least = if heat.is_hot { KEEP_AT } else { ADMIT_AT };
            let fits = bytes + heat.bytes as usize <= limit && hot < MAX_HOT_KEYS;
            if fits && heat.writes >= least {
                bytes += heat.bytes as usize;
                hot += 1;
                total += heat.writes;
                if !heat.is_hot {
                    changed += heat.writes;
                    plan.admit.push(heat.key.clone());
                }
            } else if heat.is_hot {
                changed += heat.writes.max(KEEP_AT);
                plan.cool.push(*hash);
            }
        }
        let followed = (limit / BYTES_PER_FOLLOWED_KEY).clamp(64, 4 * MAX_HOT_KEYS);
        let forgotten: Vec<u64> = ranked
            .iter()
            .skip(followed)
            .filter(|(_, heat)| !heat.is_hot)
            .map(|(h, _)| *h)
            .collect();
        forgotten.iter().for_each(|hash| drop(self.by_hash.remove(hash)));
        self.by_hash.shrink_to(2 * self.by_hash.len());
        self.plan = (changed > 0.0 && changed * CHANGE_SHARE >= total).then_some(plan);
    }

    /// What is to change, if it is worth a swap.
    pub fn take_plan(&mut self) -> Option<HotPlan> {
        self.plan.take()
    }

    /// About the bytes that this takes itself.
    pub fn size_bytes(&self) -> usize {
        let one = size_of::<(u64, Heat)>() + 16;
        self.by_hash.values().map(|heat| one + heat.key.len()).sum()
    }
}

/// Notes which keys were written often in the lives of the immutable memtables of `state`, and of its hot table since the last time,
/// and plans what is to be hot. Memtables are walked without the lock.
pub(crate) fn note_life(keys: &Mutex<HotKeys>, state: &ReadState, memtable_bytes: usize) {
    for memtable in state.immutables.iter().filter(|memtable| !memtable.is_cooled()) {
        each_noted(memtable, |noted| noted.hand_over(&mut keys.lock()));
    }
    let mut keys = keys.lock();
    if let Some(hot) = &state.hot {
        keys.note_hot(hot);
    }
    keys.life_ended(memtable_bytes);
}

/// Calls `take`, which empties it, with what is to be noted of the keys of `memtable`, of some at a time.
fn each_noted(memtable: &MemTable, mut take: impl FnMut(&mut Noted)) {
    let mut noted = Noted::default();
    memtable.for_each_key(|key, trailers| {
        let Some(newest) = trailers.first() else { return };
        if trailer_kind(*newest).is_some_and(ValueKind::is_handle) {
            return;
        }
        let hash = hash_key(key);
        let value = memtable.get(key, hash, *newest).map_or(&[][..], |(_, value)| value);
        noted.push(hash, key, trailers.len() as u32, entry_bytes(key, value));
        if noted.is_full() {
            take(&mut noted);
        }
    });
    take(&mut noted);
}

/// What is to be noted of some keys.
#[derive(Default)]
struct Noted {
    /// The keys, one behind the other.
    bytes: Vec<u8>,
    each: Vec<NotedKey>,
}

/// As the arguments of [`HotKeys::note`].
struct NotedKey {
    hash: u64,
    key_len: usize,
    count: u32,
    entry_bytes: usize,
}

impl Noted {
    fn push(&mut self, hash: u64, key: &[u8], count: u32, entry_bytes: usize) {
        self.bytes.extend_from_slice(key);
        self.each.push(NotedKey { hash, key_len: key.len(), count, entry_bytes });
    }

    fn is_full(&self) -> bool {
        self.each.len() >= NOTED_TOGETHER || self.bytes.len() >= NOTED_BYTES
    }

    /// Notes all of it, and is empty then.
    fn hand_over(&mut self, keys: &mut HotKeys) {
        let mut rest = self.bytes.as_slice();
        for NotedKey { hash, key_len, count, entry_bytes } in self.each.drain(..) {
            let Some((key, behind)) = rest.split_at_checked(key_len) else { break };
            keys.note(hash, key, count, entry_bytes);
            rest = behind;
        }
        self.bytes.clear();
    }
}

/// Bytes that an entry takes in a memtable, about.
pub(crate) fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    Skiplist::entry_upper_bound(key.len(), value.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_skiplist::Hint;

    const MEMTABLE: usize = 64 << 10;

    #[test]
    fn keys_of_a_memtable_are_noted_a_few_at_a_time() {
        let table = MemTable::with_capacity(1, 8 << 20).unwrap();
        let count = 2 * NOTED_TOGETHER as u64 + 5;
        let put = |key: &[u8], seqno: u64| {
            let mut hint = Hint::default();
            table.insert(key, SeqNo::new(seqno), ValueKind::Put, b"value", &mut hint).unwrap();
        };
        for n in 0..count {
            put(&n.to_be_bytes(), 2 * n + 1);
            put(&n.to_be_bytes(), 2 * n + 2);
        }
        // Behind the others.
        let long = vec![0xff_u8; NOTED_BYTES];
        put(&long, 2 * count + 1);
        put(&long, 2 * count + 2);
        let (mut keys, mut together) = (HotKeys::default(), Vec::new());
        each_noted(&table, |noted| {
            together.push(noted.each.len());
            noted.hand_over(&mut keys);
        });
        assert_eq!(together, [NOTED_TOGETHER, NOTED_TOGETHER, 6, 0]);
        assert_eq!(keys.by_hash.len() as u64, count + 1);
        assert!(keys.by_hash.values().all(|heat| heat.count == 2));
        assert_eq!(*keys.by_hash[&hash_key(&long)].key, long[..]);
    }

    fn names(plan: &HotPlan) -> Vec<String> {
        plan.admit.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    #[test]
    fn keys_become_hot_by_their_writes_and_cool_without() {
        let mut keys = HotKeys::default();
        keys.note(1, b"often", 7, 1000);
        keys.note(2, b"twice", 2, 1000);
        keys.note(3, b"once", 1, 1000);
        keys.life_ended(MEMTABLE);
        assert_eq!(names(&keys.take_plan().unwrap()), ["often"], "two writes may be chance");
        keys.swapped(|hash| hash == 1);
        for _ in 0..2 {
            keys.note(1, b"often", 7, 1000);
            keys.note(2, b"twice", 2, 1000);
            keys.life_ended(MEMTABLE);
        }
        assert_eq!(
            names(&keys.take_plan().unwrap()),
            ["twice"],
            "two writes in each of three lives"
        );
        keys.swapped(|hash| hash <= 2);
        let mut lives = 0;
        let plan = loop {
            keys.note(1, b"often", 7, 1000);
            keys.life_ended(MEMTABLE);
            lives += 1;
            match keys.take_plan() {
                Some(plan) if plan.cool == [2] => break plan,
                // It is too little to swap for as long as the rest is so much more.
                None if lives < 10 => continue,
                other => panic!("{:?}", other.map(|plan| plan.cool)),
            }
        };
        assert!(plan.admit.is_empty() && lives > 1);
    }

    #[test]
    fn the_keys_with_the_most_writes_per_byte_fit_first() {
        let mut keys = HotKeys::default();
        let limit = live_limit_bytes(MEMTABLE);
        keys.note(1, b"large", 20, limit);
        keys.note(2, b"small", 10, 100);
        keys.life_ended(MEMTABLE);
        assert_eq!(names(&keys.take_plan().unwrap()), ["small"], "then the large one does not fit");
    }

    #[test]
    fn what_a_memtable_with_many_keys_leaves_is_bounded() {
        let mut keys = HotKeys::default();
        let count = 10 * MAX_NOTED_KEYS as u64;
        for hash in 0..count {
            let is_often = hash % 1000 == 0;
            keys.note(hash, &hash.to_be_bytes(), if is_often { 90 } else { 3 }, 100);
            assert!(keys.by_hash.len() <= MAX_NOTED_KEYS);
        }
        let often = keys.by_hash.values().filter(|heat| heat.count == 90).count() as u64;
        assert_eq!(often, count.div_ceil(1000), "those that were written often are known");
        keys.life_ended(MEMTABLE);
        let most = 4 * (live_limit_bytes(MEMTABLE) / BYTES_PER_FOLLOWED_KEY);
        assert!(keys.by_hash.capacity() <= most, "{} places", keys.by_hash.capacity());
    }

    #[test]
    fn what_is_followed_is_bounded() {
        let mut keys = HotKeys::default();
        for hash in 0..100_000u64 {
            keys.note(hash, &hash.to_be_bytes(), 2, 100);
        }
        keys.life_ended(MEMTABLE);
        assert!(keys.size_bytes() <= live_limit_bytes(MEMTABLE) * 2, "{}", keys.size_bytes());
    }
}
