//! The segments of the log that the change feed can read: those in force, and older ones that are kept for it.
//!
//! ```text
//!   000007.log ── 000009.log ── 000012.log ── 000015.log
//!   kept for feeds              in force, the last one is being written
//! ```
//! Every segment continues the one before it, as its header says: the history has no hole. An open that cannot
//! be sure of that (writes that are in SSTs and not in the log, after a power cut) begins a new history with a
//! segment that continues none.
//!
//! Nothing of this is stored. An open finds older segments by the links in the headers ([`linked`]). The
//! leader of the write queue adds a segment when it begins one, and the house thread takes away what is neither
//! in force, nor pinned by an open feed, nor within the bytes that are kept
//! ([`AdvancedOptions::log_retention_bytes`](crate::AdvancedOptions::log_retention_bytes)).

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::sync::Mutex;
use terrace_base::{AtomicSeqNo, SegmentNumber, SeqNo};
use terrace_log::LogPosition;
use terrace_manifest::names;
use terrace_vfs::{Vfs, is_unreadable};

/// A segment of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HistorySegment {
    pub number: SegmentNumber,
    /// Where its records end; `None` while it is being written.
    pub end: Option<u64>,
    /// The first sequence number that it can have; `None` if only its first record says so.
    pub first_seqno: Option<SeqNo>,
}

#[derive(Default)]
struct State {
    /// Ascending.
    segments: VecDeque<HistorySegment>,
    /// For every open feed, by its number, the oldest segment that it needs.
    pins: BTreeMap<u64, SegmentNumber>,
    next_pin: u64,
}

/// The history of an open store. In a read-only one it is empty: feeds look at the directory there.
#[derive(Default)]
pub(crate) struct LogHistory {
    state: Mutex<State>,
    /// The log is durable up to here.
    synced: AtomicSeqNo,
    /// Bytes of segments that are there for feeds only.
    kept_bytes: AtomicU64,
}

/// What [`LogHistory::trim`] goes by.
#[derive(Clone, Copy)]
pub(crate) struct Retention {
    /// Bytes of segments that may be kept beside those in force.
    pub limit_bytes: u64,
    /// The oldest segment in force.
    pub in_force: SegmentNumber,
    /// Whether pins count for nothing: the disk is full.
    pub regardless: bool,
}

impl LogHistory {
    /// The history of `segments`, ascending, durable up to `synced`.
    pub fn new(segments: impl IntoIterator<Item = HistorySegment>, synced: SeqNo) -> Self {
        let state = State { segments: segments.into_iter().collect(), ..State::default() };
        Self { state: Mutex::new(state), synced: AtomicSeqNo::new(synced), ..Self::default() }
    }

    /// Segment `number` is begun, in which `first_seqno` comes first; the log before it ends at `previous`.
    pub fn begin(&self, number: SegmentNumber, first_seqno: SeqNo, previous: LogPosition) {
        let mut state = self.state.lock();
        if let Some(last) = state.segments.back_mut() {
            last.end = Some(previous.offset);
        }
        let first_seqno = Some(first_seqno);
        state.segments.push_back(HistorySegment { number, end: None, first_seqno });
    }

    /// The log is durable up to `seqno`.
    pub fn note_synced(&self, seqno: SeqNo) {
        // Release: a feed that reads this number finds the records up to it.
        self.synced.fetch_max(seqno, Ordering::Release);
    }

    /// Up to where the log is known to be durable.
    pub fn synced(&self) -> SeqNo {
        // Acquire: pairs with the Release above.
        self.synced.load(Ordering::Acquire)
    }

    /// The last sequence number in segments that take no more records.
    pub fn last_full_seqno(&self) -> SeqNo {
        let state = self.state.lock();
        let first = state.segments.back().and_then(|segment| segment.first_seqno);
        first.map_or(SeqNo::ZERO, SeqNo::previous)
    }

    /// Whether the history has segment `number`: its file stays.
    pub fn keeps(&self, number: SegmentNumber) -> bool {
        let state = self.state.lock();
        state.segments.binary_search_by_key(&number, |segment| segment.number).is_ok()
    }

    /// The segments, ascending.
    pub fn segments(&self) -> Vec<HistorySegment> {
        self.state.lock().segments.iter().copied().collect()
    }

