//! A change feed: goes through the segments of the log, record by record, up to what is visible.
//!
//! Invariants:
//! - Batches come in the order of their commits, each once, and no number is left out: a number that is not in
//!   the log is an error. The exception is a batch without operations, by which the first segment after an open
//!   says that the numbers before it were lost by a crash: nothing in the store has them.
//! - Nothing comes that is not visible to reads yet: not what a commit has appended and not inserted.
//! - A feed takes no lock of the write path. It reads the file that the leader appends to, and asks again where it
//!   sees the file's end ([`LogReader::next_beside_writer`]); only with a buffered log it has the buffer handed over.

use crate::batch;
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::options::SyncMode;
use crate::updates::segments::{Segments, path_of};
use crate::updates::update::{RecordPlace, UpdateBatch};
use crate::version::log_history::HistorySegment;
use crate::write::log_segments;
use std::sync::Arc;
use terrace_base::SeqNo;
use terrace_log::{LogReader, RecordKind, Step};

/// How updates are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UpdateOptions {
    /// Give only updates that are durable: no crash takes them back. Else all that reads see is given, and a
    /// power cut (with [`SyncMode::Buffered`] also a killed process) may lose what was given already.
    pub synced_only: bool,
}

/// An iterator over committed batches, made by [`Db::updates_since`](crate::Db::updates_since).
///
/// It ends where reads end now: `None` says that there is nothing new, and a later call looks again. An error comes
/// again with every call until its cause is gone, for good once the store is closed: stop at it, since what passes over
/// errors (`flatten`, `count`) never ends. It keeps the log from there on until it is dropped, or the disk is full.
pub struct Updates {
    inner: Arc<Inner>,
    options: UpdateOptions,
    segments: Segments,
    /// The log had all numbers up to this one when the segments were listed: where each of these has an end, it is known.
    listed: SeqNo,
    /// Everything before was given.
    next: SeqNo,
    current: Option<Current>,
    /// Read, and not to be given, since numbers are missing before it.
    held: Option<UpdateBatch>,
}

/// The segment that is being read.
struct Current {
    /// Its index among the segments.
    index: usize,
    reader: LogReader,
}

impl Updates {
    /// A feed that begins with the batch that has number `since`.
    pub(crate) fn open(inner: &Arc<Inner>, since: u64, options: UpdateOptions) -> Result<Self> {
        inner.base.health.check_open()?;
        or_closed(inner, Self::open_now(inner, since, options))
    }

    fn open_now(inner: &Arc<Inner>, since: u64, options: UpdateOptions) -> Result<Self> {
        if options.synced_only && inner.base.read_only {
            let text = "a read-only store does not know what its writer has made durable";
            return Err(Error::InvalidArgument(text.into()));
        }
        let (since, newest) = (SeqNo::new(since.max(1)), inner.read.visible_seqno());
        if since > newest.next() {
            let text = format!(
                "there are no updates from {since} on: the newest write has number {newest}"
            );
            return Err(Error::InvalidArgument(text));
        }
        let segments = Segments::of(inner)?;
        let (inner, next) = (inner.clone(), since);
        let (current, held) = (None, None);
        let mut feed = Self { inner, options, segments, listed: newest, next, current, held };
        match feed.begin(newest) {
            Err(error) if feed.may_pass(&error) => feed.begin_anew(newest)?,
            begun => begun?,
        }
        Ok(feed)
    }

    /// The sequence number that comes next.
    pub fn next_seqno(&self) -> u64 {
        self.next.get()
    }

    /// Opens the segment with the number that comes next, of which those up to `newest` are in the log.
    fn begin(&mut self, newest: SeqNo) -> Result<()> {
        let index = match self.segments.find(&self.inner, self.next)? {
            Some(index) => index,
            // It was not written yet: it will be in the newest segment, or in a later one.
            None if self.next > newest => match self.segments.list.len().checked_sub(1) {
                Some(last) => last,
                None => return self.segments.check_older(),
            },
            None => return Err(self.gone()?),
        };
        self.open_segment(index)
    }

