//! What garbage collection of the value log remembers from one step to the next: garbage that is
//! hidden in files, what callers asked for, how long victim segments have waited, and how much
//! garbage there is, for writers to be slowed by. `gc` writes it; `compact` and `stall` read it.

use arc_swap::ArcSwap;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_base::sync::Mutex;
use terrace_base::{FileNumber, SegmentNumber};

/// Victims of which none went for this long are emptied by force. Merges of L0 come to most
/// of them sooner while there are writes.
const FORCE_AFTER_US: u64 = 20_000_000;
/// From this much garbage over the allowed ratio on, as a share of the log, writers are slowed most.
const SLOWEST_ABOVE: f64 = 0.02;
/// Garbage over the ratio that slows nobody, in memtables: what is not flushed yet is not known to be garbage, what waits for
/// its flush or is not merged yet neither, and of a small log that is most of it.
const FLOOR_MEMTABLES: u64 = 8;
/// It is no more than this: less than the 2 % from which on writers of a log of 3 GiB are slowed most.
const MOST_FLOOR_BYTES: u64 = 64 << 20;
/// Nor more than one part in this many of the room that is free, or than what one memtable refers to, if that is more.
const FLOOR_ROOM_PARTS: u64 = 4;
/// What the ratio may be passed by while no merge is due, or what a memtable may always refer to if that is more: the
/// next flush makes one due, and it comes with the next writes.
const BETWEEN_MERGES: f64 = 0.02;

/// What garbage collection remembers.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    /// Garbage that merging a file down would reveal, by file number.
    hidden: ArcSwap<HashMap<FileNumber, u64>>,
    /// The files that could not be read at the last step.
    unreadable: Mutex<HashSet<FileNumber>>,
    /// Whether there is enough garbage that looking for more pays.
    collecting: AtomicBool,
    /// Segments that callers of `collect_garbage` want gone, and how many of them do; with none, until the step that
    /// takes them out of the victims.
    pub asked: Mutex<HashMap<SegmentNumber, usize>>,
    /// Whether the last step chose what fits on a full disk.
    was_full: AtomicBool,
    /// Held during a step. Only ever tried, so that it may be held over any other lock.
    pub turn: Mutex<()>,
    /// The victim segments at the last step that saw one of them gone, and when that was.
    waiting: Mutex<(HashSet<SegmentNumber>, u64)>,
    load: Load,
    /// Time that writers owe.
    owed_us: AtomicU64,
}

/// How much garbage there is, for writers: the last step's figures and how they grow since.
#[derive(Debug, Default)]
struct Load {
    /// Whether a merge is due that would reveal or move garbage.
    due: AtomicBool,
    /// Merges that are moving values.
    jobs: AtomicU64,
    // As in `Found`.
    log_bytes: AtomicU64,
    garbage_bytes: AtomicU64,
    written_bytes: AtomicU64,
    growth_permille: AtomicU64,
    floor_bytes: AtomicU64,
    unflushed_bytes: AtomicU64,
}

/// What a step found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    /// Bytes of the value log, without what cannot be collected now.
    pub log_bytes: u64,
    /// Of these, garbage.
    pub garbage_bytes: u64,
    /// Bytes of values that had been written since the open.
    pub written_bytes: u64,
    /// Part of what is written that is garbage or makes as much garbage, in thousandths.
    pub growth_permille: u64,
    /// Garbage over the ratio that slows nobody: [`floor_bytes`].
    pub floor_bytes: u64,
    /// Bytes of values that a memtable may always refer to.
    pub unflushed_bytes: u64,
}

/// Garbage over the ratio that slows nobody in a small log, whatever the memory budget: that of some memtables of
/// `memtable_bytes`, or of some that refer to as many bytes of values as they always may, `unflushed_bytes`. It is less where
/// only `free_bytes` are left.
pub(crate) fn floor_bytes(memtable_bytes: u64, unflushed_bytes: u64, free_bytes: u64) -> u64 {
    let some = FLOOR_MEMTABLES.saturating_mul(memtable_bytes.max(unflushed_bytes));
    some.min(MOST_FLOOR_BYTES).min((free_bytes / FLOOR_ROOM_PARTS).max(unflushed_bytes))
}

