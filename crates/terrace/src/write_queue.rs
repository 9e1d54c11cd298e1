//! The queue of writers: one leads, the others wait until their batch is done for them or they
//! are told to lead; and the log state that only the leader touches.

use crate::batch::WriteBatch;
use crate::error::Result;
use crate::options::SyncMode;
use crate::read_set::Reads;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_base::SeqNo;
use terrace_base::sync::{Condvar, Mutex, MutexGuard, Origin};
use terrace_log::LogWriter;
use terrace_skiplist::Hint;

/// The commit log as its leader sees it.
pub(crate) struct LogState {
    /// The segment that takes the records.
    pub writer: LogWriter,
    /// Whether it holds separated values.
    pub has_values: bool,
    /// Live segments, oldest first, without the one being written: number and bytes.
    pub segments: VecDeque<(u64, u64)>,
    /// The last sequence number handed out.
    pub last_seqno: SeqNo,
    /// Whether anything was appended since the last sync.
    pub dirty: bool,
    /// Whether an append failed: the segment is left before the next record.
    pub broken: bool,
    /// Where the last insert went, for writers that go up the keys, and in which memtable
    /// (family, memtable id).
    pub hint: Hint,
    pub hint_of: (u32, u64),
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
    waiting: VecDeque<Arc<Waiter>>,
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
    queue: Mutex<Queue>,
    log: Mutex<LogState>,
    /// Full segments with records that were never synced; a sync covers them first.
    unsynced: Mutex<Vec<LogWriter>>,
    /// Held while such segments are synced: who finds none left may rely on it.
    syncing: Mutex<()>,
}

impl WriteQueue {
    pub fn new(log: LogState) -> Self {
        Self {
            queue: Mutex::new(Queue::default()),
            log: Mutex::new(log),
            unsynced: Mutex::new(Vec::new()),
            syncing: Mutex::new(()),
        }
    }

    /// Leaves a full segment to the next sync.
    pub fn push_unsynced(&self, segment: LogWriter) {
        self.unsynced.lock().push(segment);
    }

    /// Forgets unsynced segments before `number`.
    pub fn forget_unsynced(&self, number: u64) {
        self.unsynced.lock().retain(|segment| segment.segment() >= number);
    }

    /// Makes all full segments durable, oldest first. Needs no lead.
    pub fn sync_full_segments(&self) -> terrace_base::Result<()> {
        let _turn = self.syncing.lock();
        let mut segments = std::mem::take(&mut *self.unsynced.lock());
        let mut synced = 0;
        // Also one left after a failed append: what it holds up to its end counts.
        let failed = segments.iter_mut().find_map(|segment| {
            let outcome = segment.sync_to_end();
            synced += usize::from(outcome.is_ok());
            outcome.err()
        });
        let Some(error) = failed else { return Ok(()) };
        // What is left refuses for ever: nobody may take it for durable.
        self.unsynced.lock().splice(0..0, segments.drain(synced..));
        Err(error)
    }

