//! Replaying segments: the longest prefix without holes, or an error if damage reaches into what
//! was proven durable.
//!
//! 1. *Order.* From the last segment back, each header's link says which segment it continues and
//!    up to where. Segments that no link leads to were dropped by an earlier recovery and are
//!    skipped. A header without a link (or an unsound one) continues the segment before it.
//! 2. *Replay.* Record by record in that order. A segment that is continued at `end` is read
//!    exactly up to `end`. The first thing that does not fit is the bad spot.
//! 3. *Judgement.* Everything behind the bad spot is searched for sync markers. If one states
//!    that bytes past the bad spot had been durable, synced writes are lost: an error. Otherwise
//!    it is what a crash leaves of unsynced writes: dropped and reported.
//!
//! Used by the engine when it opens a store and by `terrace-manifest`.

use crate::format::{HEADER_BYTES, LogPosition, RECORD_HEADER_BYTES};
use crate::reader::{LogReader, RecordKind, Step};
use crate::scan::scan_markers;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use terrace_base::{Error, Result, SegmentNumber};
use terrace_vfs::Vfs;

/// A segment of a log. Ordered by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentFile {
    /// Its number.
    pub number: SegmentNumber,
    /// Where it is.
    pub path: PathBuf,
}

/// Takes segment, offset and payload of each data record.
pub type Apply<'a> = dyn FnMut(SegmentNumber, u64, &[u8]) -> Result<()> + 'a;

/// What a replay found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Data records applied.
    pub records: u64,
    /// Segment and file offset of the end of the prefix: what the next segment continues
    /// ([`crate::LogWriter::create_after`]). `None` only if there were no segments.
    pub end: Option<LogPosition>,
    /// Where each segment of the prefix ends, in order; the last of them may have an unsound header, and end at 0.
    pub ends: Vec<LogPosition>,
    /// Bytes after the prefix that are not zeros, later segments included.
    pub dropped_bytes: u64,
    /// Why the prefix ends where it does; `None` if the log ends cleanly.
    pub torn: Option<String>,
    /// Segments that were given and that no link leads to.
    pub skipped: Vec<SegmentNumber>,
}

impl Recovered {
    /// The [`Self::ends`] of segments with a sound header.
    pub fn sound_ends(&self) -> &[LogPosition] {
        let sound = self.ends.iter().take_while(|end| end.offset >= HEADER_BYTES);
        &self.ends[..sound.count()]
    }
}

/// Replays `segments` (number and path, ascending): calls `apply` with segment, offset and
/// payload of each data record of the prefix. Writes nothing.
///
/// `segments` must be all that are at or above the oldest one still needed; obsolete ones are
/// left out, whether or not they still exist.
///
/// What was replayed after a mere kill may not be on the device: before the next write is called
/// durable, its content must be (the engine flushes it to SSTs).
///
/// # Errors
/// `Corruption` naming file and offset if a sync marker proves that a record which cannot be read
/// had been durable; what `apply` returns; I/O.
pub fn recover(
    vfs: &dyn Vfs,
    segments: &[SegmentFile],
    apply: &mut Apply<'_>,
) -> Result<Recovered> {
    recover_with(vfs, segments, Setting::default(), apply)
}

/// What is known of a log beside its bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setting {
    /// Everything before this place is known from elsewhere to have been durable (with offset 0: the
    /// segment exists). A log that ends before it is an error.
    pub proven: Option<LogPosition>,
    /// Another process may be appending to the log. What is seen is a prefix that holds at least what
    /// the kernel had when the call was made: an append that is half seen is looked at again, and
    /// neither taken for damage nor for the end of what follows it.
    pub beside_writer: bool,
}

/// As [`recover`], of a log of which more is known.
pub fn recover_with(
    vfs: &dyn Vfs,
    segments: &[SegmentFile],
    setting: Setting,
    apply: &mut Apply<'_>,
) -> Result<Recovered> {
    LogSegments::open(vfs, segments)?.replay(setting, apply)
}

/// The segments of a log, of which the headers have been read.
pub struct LogSegments<'a> {
    vfs: &'a dyn Vfs,
    segments: &'a [SegmentFile],
    /// Of each of these.
    readers: Vec<LogReader>,
}

impl<'a> LogSegments<'a> {
    /// Opens `segments`, which are those that [`recover`] takes.
    ///
    /// # Errors
    /// Those of [`LogReader::open`]; `InvalidArgument` if the segments are not ascending.
    pub fn open(vfs: &'a dyn Vfs, segments: &'a [SegmentFile]) -> Result<Self> {
        if let Some(pair) = segments.windows(2).find(|pair| pair[0].number >= pair[1].number) {
            let (a, b) = (pair[0].number, pair[1].number);
            let why = format!("log segments {a} and {b} are not ascending");
            return Err(Error::InvalidArgument(why));
        }
        let open = |file: &SegmentFile| LogReader::open(vfs, &file.path, file.number);
        let readers = segments.iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(Self { vfs, segments, readers })
    }