    /// The segments, ascending, and a pin on all of them.
    pub fn pin(self: &Arc<Self>) -> (HistoryPin, Vec<HistorySegment>) {
        let mut state = self.state.lock();
        let id = state.next_pin;
        state.next_pin += 1;
        let oldest = state.segments.front().map_or(SegmentNumber::ZERO, |segment| segment.number);
        state.pins.insert(id, oldest);
        let segments = state.segments.iter().copied().collect();
        (HistoryPin { history: self.clone(), id }, segments)
    }

    /// Takes out the oldest segments, as far as `retention` does not keep them, and gives their numbers. The file of a
    /// segment that `stays_anyway` (for its separated values) does not count for the limit.
    pub fn trim(
        &self,
        retention: Retention,
        stays_anyway: impl Fn(SegmentNumber) -> bool,
    ) -> Vec<SegmentNumber> {
        let Retention { limit_bytes, in_force, regardless } = retention;
        let mut state = self.state.lock();
        let pinned = state.pins.values().min().copied().filter(|_| !regardless);
        let (mut bytes, mut kept_bytes) = (0_u64, 0);
        let mut keep_from = state.segments.len();
        for (at, segment) in state.segments.iter().enumerate().rev() {
            if segment.number < in_force {
                if !stays_anyway(segment.number) {
                    bytes = bytes.saturating_add(segment.end.unwrap_or(0));
                }
                let is_pinned = pinned.is_some_and(|oldest| segment.number >= oldest);
                if !is_pinned && (limit_bytes == 0 || bytes > limit_bytes) {
                    break;
                }
                kept_bytes = bytes;
            }
            keep_from = at;
        }
        self.kept_bytes.store(kept_bytes, Ordering::Relaxed);
        state.segments.drain(..keep_from).map(|segment| segment.number).collect()
    }

    /// Whether the history has segments before `number`.
    pub fn begins_before(&self, number: SegmentNumber) -> bool {
        self.state.lock().segments.front().is_some_and(|segment| segment.number < number)
    }

    /// Bytes of segments that were there for feeds only, at the last [`Self::trim`].
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::Relaxed)
    }
}

/// Keeps the segments that a feed needs until it is dropped, or the disk is full.
pub(crate) struct HistoryPin {
    history: Arc<LogHistory>,
    id: u64,
}

impl HistoryPin {
    /// Segments before `number` are not needed any more.
    pub fn move_to(&self, number: SegmentNumber) {
        self.history.state.lock().pins.insert(self.id, number);
    }

    /// Whether `number` is the segment that is being written.
    pub fn is_last(&self, number: SegmentNumber) -> bool {
        self.history.state.lock().segments.back().is_some_and(|last| last.number == number)
    }

    /// The segments of the history, ascending.
    pub fn segments(&self) -> Vec<HistorySegment> {
        self.history.segments()
    }
}

impl Drop for HistoryPin {
    fn drop(&mut self) {
        self.history.state.lock().pins.remove(&self.id);
    }
}

/// What [`linked`] finds.
#[derive(Debug)]
pub(crate) struct Linked {
    /// Ascending.
    pub segments: Vec<HistorySegment>,
    /// Why they go no further back, if the device does not give the header of the one before them.
    pub unreadable: Option<terrace_base::Error>,
}

/// The segments in `dir` that lead to `end` by the links in their headers, as far back as they are there.
///
/// # Errors
/// I/O.
pub(crate) fn linked(vfs: &dyn Vfs, dir: &Path, end: LogPosition) -> terrace_base::Result<Linked> {
    let (mut segments, mut unreadable) = (VecDeque::new(), None);
    let mut next = Some(end).filter(|end| end.segment > SegmentNumber::ZERO);
    while let Some(LogPosition { segment, offset }) = next {
        let header = match terrace_log::read_header(vfs, &names::log_path(dir, segment)) {
            Ok(Ok(header)) if header.segment == segment => header,
            Ok(_) => break,
            Err(error) if error.is_not_found() => break,
            Err(error) if is_unreadable(&error) => {
                unreadable = Some(error);
                break;
            }
            Err(error) => return Err(error),
        };
        let (number, end) = (segment, Some(offset));
        segments.push_front(HistorySegment { number, end, first_seqno: None });
        next = header.previous;
    }
    Ok(Linked { segments: segments.into(), unreadable })
}

#[cfg(test)]
mod tests;
