//! What background work failed at, and when it is tried again: SSTs that cannot be read
//! (*quarantined*: compactions are picked around them), and flushes and compactions that failed for
//! another reason. The pauses double from [`FIRST_PAUSE_US`] up to [`LONGEST_PAUSE_US`].
//!
//! Errors of this kind are soft ([`ErrorSeverity::Soft`](crate::ErrorSeverity)): nothing was lost by
//! them, so writes go on. What stops writes is [`crate::env::health`]'s. An error that has struck
//! [`LASTING_AFTER`] times in a row, or that time does not mend, is *lasting*: a caller that waits
//! for the work gets it instead of waiting on.
//!
//! Known as long as the store is open: after a reopen, damage is found anew.

use crate::error::Error;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_base::FileNumber;
use terrace_base::sync::Mutex;

/// The pause after the first failure.
const FIRST_PAUSE_US: u64 = 100_000;
/// The longest pause between two tries.
const LONGEST_PAUSE_US: u64 = 10_000_000;
/// Failures in a row from which on others need not hope for the next try.
const LASTING_AFTER: u32 = 3;
/// The pause after an [`Attempt`] that found no room. It doubles.
const FIRST_ATTEMPT_PAUSE_US: u64 = 1_000_000;
/// The longest of these.
const LONGEST_ATTEMPT_PAUSE_US: u64 = 600_000_000;
/// Failures in a row from which on a compaction keeps to its pauses, although somebody asks for it.
const PATIENT_AFTER: u32 = 5;

/// The kinds of work that are tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    Flush,
    Compaction,
}

/// Kinds of merges that are begun for what they may give back, and may find no room. A family's attempts of one kind have
/// pauses of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Attempt {
    /// Of files that delete ranges.
    Ranges,
    /// The rewrite of a file below deletions.
    Rewrite,
}

/// Something that failed and is tried again.
#[derive(Debug, Clone)]
struct Failure {
    error: Error,
    in_a_row: u32,
    /// `None`: never, as for damaged bytes.
    retry_at_us: Option<u64>,
}

impl Failure {
    fn waits(&self, now_us: u64) -> bool {
        self.retry_at_us.is_none_or(|at| now_us < at)
    }

    fn is_full_disk(&self) -> bool {
        matches!(self.error, Error::DiskFull(_))
    }

    fn is_lasting(&self) -> bool {
        self.retry_at_us.is_none() || self.in_a_row >= LASTING_AFTER
    }
}

/// What a merge that met a full disk would have needed. Until there is more than that, merges are only begun if they fit.
#[derive(Debug, Clone)]
pub(crate) struct RoomWanted {
    pub bytes: u64,
    pub error: Error,
}

#[derive(Debug, Default)]
struct State {
    /// By file number.
    files: BTreeMap<FileNumber, Failure>,
    /// By family.
    jobs: BTreeMap<(Work, u32), Failure>,
    /// Families whose L0 is full and for which no compaction can be picked, and why.
    stuck: BTreeMap<u32, Error>,
    room_wanted: Option<RoomWanted>,
    /// By kind and family: attempts that found no room, since the last one that did.
    attempts: BTreeMap<(Attempt, u32), FailedAttempts>,
}

/// See [`State::attempts`].
#[derive(Debug, Default)]
struct FailedAttempts {
    in_a_row: u32,
    next_at_us: u64,
}

/// What failed.
#[derive(Debug, Default)]
pub(crate) struct BackgroundErrors {
    state: Mutex<State>,
    /// Entries of all of it; 0, nearly always, spares the lock.
    count: AtomicUsize,
}