    /// Those of its segments that are [`unlinked`].
    pub fn unlinked(&self, oldest: SegmentNumber) -> BTreeSet<SegmentNumber> {
        unlinked(&self.readers, oldest)
    }

    /// As [`recover_with`].
    ///
    /// # Errors
    /// Those of [`recover`].
    pub fn replay(
        self,
        Setting { proven, beside_writer }: Setting,
        apply: &mut Apply<'_>,
    ) -> Result<Recovered> {
        let Self { vfs, segments, mut readers } = self;
        let mut replay = Replay { segments, proven, recovered: Recovered::default() };
        let chain = chain(segments, &readers);
        let skipped = (0..segments.len()).filter(|at| !chain.iter().any(|part| part.index == *at));
        replay.recovered.skipped = skipped.map(|at| segments[at].number).collect();
        for part in &chain {
            let reader = &mut readers[part.index];
            // Only the last segment can be growing.
            let is_last = part.index + 1 == segments.len();
            let may_grow = beside_writer && is_last && part.missing.is_none();
            while let Some(bad) = replay.part(part, reader, apply)? {
                if may_grow && reader.look_again(vfs)? {
                    continue;
                }
                match replay.judge(vfs, bad) {
                    // The proof was written after the reader had passed, and so was what it proves.
                    Err(error)
                        if may_grow && error.is_corruption() && reader.look_again(vfs)? =>
                    {
                        replay.recovered.dropped_bytes = 0;
                    }
                    judged => return judged,
                }
            }
            replay.check_proven(part.index, readers[part.index].position())?;
        }
        if let Some(proven) = proven
            && !chain.iter().any(|part| segments[part.index].number == proven.segment)
        {
            return Err(replay.too_short(proven.segment, 0, "the segment is missing", proven));
        }
        Ok(replay.recovered)
    }
}

/// The segments behind the one with which the log begins whose header is sound and names none before them. The log begins
/// with segment `oldest`, whether that is there or not; 0: with the first of `readers`, which ascend.
pub fn unlinked(readers: &[LogReader], oldest: SegmentNumber) -> BTreeSet<SegmentNumber> {
    let first = match oldest {
        SegmentNumber::ZERO => readers.first().map_or(oldest, LogReader::segment),
        oldest => oldest,
    };
    let behind = readers.iter().filter(|reader| reader.segment() > first);
    let unlinked = behind.filter(|reader| reader.has_header() && reader.previous().is_none());
    unlinked.map(LogReader::segment).collect()
}

/// One segment of the log in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Index among the segments.
    pub index: usize,
    /// Where the segment after it continues it; `None` if that one does not say.
    pub until: Option<u64>,
    /// The segment that should stand before this one and does not exist.
    pub missing: Option<LogPosition>,
}

/// Orders the segments by following the links back from the last one.
pub(crate) fn chain(segments: &[SegmentFile], readers: &[LogReader]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut next = segments.len().checked_sub(1).map(|last| (last, None));
    while let Some((index, until)) = next {
        let mut missing = None;
        let before = index.checked_sub(1).map(|before| (before, None));
        next = match readers[index].previous() {
            None => before,
            Some(end) => {
                match segments[..index].binary_search_by_key(&end.segment, |file| file.number) {
                    Ok(linked) => Some((linked, Some(end.offset))),
                    // Older than all that is still needed.
                    Err(0) => None,
                    Err(_) if end.offset <= HEADER_BYTES => before,
                    Err(older) => {
                        missing = Some(end);
                        Some((older - 1, None))
                    }
                }
            }
        };
        parts.push(Part { index, until, missing });
    }
    parts.reverse();
    parts
}

/// The place where the prefix ends although the log goes on.
struct Bad {
    at: LogPosition,
    /// Index of the segment from which to look for proof, and the offset in it.
    scan_from: (usize, u64),
    why: String,
}

struct Replay<'a> {
    segments: &'a [SegmentFile],
    /// Everything before this is known to have been durable.
    proven: Option<LogPosition>,
    recovered: Recovered,
}