impl Garbage {
    /// What picking needs to know: garbage hidden in files while that is worth looking for.
    pub fn hidden(&self) -> Arc<HashMap<FileNumber, u64>> {
        match self.collecting.load(Ordering::Relaxed) {
            true => self.hidden.load_full(),
            false => Arc::default(),
        }
    }

    /// Whether victim segments have waited too long, or a caller waits for them.
    pub fn is_overdue(&self, now_us: u64) -> bool {
        if self.asked.lock().values().any(|callers| *callers > 0) {
            return true;
        }
        let waiting = self.waiting.lock();
        !waiting.0.is_empty() && now_us.saturating_sub(waiting.1) >= FORCE_AFTER_US
    }

    /// How far collection is behind: 0 if it is not, 1 and above if writers must be slowed most.
    /// While it has nothing to do but wait for more writes, a little more garbage is all right, and so is the floor of a
    /// small log. `written_bytes`: as in [`Found`], by now. Costs a few loads.
    #[inline]
    pub fn pressure(&self, written_bytes: u64, ratio: f64) -> f64 {
        let load = &self.load;
        if load.log_bytes.load(Ordering::Relaxed) == 0 {
            return 0.0;
        }
        let busy = load.due.load(Ordering::Relaxed) || load.jobs.load(Ordering::Relaxed) > 0;
        load.pressure(written_bytes, ratio, busy)
    }

    /// Adds to the time that writers owe; gives all of it once that is at least `least_us`, else 0.
    /// Only the leader of a group calls this.
    pub fn owe_us(&self, more_us: u64, least_us: u64) -> u64 {
        let owed = self.owed_us.load(Ordering::Relaxed) + more_us;
        let due = owed >= least_us;
        self.owed_us.store(if due { 0 } else { owed }, Ordering::Relaxed);
        if due { owed } else { 0 }
    }

    /// Takes over what a step found.
    pub fn note_found(&self, found: Found) {
        let set = |counter: &AtomicU64, value: u64| counter.store(value, Ordering::Relaxed);
        set(&self.load.written_bytes, found.written_bytes);
        set(&self.load.log_bytes, found.log_bytes);
        set(&self.load.garbage_bytes, found.garbage_bytes);
        set(&self.load.growth_permille, found.growth_permille);
        set(&self.load.floor_bytes, found.floor_bytes);
        set(&self.load.unflushed_bytes, found.unflushed_bytes);
    }

    /// There are no values any more: what was known of their garbage slows nobody, and is no reason for a merge.
    pub fn note_none(&self) {
        self.note_found(Found::default());
        self.set_due(false);
        self.set_hidden(HashMap::new(), false);
        self.waiting.lock().0.clear();
        self.asked.lock().retain(|_, callers| *callers > 0);
    }

