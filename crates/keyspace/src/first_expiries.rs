//! When the first collection of each part of the store may expire, which is a database, with placement `slots` that of
//! one slot: so that the search for what is due goes only to parts that may have something, and begins where that may be.
//! Called by `command_batch` and `active_expire`; lost with the process, and then learnt from the store.
//!
//! A time is a lower bound of those of the part's notes. It is lowered after the commit that wrote
//! a note. Who searches takes it out first, then looks at the store, then puts back what it found: a
//! note that is committed in between is in the store or is put in afterwards.
//!
//! What is read of a note, or in search of a part, may be damaged, or the device may not give it for a while: such notes stay
//! behind, and all of them are tried again when a pause is over. The pauses double from [`FIRST_PAUSE_US`] up to
//! [`LONGEST_PAUSE_US`].
//!
//! Many notes may be of one time. So who has removed some of them says where the next one is, which holds as long as no
//! note of that time or an earlier one is committed.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// The pause after the first failure.
const FIRST_PAUSE_US: u64 = 5_000_000;
/// The longest pause between two tries.
const LONGEST_PAUSE_US: u64 = 600_000_000;

/// A part of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Part {
    /// 0 without slots.
    pub slot: u16,
    pub db: u8,
}

/// A part of the store that may have something that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DuePart {
    pub part: Part,
    /// It has no note of an earlier time.
    pub since_ms: u64,
    /// Nor one before this key of the engine.
    pub next: Option<Vec<u8>>,
}

/// What is known of the notes of a part.
struct Bound {
    since_ms: u64,
    next: Option<Vec<u8>>,
}

/// What could not be read, and is tried again when a pause is over.
#[derive(Default)]
struct Left {
    /// Parts with notes that stay, and the first time of those.
    parts: BTreeMap<Part, u64>,
    /// There may be parts that are not known.
    has_unknown: bool,
    pause_us: u64,
    retry_at_us: u64,
}

#[derive(Default)]
struct Bounds {
    /// Of the parts that have notes; all of them if `has_all`, but for those that could not be read.
    parts: BTreeMap<Part, Bound>,
    by_time: BTreeSet<(u64, Part)>,
    /// Parts that were taken out and cannot be read.
    aside: BTreeMap<Part, DuePart>,
    has_all: bool,
    /// If not, those before this one are known.
    next: Part,
    left: Left,
}

/// See the module. In the beginning it knows of no part.
#[derive(Default)]
pub(crate) struct FirstExpiries(Mutex<Bounds>);

impl FirstExpiries {
    /// From which part on it is not known which had notes when the store was opened; `None` if all have been looked for.
    pub fn next_to_learn(&self) -> Option<Part> {
        let bounds = self.0.lock();
        (!bounds.has_all).then_some(bounds.next)
    }

    /// Every part before this one that had notes when the store was opened has been lowered to its first one, or is
    /// [left](Self::leave_unknown); of `None`: every part.
    pub fn learnt_up_to(&self, next: Option<Part>) {
        let mut bounds = self.0.lock();
        bounds.has_all = next.is_none();
        bounds.next = next.unwrap_or_default();
    }

    /// A part cannot be read, so that it is not known whether it has notes: all are looked for again after a pause.
    pub fn leave_unknown(&self, now_us: u64) {
        let mut bounds = self.0.lock();
        bounds.left.begin_pause(now_us);
        bounds.left.has_unknown = true;
    }

    /// A note of this time stays in the part, since what it speaks of cannot be read: it is looked for again after a pause.
    pub fn leave(&self, part: Part, expires_at_ms: u64, now_us: u64) {
        let mut bounds = self.0.lock();
        bounds.left.begin_pause(now_us);
        let first_ms = bounds.left.parts.entry(part).or_insert(expires_at_ms);
        *first_ms = expires_at_ms.min(*first_ms);
    }

    /// What was left is looked for again, if the pause is over, and all parts have been looked for since.
    pub fn retry_left(&self, now_us: u64) {
        let parts = {
            let mut bounds = self.0.lock();
            if !bounds.has_all || bounds.left.is_empty() || now_us < bounds.left.retry_at_us {
                return;
            }
            bounds.has_all = !std::mem::take(&mut bounds.left.has_unknown);
            std::mem::take(&mut bounds.left.parts)
        };
        parts.into_iter().for_each(|(part, since_ms)| self.lower(part, since_ms));
    }

