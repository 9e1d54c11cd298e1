//! The queue of writers: one leads, the others wait until their batch is done for them or they
//! become leaders; and the log state that only the leader touches.
//!
//! A group passes two stages: the log, which its leader has, and the memtables, for which it takes the
//! [`InsertTurn`]. The leader may pass the lead on once it has the turn, so that the next group is appended
//! to the log while this one is inserted. Turns are taken by leaders only, and so in the order of the log.

use crate::batch::WriteBatch;
use crate::error::Result;
use crate::options::SyncMode;
use crate::write::flush_room::FlushRoom;
use crate::write::log_syncs::{LogSyncs, LogTail};
use crate::write::read_set::Reads;
use crate::write::segment_names::SegmentNames;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use terrace_base::sync::{self, Condvar, Instant, Mutex, MutexGuard, Origin};
use terrace_base::{SegmentNumber, SeqNo};
use terrace_log::LogWriter;
use terrace_skiplist::Hint;

/// The commit log as its leader sees it.
pub(crate) struct LogState {
    /// The segment that takes the records.
    pub writer: LogWriter,
    /// Whether it holds separated values.
    pub has_values: bool,
    /// Length at which it ends, if it does.
    pub longest_bytes: u64,
    /// Live segments, oldest first, without the one being written: number and bytes.
    pub segments: VecDeque<(SegmentNumber, u64)>,
    /// The last sequence number handed out.
    pub last_seqno: SeqNo,
    /// Whether anything was appended since the last sync that a leader knows of.
    pub dirty: bool,
    /// When it was begun, or a leader last synced it.
    pub synced: Instant,
    /// Whether an append failed: the segment is left before the next record.
    pub broken: bool,
    /// How much memtables may hold.
    pub flush_room: FlushRoom,
}

impl LogState {
    /// What a sync without the lead has to make durable; `last` is the last number in it. None where the file can only be
    /// synced by its writer, or the segment is left.
    pub fn tail(&self, last: SeqNo) -> Option<LogTail> {
        let file = self.writer.sync_handle().filter(|_| !self.broken)?;
        Some(LogTail { file, end: self.writer.end(), last })
    }
}

/// A memtable of the store.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemtableId {
    pub family: u32,
    /// Unique in the family.
    pub id: u64,
}

/// What only the writer that inserts a group into the memtables touches.
#[derive(Default)]
pub(crate) struct InsertState {
    /// Where the last insert went, for writers that go up the keys.
    pub hint: Hint,
    /// Which memtable that was in.
    pub hint_of: MemtableId,
    /// Whether an insert failed: nothing after it in the log may become visible.
    pub failed: bool,
}

/// One batch on its way into the store.
pub(crate) struct Pending {
    pub batch: WriteBatch,
    pub sync: SyncMode,
    /// It is written only if nothing of this has changed.
    pub reads: Option<Reads>,
    /// Who wrote it, for simulations.
    pub origin: Origin,
}

/// A writer that waits.
pub(crate) struct Waiter {
    pending: Mutex<Option<Pending>>,
    /// Whether `turn` says something, for those who look without the lock.
    told: AtomicBool,
    /// Whether it sleeps, or is about to.
    asleep: AtomicBool,
    turn: Mutex<Turn>,
    changed: Condvar,
}

enum Turn {
    Waiting,
    Lead,
    Done(Result<()>),
}

#[derive(Default)]
struct Queue {
    leading: bool,
    /// Writers with their batches.
    waiting: VecDeque<Arc<Waiter>>,
    /// Those who want the lead without a batch: flushes, syncs, checkpoints. They do not wait behind a crowd of
    /// writers, but where both wait, the lead goes to one and the other kind in turn, so that neither starves.
    urgent: VecDeque<Arc<Waiter>>,
    /// Whether the last to get the lead was one of these.
    urgent_led: bool,
}

