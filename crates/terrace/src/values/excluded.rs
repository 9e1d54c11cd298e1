//! Segments of the value log that garbage collection leaves alone, since a value in them could not be read when it was to be
//! moved: a damaged one for as long as the store is open, one that the device did not give, or that is lost, until a pause is over. The pauses
//! double from [`FIRST_PAUSE_US`] up to [`LONGEST_PAUSE_US`]. What a try says of the device does not count once somebody has asked
//! for a collection since it began: the device is to be asked again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::sync::Mutex;
use terrace_base::{Error, SegmentNumber};
use terrace_sst::is_damage;
use terrace_vfs::is_no_file;

/// The pause after the first failure.
const FIRST_PAUSE_US: u64 = 5_000_000;
/// The longest pause between two tries, of which each writes the keys of the values once more.
const LONGEST_PAUSE_US: u64 = 600_000_000;

/// Whether a value could not be read for a reason of its own, or of its segment's, which others do not have: it is damaged, its file is
/// lost, or this build cannot read it. Not a lack of memory, descriptors or rights.
pub(crate) fn is_of_segment(error: &Error) -> bool {
    let is_unknown = matches!(error, Error::Unsupported { .. });
    is_damage(error) || error.is_not_found() || is_no_file(error) || is_unknown
}

/// Why the values of a segment are not moved.
#[derive(Debug, Clone)]
pub(crate) struct Exclusion {
    /// Whether they are damaged; else the device did not give them.
    pub is_damaged: bool,
    pub why: String,
    /// Times that the device did not give them.
    in_a_row: u32,
    /// When to try again, unless they are damaged.
    retry_at_us: u64,
}

impl Exclusion {
    fn holds(&self, now_us: u64) -> bool {
        self.is_damaged || now_us < self.retry_at_us
    }
}

/// A try to move values, by how often somebody had asked for a collection when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Try(u64);

/// What becomes of a segment with a value that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was excluded already.
    Known,
    /// A later try is to find out.
    Outdated,
    /// It is excluded for this time.
    Pause(u64),
    /// It is excluded while the store is open.
    ForGood,
}

/// The segments that are excluded, and those that were until a pause was over.
#[derive(Debug, Default)]
pub(crate) struct Excluded {
    segments: Mutex<BTreeMap<SegmentNumber, Exclusion>>,
    /// How often somebody has asked for a collection; changed under the lock of `segments`.
    asked: AtomicU64,
}

impl Excluded {
    /// A try that begins now.
    pub fn begin_try(&self) -> Try {
        Try(self.asked.load(Ordering::Acquire))
    }

    /// A value in `segment` could not be read in `of_try`.
    pub fn add(&self, segment: SegmentNumber, error: &Error, now_us: u64, of_try: Try) -> Verdict {
        let mut segments = self.segments.lock();
        let (before, is_damaged) = (segments.get(&segment), error.is_corruption());
        if !is_damaged && of_try < self.begin_try() {
            return Verdict::Outdated;
        }
        // One try meets many values of a segment. That it is damaged stays true, whatever else it meets.
        if before.is_some_and(|before| before.is_damaged || !is_damaged && before.holds(now_us)) {
            return Verdict::Known;
        }
        let in_a_row = before.map_or(0, |before| before.in_a_row).saturating_add(1);
        let pause_us = (FIRST_PAUSE_US << (in_a_row - 1).min(20)).min(LONGEST_PAUSE_US);
        let retry_at_us = now_us.saturating_add(pause_us);
        let why = error.to_string();
        segments.insert(segment, Exclusion { is_damaged, why, in_a_row, retry_at_us });
        if is_damaged { Verdict::ForGood } else { Verdict::Pause(pause_us) }
    }

    /// Why `segment` is excluded now.
    pub fn why(&self, segment: SegmentNumber, now_us: u64) -> Option<Exclusion> {
        let segments = self.segments.lock();
        segments.get(&segment).filter(|exclusion| exclusion.holds(now_us)).cloned()
    }