    /// A note of this time is in the part.
    pub fn lower(&self, part: Part, expires_at_ms: u64) {
        let mut bounds = self.0.lock();
        // One of the same time may be before the next one.
        if bounds.parts.get(&part).is_none_or(|bound| bound.since_ms >= expires_at_ms) {
            bounds.put(part, Bound { since_ms: expires_at_ms, next: None });
        }
    }

    /// As [`Self::lower`], for who has taken the part out: the note has this key, and those before it are gone.
    pub fn lower_to_next(&self, part: Part, expires_at_ms: u64, key: Vec<u8>) {
        let mut bounds = self.0.lock();
        // If a note has come meanwhile of this time or an earlier one, that counts.
        if bounds.parts.get(&part).is_none_or(|bound| bound.since_ms > expires_at_ms) {
            bounds.put(part, Bound { since_ms: expires_at_ms, next: Some(key) });
        }
    }

    /// Puts back what was taken out and not looked at.
    pub fn put_back(&self, due: DuePart) {
        match due.next {
            Some(key) => self.lower_to_next(due.part, due.since_ms, key),
            None => self.lower(due.part, due.since_ms),
        }
    }

    /// Keeps what was taken out and cannot be read, until [`Self::put_back_aside`].
    pub fn set_aside(&self, due: DuePart) {
        let mut bounds = self.0.lock();
        let known = bounds.aside.get(&due.part);
        if known.is_none_or(|known| known.since_ms >= due.since_ms) {
            // One of the two may have been set aside without a next one.
            let next = due.next.filter(|_| known.is_none());
            bounds.aside.insert(due.part, DuePart { next, ..due });
        }
    }

    /// Puts back what was set aside.
    pub fn put_back_aside(&self) {
        let aside = std::mem::take(&mut self.0.lock().aside);
        aside.into_values().for_each(|due| self.put_back(due));
    }

    /// Takes out the part with the first time, if that is up to `now_ms`.
    pub fn take_due(&self, now_ms: u64) -> Option<DuePart> {
        let mut bounds = self.0.lock();
        let (since_ms, part) =
            *bounds.by_time.first().filter(|(since_ms, _)| *since_ms <= now_ms)?;
        bounds.by_time.remove(&(since_ms, part));
        let next = bounds.parts.remove(&part).and_then(|bound| bound.next);
        Some(DuePart { part, since_ms, next })
    }
}

impl Bounds {
    fn put(&mut self, part: Part, bound: Bound) {
        let since_ms = bound.since_ms;
        if let Some(before) = self.parts.insert(part, bound) {
            self.by_time.remove(&(before.since_ms, part));
        }
        self.by_time.insert((since_ms, part));
    }
}

