//! Moving values out of victim segments: the stage of a job between `retain` and `output` (compact).
//!
//! An entry whose handle names a victim waits in a window, with whatever comes after it so
//! that the order stays; when the window is full, its values are read in one batch, written in key
//! order to a segment of the job's own, and the entries go on to the output with their new
//! handles. All other entries pass through.
//!
//! Nothing of this is in force before the job's edit is: it names the new segments and the SSTs
//! that refer to them together. Dropping the stage removes every file it started. Called by `job`.

use super::pick::{Compaction, Reason, victim_bytes};
use crate::background::output::Output;
use crate::env::rate_limit::RateLimiter;
use crate::kill_point::kill_point;
use crate::values::excluded::{Try, is_of_segment};
use crate::values::value_log::{SegmentMap, ValueLog};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_base::key::{EXPIRY_BYTES, trailer_kind};
use terrace_base::value_handle::MAX_SEGMENT_BYTES;
use terrace_base::{Error, FileNumber, HANDLE_BYTES, Result, SegmentNumber, ValueHandle};
use terrace_log::value::ValueWriter;
use terrace_manifest::{FileMeta, SegmentKind, SegmentMeta, names};
use terrace_vfs::Vfs;

/// Values that a window gathers for one batch of reads.
const WINDOW_VALUES: usize = 64;
/// Stored bytes of the values in a window, and bytes of its entries, of which one more may pass
/// the bound.
const WINDOW_BYTES: usize = 1 << 20;
/// A job that is done for another reason moves values if they fill one part in this many of a
/// segment: less is not worth a file.
const MIN_PART: u64 = 8;

/// Which values a job moves, and what it needs for that.
#[derive(Clone)]
pub(crate) struct Moving<'a> {
    pub log: &'a ValueLog,
    /// The segments of all inputs.
    pub held: Arc<SegmentMap>,
    /// The segments to empty.
    pub victims: Arc<HashSet<SegmentNumber>>,
    /// All bytes that live SSTs refer to in them.
    pub victims_live_bytes: u64,
    /// Length at which a segment ends.
    pub segment_bytes: u64,
    /// When the job began.
    pub of_try: Try,
}

impl Moving<'_> {
    /// Whether a job moves values: not for a file of next to nothing, unless that is all there is
    /// left, or what it is done for.
    pub fn moves(&self, compaction: &Compaction) -> bool {
        let held: u64 = compaction.files().map(|file| victim_bytes(file, &self.victims)).sum();
        let worth_it = held >= (self.segment_bytes / MIN_PART).min(self.victims_live_bytes);
        held > 0 && (worth_it || compaction.reason == Reason::Values)
    }

    /// Stored bytes of the value of an entry that stays, if it moves.
    pub fn moved_bytes(&self, trailer: u64, value: &[u8]) -> u64 {
        let handle = handle_of(trailer, value);
        let moves = handle.filter(|handle| self.victims.contains(&handle.segment));
        moves.map_or(0, |handle| u64::from(handle.len))
    }

    /// Refuses inputs that refer to a segment that is not there.
    pub fn check_inputs<'f>(&self, inputs: impl Iterator<Item = &'f Arc<FileMeta>>) -> Result<()> {
        for reference in inputs.flat_map(|file| &file.value_refs) {
            if !self.held.contains_key(&reference.segment) {
                let (segment, offset) = (reference.segment, 0);
                let handle = ValueHandle { segment, offset, len: 0, compression: 0 };
                return Err(self.log.missing(&handle));
            }
        }
        Ok(())
    }
}

/// What became of the references of a job's inputs, by segment, in
/// [`ValueHandle::weight_bytes`].
#[derive(Debug, Default)]
pub(crate) struct References {
    /// Those of entries that were dropped.
    dropped: BTreeMap<SegmentNumber, u64>,
    /// Those of values that moved: away from one segment, into another.
    left: BTreeMap<SegmentNumber, u64>,
    entered: BTreeMap<SegmentNumber, u64>,
}

impl References {
    /// Counts an entry that goes.
    #[inline]
    pub fn note_dropped(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) {
        if let Some(handle) = handle_of(trailer, value) {
            *self.dropped.entry(handle.segment).or_default() += handle.weight_bytes(user_key.len());
        }
    }

    fn note_moved(&mut self, user_key: &[u8], from: &ValueHandle, to: &ValueHandle) {
        *self.left.entry(from.segment).or_default() += from.weight_bytes(user_key.len());
        *self.entered.entry(to.segment).or_default() += to.weight_bytes(user_key.len());
    }

    /// Adds what another piece of the job counted.
    pub fn add(&mut self, other: &Self) {
        let add = |to: &mut BTreeMap<SegmentNumber, u64>, from: &BTreeMap<SegmentNumber, u64>| {
            from.iter().for_each(|(segment, bytes)| *to.entry(*segment).or_default() += bytes);
        };
        add(&mut self.dropped, &other.dropped);
        add(&mut self.left, &other.left);
        add(&mut self.entered, &other.entered);
    }

