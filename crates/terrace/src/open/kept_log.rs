//! What stays of the log when a store is opened: the segments that change feeds may still want to read
//! ([`crate::version::log_history`]).
//!
//! They are the ones that lead to the end of the log by the links in their headers, if nothing is missing: the last
//! sequence number in them must not be below what SSTs have. After a power cut it can be, if a flush was not
//! preceded by a sync of the log.

use crate::batch;
use crate::env::reserve;
use crate::event;
use crate::open::recover::Outcome;
use crate::options::Options;
use crate::version::file_numbers::FileNumbers;
use crate::version::log_history::{HistorySegment, Linked, LogHistory, Retention, linked};
use crate::write::log_segments;
use crate::write::queue::LogState;
use std::path::Path;
use terrace_base::{SegmentNumber, SeqNo};
use terrace_log::format::HEADER_BYTES;
use terrace_log::{LogPosition, LogReader, RecordKind, SegmentFile, Step};
use terrace_manifest::ManifestState;
use terrace_manifest::names::{self, FileName};
use terrace_vfs::{Vfs, is_unreadable};

/// A log that was replayed.
pub(super) struct ReplayedLog<'a> {
    pub vfs: &'a dyn Vfs,
    pub dir: &'a Path,
    /// What is in the directory.
    pub listing: &'a [String],
    pub numbers: &'a FileNumbers,
    /// Those that were replayed.
    pub segments: &'a [SegmentFile],
    /// As it was before.
    pub state: &'a ManifestState,
    pub outcome: &'a Outcome,
}

impl ReplayedLog<'_> {
    /// Begins the log that follows it, in `segment`; gives that and what change feeds can read. What was replayed is durable by
    /// then. What was salvaged is not gone on with.
    pub fn go_on(
        &self,
        segment: SegmentNumber,
        options: &Options,
        is_salvaged: bool,
    ) -> terrace_base::Result<(LogState, LogHistory)> {
        let keeps_log = options.advanced.log_retention_bytes > 0;
        let (kept, previous) = match keeps_log && !is_salvaged {
            true => self.kept()?,
            false => (Vec::new(), None),
        };
        let last_seqno = self.outcome.last_seqno;
        let begins = (segment, previous);
        let log = log_segments::with_room(options.log(), self.free_bytes(options));
        let log =
            log_segments::first_log(self.vfs, self.dir, begins, (last_seqno, keeps_log), &log)?;
        let first_seqno = Some(last_seqno.next());
        let fresh = HistorySegment { number: segment, end: None, first_seqno };
        Ok((log, LogHistory::new(kept.into_iter().chain([fresh]), last_seqno)))
    }

    /// Bytes that are free besides what the reserve is to have: an open may have given that back.
    fn free_bytes(&self, options: &Options) -> u64 {
        reserve::room_bytes(self.vfs, self.dir).saturating_sub(options.advanced.reserve_bytes)
    }

    /// The segments that stay, made durable, and where the last one ends; none if something is missing.
    fn kept(&self) -> terrace_base::Result<(Vec<HistorySegment>, Option<LogPosition>)> {
        let (kept, end) = match self.found() {
            // The store needs nothing of what cannot be read: feeds begin anew.
            Err(error) if is_unreadable(&error) => {
                event::log_history_ends(&error);
                (Vec::new(), None)
            }
            found => found?,
        };
        for SegmentFile { number, path } in self.segments {
            if kept.iter().any(|segment| segment.number == *number) {
                // After a mere kill the device may not have all that was replayed.
                self.vfs.sync_file(path)?;
            }
        }
        Ok((kept, end))
    }

    /// The segments that lead to the end of the log, and where that is; none if something is missing.
    fn found(&self) -> terrace_base::Result<(Vec<HistorySegment>, Option<LogPosition>)> {
        let Some(end) = self.end()? else { return Ok((Vec::new(), None)) };
        let Linked { segments: kept, unreadable } = linked(self.vfs, self.dir, end)?;
        if let Some(error) = unreadable {
            event::log_history_ends(&error);
        }
        let flushed = self.state.families.values().map(|family| family.flushed_seqno);
        let files = self.state.families.values().flat_map(|family| family.version.all_files());
        let in_ssts = flushed.chain(files.map(|(_, file)| file.largest_seqno)).max();
        let in_log = self.last_seqno(&kept)?;
        if in_ssts.unwrap_or_default() > in_log || in_log > self.outcome.last_seqno {
            return Ok((Vec::new(), None));
        }
        let end = Some(end).filter(|_| !kept.is_empty());
        Ok((kept, end))
    }

    /// Where the log ends.
    fn end(&self) -> terrace_base::Result<Option<LogPosition>> {
        let Some(end) = self.outcome.log.end else { return Ok(None) };
        if end.offset >= HEADER_BYTES {
            return Ok(Some(end));
        }
        // The only segment that was in force is one whose header a power cut has taken, and with it the link. The
        // newest one before it is full, if it is the one.
        let number = |name: &String| match names::parse(name) {
            FileName::Log(number) if !self.numbers.is_foreign(number.file()) => Some(number),
            _ => None,
        };
        let before = self.listing.iter().filter_map(number).filter(|n| *n < end.segment).max();
        let Some(segment) = before else { return Ok(None) };
        let (_, offset) = self.read(segment, u64::MAX)?;
        Ok(Some(LogPosition { segment, offset }))
    }

    /// The last sequence number that segments know of.
    fn last_seqno(&self, kept: &[HistorySegment]) -> terrace_base::Result<SeqNo> {
        if self.outcome.log_seqno > SeqNo::ZERO {
            return Ok(self.outcome.log_seqno);
        }
        // Nothing was replayed: the log had just begun a segment.
        for segment in kept.iter().rev() {
            if let (Some(last), _) = self.read(segment.number, segment.end.unwrap_or(u64::MAX))? {
                return Ok(last);
            }
        }
        Ok(SeqNo::ZERO)
    }

    /// The last sequence number in a segment that ends at `until`, and where its records end.
    fn read(
        &self,
        segment: SegmentNumber,
        until: u64,
    ) -> terrace_base::Result<(Option<SeqNo>, u64)> {
        let path = names::log_path(self.dir, segment);
        let mut reader = LogReader::open(self.vfs, &path, segment)?;
        let mut last = None;
        while reader.position() < until {
            match reader.next()? {
                Step::Record(record) if record.kind == RecordKind::Data => {
                    let Some((first, count, _)) = batch::decode(record.payload) else { break };
                    last = Some((first + u64::from(count)).previous());
                }
                Step::Record(_) => {}
                Step::End { .. } => break,
            }
        }
        Ok((last, reader.position()))
    }
}

/// Leaves what the options allow of a history whose log begins with `segment`.
pub(super) fn trim(
    history: &LogHistory,
    options: &Options,
    state: &ManifestState,
    segment: SegmentNumber,
) {
    let limit_bytes = options.advanced.log_retention_bytes;
    let retention = Retention { limit_bytes, in_force: segment, regardless: false };
    history.trim(retention, |number| state.segments.contains_key(&number));
}
