//! Whose turn it is to sync the log without the lead: one at a time, for all who wait for an end of the log that is not
//! behind the one that it syncs up to. Others append meanwhile, and who comes during a sync waits for the next one.

use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_base::SeqNo;
use terrace_base::sync::{Condvar, Mutex, MutexGuard};
use terrace_log::LogPosition;
use terrace_vfs::SyncHandle;

/// An end of the log, as it was when its leader looked.
#[derive(Clone)]
pub(crate) struct LogTail {
    /// The segment.
    pub file: Arc<dyn SyncHandle>,
    /// The kernel has everything before it.
    pub end: LogPosition,
    /// The last sequence number before it.
    pub last: SeqNo,
}

#[derive(Default)]
struct State {
    is_syncing: bool,
    /// The newest end that somebody waits for while another sync is under way.
    asked: Option<LogTail>,
    /// The newest end that was made durable, until a leader takes it in.
    done: Option<(LogPosition, SeqNo)>,
    /// How many wait for a turn, or that it is over.
    #[cfg(test)]
    waiting: usize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct LogSyncs {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether `done` says something, for those who look without the lock.
    has_done: AtomicBool,
}

/// What became of one who waits for a sync.
pub(crate) enum Asked<'a> {
    /// Nothing is left to be done.
    Over(Result<()>),
    /// It syncs up to this end, for itself and others.
    Syncs(SyncTurn<'a>, LogTail),
}

impl LogSyncs {
    /// Waits until `is_over` says how it went, or until it is this thread's turn to sync up to `tail`, or further. `is_over`
    /// is asked again after each sync.
    pub fn ask(&self, tail: LogTail, is_over: impl Fn() -> Option<Result<()>>) -> Asked<'_> {
        let mut state = self.state.lock();
        loop {
            let is_newest = state.asked.as_ref().is_none_or(|asked| asked.end <= tail.end);
            if let Some(result) = is_over() {
                // So that nobody keeps the file open.
                if is_newest {
                    state.asked = None;
                }
                return Asked::Over(result);
            }
            if !state.is_syncing {
                break;
            }
            if is_newest {
                state.asked = Some(tail.clone());
            }
            self.wait(&mut state);
        }
        state.is_syncing = true;
        let asked = state.asked.take().filter(|asked| asked.end > tail.end);
        Asked::Syncs(SyncTurn { syncs: self }, asked.unwrap_or(tail))
    }

    /// Waits until nobody syncs; nobody begins to while it is held.
    pub fn turn(&self) -> SyncTurn<'_> {
        let mut state = self.state.lock();
        while state.is_syncing {
            self.wait(&mut state);
        }
        state.is_syncing = true;
        SyncTurn { syncs: self }
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        #[cfg(test)]
        {
            state.waiting += 1;
        }
        self.changed.wait(state);
        #[cfg(test)]
        {
            state.waiting -= 1;
        }
    }

    /// How many wait while somebody syncs.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// The newest end that was made durable since the last call, if any was, and the last number before it.
    #[inline]
    pub fn take_done(&self) -> Option<(LogPosition, SeqNo)> {
        if !self.has_done.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state.lock();
        self.has_done.store(false, Ordering::Relaxed);
        state.done.take()
    }
}

/// The right to sync the log without the lead; the next one has it when this is dropped.
pub(crate) struct SyncTurn<'a> {
    syncs: &'a LogSyncs,
}

impl SyncTurn<'_> {
    /// The log is durable up to `end`, the numbers up to `last` with it.
    pub fn note_done(&self, end: LogPosition, last: SeqNo) {
        let mut state = self.syncs.state.lock();
        state.done = Some((end, last));
        self.syncs.has_done.store(true, Ordering::Relaxed);
    }
}

impl Drop for SyncTurn<'_> {
    fn drop(&mut self) {
        self.syncs.state.lock().is_syncing = false;
        self.syncs.changed.notify_all();
    }
}
