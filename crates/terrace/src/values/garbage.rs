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
/// Garbage over the ratio that slows nobody, in memtables: what is not flushed yet is not known to be garbage, and of a small log
/// that is most of it.
const SMALL_MEMTABLES: f64 = 8.0;
/// It is no more than this: less than the 2 % from which on writers of a log of 3 GiB are slowed most.
const MOST_SMALL_BYTES: f64 = (64 << 20) as f64;
/// What the ratio may be passed by while no merge is due: the next flush makes one due.
const BETWEEN_MERGES: f64 = 0.02;

/// What garbage collection remembers.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    /// Garbage that merging a file down would reveal, by file number.
    hidden: ArcSwap<HashMap<FileNumber, u64>>,
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
    /// Bytes of the log at the last step.
    log_bytes: AtomicU64,
    /// Of these, garbage.
    garbage_bytes: AtomicU64,
    /// What `log_bytes` of the counters was then.
    counted_bytes: AtomicU64,
    /// Part of what is written that is garbage or makes as much garbage, in thousandths.
    growth_permille: AtomicU64,
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
    /// While it has nothing to do but wait for more writes, a little more garbage is all right, and so is as much as
    /// some memtables of `memtable_bytes` stand for. Costs a few loads.
    #[inline]
    pub fn pressure(&self, counted_bytes: u64, ratio: f64, memtable_bytes: usize) -> f64 {
        let load = &self.load;
        if load.log_bytes.load(Ordering::Relaxed) == 0 {
            return 0.0;
        }
        let busy = load.due.load(Ordering::Relaxed) || load.jobs.load(Ordering::Relaxed) > 0;
        let ratio = if busy { ratio } else { ratio + BETWEEN_MERGES };
        let small_bytes = (memtable_bytes as f64 * SMALL_MEMTABLES).min(MOST_SMALL_BYTES);
        load.pressure(counted_bytes, ratio, small_bytes)
    }

    /// Adds to the time that writers owe; gives all of it once that is at least `least_us`, else 0.
    /// Only the leader of a group calls this.
    pub fn owe_us(&self, more_us: u64, least_us: u64) -> u64 {
        let owed = self.owed_us.load(Ordering::Relaxed) + more_us;
        let due = owed >= least_us;
        self.owed_us.store(if due { 0 } else { owed }, Ordering::Relaxed);
        if due { owed } else { 0 }
    }

    /// Bytes of log segments that were not sealed at the last step, grown by what came since.
    pub fn open_bytes(&self, sealed_bytes: u64, counted_bytes: u64) -> u64 {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let fresh = counted_bytes.saturating_sub(get(&self.load.counted_bytes));
        (get(&self.load.log_bytes) + fresh).saturating_sub(sealed_bytes)
    }

    /// Takes over what a step found: `growth` is the garbage per byte written.
    pub fn note_load(&self, log_bytes: u64, garbage_bytes: u64, counted_bytes: u64, growth: f64) {
        let set = |counter: &AtomicU64, value: u64| counter.store(value, Ordering::Relaxed);
        set(&self.load.counted_bytes, counted_bytes);
        set(&self.load.log_bytes, log_bytes);
        set(&self.load.garbage_bytes, garbage_bytes);
        set(&self.load.growth_permille, (growth * 1e3) as u64);
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

    /// The estimates of the last step.
    pub fn known(&self) -> Arc<HashMap<FileNumber, u64>> {
        self.hidden.load_full()
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
    /// `small_bytes` over the ratio are free, but in a log of which they are a small part.
    fn pressure(&self, counted_bytes: u64, ratio: f64, small_bytes: f64) -> f64 {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let fresh = (counted_bytes as f64 - get(&self.counted_bytes)).max(0.0);
        let garbage = get(&self.garbage_bytes) + fresh * get(&self.growth_permille) / 1e3;
        let log = (get(&self.log_bytes) + fresh).max(1.0);
        let slowest = log * SLOWEST_ABOVE;
        let free = (small_bytes - slowest).max(0.0);
        ((garbage - ratio * log - free) / slowest.max(small_bytes / 4.0)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_grows_with_what_is_written_and_sooner_while_there_is_work() {
        let garbage = Garbage::default();
        garbage.note_load(1000, 290, 5000, 1.0);
        assert_eq!(garbage.pressure(5030, 0.3, 0), 0.0);
        assert!(garbage.pressure(5500, 0.3, 0) > 1.0, "something is behind all the same");
        let job = garbage.enter_job();
        assert_eq!(garbage.pressure(5000, 0.3, 0), 0.0);
        let some = garbage.pressure(5030, 0.3, 0);
        let more = garbage.pressure(5150, 0.3, 0);
        assert!(0.0 < some && some < more && more >= 1.0, "{some} {more}");
        assert_eq!(garbage.pressure(5150, 0.5, 0), 0.0);
        drop(job);
        assert_eq!(garbage.pressure(5030, 0.3, 0), 0.0);
        garbage.set_due(true);
        assert_eq!(garbage.pressure(5150, 0.3, 0), more);
    }

    #[test]
    fn a_small_log_slows_nobody_and_a_large_one_as_if_memtables_were_small() {
        let garbage = Garbage::default();
        garbage.set_due(true);
        let memtable_bytes = 100;
        // Nearly all of it is garbage: less than eight memtables.
        garbage.note_load(900, 800, 0, 1.0);
        assert_eq!(garbage.pressure(0, 0.3, memtable_bytes), 0.0);
        assert!(garbage.pressure(0, 0.3, 0) > 1.0);
        assert!(garbage.pressure(1500, 0.3, memtable_bytes) > 1.0, "it has grown");
        garbage.note_load(100_000, 31_000, 0, 1.0);
        let large = garbage.pressure(0, 0.3, memtable_bytes);
        assert!(large > 0.0 && large == garbage.pressure(0, 0.3, 0), "{large}");
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