impl Left {
    fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.has_unknown
    }

    /// Something is to be left. The first begins a pause: a longer one, if all went well for less than the last pause.
    fn begin_pause(&mut self, now_us: u64) {
        if !self.is_empty() {
            return;
        }
        self.pause_us = match now_us.saturating_sub(self.retry_at_us) < self.pause_us {
            true => (self.pause_us * 2).min(LONGEST_PAUSE_US),
            false => FIRST_PAUSE_US,
        };
        self.retry_at_us = now_us.saturating_add(self.pause_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u16) -> Part {
        Part { slot: number / 3, db: (number % 3) as u8 }
    }

    fn due(number: u16, since_ms: u64) -> Option<DuePart> {
        Some(DuePart { part: part(number), since_ms, next: None })
    }

    #[test]
    fn what_is_taken_is_gone_until_it_is_put_back() {
        let times = FirstExpiries::default();
        assert_eq!(times.take_due(u64::MAX), None);
        times.lower(part(7), 30);
        times.lower(part(9), 20);
        times.lower(part(7), 40);
        times.lower(part(8), 50);
        times.lower(part(8), 25);
        assert_eq!(times.take_due(19), None);
        assert_eq!(times.take_due(20), due(9, 20));
        assert_eq!(times.take_due(50), due(8, 25));
        assert_eq!(times.take_due(50), due(7, 30));
        assert_eq!(times.take_due(u64::MAX), None);
        due(7, 30).into_iter().for_each(|due| times.put_back(due));
        times.lower(part(3), u64::MAX);
        assert_eq!(times.take_due(u64::MAX - 1), due(7, 30));
        assert_eq!(times.take_due(u64::MAX - 1), None);
        assert_eq!(times.take_due(u64::MAX), due(3, u64::MAX));
        assert_eq!(times.next_to_learn(), Some(part(0)));
        times.learnt_up_to(Some(part(7)));
        assert_eq!(times.next_to_learn(), Some(part(7)));
        times.learnt_up_to(None);
        assert_eq!(times.next_to_learn(), None);
    }

    #[test]
    fn what_is_left_is_tried_again_after_pauses_that_double() {
        let times = FirstExpiries::default();
        times.learnt_up_to(None);
        let (mut now_us, mut pause_us) = (7, FIRST_PAUSE_US);
        for _ in 0..10 {
            times.leave(part(4), 30, now_us);
            times.leave(part(4), 20, now_us + 1);
            times.leave(part(4), 40, now_us + 2);
            times.leave_unknown(now_us + 3);
            times.retry_left(now_us + pause_us - 1);
            assert_eq!((times.take_due(u64::MAX), times.next_to_learn()), (None, None));
            now_us += pause_us;
            times.retry_left(now_us);
            assert_eq!(times.take_due(u64::MAX), due(4, 20));
            assert_eq!(times.take_due(u64::MAX), None);
            assert_eq!(times.next_to_learn(), Some(part(0)), "all are looked for again");
            times.learnt_up_to(None);
            pause_us = (pause_us * 2).min(LONGEST_PAUSE_US);
        }
        assert_eq!(pause_us, LONGEST_PAUSE_US);
        // It went well for long: the pauses begin anew. Not before all are looked for.
        now_us += LONGEST_PAUSE_US;
        times.leave(part(5), 50, now_us);
        times.learnt_up_to(Some(part(3)));
        times.retry_left(now_us + FIRST_PAUSE_US);
        assert_eq!(times.take_due(u64::MAX), None);
        times.learnt_up_to(None);
        times.retry_left(now_us + FIRST_PAUSE_US);
        assert_eq!(times.take_due(u64::MAX), due(5, 50));
        assert_eq!(times.next_to_learn(), None, "no part was unknown");
    }

    #[test]
    fn what_cannot_be_read_stays_aside_until_it_is_to_be_tried_again() {
        let times = FirstExpiries::default();
        let with_next = |number, since_ms| DuePart {
            part: part(number),
            since_ms,
            next: Some(b"key".to_vec()),
        };
        times.set_aside(with_next(4, 30));
        times.set_aside(with_next(5, 30));
        // Taken out again, since notes have come meanwhile.
        times.set_aside(with_next(5, 40));
        times.set_aside(with_next(6, 30));
        times.set_aside(DuePart { part: part(6), since_ms: 30, next: None });
        times.set_aside(with_next(7, 30));
        times.set_aside(with_next(7, 20));
        assert_eq!(times.take_due(u64::MAX), None);
        times.put_back_aside();
        assert_eq!(times.take_due(u64::MAX), due(7, 20));
        assert_eq!(times.take_due(u64::MAX), Some(with_next(4, 30)));
        assert_eq!(times.take_due(u64::MAX), Some(with_next(5, 30)));
        assert_eq!(times.take_due(u64::MAX), due(6, 30));
        times.put_back_aside();
        assert_eq!(times.take_due(u64::MAX), None);
    }

    #[test]
    fn the_next_note_is_known_until_one_comes_that_may_be_before_it() {
        let times = FirstExpiries::default();
        let next = DuePart { part: part(4), since_ms: 30, next: Some(b"key".to_vec()) };
        times.lower_to_next(part(4), 30, b"key".to_vec());
        times.lower(part(4), 31);
        assert_eq!(times.take_due(50).as_ref(), Some(&next));
        times.put_back(next.clone());
        assert_eq!(times.take_due(50), Some(next));
        let orders = [(Some(30), None), (Some(20), None), (None, Some(30)), (None, Some(20))];
        for (before, after) in orders {
            before.into_iter().for_each(|at_ms| times.lower(part(4), at_ms));
            times.lower_to_next(part(4), 30, b"key".to_vec());
            after.into_iter().for_each(|at_ms| times.lower(part(4), at_ms));
            assert_eq!(times.take_due(50), due(4, before.or(after).unwrap_or(0)));
            assert_eq!(times.take_due(50), None);
            // Nor is it known later.
            times.lower(part(4), 40);
            assert_eq!(times.take_due(50), due(4, 40));
        }
    }
}