    /// Somebody asks for a collection: what the device did not give is tried again at once.
    pub fn hurry(&self) {
        let mut segments = self.segments.lock();
        self.asked.fetch_add(1, Ordering::Release);
        segments.values_mut().for_each(|exclusion| exclusion.retry_at_us = 0);
    }

    /// Segments that have left the store.
    pub fn forget(&self, numbers: &[SegmentNumber]) {
        let mut segments = self.segments.lock();
        numbers.iter().for_each(|number| _ = segments.remove(number));
    }

    /// How many segments have a value that could not be read when it was last tried.
    pub fn count(&self) -> usize {
        self.segments.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const SEVEN: SegmentNumber = SegmentNumber::new(7);

    fn unreadable() -> Error {
        Error::io("read", Path::new("000007.log"), std::io::Error::from_raw_os_error(5))
    }

    fn damaged() -> Error {
        Error::corruption(Path::new("000007.log"), 7, "a checksum")
    }

    /// A try that has just begun met `error`.
    fn add_now(excluded: &Excluded, error: &Error, now_us: u64) -> Verdict {
        excluded.add(SEVEN, error, now_us, excluded.begin_try())
    }

    #[test]
    fn what_the_device_does_not_give_is_tried_again_after_pauses_that_double() {
        let excluded = Excluded::default();
        let (mut now_us, mut pauses) = (0, Vec::new());
        for _ in 0..12 {
            assert!(excluded.why(SEVEN, now_us).is_none());
            let Verdict::Pause(pause) = add_now(&excluded, &unreadable(), now_us) else {
                panic!("it is tried again");
            };
            // Another value that the same merge meets.
            assert_eq!(add_now(&excluded, &unreadable(), now_us + 1), Verdict::Known);
            assert!(excluded.why(SEVEN, now_us + pause - 1).is_some_and(|why| !why.is_damaged));
            now_us += pause;
            pauses.push(pause);
        }
        assert_eq!(pauses[..3], [FIRST_PAUSE_US, 2 * FIRST_PAUSE_US, 4 * FIRST_PAUSE_US]);
        assert_eq!(pauses[11], LONGEST_PAUSE_US);
        add_now(&excluded, &unreadable(), now_us);
        excluded.hurry();
        assert!(excluded.why(SEVEN, now_us).is_none(), "a caller does not wait for the pause");
        assert_eq!(excluded.count(), 1);
        excluded.forget(&[SEVEN]);
        assert_eq!(excluded.count(), 0);
        assert_eq!(add_now(&excluded, &unreadable(), 0), Verdict::Pause(FIRST_PAUSE_US));
    }

    #[test]
    fn what_is_damaged_stays_so_whatever_the_device_says_then() {
        let excluded = Excluded::default();
        add_now(&excluded, &unreadable(), 0);
        assert_eq!(add_now(&excluded, &damaged(), 1), Verdict::ForGood);
        assert_eq!(add_now(&excluded, &damaged(), 2), Verdict::Known);
        assert_eq!(add_now(&excluded, &unreadable(), u64::MAX), Verdict::Known);
        excluded.hurry();
        let why = excluded.why(SEVEN, u64::MAX).unwrap();
        assert!(why.is_damaged && why.why.contains("a checksum"), "{why:?}");
    }

    #[test]
    fn a_try_that_began_before_somebody_asked_says_nothing_of_the_device() {
        let excluded = Excluded::default();
        let before = excluded.begin_try();
        excluded.hurry();
        assert_eq!(excluded.add(SEVEN, &unreadable(), 1, before), Verdict::Outdated);
        assert!(excluded.why(SEVEN, 1).is_none());
        assert_eq!(excluded.count(), 0);
        // Damage is there, asked for or not.
        assert_eq!(excluded.add(SEVEN, &damaged(), 1, before), Verdict::ForGood);
    }
}