impl Queue {
    /// Whether the next to lead has no batch.
    fn urgent_is_next(&self) -> bool {
        !self.urgent.is_empty() && (!self.urgent_led || self.waiting.is_empty())
    }

    /// Who leads next.
    fn next(&self) -> Option<&Arc<Waiter>> {
        if self.urgent_is_next() { self.urgent.front() } else { self.waiting.front() }
    }

    /// Takes the lead if nobody has it; whether it did.
    fn try_lead(&mut self, is_urgent: bool) -> bool {
        if self.leading {
            return false;
        }
        (self.leading, self.urgent_led) = (true, is_urgent);
        true
    }

    /// Lets the next one lead.
    fn pass_on(&mut self) {
        self.urgent_led = self.urgent_is_next();
        let next = if self.urgent_led { self.urgent.pop_front() } else { self.waiting.pop_front() };
        match next {
            Some(next) => next.tell(Turn::Lead),
            None => self.leading = false,
        }
    }
}

/// What became of a writer that stepped up.
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation in every write")]
pub(crate) enum Entered<'a> {
    /// It leads, with its own batch in hand.
    Leads(Lead<'a>, Pending),
    /// Another leader wrote its batch.
    Done(Result<()>),
}

/// The queue and the log behind it.
pub(crate) struct WriteQueue {
    /// Which log segments have names that are durable.
    pub names: SegmentNames,
    /// Who syncs the log without the lead.
    pub syncs: LogSyncs,
    queue: Mutex<Queue>,
    log: Mutex<LogState>,
    inserting: Mutex<InsertState>,
    /// The most bytes that the group being inserted takes in any memtable; 0 if none is.
    in_flight_bytes: AtomicUsize,
    /// Full segments with records that were never synced; a sync covers them first.
    unsynced: Mutex<Vec<LogWriter>>,
    /// Held while such segments are synced: who finds none left may rely on it.
    syncing: Mutex<()>,
    /// Called under the lead of one that panics.
    on_panic: Box<dyn Fn() + Send + Sync>,
}