impl Replay<'_> {
    /// Applies one segment; returns the bad spot if there is one.
    fn part(
        &mut self,
        part: &Part,
        reader: &mut LogReader,
        apply: &mut Apply<'_>,
    ) -> Result<Option<Bad>> {
        let segment = reader.segment();
        let bad = |offset: u64, why: String| {
            Ok(Some(Bad {
                at: LogPosition { segment, offset },
                scan_from: (part.index, offset),
                why,
            }))
        };
        if let Some(LogPosition { segment: number, offset: end }) = part.missing {
            let why = format!("segment {segment} continues segment {number} at {end}: missing");
            let at = LogPosition { segment: number, offset: HEADER_BYTES };
            return Ok(Some(Bad { at, scan_from: (part.index, 0), why }));
        }
        loop {
            let position = reader.position();
            if part.until.is_some_and(|until| position >= until) {
                break;
            }
            let (offset, torn) = match reader.next()? {
                Step::Record(record) => {
                    let bytes = RECORD_HEADER_BYTES + record.payload.len();
                    let end = record.offset + bytes as u64;
                    if part.until.is_some_and(|until| end > until) {
                        let offset = record.offset;
                        self.note_end(segment, offset);
                        return bad(offset, "the next segment continues inside a record".into());
                    }
                    match record.kind {
                        RecordKind::Data => {
                            apply(segment, record.offset, record.payload)?;
                            self.recovered.records += 1;
                        }
                        RecordKind::SyncMarker(through) => {
                            self.check_named(segment, record.offset, through)?;
                        }
                        RecordKind::Value => {
                            let (path, offset) = (self.path(segment), record.offset);
                            let detail = "a value that garbage collection moved stands in the log";
                            return Err(Error::corruption(path, offset, detail));
                        }
                    }
                    continue;
                }
                Step::End { offset, torn } => (offset, torn),
            };
            match (part.until, torn) {
                (_, Some(why)) => {
                    self.note_end(segment, offset);
                    return bad(offset, why);
                }
                (Some(until), None) => {
                    self.note_end(segment, offset);
                    return bad(offset, format!("records up to {until} should follow"));
                }
                (None, None) => break,
            }
        }
        self.note_end(segment, reader.position());
        Ok(None)
    }

    /// A segment whose header is unsound can be continued only if nothing stands before it.
    fn note_end(&mut self, segment: SegmentNumber, offset: u64) {
        // A segment that grows ends more than once.
        self.recovered.ends.retain(|end| end.segment < segment);
        self.recovered.ends.push(LogPosition { segment, offset });
        if offset >= HEADER_BYTES || self.recovered.end.is_none() {
            self.recovered.end = Some(LogPosition { segment, offset });
        }
    }

    /// A marker that names a segment which should be here and is not proves a loss.
    fn check_named(&self, segment: SegmentNumber, offset: u64, through: LogPosition) -> Result<()> {
        let named = through.segment;
        let oldest = self.segments.first().map_or(named, |file| file.number);
        let exists = self.segments.binary_search_by_key(&named, |file| file.number).is_ok();
        if exists || named < oldest || through.offset <= HEADER_BYTES {
            return Ok(());
        }
        let detail = format!(
            "a sync marker proves that log segment {named} was durable up to {}, and it is \
             missing; put it back, or restore the store from a checkpoint",
            through.offset
        );
        Err(Error::corruption(self.path(segment), offset, detail))
    }

    /// Refuses a segment that ends cleanly at `end` and had been durable past it.
    fn check_proven(&self, index: usize, end: u64) -> Result<()> {
        let segment = self.segments[index].number;
        match self.proven {
            Some(proven) if proven.segment == segment && end < proven.offset => {
                Err(self.too_short(segment, end, "the records end here", proven))
            }
            _ => Ok(()),
        }
    }

    fn too_short(
        &self,
        segment: SegmentNumber,
        offset: u64,
        why: &str,
        proven: LogPosition,
    ) -> Error {
        let LogPosition { segment: durable, offset: through } = proven;
        let detail = format!(
            "{why}, and the evidence files (SYNCED-1, SYNCED-2) prove that segment {durable} was durable up \
             to offset {through}, so synced writes would be lost. Put the file back, restore the store \
             from a checkpoint, or save what is left with `terrace repair`"
        );
        Error::corruption(self.path(segment), offset, detail)
    }

    /// Decides between a torn tail and the loss of durable data.
    fn judge(&mut self, vfs: &dyn Vfs, bad: Bad) -> Result<Recovered> {
        let spot = bad.at;
        let LogPosition { segment, offset } = spot;
        if let Some(proven) = self.proven.filter(|proven| *proven > spot) {
            return Err(self.too_short(segment, offset, &bad.why, proven));
        }
        let (first, mut from) = bad.scan_from;
        for SegmentFile { number, path } in &self.segments[first..] {
            let scan = scan_markers(vfs, path, *number, from)?;
            from = 0;
            self.recovered.dropped_bytes += scan.data_bytes;
            let Some((through, at)) = scan.strongest.filter(|(through, _)| *through > spot) else {
                continue;
            };
            let detail = format!(
                "{}; a sync marker at offset {at} of segment {number} proves that the log was \
                 durable up to offset {} of segment {}, so synced writes would be lost. Restore \
                 the store from a checkpoint, or save what is left with `terrace repair`",
                bad.why, through.offset, through.segment
            );
            return Err(Error::corruption(self.path(segment), offset, detail));
        }
        if self.recovered.end.is_none() {
            self.recovered.end = Some(LogPosition { segment, offset });
        }
        self.recovered.torn =
            Some(format!("{} at offset {offset}: {}", self.path(segment).display(), bad.why));
        Ok(self.recovered.clone())
    }

    /// The path of a segment; of the first one for a segment that is missing.
    fn path(&self, segment: SegmentNumber) -> &Path {
        let index = self.segments.partition_point(|file| file.number < segment);
        let index = index.min(self.segments.len().saturating_sub(1));
        self.segments.get(index).map_or(Path::new(""), |file| &file.path)
    }
}

#[cfg(test)]
mod tests;
