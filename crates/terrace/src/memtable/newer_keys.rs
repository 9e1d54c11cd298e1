//! The keys of a memtable's entries that lie in the range of a tombstone and are newer than it: where a cursor stops
//! that passes what the tombstone covers.
//!
//! Kept for the newest tombstone that covers a key when an entry of it is inserted, and noted before that, so that a
//! reader who may see the entry finds its key here. Called by `range_set.rs`.

use std::iter::successors;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Of more different keys than this, not all are known, and only what lies outside of them all is passed.
const MAX_KEYS: usize = 128;

/// What an allocation takes besides its bytes, about.
const ALLOCATION_BYTES: usize = 16;

/// Keys that a segment has room for.
const SEGMENT_KEYS: usize = 4;

/// Some of the keys, each put once, and the segment of those that came after them.
#[derive(Default)]
struct Segment {
    keys: [OnceLock<Box<[u8]>>; SEGMENT_KEYS],
    next: OnceLock<Box<Segment>>,
}

/// Grows while others read it. Small, since every tombstone has one.
pub(super) struct NewerKeys {
    first: OnceLock<Box<Segment>>,
    /// How many there are; above [`MAX_KEYS`], not all are in the segments.
    count: AtomicU32,
    /// How many first bytes all keys in the tombstone's range share.
    shared_len: u32,
    /// The lowest and the highest [`Self::window`] of all keys, those that are not in the segments included.
    lowest: AtomicU64,
    highest: AtomicU64,
}

impl NewerKeys {
    /// None yet, of a tombstone from `start` to `end`.
    pub fn within(start: &[u8], end: &[u8]) -> Self {
        let shared_len = start.iter().zip(end).take_while(|(a, b)| a == b).count();
        Self {
            first: OnceLock::new(),
            count: AtomicU32::new(0),
            shared_len: shared_len as u32,
            lowest: AtomicU64::new(u64::MAX),
            highest: AtomicU64::new(0),
        }
    }

    /// Nothing is known of them.
    pub fn unknown() -> Self {
        Self {
            first: OnceLock::new(),
            count: AtomicU32::new(MAX_KEYS as u32 + 1),
            shared_len: 0,
            lowest: AtomicU64::new(0),
            highest: AtomicU64::new(u64::MAX),
        }
    }

    /// The eight bytes behind the shared ones: never less for a higher key of the tombstone's range.
    fn window(&self, key: &[u8]) -> u64 {
        let rest = key.get(self.shared_len as usize..).unwrap_or_default();
        let mut window = [0; 8];
        window.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        u64::from_be_bytes(window)
    }

    // Relaxed in what follows: a reader sees an entry only after it has acquired the sequence number
    // that was released when the entry, and before it its key here, had been written.

    /// Adds a key; gives the bytes that were allocated for it.
    pub fn add(&self, key: &[u8]) -> usize {
        let window = self.window(key);
        self.lowest.fetch_min(window, Ordering::Relaxed);
        self.highest.fetch_max(window, Ordering::Relaxed);
        if !self.all_known() {
            return 0;
        }
        if self.kept().any(|known| *known == *key) {
            return 0;
        }
        let at = self.count.fetch_add(1, Ordering::Relaxed) as usize;
        if at >= MAX_KEYS {
            return 0;
        }
        let mut allocated = 0;
        let mut segment = &self.first;
        for _ in 0..at / SEGMENT_KEYS {
            segment = &Self::made(segment, &mut allocated).next;
        }
        let place = &Self::made(segment, &mut allocated).keys[at % SEGMENT_KEYS];
        if place.set(key.into()).is_ok() {
            allocated += key.len() + ALLOCATION_BYTES;
        }
        allocated
    }