    /// The first segment for which inputs and outputs do not balance: its number, what the outputs
    /// should refer to, and what they do.
    pub fn imbalance<'f>(
        &self,
        inputs: impl Iterator<Item = &'f FileMeta>,
        outputs: impl Iterator<Item = &'f FileMeta>,
    ) -> Option<(SegmentNumber, i128, i128)> {
        let mut due: BTreeMap<SegmentNumber, (i128, i128)> = BTreeMap::new();
        let mut count = |segment: SegmentNumber, wanted: i128, found: i128| {
            let entry = due.entry(segment).or_default();
            *entry = (entry.0 + wanted, entry.1 + found);
        };
        inputs.flat_map(|f| &f.value_refs).for_each(|r| count(r.segment, r.bytes.into(), 0));
        outputs.flat_map(|f| &f.value_refs).for_each(|r| count(r.segment, 0, r.bytes.into()));
        self.dropped.iter().for_each(|(segment, bytes)| count(*segment, -i128::from(*bytes), 0));
        self.left.iter().for_each(|(segment, bytes)| count(*segment, -i128::from(*bytes), 0));
        self.entered.iter().for_each(|(segment, bytes)| count(*segment, (*bytes).into(), 0));
        let wrong = due.into_iter().find(|(_, (wanted, found))| wanted != found);
        wrong.map(|(segment, (wanted, found))| (segment, wanted, found))
    }
}

/// Where the value of an entry is, if it is separated.
#[inline]
fn handle_of(trailer: u64, value: &[u8]) -> Option<ValueHandle> {
    ValueHandle::of_entry(trailer_kind(trailer)?, value)
}

/// What a stage wrote.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// New segments, synced; the directory is not.
    pub segments: Vec<SegmentMeta>,
    pub values: u64,
    /// Length of the segments.
    pub bytes: u64,
}

/// Where segments are written.
#[derive(Clone, Copy)]
pub(crate) struct StageContext<'a> {
    pub vfs: &'a Arc<dyn Vfs>,
    pub dir: &'a Path,
    pub next_file_number: &'a (dyn Fn() -> FileNumber + Sync),
    pub limiter: &'a RateLimiter,
    pub cancel: &'a AtomicBool,
}

/// An entry in the window; ranges are of its arena.
struct Waiting {
    key: Range<usize>,
    trailer: u64,
    value: Range<usize>,
    /// Where its value is now, if it moves.
    from: Option<ValueHandle>,
}

/// The stage. Without [`Moving`] it only passes on.
pub(crate) struct Stage<'a> {
    moving: Option<&'a Moving<'a>>,
    output: Output<'a>,
    segments: OpenSegments<'a>,
    window: Vec<Waiting>,
    arena: Vec<u8>,
    window_values: usize,
    window_stored_bytes: usize,
    references: References,
}

/// Segments being written.
struct OpenSegments<'a> {
    context: StageContext<'a>,
    writer: Option<ValueWriter>,
    moved: Moved,
    /// Every segment that was started; emptied when they are handed over.
    started: Vec<SegmentNumber>,
}

impl<'a> Stage<'a> {
    /// A stage before `output`; `moving` if values are to be moved.
    pub fn new(
        context: StageContext<'a>,
        moving: Option<&'a Moving<'a>>,
        output: Output<'a>,
    ) -> Self {
        let moved = Moved::default();
        Self {
            moving,
            output,
            segments: OpenSegments { context, writer: None, moved, started: Vec::new() },
            window: Vec::new(),
            arena: Vec::new(),
            window_values: 0,
            window_stored_bytes: 0,
            references: References::default(),
        }
    }

    /// Adds the next entry, in internal order, without repeats.
    #[inline]
    pub fn add(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) -> Result<()> {
        let Some(moving) = self.moving else {
            return self.output.add(user_key, trailer, value);
        };
        let handle = handle_of(trailer, value);
        let from = handle.filter(|handle| moving.victims.contains(&handle.segment));
        if from.is_none() && self.window.is_empty() {
            return self.output.add(user_key, trailer, value);
        }
        self.wait(user_key, trailer, value, from)
    }

    /// Counts an entry that goes no further.
    #[inline]
    pub fn note_dropped(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) {
        self.references.note_dropped(user_key, trailer, value);
    }

    fn wait(
        &mut self,
        user_key: &[u8],
        trailer: u64,
        value: &[u8],
        from: Option<ValueHandle>,
    ) -> Result<()> {
        let start = self.arena.len();
        self.arena.extend_from_slice(user_key);
        let middle = self.arena.len();
        self.arena.extend_from_slice(value);
        let end = self.arena.len();
        self.window.push(Waiting { key: start..middle, trailer, value: middle..end, from });
        if let Some(from) = from {
            self.window_values += 1;
            self.window_stored_bytes += from.len as usize;
        }
        let full = self.window_values >= WINDOW_VALUES
            || self.window_stored_bytes >= WINDOW_BYTES
            || self.arena.len() >= WINDOW_BYTES;
        if full { self.pass_on() } else { Ok(()) }
    }