impl BackgroundErrors {
    /// Whether nothing failed that is not made good.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let count = state.files.len() + state.jobs.len() + state.stuck.len();
        let count = count + state.attempts.len() + usize::from(state.room_wanted.is_some());
        self.count.store(count, Ordering::Relaxed);
        result
    }

    /// An SST could not be read: it is not picked until the pause is over, or never again if its
    /// bytes are damaged. Gives the pause.
    pub fn quarantine(&self, file: FileNumber, error: &Error, now_us: u64) -> Option<u64> {
        self.change(|state| note(&mut state.files, file, error, now_us))
    }

    /// Work on a family failed for a reason that is no file's: it is not begun again until the
    /// pause is over. Gives the pause.
    pub fn job_failed(&self, work: Work, family: u32, error: &Error, now_us: u64) -> Option<u64> {
        self.change(|state| note(&mut state.jobs, (work, family), error, now_us))
    }

    /// Work on a family succeeded, and so did reading `files`.
    pub fn succeeded(&self, work: Work, family: u32, files: impl Iterator<Item = FileNumber>) {
        if self.is_empty() {
            return;
        }
        self.change(|state| {
            state.jobs.remove(&(work, family));
            files.for_each(|file| drop(state.files.remove(&file)));
        });
    }

    /// Somebody asks for such work: what failed is tried again at once. Not a compaction that has failed again and again:
    /// each try may fill the disk.
    pub fn hurry(&self, work: Work) {
        if !self.is_empty() {
            self.change(|state| {
                let jobs = state.jobs.iter_mut().filter(|((kind, _), failure)| {
                    *kind == work && (work == Work::Flush || failure.in_a_row < PATIENT_AFTER)
                });
                jobs.for_each(|(_, failure)| failure.retry_at_us = failure.retry_at_us.map(|_| 0));
            });
        }
    }

    /// A merge that needs `bytes` has just met a full disk. What merges want is known to be more than before, unless it
    /// `is_attempt`: it was begun although it might not fit.
    pub fn no_room_for_merge(&self, bytes: u64, is_attempt: bool, error: &Error) {
        self.change(|state| {
            let known = state.room_wanted.as_ref().map_or(0, |wanted| wanted.bytes);
            let least = if is_attempt { known } else { known.saturating_mul(2) };
            let bytes = bytes.max(least);
            state.room_wanted = Some(RoomWanted { bytes, error: error.clone() });
        });
    }

    /// Such a merge has found no room: the next attempt has a pause.
    pub fn attempt_failed(&self, attempt: Attempt, family: u32, now_us: u64) {
        self.change(|state| {
            let failed = state.attempts.entry((attempt, family)).or_default();
            let pause_us = FIRST_ATTEMPT_PAUSE_US << failed.in_a_row.min(20);
            failed.in_a_row = failed.in_a_row.saturating_add(1);
            failed.next_at_us = now_us.saturating_add(pause_us.min(LONGEST_ATTEMPT_PAUSE_US));
        });
    }

    /// Such a merge has found room: so may the next one.
    pub fn attempt_succeeded(&self, attempt: Attempt, family: u32) {
        if !self.is_empty() {
            self.change(|state| state.attempts.remove(&(attempt, family)));
        }
    }

    /// Whether such a merge may be begun, as far as the pauses of attempts go.
    pub fn may_attempt(&self, attempt: Attempt, family: u32, now_us: u64) -> bool {
        let is_over = |failed: &FailedAttempts| failed.next_at_us <= now_us;
        self.is_empty() || self.state.lock().attempts.get(&(attempt, family)).is_none_or(is_over)
    }

    /// A file came that deletes and holds little else: a merge that found no room may find some now.
    pub fn deletions_came(&self, family: u32, now_us: u64) {
        if !self.may_attempt(Attempt::Ranges, family, now_us) || self.is_empty() {
            return;
        }
        self.change(|state| {
            let failure = state.jobs.get_mut(&(Work::Compaction, family));
            if let Some(failure) = failure.filter(|failure| failure.is_full_disk()) {
                failure.retry_at_us = Some(0);
            }
        });
    }

    /// What merges needed when they found no room, until there was some.
    pub fn room_wanted(&self) -> Option<RoomWanted> {
        match self.is_empty() {
            true => None,
            false => self.state.lock().room_wanted.clone(),
        }
    }

    /// There are `free_bytes` on the disk besides the reserve. Flushes that failed are tried again at once, and so are rewrites
    /// of files below deletions, each of which may need little. Merges that failed for want of room are so if there is plenty;
    /// else they keep their pauses, which go on doubling.
    pub fn room_came(&self, free_bytes: u64) {
        if self.is_empty() {
            return;
        }
        self.change(|state| {
            state.jobs.retain(|(work, _), job| *work != Work::Flush || !job.is_full_disk());
            state.attempts.retain(|(attempt, _), _| *attempt != Attempt::Rewrite);
            let has_plenty = |wanted: &RoomWanted| wanted.bytes <= free_bytes / 2;
            if state.room_wanted.as_ref().is_none_or(has_plenty) {
                state.room_wanted = None;
                state.attempts.clear();
                let merges = state.jobs.values_mut().filter(|job| job.is_full_disk());
                merges.for_each(|failure| failure.retry_at_us = Some(0));
            }
        });
    }

    /// A file left the store.
    pub fn forget(&self, file: FileNumber) {
        if !self.is_empty() {
            self.change(|state| state.files.remove(&file));
        }
    }

    /// A family was dropped.
    pub fn forget_family(&self, family: u32) {
        if !self.is_empty() {
            self.change(|state| {
                state.jobs.retain(|(_, of), _| *of != family);
                state.stuck.remove(&family);
                state.attempts.retain(|(_, of), _| *of != family);
            });
        }
    }

    /// Numbers of the files that must not be picked now.
    pub fn quarantined(&self, now_us: u64) -> Arc<HashSet<FileNumber>> {
        if self.is_empty() {
            return Arc::default();
        }
        let state = self.state.lock();
        let waiting = state.files.iter().filter(|(_, failure)| failure.waits(now_us));
        Arc::new(waiting.map(|(number, _)| *number).collect())
    }

    /// Whether `file` could not be read when it was last tried.
    pub fn could_not_read(&self, file: FileNumber) -> bool {
        !self.is_empty() && self.state.lock().files.contains_key(&file)
    }

    /// Every file that could not be read when it was last tried, with the error.
    pub fn unreadable(&self) -> Vec<(FileNumber, Error)> {
        let state = self.state.lock();
        state.files.iter().map(|(number, failure)| (*number, failure.error.clone())).collect()
    }

    /// Whether work on a family may begin now.
    pub fn may_begin(&self, work: Work, family: u32, now_us: u64) -> bool {
        self.is_empty()
            || self.state.lock().jobs.get(&(work, family)).is_none_or(|job| !job.waits(now_us))
    }

    /// Whether work on a family may begin now, or had a pause only for want of room on the disk.
    pub fn may_begin_but_for_room(&self, work: Work, family: u32, now_us: u64) -> bool {
        let may_begin = |job: &Failure| !job.waits(now_us) || job.is_full_disk();
        self.is_empty() || self.state.lock().jobs.get(&(work, family)).is_none_or(may_begin)
    }

    /// Why work on a family does not go on, if that is lasting and `files` are those that it needs.
    pub fn why_not(
        &self,
        work: Work,
        family: u32,
        mut files: impl Iterator<Item = FileNumber>,
        now_us: u64,
    ) -> Option<Error> {
        if self.is_empty() {
            return None;
        }
        let state = self.state.lock();
        let job = state.jobs.get(&(work, family));
        let file = files.find_map(|number| state.files.get(&number).filter(lasts(now_us)));
        job.filter(lasts(now_us)).or(file).map(|failure| failure.error.clone())
    }

    /// Whether anything is about to be tried again that nobody has given up hope of.
    pub fn hopes(&self, now_us: u64) -> bool {
        if self.is_empty() {
            return false;
        }
        let state = self.state.lock();
        let mut all = state.files.values().chain(state.jobs.values());
        all.any(|failure| failure.waits(now_us) && !failure.is_lasting())
    }

    /// Says whether compaction can make room in a family's full L0, or why not.
    pub fn set_stuck(&self, family: u32, why: Option<Error>) {
        self.change(|state| match why {
            Some(why) => drop(state.stuck.insert(family, why)),
            None => drop(state.stuck.remove(&family)),
        });
    }

    /// Why no compaction makes room in the family's full L0.
    pub fn why_stuck(&self, family: u32) -> Option<Error> {
        match self.is_empty() {
            true => None,
            false => self.state.lock().stuck.get(&family).cloned(),
        }
    }
}