    /// The floor that the last step found; `None` before the first, and where there are no values.
    pub fn floor_bytes(&self) -> Option<u64> {
        Some(self.load.floor_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Notes whether a step chooses what fits on a full disk; gives whether the one before did.
    pub fn note_full(&self, is_full: bool) -> bool {
        self.was_full.swap(is_full, Ordering::Relaxed)
    }

    /// Says whether a merge is due.
    pub fn set_due(&self, due: bool) {
        self.load.due.store(due, Ordering::Relaxed);
    }

    /// Counts a merge that moves values, until the result is dropped.
    pub fn enter_job(&self) -> MovingJob<'_> {
        self.load.jobs.fetch_add(1, Ordering::Relaxed);
        MovingJob(self)
    }

    /// Takes over the estimates of a step; `collecting` if looking for more garbage pays.
    pub fn set_hidden(&self, hidden: HashMap<FileNumber, u64>, collecting: bool) {
        self.hidden.store(Arc::new(hidden));
        self.collecting.store(collecting, Ordering::Relaxed);
    }

    /// The estimates of the last step, unless other files than `unreadable` could not be read then: what is hidden in these
    /// stays.
    pub fn known(&self, unreadable: &HashSet<FileNumber>) -> Arc<HashMap<FileNumber, u64>> {
        let mut before = self.unreadable.lock();
        if *before == *unreadable {
            return self.hidden.load_full();
        }
        before.clone_from(unreadable);
        Arc::default()
    }

    /// What the last step has estimated of one file.
    #[cfg(test)]
    pub fn hidden_by(&self, file: FileNumber) -> u64 {
        self.hidden.load().get(&file).copied().unwrap_or(0)
    }

    /// Notes which segments are victims now, and whether any went since the last time.
    pub fn note_waiting(&self, victims: &HashSet<SegmentNumber>, now_us: u64) {
        let mut waiting = self.waiting.lock();
        if waiting.0.is_empty() || waiting.0.iter().any(|number| !victims.contains(number)) {
            *waiting = (victims.clone(), now_us);
        }
    }
}

/// A merge that moves values.
pub(crate) struct MovingJob<'a>(&'a Garbage);