    /// As [`Self::begin`], with the segments that there are now.
    fn begin_anew(&mut self, newest: SeqNo) -> Result<()> {
        self.segments = Segments::of(&self.inner)?;
        self.listed = newest;
        self.begin(newest)
    }

    fn open_segment(&mut self, index: usize) -> Result<()> {
        let number = self.segments.list[index].number;
        let path = path_of(&self.inner, number);
        let reader = LogReader::open(&*self.inner.base.vfs, &path, number)?;
        self.segments.move_to(number);
        self.current = Some(Current { index, reader });
        Ok(())
    }

    /// The error of a feed whose next number is older than all that there is.
    fn gone(&self) -> Result<Error> {
        self.segments.check_older()?;
        let newest = self.inner.read.visible_seqno();
        let oldest = self.segments.oldest(&self.inner)?.unwrap_or(newest.next());
        Ok(self.gone_before(oldest))
    }

    fn gone_before(&self, oldest: SeqNo) -> Error {
        Error::UpdatesGone { since: self.next.get(), oldest: oldest.get() }
    }

    /// The last number that may be given now.
    fn limit(&self) -> SeqNo {
        let visible = self.inner.read.visible_seqno();
        match self.options.synced_only {
            true => visible.min(self.inner.versions.log_history.synced()),
            false => visible,
        }
    }

    fn advance(&mut self) -> Result<Option<UpdateBatch>> {
        self.inner.base.health.check_open()?;
        let next = self.advance_now();
        or_closed(&self.inner, next)
    }