impl WriteQueue {
    /// Calls `on_panic` before another one leads than one that panics: what that was changing may be half done.
    pub fn new(log: LogState, on_panic: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            // Where a full disk kept the open from beginning a segment, the last one is of an earlier process.
            names: SegmentNames::of(log.writer.segment(), !log.broken),
            syncs: LogSyncs::default(),
            queue: Mutex::new(Queue::default()),
            log: Mutex::new(log),
            inserting: Mutex::new(InsertState::default()),
            in_flight_bytes: AtomicUsize::new(0),
            unsynced: Mutex::new(Vec::new()),
            syncing: Mutex::new(()),
            on_panic: Box::new(on_panic),
        }
    }

    /// Leaves a full segment to the next sync.
    pub fn push_unsynced(&self, segment: LogWriter) {
        self.unsynced.lock().push(segment);
    }

    /// Forgets unsynced segments before `number`.
    pub fn forget_unsynced(&self, number: SegmentNumber) {
        self.unsynced.lock().retain(|segment| segment.segment() >= number);
    }

    /// Makes all full segments durable, oldest first. Needs no lead.
    pub fn sync_full_segments(&self) -> terrace_base::Result<()> {
        let _turn = self.syncing.lock();
        let segments = std::mem::take(&mut *self.unsynced.lock());
        let mut left = Unsynced { queue: self, segments };
        while let Some(segment) = left.segments.first_mut() {
            // Also one left after a failed append: what it holds up to its end counts.
            segment.sync_to_end()?;
            left.segments.remove(0);
        }
        Ok(())
    }

    /// Steps up with a batch: leads at once if nobody does, else waits.
    pub fn enter(&self, pending: Pending) -> Entered<'_> {
        // A sync takes far longer than a sleep.
        let is_quick = pending.sync != SyncMode::Batch;
        let waiter = {
            let mut queue = self.queue.lock();
            if queue.try_lead(false) {
                return Entered::Leads(Lead::of(self), pending);
            }
            let waiter = Waiter::new(Some(pending));
            queue.waiting.push_back(waiter.clone());
            waiter
        };
        if let Some(result) = waiter.wait(is_quick) {
            return Entered::Done(result);
        }
        let lead = Lead::of(self);
        // A waiter that becomes the leader still has its batch: only a leader takes batches, and it
        // takes them together with the waiter.
        match waiter.pending.lock().take() {
            Some(pending) => Entered::Leads(lead, pending),
            None => Entered::Done(Ok(())),
        }
    }

    /// Leads without a batch, to change memtables or segments while nobody writes: what is in the log is in
    /// the memtables, and visible.
    pub fn lead(&self) -> Lead<'_> {
        let lead = self.lead_undrained();
        self.drain();
        lead
    }

    fn lead_undrained(&self) -> Lead<'_> {
        let waiter = {
            let mut queue = self.queue.lock();
            if queue.try_lead(true) {
                return Lead::of(self);
            }
            let waiter = Waiter::new(None);
            queue.urgent.push_back(waiter.clone());
            waiter
        };
        let done = waiter.wait(true);
        debug_assert!(done.is_none(), "a waiter without a batch is never done for");
        Lead::of(self)
    }

    /// Waits, under the lead, until what is in the log is in the memtables.
    pub fn drain(&self) {
        drop(sync::lock_soon(&self.inserting));
    }

    /// Live log segments, the one being written included; `None` while a leader is at work.
    pub fn try_log_segments(&self) -> Option<u64> {
        Some(self.log.try_lock()?.segments.len() as u64 + 1)
    }

    /// How many batches wait for a leader.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        let queue = self.queue.lock();
        queue.waiting.iter().filter(|waiter| waiter.pending.lock().is_some()).count()
    }

    /// Bytes of live log segments; `None` while a leader is at work.
    pub fn try_log_bytes(&self) -> Option<u64> {
        let log = self.log.try_lock()?;
        Some(log.segments.iter().map(|(_, bytes)| bytes).sum::<u64>() + log.writer.len_bytes())
    }
}

impl Waiter {
    fn new(pending: Option<Pending>) -> Arc<Self> {
        Arc::new(Self {
            pending: Mutex::new(pending),
            told: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            turn: Mutex::new(Turn::Waiting),
            changed: Condvar::new(),
        })
    }

    /// Waits for the turn: `Some(result)` if the batch was done, `None` to lead. A group of small batches
    /// takes less time than a sleep and the wake-up after it: if `is_quick`, this spins for a bounded time
    /// before it sleeps.
    fn wait(&self, is_quick: bool) -> Option<Result<()>> {
        if is_quick {
            sync::spin_until(|| self.told.load(Ordering::Acquire));
        }
        let mut turn = self.turn.lock();
        loop {
            match std::mem::replace(&mut *turn, Turn::Waiting) {
                Turn::Waiting => {
                    self.asleep.store(true, Ordering::Relaxed);
                    self.changed.wait(&mut turn);
                }
                Turn::Lead => return None,
                Turn::Done(result) => return Some(result),
            }
        }
    }

    fn tell(&self, turn: Turn) {
        *self.turn.lock() = turn;
        self.told.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Wakes the writer with the fate of its batch.
    pub fn done(&self, result: Result<()>) {
        self.tell(Turn::Done(result));
    }
}

/// Full segments that are being synced. What is left of them goes back to the queue, also after a panic: what has failed refuses
/// for ever, and nobody may take the others for durable.
struct Unsynced<'a> {
    queue: &'a WriteQueue,
    segments: Vec<LogWriter>,
}

impl Drop for Unsynced<'_> {
    fn drop(&mut self) {
        if !self.segments.is_empty() {
            self.queue.unsynced.lock().splice(0..0, self.segments.drain(..));
        }
    }
}