fn lasts(now_us: u64) -> impl Fn(&&Failure) -> bool {
    move |failure| failure.waits(now_us) && failure.is_lasting()
}

fn note<K: Ord>(
    failures: &mut BTreeMap<K, Failure>,
    key: K,
    error: &Error,
    now_us: u64,
) -> Option<u64> {
    let in_a_row = failures.get(&key).map_or(0, |before| before.in_a_row).saturating_add(1);
    let pause_us = match error {
        Error::Corruption(_) | Error::Unsupported(_) => None,
        _ => Some(FIRST_PAUSE_US << (in_a_row - 1).min(20)).map(|us| us.min(LONGEST_PAUSE_US)),
    };
    let retry_at_us = pause_us.map(|pause| now_us.saturating_add(pause));
    failures.insert(key, Failure { error: error.clone(), in_a_row, retry_at_us });
    pause_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const THREE: FileNumber = FileNumber::new(3);
    const FOUR: FileNumber = FileNumber::new(4);

    fn unreadable() -> Error {
        let errno = std::io::Error::from_raw_os_error(5);
        terrace_base::Error::io("read", Path::new("000001.sst"), errno).into()
    }

    fn damaged() -> Error {
        terrace_base::Error::corruption(Path::new("000001.sst"), 7, "a checksum").into()
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_anew_after_a_success() {
        let errors = BackgroundErrors::default();
        let (mut now_us, mut pauses) = (0, Vec::new());
        for _ in 0..12 {
            assert!(errors.may_begin(Work::Flush, 1, now_us));
            let pause = errors.job_failed(Work::Flush, 1, &unreadable(), now_us).unwrap();
            assert!(!errors.may_begin(Work::Flush, 1, now_us + pause - 1));
            assert!(errors.may_begin(Work::Compaction, 1, now_us));
            assert!(errors.may_begin(Work::Flush, 2, now_us));
            now_us += pause;
            pauses.push(pause);
        }
        assert_eq!(pauses[..3], [FIRST_PAUSE_US, 2 * FIRST_PAUSE_US, 4 * FIRST_PAUSE_US]);
        assert_eq!(pauses[11], LONGEST_PAUSE_US);
        errors.succeeded(Work::Flush, 1, std::iter::empty());
        assert!(errors.is_empty());
        let pause = errors.job_failed(Work::Flush, 1, &unreadable(), now_us);
        assert_eq!(pause, Some(FIRST_PAUSE_US));
    }

    #[test]
    fn a_merge_without_room_keeps_its_pauses_until_there_is_plenty() {
        let full =
            || Error::DiskFull(Arc::new(terrace_base::Error::corruption(Path::new("1"), 0, "")));
        let errors = BackgroundErrors::default();
        let mut now_us = 0;
        for round in 1..=8 {
            errors.job_failed(Work::Flush, 1, &full(), now_us);
            let pause = errors.job_failed(Work::Compaction, 1, &full(), now_us).unwrap();
            assert!(errors.may_begin_but_for_room(Work::Compaction, 1, now_us));
            errors.no_room_for_merge(1000, false, &full());
            assert_eq!(errors.room_wanted().unwrap().bytes, 1000 << (round - 1));
            // However often one is tried on a full disk.
            errors.no_room_for_merge(1000, true, &full());
            assert_eq!(errors.room_wanted().unwrap().bytes, 1000 << (round - 1));
            // Less than twice what it wanted: writes go on, and it waits.
            errors.room_came(1999);
            assert!(errors.may_begin(Work::Flush, 1, now_us));
            assert!(!errors.may_begin(Work::Compaction, 1, now_us));
            errors.hurry(Work::Compaction);
            assert_eq!(errors.may_begin(Work::Compaction, 1, now_us), round < PATIENT_AFTER);
            now_us += pause;
        }
        // Deleted ranges are a reason to try at once, unless that has been in vain.
        let pause = errors.job_failed(Work::Compaction, 1, &full(), now_us).unwrap();
        errors.attempt_failed(Attempt::Ranges, 1, now_us);
        assert!(errors.may_attempt(Attempt::Ranges, 2, now_us));
        errors.deletions_came(1, now_us);
        assert!(pause > FIRST_ATTEMPT_PAUSE_US && !errors.may_begin(Work::Compaction, 1, now_us));
        now_us += FIRST_ATTEMPT_PAUSE_US;
        errors.deletions_came(1, now_us);
        assert!(errors.may_begin(Work::Compaction, 1, now_us));
        for _ in 0..20 {
            errors.attempt_failed(Attempt::Ranges, 1, now_us);
        }
        assert!(!errors.may_attempt(Attempt::Ranges, 1, now_us + LONGEST_ATTEMPT_PAUSE_US - 1));
        assert!(errors.may_attempt(Attempt::Ranges, 1, now_us + LONGEST_ATTEMPT_PAUSE_US));
        errors.attempt_succeeded(Attempt::Ranges, 1);
        assert!(errors.may_attempt(Attempt::Ranges, 1, now_us));
        errors.attempt_failed(Attempt::Ranges, 1, now_us);
        assert!(!errors.may_attempt(Attempt::Ranges, 1, now_us + FIRST_ATTEMPT_PAUSE_US - 1));
        assert!(
            errors.may_attempt(Attempt::Ranges, 1, now_us + FIRST_ATTEMPT_PAUSE_US),
            "the first pause"
        );
        errors.job_failed(Work::Compaction, 1, &full(), now_us);
        errors.job_failed(Work::Compaction, 2, &unreadable(), now_us);
        errors.job_failed(Work::Flush, 2, &unreadable(), now_us);
        errors.deletions_came(2, now_us);
        errors.room_came(256_000);
        assert!(errors.room_wanted().is_none() && errors.may_begin(Work::Compaction, 1, 0));
        assert!(errors.may_attempt(Attempt::Ranges, 1, now_us));
        assert!(!errors.may_begin(Work::Flush, 2, now_us), "it wanted no room");
        errors.succeeded(Work::Flush, 2, std::iter::empty());
        assert!(!errors.may_begin(Work::Compaction, 2, now_us), "it wanted no room");
        assert!(!errors.may_begin_but_for_room(Work::Compaction, 2, now_us));
        errors.succeeded(Work::Compaction, 1, std::iter::empty());
        errors.succeeded(Work::Compaction, 2, std::iter::empty());
        assert!(errors.is_empty());
    }

    #[test]
    fn an_attempt_in_vain_has_its_pause_where_nothing_else_has_failed() {
        let errors = BackgroundErrors::default();
        errors.attempt_failed(Attempt::Ranges, 1, 0);
        assert!(!errors.may_attempt(Attempt::Ranges, 1, FIRST_ATTEMPT_PAUSE_US - 1));
        assert!(errors.may_attempt(Attempt::Ranges, 1, FIRST_ATTEMPT_PAUSE_US));
        errors.attempt_succeeded(Attempt::Ranges, 1);
        assert!(errors.may_attempt(Attempt::Ranges, 1, 0) && errors.is_empty());
        errors.attempt_failed(Attempt::Ranges, 1, 0);
        errors.forget_family(1);
        assert!(errors.is_empty());
    }

    /// They are about other files, and need other room.
    #[test]
    fn rewrites_in_vain_are_no_reason_to_leave_deleted_ranges_alone() {
        let full =
            || Error::DiskFull(Arc::new(terrace_base::Error::corruption(Path::new("1"), 0, "")));
        let errors = BackgroundErrors::default();
        errors.job_failed(Work::Compaction, 1, &full(), 0);
        errors.no_room_for_merge(1000, false, &full());
        errors.attempt_failed(Attempt::Rewrite, 1, 0);
        assert!(!errors.may_attempt(Attempt::Rewrite, 1, FIRST_ATTEMPT_PAUSE_US - 1));
        assert!(errors.may_attempt(Attempt::Rewrite, 2, 0));
        assert!(errors.may_attempt(Attempt::Ranges, 1, 0));
        assert!(!errors.may_begin(Work::Compaction, 1, 0));
        errors.deletions_came(1, 0);
        assert!(errors.may_begin(Work::Compaction, 1, 0));
        // Each of them ends for a reason of its own, and so does the pause of the other.
        errors.attempt_failed(Attempt::Ranges, 1, 0);
        errors.attempt_succeeded(Attempt::Ranges, 1);
        assert!(!errors.may_attempt(Attempt::Rewrite, 1, 0));
        errors.attempt_failed(Attempt::Ranges, 1, 0);
        errors.attempt_succeeded(Attempt::Rewrite, 1);
        assert!(errors.may_attempt(Attempt::Rewrite, 1, 0));
        assert!(!errors.may_attempt(Attempt::Ranges, 1, 0));
        // Writes resume, with less room than merges want.
        errors.attempt_failed(Attempt::Rewrite, 1, 0);
        errors.room_came(1999);
        assert!(errors.may_attempt(Attempt::Rewrite, 1, 0));
        assert!(!errors.may_attempt(Attempt::Ranges, 1, 0));
        errors.attempt_failed(Attempt::Rewrite, 1, 0);
        errors.forget_family(1);
        assert!(errors.may_attempt(Attempt::Rewrite, 1, 0));
        assert!(errors.may_attempt(Attempt::Ranges, 1, 0));
    }

    #[test]
    fn a_file_comes_back_after_the_pause_unless_its_bytes_are_damaged() {
        let errors = BackgroundErrors::default();
        let pause = errors.quarantine(THREE, &unreadable(), 0).unwrap();
        assert_eq!(errors.quarantine(FOUR, &damaged(), 0), None);
        assert_eq!(*errors.quarantined(0), HashSet::from([THREE, FOUR]));
        assert_eq!(*errors.quarantined(pause), HashSet::from([FOUR]));
        assert_eq!(*errors.quarantined(u64::MAX), HashSet::from([FOUR]));
        errors.succeeded(Work::Compaction, 0, [THREE].into_iter());
        assert_eq!(errors.unreadable().len(), 1);
        errors.forget(FOUR);
        assert!(errors.is_empty());
    }

    #[test]
    fn only_a_lasting_error_is_told_to_those_who_wait() {
        let errors = BackgroundErrors::default();
        let mut now_us = 0;
        let why = |now_us| errors.why_not(Work::Compaction, 0, [THREE].into_iter(), now_us);
        for _ in 1..LASTING_AFTER {
            let pause = errors.quarantine(THREE, &unreadable(), now_us).unwrap();
            assert!(why(now_us).is_none() && errors.hopes(now_us));
            now_us += pause;
        }
        let pause = errors.quarantine(THREE, &unreadable(), now_us).unwrap();
        assert!(why(now_us).is_some() && !errors.hopes(now_us));
        assert!(why(now_us + pause).is_none(), "it may be tried again");
        errors.quarantine(THREE, &damaged(), now_us);
        assert!(why(u64::MAX).is_some());
        assert!(
            errors.why_not(Work::Compaction, 0, [FileNumber::new(5)].into_iter(), now_us).is_none()
        );
    }
}