    /// Steps up with a batch: leads at once if nobody does, else waits.
    pub fn enter(&self, pending: Pending) -> Entered<'_> {
        let waiter = {
            let mut queue = self.queue.lock();
            if !queue.leading {
                queue.leading = true;
                return Entered::Leads(Lead { queue: self }, pending);
            }
            let waiter = Arc::new(Waiter {
                pending: Mutex::new(Some(pending)),
                turn: Mutex::new(Turn::Waiting),
                changed: Condvar::new(),
            });
            queue.waiting.push_back(waiter.clone());
            waiter
        };
        if let Some(result) = waiter.wait() {
            return Entered::Done(result);
        }
        let lead = Lead { queue: self };
        // A waiter that is told to lead still has its batch: only a leader takes batches, and it
        // takes them together with the waiter.
        match waiter.pending.lock().take() {
            Some(pending) => Entered::Leads(lead, pending),
            None => Entered::Done(Ok(())),
        }
    }

    /// Leads without a batch, to change memtables or segments while nobody writes.
    pub fn lead(&self) -> Lead<'_> {
        let waiter = {
            let mut queue = self.queue.lock();
            if !queue.leading {
                queue.leading = true;
                return Lead { queue: self };
            }
            let waiter = Arc::new(Waiter {
                pending: Mutex::new(None),
                turn: Mutex::new(Turn::Waiting),
                changed: Condvar::new(),
            });
            // In front: a flush or a sync does not wait behind a crowd of writers.
            queue.waiting.push_front(waiter.clone());
            waiter
        };
        let done = waiter.wait();
        debug_assert!(done.is_none(), "a waiter without a batch is never done for");
        Lead { queue: self }
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
    /// Waits for the turn: `Some(result)` if the batch was done, `None` to lead.
    fn wait(&self) -> Option<Result<()>> {
        let mut turn = self.turn.lock();
        loop {
            match std::mem::replace(&mut *turn, Turn::Waiting) {
                Turn::Waiting => self.changed.wait(&mut turn),
                Turn::Lead => return None,
                Turn::Done(result) => return Some(result),
            }
        }
    }

    fn tell(&self, turn: Turn) {
        *self.turn.lock() = turn;
        self.changed.notify_one();
    }

    /// Wakes the writer with the fate of its batch.
    pub fn done(&self, result: Result<()>) {
        self.tell(Turn::Done(result));
    }
}

/// The right to write; passed on to the next waiter when dropped.
pub(crate) struct Lead<'a> {
    queue: &'a WriteQueue,
}

impl<'a> Lead<'a> {
    /// The log. Only the leader locks it, so this does not wait (but for a look at its size).
    pub fn log(&self) -> MutexGuard<'a, LogState> {
        self.queue.log.lock()
    }

    /// Takes batches of waiting writers, in order, while together they stay under `limit_bytes`.
    pub fn gather(&self, limit_bytes: usize) -> Vec<(Arc<Waiter>, Pending)> {
        let mut taken = Vec::new();
        let mut queue = self.queue.queue.lock();
        let mut bytes = 0;
        while let Some(front) = queue.waiting.front() {
            let mut held = front.pending.lock();
            let Some(pending) = held.as_ref() else { break };
            bytes += pending.batch.size_bytes();
            if bytes > limit_bytes {
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
        let mut queue = self.queue.queue.lock();
        match queue.waiting.pop_front() {
            Some(next) => next.tell(Turn::Lead),
            None => queue.leading = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use terrace_log::LogOptions;
    use terrace_vfs::{Fault, FaultKind, SimVfs, Vfs};

    fn segment(vfs: &SimVfs, number: u64) -> LogWriter {
        let path = format!("/log/{number}");
        let mut writer =
            LogWriter::create(vfs, Path::new(&path), number, &LogOptions::default()).unwrap();
        writer.append(&[b"record"]).unwrap();
        writer
    }

    #[test]
    fn a_segment_whose_sync_failed_is_never_taken_for_durable() {
        let vfs = Arc::new(SimVfs::new(1));
        vfs.create_dir_all(Path::new("/log")).unwrap();
        let current = segment(&vfs, 9);
        let queue = WriteQueue::new(LogState {
            writer: current,
            has_values: false,
            segments: VecDeque::new(),
            last_seqno: 0,
            dirty: false,
            broken: false,
            hint: Hint::default(),
            hint_of: (0, 0),
        });
        (1..4).for_each(|number| queue.push_unsynced(segment(&vfs, number)));
        let at_op = vfs.op_count() + 1;
        let kind = FaultKind::SyncFails;
        vfs.set_fault(Some(Fault { at_op, kind, forever: false, filter: None }));
        queue.sync_full_segments().unwrap_err();
        // Whoever comes later hears of it as well, though no fault strikes any more.
        queue.sync_full_segments().unwrap_err();
        let left: Vec<u64> = queue.unsynced.lock().iter().map(LogWriter::segment).collect();
        assert_eq!(left, [2, 3]);
    }
}