impl Drop for MovingJob<'_> {
    fn drop(&mut self) {
        self.0.load.jobs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Load {
    /// The floor over the ratio is free, but in a log of which it is a small part.
    fn pressure(&self, written_bytes: u64, ratio: f64, busy: bool) -> f64 {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let fresh = (written_bytes as f64 - get(&self.written_bytes)).max(0.0);
        let garbage = get(&self.garbage_bytes) + fresh * get(&self.growth_permille) / 1e3;
        let log = (get(&self.log_bytes) + fresh).max(1.0);
        let (floor, slowest) = (get(&self.floor_bytes), log * SLOWEST_ABOVE);
        let between = (log * BETWEEN_MERGES).max(get(&self.unflushed_bytes));
        let free = (floor - slowest).max(0.0) + if busy { 0.0 } else { between };
        ((garbage - ratio * log - free) / slowest.max(floor / 4.0)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of a store in which everything that is written overwrites.
    fn note(garbage: &Garbage, log_bytes: u64, garbage_bytes: u64, floor_bytes: u64) {
        let (written_bytes, growth_permille) = (5000, 1000);
        let of_log = Found { log_bytes, garbage_bytes, ..Found::default() };
        garbage.note_found(Found { written_bytes, growth_permille, floor_bytes, ..of_log });
    }

    #[test]
    fn pressure_grows_with_what_is_written_and_sooner_while_there_is_work() {
        let garbage = Garbage::default();
        assert_eq!(garbage.pressure(5500, 0.3), 0.0, "nothing is known");
        note(&garbage, 1000, 290, 0);
        assert_eq!(garbage.pressure(5030, 0.3), 0.0);
        assert!(garbage.pressure(5500, 0.3) > 1.0, "something is behind all the same");
        let job = garbage.enter_job();
        assert_eq!(garbage.pressure(5000, 0.3), 0.0);
        let some = garbage.pressure(5030, 0.3);
        let more = garbage.pressure(5150, 0.3);
        assert!(0.0 < some && some < more && more >= 1.0, "{some} {more}");
        assert_eq!(garbage.pressure(5150, 0.5), 0.0);
        drop(job);
        assert_eq!(garbage.pressure(5030, 0.3), 0.0);
        garbage.set_due(true);
        assert_eq!(garbage.pressure(5150, 0.3), more);
    }

    #[test]
    fn a_small_log_slows_nobody_and_a_large_one_as_if_there_were_no_floor() {
        let garbage = Garbage::default();
        garbage.set_due(true);
        // Nearly all of it is garbage: less than the floor over the ratio.
        note(&garbage, 900, 800, 800);
        assert_eq!(garbage.pressure(5000, 0.3), 0.0);
        assert!(garbage.pressure(6500, 0.3) > 1.0, "it has grown");
        note(&garbage, 900, 800, 0);
        assert!(garbage.pressure(5000, 0.3) > 1.0);
        note(&garbage, 100_000, 31_000, 800);
        let large = garbage.pressure(5000, 0.3);
        note(&garbage, 100_000, 31_000, 0);
        assert!(large > 0.0 && large == garbage.pressure(5000, 0.3), "{large}");
    }

    #[test]
    fn garbage_that_is_gone_with_the_last_value_slows_nobody() {
        let garbage = Garbage::default();
        garbage.set_due(true);
        garbage.set_hidden(HashMap::from([(FileNumber::new(3), 700)]), true);
        garbage.note_waiting(&HashSet::from([SegmentNumber::new(1)]), 100);
        garbage.asked.lock().extend([(SegmentNumber::new(1), 0), (SegmentNumber::new(2), 1)]);
        note(&garbage, 900, 800, 100);
        assert!(garbage.pressure(5000, 0.3) > 1.0);
        garbage.note_none();
        assert_eq!(garbage.pressure(u64::MAX, 0.3), 0.0);
        assert!(garbage.hidden().is_empty() && garbage.floor_bytes().is_none());
        assert_eq!(*garbage.asked.lock(), HashMap::from([(SegmentNumber::new(2), 1)]));
        garbage.asked.lock().clear();
        assert!(!garbage.is_overdue(u64::MAX));
    }

    /// To slow writers then would only put off the flush that tells what is garbage.
    #[test]
    fn a_memtable_that_is_not_full_slows_nobody_while_nothing_else_is_to_be_done() {
        let garbage = Garbage::default();
        let of_log = Found { log_bytes: 900, garbage_bytes: 300, ..Found::default() };
        garbage.note_found(Found { growth_permille: 1000, unflushed_bytes: 400, ..of_log });
        assert_eq!(garbage.pressure(400, 0.3), 0.0);
        assert!(garbage.pressure(700, 0.3) > 1.0);
        garbage.set_due(true);
        assert!(garbage.pressure(400, 0.3) > 1.0);
    }

    #[test]
    fn the_floor_is_eight_memtables_whatever_the_budget_and_less_where_room_is_short() {
        let (mib, unknown) = (1 << 20, u64::MAX);
        // Memtables of budgets of 1 GiB, 512 MiB, 64 MiB, 8 MiB and 4 MiB.
        let floors = [64 * mib, 32 * mib, 4 * mib, mib / 2, mib / 4]
            .map(|memtable_bytes| floor_bytes(memtable_bytes, 4 * mib, unknown) / mib);
        assert_eq!(floors, [64, 64, 32, 32, 32]);
        // Short segments.
        assert_eq!(floor_bytes(16 << 10, 32 << 10, unknown), 256 << 10);
        let with_room =
            [400, 100, 10, 0].map(|free| floor_bytes(32 * mib, 4 * mib, free * mib) / mib);
        assert_eq!(with_room, [64, 25, 4, 4]);
    }

    #[test]
    fn segments_that_do_not_go_are_overdue() {
        let garbage = Garbage::default();
        let segments = |numbers: [u64; 2]| HashSet::from(numbers.map(SegmentNumber::new));
        let victims = segments([1, 2]);
        garbage.note_waiting(&victims, 100);
        garbage.note_waiting(&victims, 200);
        assert!(!garbage.is_overdue(99 + FORCE_AFTER_US));
        assert!(garbage.is_overdue(100 + FORCE_AFTER_US));
        // One of them went.
        garbage.note_waiting(&segments([2, 3]), 300);
        assert!(!garbage.is_overdue(299 + FORCE_AFTER_US));
        garbage.note_waiting(&HashSet::new(), 400);
        assert!(!garbage.is_overdue(u64::MAX));
        garbage.asked.lock().insert(SegmentNumber::new(7), 1);
        assert!(garbage.is_overdue(0));
        garbage.asked.lock().insert(SegmentNumber::new(7), 0);
        assert!(!garbage.is_overdue(0), "nobody asks any more");
    }
}