/// The right to write; passed on to the next waiter when dropped.
pub(crate) struct Lead<'a> {
    queue: &'a WriteQueue,
    passed_on: Cell<bool>,
    /// Whether it is of a thread that panicked before, and closes the store, say.
    is_after_panic: bool,
}

/// The right to insert a group into the memtables; taken by a leader before it passes the lead on.
pub(crate) struct InsertTurn<'a> {
    pub state: MutexGuard<'a, InsertState>,
    in_flight_bytes: &'a AtomicUsize,
}

impl Drop for InsertTurn<'_> {
    fn drop(&mut self) {
        // Release: a leader that reads this finds the memtables as the group has left them.
        self.in_flight_bytes.store(0, Ordering::Release);
    }
}

impl<'a> Lead<'a> {
    fn of(queue: &'a WriteQueue) -> Self {
        Self { queue, passed_on: Cell::new(false), is_after_panic: std::thread::panicking() }
    }

    /// The most bytes that a group which is still being inserted takes in any memtable.
    pub fn in_flight_bytes(&self) -> usize {
        self.queue.in_flight_bytes.load(Ordering::Acquire)
    }

    /// Waits until what is in the log is in the memtables.
    pub fn drain(&self) {
        self.queue.drain();
    }

    /// The turn to insert a group that takes at most `bytes` in any memtable; waits until the group before
    /// it is in.
    pub fn insert_turn(&self, bytes: usize) -> InsertTurn<'a> {
        let state = sync::lock_soon(&self.queue.inserting);
        self.queue.in_flight_bytes.store(bytes, Ordering::Relaxed);
        InsertTurn { state, in_flight_bytes: &self.queue.in_flight_bytes }
    }

    /// Passes the lead on unless the next writer sleeps: to go on for it then costs less than to wake it.
    pub fn pass_on_unless_asleep(&self) {
        let mut queue = self.queue.queue.lock();
        if queue.next().is_none_or(|next| !next.asleep.load(Ordering::Relaxed)) {
            self.passed_on.set(true);
            queue.pass_on();
        }
    }

    /// Passes the lead on, if that was not done.
    pub fn pass_on(&self) {
        if !self.passed_on.replace(true) {
            self.queue.queue.lock().pass_on();
        }
    }

    /// Whether another may lead now.
    pub fn is_passed_on(&self) -> bool {
        self.passed_on.get()
    }

    /// The log. Only the leader locks it, so this does not wait (but for a look at its size).
    pub fn log(&self) -> MutexGuard<'a, LogState> {
        self.queue.log.lock()
    }

    /// Takes batches of waiting writers, in order, while together they stay under `limit_bytes`, up to the
    /// first that is not to be taken. If the leader `yields`, none while somebody waits without a batch.
    pub fn gather(
        &self,
        limit_bytes: usize,
        yields: bool,
        may_take: impl Fn(&Pending) -> bool,
    ) -> Vec<(Arc<Waiter>, Pending)> {
        let mut taken = Vec::new();
        let mut queue = self.queue.queue.lock();
        if yields && !queue.urgent.is_empty() {
            return taken;
        }
        let mut bytes = 0;
        while let Some(front) = queue.waiting.front() {
            let mut held = front.pending.lock();
            let Some(pending) = held.as_ref() else { break };
            bytes += pending.batch.size_bytes();
            if bytes > limit_bytes || !may_take(pending) {
                break;
            }
            let Some(pending) = held.take() else { break };
            drop(held);
            if let Some(waiter) = queue.waiting.pop_front() {
                taken.push((waiter, pending));
            }
        }
        taken
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.is_after_panic && !self.is_passed_on() {
            (self.queue.on_panic)();
        }
        self.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;
    use terrace_log::LogOptions;
    use terrace_vfs::{BeforeCalls, Call, Fault, FaultKind, SimVfs, Vfs};

    fn segment(vfs: &dyn Vfs, number: SegmentNumber) -> LogWriter {
        let path = format!("/log/{number}");
        let mut writer =
            LogWriter::create(vfs, Path::new(&path), number, &LogOptions::default()).unwrap();
        writer.append(&[b"record"]).unwrap();
        writer
    }

    /// A queue over a log in `vfs`.
    fn queue(vfs: &SimVfs) -> WriteQueue {
        vfs.create_dir_all(Path::new("/log")).unwrap();
        let log = LogState {
            writer: segment(vfs, SegmentNumber::new(9)),
            has_values: false,
            longest_bytes: 0,
            segments: VecDeque::new(),
            last_seqno: SeqNo::ZERO,
            dirty: false,
            synced: Instant::now(),
            broken: false,
            flush_room: FlushRoom::default(),
        };
        WriteQueue::new(log, || {})
    }

    #[test]
    fn who_leads_without_a_batch_takes_turns_with_writers_and_is_not_overtaken() {
        let queue = queue(&SimVfs::new(1));
        let order = Mutex::new(Vec::new());
        let in_line = || {
            let queue = queue.queue.lock();
            queue.waiting.len() + queue.urgent.len()
        };
        std::thread::scope(|scope| {
            let first = queue.lead();
            for (at, name) in ["w1", "w2", "u1", "u2", "u3"].into_iter().enumerate() {
                let (queue, order) = (&queue, &order);
                scope.spawn(move || {
                    let _lead = match name.starts_with('u') {
                        true => queue.lead(),
                        false => {
                            let (batch, sync, origin) =
                                (WriteBatch::new(), SyncMode::None, Origin::here());
                            match queue.enter(Pending { batch, sync, reads: None, origin }) {
                                Entered::Leads(lead, _) => lead,
                                Entered::Done(_) => panic!("nobody takes its batch"),
                            }
                        }
                    };
                    order.lock().push(name);
                });
                while in_line() <= at {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        // The first one had no batch either.
        assert_eq!(*order.lock(), ["w1", "u1", "w2", "u2", "u3"]);
    }

    #[test]
    fn a_segment_whose_sync_failed_is_never_taken_for_durable() {
        let vfs = SimVfs::new(1);
        let queue = queue(&vfs);
        (1..4).for_each(|number| queue.push_unsynced(segment(&vfs, SegmentNumber::new(number))));
        let at_op = vfs.op_count() + 1;
        let kind = FaultKind::SyncFails;
        vfs.set_fault(Some(Fault { at_op, kind, forever: false, filter: None }));
        queue.sync_full_segments().unwrap_err();
        // A later caller gets the error as well, though no fault strikes any more.
        queue.sync_full_segments().unwrap_err();
        let left: Vec<SegmentNumber> =
            queue.unsynced.lock().iter().map(LogWriter::segment).collect();
        assert_eq!(left, [2, 3].map(SegmentNumber::new));
    }

    /// In a file system of the program, say, which may have met an error that the kernel tells once.
    #[test]
    fn a_segment_whose_sync_panicked_is_never_taken_for_durable() {
        let sim = SimVfs::new(1);
        let queue = queue(&sim);
        let strikes = Arc::new(AtomicBool::new(true));
        let armed = strikes.clone();
        let vfs = BeforeCalls::new(sim, move |call, _| {
            let strikes = matches!(call, Call::Sync(_)) && armed.load(Ordering::SeqCst);
            assert!(!strikes, "a planted panic");
            Ok(())
        });
        (1..3).for_each(|number| queue.push_unsynced(segment(&vfs, SegmentNumber::new(number))));
        let synced = catch_unwind(AssertUnwindSafe(|| queue.sync_full_segments()));
        assert!(synced.is_err());
        strikes.store(false, Ordering::SeqCst);
        queue.sync_full_segments().unwrap_err();
        assert_eq!(queue.unsynced.lock().len(), 2);
    }
}