    fn advance_now(&mut self) -> Result<Option<UpdateBatch>> {
        let limit = self.limit();
        let mut begins_anew = false;
        while self.next <= limit {
            let next = match self.held_or_next(limit) {
                Err(error) if self.may_pass(&error) => {
                    // Each time, for a reader: its list is as old as its last refresh.
                    self.current = None;
                    if begins_anew {
                        return Err(error);
                    }
                    begins_anew = true;
                    continue;
                }
                next => next?,
            };
            // Reads see it, and the log does not have it.
            let Some(batch) = next else { return Err(self.gone_before(limit.next())) };
            let first = SeqNo::new(batch.first_seqno());
            let end = first + batch.len() as u64;
            if end == first {
                // What lies between was lost by a crash.
                self.next = self.next.max(first);
            } else if first > self.next {
                self.held = Some(batch);
                return Err(self.gone_before(first));
            } else if end > self.next {
                self.next = end;
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// The batch that was read and could not be given, or else the next one in the log.
    fn held_or_next(&mut self, limit: SeqNo) -> Result<Option<UpdateBatch>> {
        if self.current.is_none() {
            self.begin_anew(limit)?;
        }
        match self.held.take() {
            Some(held) => Ok(Some(held)),
            None => self.next_batch(limit),
        }
    }

    /// Whether an error may come of an old list of segments. A full disk goes before feeds: is what follows still there?
    /// The writer beside a read-only store may have cut off what was there when the store last looked.
    fn may_pass(&self, error: &Error) -> bool {
        match error {
            Error::Io(error) => error.is_not_found(),
            Error::Corruption(_) => self.inner.base.read_only,
            _ => false,
        }
    }

    /// The next batch in the log that has the next number, or a later one, or none; `None` if there is no more. All
    /// numbers up to `limit` are in the log.
    fn next_batch(&mut self, limit: SeqNo) -> Result<Option<UpdateBatch>> {
        if limit > self.listed {
            self.learn_end()?;
            self.listed = limit;
        }
        let (mut has_looked, mut has_handed_over) = (false, false);
        loop {
            if let Some(batch) = self.next_of_segment()? {
                return Ok(Some(batch));
            }
            let Some(current) = &self.current else { return Ok(None) };
            if current.index + 1 < self.segments.list.len() {
                self.open_segment(current.index + 1)?;
                has_looked = false;
                continue;
            }
            if !has_looked {
                has_looked = true;
                self.look_again()?;
            } else if !has_handed_over && self.hand_over()? {
                (has_handed_over, has_looked) = (true, false);
            } else {
                return Ok(None);
            }
        }
    }

    /// The next batch in the current segment; `None` at its end, as far as that is known.
    fn next_of_segment(&mut self) -> Result<Option<UpdateBatch>> {
        let Some(Current { index, reader }) = &mut self.current else { return Ok(None) };
        let segment = self.segments.list[*index];
        let path = || path_of(&self.inner, segment.number);
        while segment.end.is_none_or(|end| reader.position() < end) {
            match reader.next_beside_writer(&*self.inner.base.vfs)? {
                Step::Record(record) if record.kind == RecordKind::Data => {
                    let offset = record.offset;
                    // Most of what is skipped is skipped without a copy.
                    let bounds = batch::decode(record.payload).map(|(first, n, _)| (first, n));
                    if bounds.is_some_and(|(first, n)| n > 0 && first + u64::from(n) <= self.next) {
                        continue;
                    }
                    let families = self.inner.read.families.load_full();
                    let place = RecordPlace { path: path(), offset };
                    return Ok(Some(UpdateBatch::new(record.payload, place, families)?));
                }
                Step::Record(_) => {}
                Step::End { offset, torn } => {
                    let Some(end) = segment.end else { return Ok(None) };
                    let why = torn.unwrap_or(format!("records up to {end} should follow"));
                    return Err(terrace_base::Error::corruption(&path(), offset, why).into());
                }
            }
        }
        Ok(None)
    }

    /// Learns where the last of the listed segments ends, if another one was begun since. Behind that end a failed append
    /// may have left records whose numbers were given again, to others in the next segment. Of a number that was visible
    /// before this call, the segment has been begun, and so the end of the one before it is known.
    fn learn_end(&mut self) -> Result<()> {
        match self.segments.list.last() {
            Some(HistorySegment { number, end: None, .. }) if self.segments.has_ended(*number) => {
                self.look_again()
            }
            _ => Ok(()),
        }
    }

    /// Learns of segments that were begun since, and of where the current one ends.
    fn look_again(&mut self) -> Result<()> {
        // What fails leaves none: its index would be one of the old list.
        let Some(current) = self.current.take() else { return Ok(()) };
        let number = self.segments.list[current.index].number;
        self.segments.look_again(&self.inner, number)?;
        match self.segments.list.iter().position(|segment| segment.number == number) {
            Some(index) => {
                self.current = Some(Current { index, ..current });
                Ok(())
            }
            // It was read to its end, and is gone since: what comes next has the next number.
            None => match self.segments.find(&self.inner, self.next)? {
                Some(index) => self.open_segment(index),
                None => Err(self.gone()?),
            },
        }
    }

    /// Has a buffered log handed to the kernel; false if there is no buffer.
    fn hand_over(&self) -> Result<bool> {
        let base = &self.inner.base;
        if base.read_only || base.options.sync != SyncMode::Buffered {
            return Ok(false);
        }
        log_segments::hand_over(&self.inner.commit).map(|()| true)
    }
}

impl Iterator for Updates {
    type Item = Result<UpdateBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

impl std::fmt::Debug for Updates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Updates").field("next_seqno", &self.next).finish_non_exhaustive()
    }
}

/// The oldest number from which on every update is in the log.
pub(crate) fn oldest(inner: &Inner) -> Result<u64> {
    inner.base.health.check_open()?;
    let newest = inner.read.visible_seqno();
    let oldest = Segments::of(inner).and_then(|segments| segments.oldest(inner));
    Ok(or_closed(inner, oldest)?.unwrap_or(newest.next()).get())
}

/// `Closed` instead of an error that comes of a close meanwhile: after it the files may be another process's, and
/// gone.
fn or_closed<T>(inner: &Inner, result: Result<T>) -> Result<T> {
    result.or_else(|error| inner.base.health.check_open().and(Err(error)))
}

#[cfg(test)]
mod tests;