    /// Moves the values of the window and empties it.
    fn pass_on(&mut self) -> Result<()> {
        let Some(moving) = self.moving else { return Ok(()) };
        let (window, arena) = (std::mem::take(&mut self.window), std::mem::take(&mut self.arena));
        let wanted: Vec<(&[u8], ValueHandle)> = window
            .iter()
            .filter_map(|entry| Some((arena.get(entry.key.clone())?, entry.from?)))
            .collect();
        let mut stored = moving.log.read_stored_held(&moving.held, &wanted).into_iter();
        for entry in &window {
            let (key, value) = (&arena[entry.key.clone()], &arena[entry.value.clone()]);
            let Some(from) = entry.from else {
                self.output.add(key, entry.trailer, value)?;
                continue;
            };
            let bytes = match stored.next() {
                Some(Ok(bytes)) => bytes,
                // The entry of a value that is damaged or lost stays as it is: a read of the key gives the error, and
                // the merge goes on.
                Some(Err(error)) if is_of_segment(&error) => {
                    moving.log.spare(from.segment, &error, moving.of_try);
                    self.output.add(key, entry.trailer, value)?;
                    continue;
                }
                Some(Err(error)) => return Err(error),
                None => return Err(moving.log.missing(&from)),
            };
            let to = self.segments.add(moving.segment_bytes, key, &bytes, from.compression)?;
            self.references.note_moved(key, &from, &to);
            self.segments.moved.values += 1;
            // The handle is the end of the value; an expiry before it stays.
            let mut changed = [0; EXPIRY_BYTES + HANDLE_BYTES];
            let head = value.len() - HANDLE_BYTES;
            changed[..head].copy_from_slice(&value[..head]);
            changed[head..value.len()].copy_from_slice(&to.encode());
            self.output.add(key, entry.trailer, &changed[..value.len()])?;
        }
        (self.window, self.arena) = (window, arena);
        self.window.clear();
        self.arena.clear();
        let bytes = std::mem::take(&mut self.window_stored_bytes) as u64;
        self.window_values = 0;
        let context = &self.segments.context;
        context.limiter.request(bytes, context.cancel);
        Ok(())
    }

    /// Ends the last segment and the last file and hands over all of them, synced; the directory
    /// is the caller's to sync, the files are the caller's to remove from now on.
    pub fn finish(mut self) -> Result<(Vec<FileMeta>, Moved, References)> {
        self.pass_on()?;
        self.segments.end()?;
        let files = self.output.finish()?;
        Ok((files, self.segments.hand_over(), self.references))
    }
}

impl OpenSegments<'_> {
    /// Appends a value; a segment that has `segment_bytes` ends.
    fn add(
        &mut self,
        segment_bytes: u64,
        key: &[u8],
        stored: &[u8],
        compression: u8,
    ) -> Result<ValueHandle> {
        let room = MAX_SEGMENT_BYTES - key.len() as u64 - stored.len() as u64 - (1 << 10);
        if self.writer.as_ref().is_some_and(|writer| writer.len_bytes() > room) {
            self.end()?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let fresh = self.start()?;
                self.writer.insert(fresh)
            }
        };
        let handle = writer.add(key, stored, compression)?;
        if writer.len_bytes() >= segment_bytes {
            self.end()?;
        }
        Ok(handle)
    }

    fn start(&mut self) -> Result<ValueWriter> {
        let number = (self.context.next_file_number)();
        let segment = number.segment();
        if !segment.fits_handles() {
            let why = "file numbers are used up: value segments have 32 bits";
            return Err(Error::InvalidArgument(why.into()));
        }
        self.started.push(segment);
        let path = names::temp_path(self.context.dir, number);
        ValueWriter::create(&**self.context.vfs, &path, segment, 0)
    }

    fn end(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let number = writer.segment();
        let size_bytes = writer.finish()?;
        kill_point("collection:segment_written");
        self.moved.bytes += size_bytes;
        self.moved.segments.push(SegmentMeta { number, kind: SegmentKind::Values, size_bytes });
        Ok(())
    }

    /// What was written; from now on it is the caller's to remove.
    fn hand_over(&mut self) -> Moved {
        self.started.clear();
        std::mem::take(&mut self.moved)
    }
}

impl Drop for OpenSegments<'_> {
    fn drop(&mut self) {
        self.writer = None;
        remove_segments(self.context.vfs, self.context.dir, self.started.iter().copied());
    }
}

/// Removes unpublished segments that were written and are not wanted, as far as that works: what stays is
/// removed at the next open.
pub(crate) fn remove_segments(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    segments: impl Iterator<Item = SegmentNumber>,
) {
    for segment in segments {
        if let Err(error) = vfs.remove(&names::temp_path(dir, segment.file()))
            && !error.is_not_found()
        {
            tracing::warn!(target: crate::event::TARGET, %error, "an unfinished segment stays until the next open");
        }
    }
}