    /// A segment, a new one if there was none; adds the bytes that were allocated for it.
    fn made<'a>(place: &'a OnceLock<Box<Segment>>, allocated: &mut usize) -> &'a Segment {
        place.get_or_init(|| {
            *allocated += size_of::<Segment>() + ALLOCATION_BYTES;
            Box::default()
        })
    }

    fn all_known(&self) -> bool {
        self.count.load(Ordering::Relaxed) as usize <= MAX_KEYS
    }

    /// Those that are in the segments, in no order.
    fn kept(&self) -> impl Iterator<Item = &[u8]> {
        let segments = successors(self.first.get(), |segment| segment.next.get());
        let keys = segments.flat_map(|segment| &segment.keys);
        keys.filter_map(|key| key.get().map(|key| &**key))
    }

    /// The keys, in no order; `None` if not all are known.
    fn known(&self) -> Option<impl Iterator<Item = &[u8]>> {
        self.all_known().then(|| self.kept())
    }

    /// The first in `[start, end)`, or else `end`; `None` if that is not known.
    pub fn first_in<'a>(&'a self, start: &[u8], end: &'a [u8]) -> Option<&'a [u8]> {
        if self.window(start) > self.highest.load(Ordering::Relaxed) {
            return Some(end);
        }
        let inside = self.known()?.filter(|key| start <= *key && *key < end);
        Some(inside.min().unwrap_or(end))
    }

    /// The last in `[start, last]`, if there is one; `None` if that is not known.
    #[expect(clippy::option_option)]
    pub fn last_in(&self, start: &[u8], last: &[u8]) -> Option<Option<&[u8]>> {
        if self.window(last) < self.lowest.load(Ordering::Relaxed) {
            return Some(None);
        }
        Some(self.known()?.filter(|key| start <= *key && *key <= last).max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use terrace_base::{Rng, SplitMix64};

    #[test]
    fn the_nearest_keys_are_found_until_there_are_too_many() {
        let keys = NewerKeys::within(b"a", b"z");
        assert_eq!(keys.first_in(b"a", b"z"), Some(&b"z"[..]));
        assert_eq!(keys.last_in(b"a", b"z"), Some(None));
        assert!(keys.add(b"m") > 0 && keys.add(b"c") > 0);
        assert_eq!(keys.add(b"m"), 0, "it is there");
        assert_eq!(keys.first_in(b"a", b"z"), Some(&b"c"[..]));
        assert_eq!(keys.first_in(b"d", b"m"), Some(&b"m"[..]));
        assert_eq!(keys.first_in(b"n", b"z"), Some(&b"z"[..]));
        assert_eq!(keys.last_in(b"a", b"m"), Some(Some(&b"m"[..])));
        assert_eq!(keys.last_in(b"d", b"l"), Some(None));
        for number in 2..MAX_KEYS {
            keys.add(format!("p{number}").as_bytes());
        }
        assert_eq!(keys.first_in(b"n", b"p"), Some(&b"p"[..]));
        keys.add(b"one too many");
        assert_eq!((keys.first_in(b"n", b"p"), keys.last_in(b"n", b"p")), (None, None));
        assert_eq!(NewerKeys::unknown().first_in(b"a", b"z"), None);
    }

    /// Up to keys that share more bytes than are compared.
    #[test]
    fn nothing_newer_is_ever_passed() {
        let mut rng = SplitMix64::new(5);
        let (mut outside, mut inside) = (0, 0);
        for round in 0..400 {
            let mut key = || {
                let len = 1 + rng.next_u64() as usize % 12;
                let bytes = (0..len).map(|_| b"\0ab\xff"[rng.next_u64() as usize % 4]);
                [&b"doc"[..], &bytes.collect::<Vec<u8>>()].concat()
            };
            let mut bounds = [key(), key(), key(), key()];
            bounds.sort();
            let [start, low, high, end] = bounds;
            let keys = NewerKeys::within(&start, &end);
            let mut all = BTreeSet::new();
            for _ in 0..(if round % 2 == 0 { 100 } else { 2000 }) {
                let key = key();
                if low <= key && key < high {
                    keys.add(&key);
                    all.insert(key);
                }
            }
            for _ in 0..100 {
                let key = key();
                if key < start || key >= end {
                    continue;
                }
                let known = all.len() <= MAX_KEYS;
                let first = all.range(key.clone()..end.clone()).next().map_or(&end, |first| first);
                match keys.first_in(&key, &end) {
                    Some(found) => assert_eq!(found, first),
                    None => assert!(!known),
                }
                let last = all.range(start.clone()..=key.clone()).next_back().map(|last| &last[..]);
                match keys.last_in(&start, &key) {
                    Some(found) => assert_eq!(found, last),
                    None => assert!(!known),
                }
                outside += u32::from(!known && keys.first_in(&key, &end).is_some());
                outside += u32::from(!known && keys.last_in(&start, &key).is_some());
                inside += u32::from(!known);
            }
        }
        assert!(outside > 50 && inside > 500, "{outside} {inside}");
    }

    #[test]
    fn what_lies_outside_of_too_many_keys_is_passed() {
        let keys = NewerKeys::within(b"set/a", b"set/z");
        for number in 0..=MAX_KEYS {
            keys.add(format!("set/m{number:04}").as_bytes());
        }
        assert_eq!(keys.last_in(b"set/b", b"set/l"), Some(None));
        assert_eq!(keys.first_in(b"set/n", b"set/y"), Some(&b"set/y"[..]));
        assert_eq!(keys.last_in(b"set/b", b"set/n"), None);
        assert_eq!(keys.first_in(b"set/l", b"set/y"), None);
    }
}
