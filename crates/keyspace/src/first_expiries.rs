//! When the first collection of each part of the store may expire, which is a database, or a slot with placement `slots`:
//! so that the search for what is due goes only to parts that may have something, and begins where that may be. Called by
//! `command_batch` and `active_expire`; lost with the process.
//!
//! A time is a lower bound of those of the part's notes. It is lowered after the commit that wrote
//! a note. Who searches takes it out first, then looks at the store, then puts back what it found: a
//! note that is committed in between is in the store or is put in afterwards.
//!
//! Many notes may be of one time. So who has removed some of them says where the next one is, which holds as long as no
//! note of that time or an earlier one is committed.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nothing will expire.
const NEVER: u64 = u64::MAX;

/// The latest time that there is room for.
const LATEST_MS: u64 = (u64::MAX >> 1) - 1;

/// See the module. In the beginning every part may have something that is due.
pub(crate) struct FirstExpiries {
    /// Twice the time in ms since 1970, and 1 more if there are no notes of it before that in `next`.
    times: Box<[AtomicU64]>,
    /// Keys of the engine.
    next: Mutex<BTreeMap<u16, Vec<u8>>>,
}

/// A part of the store that may have something that is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DuePart {
    /// Of the slot or the database.
    pub number: u16,
    /// It has no note of an earlier time.
    pub since_ms: u64,
    /// Nor one before this key.
    pub next: Option<Vec<u8>>,
}

impl FirstExpiries {
    /// Of this many parts.
    pub fn of(parts: u16) -> Self {
        let times = (0..parts).map(|_| AtomicU64::new(0)).collect();
        Self { times, next: Mutex::default() }
    }

    /// A note of this time is in the part.
    pub fn lower(&self, part: u16, expires_at_ms: u64) {
        self.lower_to(part, expires_at_ms.min(LATEST_MS) << 1);
    }

    /// As [`Self::lower`], for who has taken the part out: the note has this key, and those before it are gone.
    pub fn lower_to_next(&self, part: u16, expires_at_ms: u64, key: Vec<u8>) {
        self.next.lock().insert(part, key);
        // If a note has come meanwhile of this time or an earlier one, that is less.
        self.lower_to(part, expires_at_ms.min(LATEST_MS) << 1 | 1);
    }

    fn lower_to(&self, part: u16, state: u64) {
        if let Some(time) = self.times.get(usize::from(part)) {
            // AcqRel here and in `take_due`: what was committed before is seen by who takes it.
            time.fetch_min(state, Ordering::AcqRel);
        }
    }

    /// Puts back what was taken out and not looked at.
    pub fn put_back(&self, part: DuePart) {
        match part.next {
            Some(key) => self.lower_to_next(part.number, part.since_ms, key),
            None => self.lower(part.number, part.since_ms),
        }
    }

    /// Takes out the parts whose times are up to `now_ms`, in order.
    pub fn take_due(&self, now_ms: u64) -> Vec<DuePart> {
        let mut next = self.next.lock();
        (0..)
            .zip(&self.times)
            .filter(|(_, time)| time.load(Ordering::Relaxed) >> 1 <= now_ms)
            .map(|(number, time)| {
                let state = time.swap(NEVER, Ordering::AcqRel);
                let next = next.remove(&number).filter(|_| state & 1 == 1);
                DuePart { number, since_ms: state >> 1, next }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: u16 = 10;

    fn due(number: u16, since_ms: u64) -> DuePart {
        DuePart { number, since_ms, next: None }
    }

    #[test]
    fn what_is_taken_is_gone_until_it_is_put_back() {
        let times = FirstExpiries::of(PARTS);
        assert_eq!(times.take_due(0), (0..PARTS).map(|part| due(part, 0)).collect::<Vec<_>>());
        assert_eq!(times.take_due(LATEST_MS - 1), []);
        times.lower(7, 30);
        times.lower(9, 20);
        times.lower(7, 40);
        times.lower(PARTS, 10);
        assert_eq!(times.take_due(19), []);
        assert_eq!(times.take_due(20), [due(9, 20)]);
        assert_eq!(times.take_due(50), [due(7, 30)]);
        assert_eq!(times.take_due(50), []);
        times.lower(3, u64::MAX);
        assert_eq!(times.take_due(u64::MAX >> 2), []);
        assert_eq!(times.take_due(LATEST_MS), [due(3, LATEST_MS)]);
    }

    #[test]
    fn the_next_note_is_known_until_one_comes_that_may_be_before_it() {
        let times = FirstExpiries::of(PARTS);
        times.take_due(0);
        let next = || DuePart { next: Some(b"key".to_vec()), ..due(4, 30) };
        times.lower_to_next(4, 30, b"key".to_vec());
        times.lower(4, 31);
        let [part] = <[DuePart; 1]>::try_from(times.take_due(50)).unwrap();
        assert_eq!(part, next());
        times.put_back(part);
        assert_eq!(times.take_due(50), [next()]);
        let orders = [(Some(30), None), (Some(20), None), (None, Some(30)), (None, Some(20))];
        for (before, after) in orders {
            before.into_iter().for_each(|at_ms| times.lower(4, at_ms));
            times.lower_to_next(4, 30, b"key".to_vec());
            after.into_iter().for_each(|at_ms| times.lower(4, at_ms));
            assert_eq!(times.take_due(50), [due(4, before.or(after).unwrap_or(0))]);
            // Nor is it known later.
            times.lower(4, 40);
            assert_eq!(times.take_due(50), [due(4, 40)]);
        }
    }
}
